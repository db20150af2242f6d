//! The instructions of a counter: one increment, and around it the saving of flags.

use crate::live::RegSet;
use crate::plan::code::{Asm, Target};
use crate::plan::private_stack::PrivateStack;
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::{Gpr, Mem};

/// Flags that `inc` changes.
pub const CHANGED: RegSet = RegSet::FLAGS.without(RegSet::CF);

/// Flags that an increment has to keep at its place, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keeping {
    /// Where the flags that it changes are kept.
    flags: FlagsIn,
    /// True if the overflow flag is one of them.
    overflow: bool,
}

/// Where flags are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlagsIn {
    /// Nowhere, as nothing reads them.
    Nowhere,
    /// In ax, which is free.
    Ax,
    /// In ax, whose contents are kept in this register.
    AxFor(u8),
    /// In ax, whose contents are kept on the stack.
    AxForStack,
}

impl Keeping {
    /// The way to keep flags where these registers and flags are live.
    pub fn of(live: RegSet) -> Self {
        // The unwind tables may find the frame by rbp even where the program does not
        // read it again.
        let frame = [Gpr::RSP.0, Gpr::RBP.0];
        let free = |r: &u8| !frame.contains(r) && live.gpr_mask() >> r & 1 == 0;
        let flags = if !live.intersects(CHANGED) {
            FlagsIn::Nowhere
        } else if free(&Gpr::RAX.0) {
            FlagsIn::Ax
        } else {
            (0..16)
                .find(free)
                .map_or(FlagsIn::AxForStack, FlagsIn::AxFor)
        };
        Self {
            flags,
            overflow: live.intersects(RegSet::OF),
        }
    }
}

/// Increments a cell in one instruction. `private` is set where rsp may lead to data.
pub(super) fn emit(
    asm: &mut Asm,
    cell: Target,
    prefix: Option<u8>,
    keeping: Keeping,
    private: Option<PrivateStack>,
) {
    let increment = |asm: &mut Asm| {
        asm.flags_to_ax(keeping.overflow);
        asm.increment(cell, prefix);
        asm.flags_from_ax(keeping.overflow);
    };
    match keeping.flags {
        FlagsIn::Nowhere => asm.increment(cell, prefix),
        FlagsIn::Ax => increment(asm),
        FlagsIn::AxFor(spill) => {
            asm.mov(Gpr(spill), Gpr::RAX);
            increment(asm);
            asm.mov(Gpr::RAX, Gpr(spill));
        }
        FlagsIn::AxForStack => match private {
            Some(private) => {
                private.keep(asm, Gpr::RAX);
                increment(asm);
                private.take_back(asm, Gpr::RAX);
            }
            None => {
                asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, -RED_ZONE));
                asm.push(Gpr::RAX);
                increment(asm);
                asm.pop(Gpr::RAX);
                asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, RED_ZONE));
            }
        },
    }
}
