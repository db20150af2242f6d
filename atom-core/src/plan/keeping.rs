//! Keeping the program's flags around inserted instructions that change them.

use super::code::Asm;
use super::private_stack::PrivateStack;
use crate::live::RegSet;
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::{Gpr, Mem};

/// Flags that an insertion has to keep at its place, and how.
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
    /// The way to keep the flags in `changed` where these registers and flags are live.
    pub(super) fn of(live: RegSet, changed: RegSet) -> Self {
        // The unwind tables may find the frame by rbp even where the program does not
        // read it again.
        let frame = [Gpr::RSP.0, Gpr::RBP.0];
        let free = |r: &u8| !frame.contains(r) && live.gpr_mask() >> r & 1 == 0;
        let flags = if !live.intersects(changed) {
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

    /// True if nothing is kept.
    pub(super) fn is_nothing(self) -> bool {
        self.flags == FlagsIn::Nowhere
    }

    /// Saves the flags. `private` is set where rsp may lead to data.
    pub(super) fn save(self, asm: &mut Asm, private: Option<PrivateStack>) {
        match (self.flags, private) {
            (FlagsIn::Nowhere, _) => return,
            (FlagsIn::Ax, _) => {}
            (FlagsIn::AxFor(keeper), _) => asm.mov(Gpr(keeper), Gpr::RAX),
            (FlagsIn::AxForStack, Some(private)) => private.keep(asm, Gpr::RAX),
            (FlagsIn::AxForStack, None) => {
                asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, -RED_ZONE));
                asm.push(Gpr::RAX);
            }
        }
        asm.flags_to_ax(self.overflow);
    }

    /// Restores the flags that [`Keeping::save`] saved.
    pub(super) fn restore(self, asm: &mut Asm, private: Option<PrivateStack>) {
        if self.is_nothing() {
            return;
        }
        asm.flags_from_ax(self.overflow);
        match (self.flags, private) {
            (FlagsIn::Nowhere | FlagsIn::Ax, _) => {}
            (FlagsIn::AxFor(keeper), _) => asm.mov(Gpr::RAX, Gpr(keeper)),
            (FlagsIn::AxForStack, Some(private)) => private.take_back(asm, Gpr::RAX),
            (FlagsIn::AxForStack, None) => {
                asm.pop(Gpr::RAX);
                asm.lea(Gpr::RSP, Mem::at(Gpr::RSP, RED_ZONE));
            }
        }
    }
}
