//! Calls through a register of functions that the compiler knew.
//!
//! Under `-mcmodel=large` a function may be farther away than a direct call reaches, so its address is
//! computed from 64-bit constants and called through a register:
//! `movabs $function-GOT,%rax; add %r15,%rax; call *%rax`. As with a direct call, the compiler knows the
//! callee and which registers the callee leaves alone. This module does not find out which
//! function is called: it may be any function of the program.

use crate::x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// Smallest length in bytes of an instruction that loads a 64-bit constant.
pub const CONSTANT: u8 = 10;

/// True if the register of the call `last` is computed from a 64-bit constant by `block`, the
/// instructions in front of the call.
pub fn is_far(last: &Instruction, block: impl Iterator<Item = Instruction>) -> bool {
    if last.op_count() == 0 || last.op0_kind() != OpKind::Register {
        return false;
    }
    let bit = |register: Register| {
        let full = register.full_register();
        if full.is_gpr64() {
            1u32 << full.number()
        } else {
            0
        }
    };
    // Registers that hold a 64-bit constant or a sum with one, as a bit mask.
    let mut far = 0u32;
    for i in block {
        if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
            continue;
        }
        let to = bit(i.op0_register());
        let from = match i.code() {
            Code::Mov_r64_imm64 => {
                far |= to;
                continue;
            }
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if i.op1_kind() == OpKind::Register => {
                bit(i.op1_register())
            }
            Code::Add_r64_rm64 | Code::Add_rm64_r64 if i.op1_kind() == OpKind::Register => {
                to | bit(i.op1_register())
            }
            Code::Lea_r64_m => bit(i.memory_base()) | bit(i.memory_index()),
            _ if matches!(
                i.mnemonic(),
                Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
            ) =>
            {
                continue;
            }
            _ => 0,
        };
        far = if from & far != 0 { far | to } else { far & !to };
    }
    far & bit(last.op0_register()) != 0
}
