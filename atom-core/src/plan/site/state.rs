//! What is true at a place of the code at a point, and where the paths of a body meet.

use crate::x86::asm::{Gpr, Patch};

/// What is true at a place of the point's code. At a branch it is copied; where paths meet, what is true on each is true.
#[derive(Clone, Copy)]
pub(super) struct State {
    /// Mask of the general registers that still hold the program's values. A live register that does not is
    /// in `gprs` of the needs, or in `saved`.
    pub(super) intact: u16,
    /// True while the arithmetic flags are the program's.
    pub(super) flags_intact: bool,
    /// Bytes from the program's rsp down to the present rsp. On a private stack, from the word that holds the program's
    /// rsp.
    pub(super) depth: i32,
    /// Mask of the registers that are saved on the stack until the end of the point, or of the call on a cold path.
    pub(super) saved: u16,
    /// Depth in bytes of each saved register.
    pub(super) slots: [i32; 16],
    /// Depth in bytes of the saved flags.
    pub(super) flags_slot: i32,
    /// True if all flags are on the stack, and the direction flag is clear.
    pub(super) flags_pushed: bool,
    /// True while the arithmetic flags are in ax.
    pub(super) flags_in_ax: bool,
    /// On a path other than the straight one: mask of the registers that were intact where it began.
    pub(super) cold_intact: Option<u16>,
    /// Mask of the registers that nothing may write to now: rsp, and those that keep flags or a register for
    /// the program.
    pub(super) reserved: u16,
}

impl State {
    /// At the point, before the calls. `depth` is the number of bytes that were pushed before.
    pub(super) fn at_point(depth: i32) -> Self {
        Self {
            intact: !0,
            flags_intact: true,
            depth,
            saved: 0,
            slots: [0; 16],
            flags_slot: 0,
            flags_pushed: false,
            flags_in_ax: false,
            cold_intact: None,
            reserved: Gpr::RSP.bit(),
        }
    }
}

/// Where paths through a body end.
pub(super) struct Ends {
    /// Jumps there from the same part of the code.
    pub(super) near: Vec<Patch>,
    /// Jumps from the cold part to the end in the main part, by the numbers of their fixups.
    pub(super) far: Vec<usize>,
    /// True if the paths are in the cold part and the end is not.
    pub(super) are_far: bool,
    /// Mask of the registers that hold the program's values at each end.
    pub(super) intact: u16,
    /// True if the arithmetic flags are the program's at each end.
    pub(super) flags_intact: bool,
}

impl Ends {
    /// No ends yet.
    pub(super) fn new(are_far: bool) -> Self {
        Self {
            near: Vec::new(),
            far: Vec::new(),
            are_far,
            intact: !0,
            flags_intact: true,
        }
    }

    /// Notes what is true at one more end.
    pub(super) fn meet(&mut self, intact: u16, flags_intact: bool) {
        self.intact &= intact;
        self.flags_intact &= flags_intact;
    }
}
