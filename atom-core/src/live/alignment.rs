//! Whether a program may have the processor check alignment.
//!
//! While the flag AC is set, an access to an address that is no multiple of its size raises SIGBUS. Compiled code makes
//! such accesses, analysis routines included. A program sets the flag by `popf`, with flags that it has pushed and
//! changed, or with flags that come from elsewhere. Code that only saves and restores its flags does not set it.

use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::image::Image;
use crate::x86::{Mnemonic, OpKind};

/// The flag AC, and its number.
const AC: u64 = 1 << 18;
const AC_NUMBER: u64 = 18;

/// True if a procedure with a `popf` may set the flag: it has a constant that contains the flag, or it does not push
/// the flags by itself.
pub(super) fn may_set_check(image: &Image, cfg: &Cfg, id: ProcId) -> bool {
    let mut pushes = false;
    for b in cfg.proc(id).blocks() {
        for instruction in cfg.decode_block(image, b) {
            pushes |= matches!(instruction.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfq);
            let is_bit = matches!(
                instruction.mnemonic(),
                Mnemonic::Bts | Mnemonic::Btc | Mnemonic::Rol | Mnemonic::Shl
            );
            let has_flag = (0..instruction.op_count()).any(|operand| {
                // Displacements of branches are no constants.
                let is_branch = instruction.op_kind(operand) == OpKind::NearBranch64;
                let constant = instruction.try_immediate(operand).unwrap_or_default();
                !is_branch && (constant & AC != 0 || is_bit && constant == AC_NUMBER)
            });
            if has_flag {
                return true;
            }
        }
    }
    !pushes
}
