//! Variables on the stack, which exist while their procedure runs.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;

use crate::heap::Calls;
use crate::live::{self, Live, Variable};

/// Frames that are further apart than this (in bytes) are on different stacks.
const STACK: u64 = 8 << 20;

plain_data! {
    /// A variable on the stack that is a range.
    pub struct StackVariable {
        /// Offset in bytes from rsp before the call that entered its procedure.
        pub offset: i64,
        /// In bytes.
        pub size: u64,
        /// Number of its procedure among those with such variables.
        pub proc: u32,
        /// Number of its range.
        pub range: u32,
    }
}

/// The variables of each procedure.
type Known = Vec<Vec<StackVariable>>;
/// The variables, and whether a range is the variable of the innermost call only.
static KNOWN: OnceLock<(Known, bool)> = OnceLock::new();

/// Begins with the variables. `innermost` says that a range is the variable of the innermost call only.
pub fn begin(variables: &[StackVariable], innermost: bool) {
    let mut known: Known = Vec::new();
    for variable in variables {
        let proc = variable.proc as usize;
        if known.len() <= proc {
            known.resize_with(proc + 1, Vec::new);
        }
        known[proc].push(*variable);
    }
    let _ = KNOWN.set((known, innermost));
}

fn same_stack(a: u64, b: u64) -> bool {
    a.abs_diff(b) < STACK
}

impl Live {
    /// Forgets the variables of a thread for which `is_over` says so.
    fn forget(&mut self, thread: u64, is_over: impl Fn(&Variable) -> bool) {
        let mut i = 0;
        while let Some(variable) = self.variables.get(i).copied() {
            if variable.thread == thread && is_over(&variable) {
                self.variables.remove(i);
                if !variable.is_hidden {
                    self.vanish(&[variable.range], variable.start, variable.size);
                }
            } else {
                i += 1;
            }
        }
    }

    /// Of the variables of a range on one stack, shows only the variable of the innermost call.
    fn show_innermost(&mut self, thread: u64, range: u32, frame: u64) {
        let mine =
            |v: &Variable| v.thread == thread && v.range == range && same_stack(v.frame, frame);
        let lowest = self.variables.iter().filter(|v| mine(v)).map(|v| v.frame);
        let lowest = lowest.min();
        for i in 0..self.variables.len() {
            let variable = self.variables[i];
            let hide = Some(variable.frame) != lowest;
            if !mine(&variable) || hide == variable.is_hidden {
                continue;
            }
            self.variables[i].is_hidden = hide;
            if hide {
                self.vanish(&[range], variable.start, variable.size);
            } else {
                self.appear(&[range], variable.start, variable.size);
                if let Some(range) = live::ranges().get(range as usize) {
                    range.times.fetch_sub(1, Relaxed);
                }
            }
        }
    }
}

/// The procedure is entered; rsp points to its return address.
#[analysis]
pub fn entered(calls: PerThread<Calls>, proc: u32, sp: u64) {
    let Some((known, innermost)) = KNOWN.get() else {
        return;
    };
    let (thread, frame) = (thread_of(&calls), sp + 8);
    let Some(variables) = known.get(proc as usize) else {
        return;
    };
    live::locked(|live| {
        // Frames below this one have been left: by a return, a jump or an exception.
        live.forget(thread, |v| v.frame <= frame && same_stack(v.frame, frame));
        for StackVariable {
            range,
            offset,
            size,
            ..
        } in variables
        {
            let (range, start) = (*range, frame.wrapping_add_signed(*offset));
            live.variables.push(Variable {
                thread,
                frame,
                range,
                start,
                size: *size,
                is_hidden: false,
            });
            live.appear(&[range], start, *size);
            if *innermost {
                live.show_innermost(thread, range, frame);
            }
        }
    });
}

/// The procedure is left; rsp points to its return address again.
#[analysis]
pub fn left(calls: PerThread<Calls>, proc: u32, sp: u64) {
    let Some((known, innermost)) = KNOWN.get() else {
        return;
    };
    let (thread, frame) = (thread_of(&calls), sp + 8);
    live::locked(|live| {
        live.forget(thread, |v| v.frame <= frame && same_stack(v.frame, frame));
        if *innermost {
            for variable in known.get(proc as usize).into_iter().flatten() {
                live.show_innermost(thread, variable.range, frame);
            }
        }
    });
}

/// Control has come back to a frame with this rsp, perhaps past procedures that did not return.
#[analysis]
pub fn back(calls: PerThread<Calls>, sp: u64) {
    let thread = thread_of(&calls);
    live::locked(|live| {
        live.forget(thread, |v| v.frame <= sp && same_stack(v.frame, sp));
    });
}

/// A value that identifies a thread, also in a forked child: the address of its state.
fn thread_of(calls: &Calls) -> u64 {
    std::ptr::from_ref(calls).addr() as u64
}
