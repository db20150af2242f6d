//! An instruction's references to memory in the order in which it makes them, for tools
//! that simulate memory: caches, translation buffers.
//!
//! Each operand in memory is one reference, also if it is read and then written. Operands that
//! are read come before operands that are only written. String instructions with a repeat prefix
//! repeat their references; gathers and scatters make one for each element.

use crate::Place::Before;
use crate::Repeat;
use crate::calls::typed::{AccessSizeOf, EffAddrOf};
use crate::navigation::handle::Inst;

/// How many times an instruction makes its references when it is executed once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Once.
    Once,
    /// Once for each element of a vector that its mask selects. A call with
    /// [`EffAddrOf`] is then made for each of them.
    Elements,
    /// [`RepCount`](crate::RepCount) times; the addresses go up or down by the size.
    Repeated,
    /// At most [`RepCount`](crate::RepCount) times, as a comparison may end it earlier. The number
    /// is known after the instruction.
    Compared,
}

/// An instruction's references.
#[derive(Clone, Debug)]
pub struct References {
    /// Numbers of the operands for [`EffAddrOf`], in the order in which they are accessed.
    pub operands: Vec<u8>,
    /// How many times they are made.
    pub times: Times,
}

impl Inst<'_> {
    /// Its references to memory; none if it makes none.
    pub fn references(&self) -> Option<References> {
        let mut operands: Vec<u8> = (0..4)
            .take_while(|n| self.offers(Before, EffAddrOf(*n)))
            .collect();
        if operands.is_empty() {
            return None;
        }
        let mut times = Times::Once;
        if operands.len() > 1 || may_repeat(self.bytes()) {
            let accesses = self.memory();
            let access = |operand: u8| accesses.get(usize::from(operand));
            times = match self.repeat() {
                _ if accesses.iter().any(|access| access.count > 1) => Times::Elements,
                Some(Repeat::Counted) => Times::Repeated,
                Some(Repeat::WhileEqual | Repeat::UntilEqual) => Times::Compared,
                Some(Repeat::Once) | None => Times::Once,
            };
            // `pop` and `movs` have their destination first.
            operands.sort_by_key(|n| !access(*n).is_some_and(|a| a.access.reads()));
        }
        Some(References { operands, times })
    }

    /// True if a call can pass the size of an operand; false if only the processor knows the size.
    pub fn has_access_size(&self, operand: u8) -> bool {
        self.offers(Before, AccessSizeOf(operand))
    }
}

/// Whether an instruction may repeat its references or make one for each element of a vector: it
/// has a repeat prefix, or it is encoded as gathers and scatters are (three-byte VEX, EVEX).
fn may_repeat(bytes: &[u8]) -> bool {
    const REPNE: u8 = 0xf2;
    const REP: u8 = 0xf3;
    const VEX: u8 = 0xc4;
    const EVEX: u8 = 0x62;
    let prefixes = bytes.iter().take(4);
    prefixes
        .into_iter()
        .any(|byte| [REPNE, REP, VEX, EVEX].contains(byte))
}

/// Analysis side: makes the references of a repeated instruction, `times` times from the
/// addresses `at` on; an address of 0 stands for no operand.
///
/// Calls `access` with an address and the number of accesses in a row that are in the same block
/// of memory; blocks have `line` bytes, a power of two. The first element of such a run comes
/// alone, so that all further elements of the run find the same state. `down` is the
/// [`Direction`](crate::Direction).
pub fn repeated(
    mut at: [u64; 2],
    times: u64,
    size: u64,
    down: u64,
    line: u64,
    mut access: impl FnMut(u64, u64),
) {
    let down = down != 0;
    let step = if down { size.wrapping_neg() } else { size };
    // Number of further elements that are in the same lines.
    let follow = |address: u64| {
        let offset = address & (line - 1);
        match () {
            _ if address == 0 => u64::MAX,
            _ if offset + size > line => 0,
            _ if down => offset / size,
            _ => (line - offset - size) / size,
        }
    };
    let mut left = match times.checked_mul(size) {
        Some(0) => 0,
        Some(bytes) if bytes <= MOST => times,
        _ => possible(at, times, size, down),
    };
    while left > 0 {
        let same = follow(at[0]).min(follow(at[1])).min(left - 1);
        // All elements of the run but the first find the same state.
        for (start, times) in [(0, 1), (1, same)] {
            for address in at.iter().filter(|a| **a != 0 && times > 0) {
                access(address.wrapping_add(step.wrapping_mul(start)), times);
            }
        }
        for address in at.iter_mut().filter(|a| **a != 0) {
            *address = address.wrapping_add(step.wrapping_mul(same + 1));
        }
        left -= same + 1;
    }
}

/// Number of bytes that a repeated instruction may reference before anyone asks whether there is memory for them.
const MOST: u64 = 1 << 32;

/// Returns the number of repetitions, `times` at most, that an instruction begins before it leaves the mapped memory. A
/// `memset` with a negative size asks for nearly 2^64 of them, and ends with a fault.
#[cold]
#[inline(never)]
fn possible(at: [u64; 2], times: u64, size: u64, down: bool) -> u64 {
    let is_mapped = |number: u64| {
        let Some(bytes) = number.checked_mul(size) else {
            return false;
        };
        at.iter().filter(|a| **a != 0).all(|a| {
            let lowest = a.wrapping_add(size).wrapping_sub(bytes);
            let start = if down { lowest } else { *a };
            is_mapped(start, bytes)
        })
    };
    // `low` repetitions have memory, `high` have none.
    let (mut low, mut high) = (0, times.saturating_add(1));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_mapped(middle) {
            low = middle
        } else {
            high = middle
        }
    }
    // The repetition that faults is a reference, too.
    times.min(low + 1)
}

/// Whether all pages of `bytes` bytes are mapped. The system call is made here: where a routine calls a function of a
/// library, all registers have to be saved.
fn is_mapped(start: u64, bytes: u64) -> bool {
    const SYS_MSYNC: u64 = 26;
    /// Starts nothing; only looks for the mappings.
    const ASYNC: u64 = 1;
    const PAGE: u64 = 4096;
    let first = start & !(PAGE - 1);
    let Some(end) = start.checked_add(bytes) else {
        return false;
    };
    let mut done = SYS_MSYNC;
    // SAFETY: the call changes no memory.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") done,
            in("rdi") first,
            in("rsi") end - first,
            in("rdx") ASYNC,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    done == 0
}

/// Analysis side: the addresses of the blocks of `line` bytes, a power of two, that `size` bytes at an address touch. A
/// reference beyond the end of the address space, which faults, touches the blocks up to the end.
#[inline(always)]
pub fn lines_of(address: u64, size: u64, line: u64) -> impl Iterator<Item = u64> {
    let start = |address: u64| address & !(line - 1);
    let first = start(address);
    let last = start(address.saturating_add(size.saturating_sub(1)));
    let number = if size == 0 {
        0
    } else {
        (last - first) / line + 1
    };
    (0..number).map(move |n| first + n * line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_end_where_the_address_space_ends() {
        let of = |address, size| lines_of(address, size, 64).collect::<Vec<_>>();
        assert_eq!(of(63, 1), [0]);
        assert_eq!(of(63, 2), [0, 64]);
        assert_eq!(of(64, 129), [64, 128, 192]);
        assert_eq!(of(64, 0), [0; 0]);
        assert_eq!(of(u64::MAX, 1), [u64::MAX - 63]);
        assert_eq!(of(u64::MAX - 70, 64), [u64::MAX - 127, u64::MAX - 63]);
        assert_eq!(of(u64::MAX - 6, 8), [u64::MAX - 63]);
    }

    #[test]
    fn repetitions_end_where_memory_ends() {
        let memory = [0u8; 100];
        let at = memory.as_ptr() as u64;
        let count = |at, times, size, down| {
            let mut seen = 0;
            repeated(at, times, size, down, 4096, |_, n| seen += n);
            seen
        };
        assert_eq!(count([at, at], 100, 1, 0), 200);
        for down in [0, 1] {
            for size in [1, 8] {
                let of_one = count([at, 0], u64::MAX, size, down);
                let of_two = count([at, at], u64::MAX, size, down);
                assert!((100 / size..MOST).contains(&of_one), "{of_one}");
                assert_eq!(of_two, 2 * of_one);
                assert_eq!(count([at, 0], u64::MAX / 8 + 2, size, down), of_one);
            }
        }
        // Page 1 has no memory; one repetition begins.
        assert_eq!(count([0x1008, 0], u64::MAX, 8, 0), 1);
    }

    #[test]
    fn runs_stay_within_their_lines() {
        let mut seen = Vec::new();
        repeated([60, 0], 3, 4, 0, 32, |a, n| seen.push((a, n)));
        assert_eq!(seen, [(60, 1), (64, 1), (68, 1)]);
        let (mut elements, mut runs) = (0, 0);
        repeated([0x1001, 0x2000], 1000, 8, 0, 32, |_, n| {
            elements += n;
            runs += 1;
        });
        assert_eq!(elements, 2000);
        // Of four elements, three are in one line of both; the fourth reaches into the next.
        assert_eq!(runs, 250 * (4 + 2));
        let mut seen = Vec::new();
        repeated([96, 0], 10, 8, 1, 32, |a, n| seen.push((a, n)));
        assert_eq!(seen, [(96, 1), (88, 1), (80, 3), (56, 1), (48, 3), (24, 1)]);
        repeated([96, 0], 10, 0, 0, 32, |_, _| panic!("no size"));
    }
}
