//! A return-address stack, simulated in line.
//!
//! Calls put their return address on the stack, returns take one away; it is a ring of [`DEPTH`] addresses, so a deeper
//! call overwrites the oldest one. Calls of code that is not instrumented put nothing on it, because the returns of
//! that code are not seen; for the same reason a return to such code takes nothing away.
//!
//! In a whole process the stack has the *places* of return addresses in memory, the value of rsp: a return to another
//! object has the address of that object's new text, which cannot be compared with the original's. A return from the place
//! that the last call wrote to is right.

use std::sync::atomic::{AtomicU64, Ordering};

use atom_tool::prelude::*;
use atom_tool::{ThreadCell, thread_state};

/// Number of return addresses.
pub const DEPTH: usize = 16;

/// Cells of a return's counter: wrong predictions, returns to code that is not instrumented.
pub const WRONG: usize = 0;
pub const OUTSIDE: usize = 1;

thread_state! {
    /// A thread's return-address stack.
    pub struct Returns {
        /// Number of addresses that were put on the stack and not taken away; it wraps around.
        top: ThreadCell<u64>,
        /// Addresses, or places.
        entries: [ThreadCell<u64>; DEPTH],
    }
}

/// Run-time address of the instrumented code, and its size. The size wraps around if code is everywhere but in a gap.
static CODE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(u64::MAX)];

/// Sets where instrumented code is: from one address to another one. `None` for a whole process, where it is
/// everywhere but in the kernel's page of system calls.
pub fn begin(range: Option<(u64, u64)>) {
    let (start, end) = match range {
        Some(range) => range,
        None => match kernel_code() {
            Some((start, end)) => (end, start),
            None => return,
        },
    };
    CODE[0].store(start, Ordering::Relaxed);
    CODE[1].store(end.wrapping_sub(start), Ordering::Relaxed);
}

/// The addresses of the kernel's code in the process (vDSO).
fn kernel_code() -> Option<(u64, u64)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_once(' ')?.0.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some((number(start)?, number(end)?))
}

#[inline(always)]
fn is_instrumented(target: u64) -> bool {
    let [start, size] = [0, 1].map(|i: usize| CODE[i].load(Ordering::Relaxed));
    target.wrapping_sub(start) < size
}

impl Returns {
    #[inline(always)]
    fn entry(&self, number: u64) -> &ThreadCell<u64> {
        &self.entries[number as usize % DEPTH]
    }

    /// A call.
    #[inline(always)]
    pub fn push(&self, entry: u64) {
        let top = self.top.get();
        self.entry(top).set(entry);
        self.top.set(top.wrapping_add(1));
    }

    /// A call through a pointer, which may lead to code that is not instrumented.
    #[inline(always)]
    pub fn push_if_seen(&self, entry: u64, target: u64) {
        if is_instrumented(target) {
            self.push(entry);
        }
    }

    /// A return to an address.
    #[inline(always)]
    pub fn pop(&self, target: u64, count: Counter<2>) {
        let top = self.top.get().wrapping_sub(1);
        if self.entry(top).get() == target {
            self.top.set(top);
        } else {
            self.mispredict(target, count);
        }
    }

    /// A return from a place.
    #[inline(always)]
    pub fn pop_place(&self, place: u64, count: Counter<2>) {
        let top = self.top.get().wrapping_sub(1);
        let is_wrong = self.entry(top).get() != place;
        self.top.set(top);
        if is_wrong {
            count.add_to(WRONG, 1);
        }
    }

    #[cold]
    #[inline(never)]
    fn mispredict(&self, target: u64, count: Counter<2>) {
        if is_instrumented(target) {
            self.top.add(u64::MAX);
            count.add_to(WRONG, 1);
        } else {
            count.add_to(OUTSIDE, 1);
        }
    }
}
