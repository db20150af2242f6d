//! The table from which the runtime computes totals.
//!
//! One record for each group, of unsigned LEB128 numbers. A record computes
//! *values*, numbered from 0: first those of its counters, which follow those
//! of the record before; then sums of earlier values; last it adds values to
//! cells. A value is named by its distance back from the next one. Signed
//! numbers are folded: 0, -1, 1, -2 are written as 0, 1, 2, 3.
//!
//! | number | meaning |
//! | --- | --- |
//! | `c` | counters |
//! | `s` | sums; then for each: its number of terms `t`, and `t` times distance * 2, + 1 if subtracted |
//! | `n` | cells; then for each: the offset in 8-byte words from the one before (signed, first from the data's start), distance * 2, + 1 if an amount follows; the amount (signed) that each unit of the value adds, else 1 |

use super::tree::Solution;

/// A cell that wants an edge's count.
pub struct CellOf {
    /// The edge.
    pub edge: u32,
    /// Offset of the cell in the data, a multiple of 8.
    pub cell: u32,
    /// What is added each time.
    pub amount: i64,
}

/// Appends the record of a group of so many edges. `None` if a cell wants what was not solved.
pub fn write(
    out: &mut Vec<u8>,
    edges: usize,
    solution: &Solution,
    cells: impl ExactSizeIterator<Item = CellOf>,
) -> Option<()> {
    let mut value_of = vec![u32::MAX; edges];
    let mut next = 0u32;
    number(out, solution.counted.len() as u64);
    for &edge in &solution.counted {
        value_of[edge as usize] = next;
        next += 1;
    }
    let back = |value_of: &[u32], edge: u32, next: u32| next.checked_sub(value_of[edge as usize]);
    number(out, solution.derived.len() as u64);
    for derived in &solution.derived {
        number(out, derived.terms.len() as u64);
        for &(edge, minus) in &derived.terms {
            let distance = back(&value_of, edge, next)?;
            number(out, u64::from(distance) << 1 | u64::from(minus));
        }
        value_of[derived.edge as usize] = next;
        next += 1;
    }
    number(out, cells.len() as u64);
    let mut last = 0i64;
    for CellOf { edge, cell, amount } in cells {
        let word = i64::from(cell / 8);
        number(out, folded(word - last));
        last = word;
        let distance = back(&value_of, edge, next)?;
        number(out, u64::from(distance) << 1 | u64::from(amount != 1));
        if amount != 1 {
            number(out, folded(amount));
        }
    }
    Some(())
}

fn folded(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
