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
//! | `l` | length in bytes of the rest of the record, which need not be read if all counters are 0 |
//! | `s` | sums; then for each: its number of terms `t`, and `t` times distance * 2, + 1 if subtracted |
//! | `n` | cells; then for each: the offset in 8-byte words from the one before (signed, first from the data's start), distance * 2, + 1 if an amount follows; the amount (signed) that each unit of the value adds, else 1 |

use super::tree::Solution;

/// A cell that wants an edge's count.
pub struct CellOf {
    /// The edge.
    pub edge: u32,
    /// Offset of the cell in the plan's data, a multiple of 8.
    pub cell: u32,
    /// Number that is added each time.
    pub amount: i64,
}

/// Appends the record of a group. `None` if a cell wants the count of an edge that was not solved.
/// `value_of` has an entry for each edge, which is `u32::MAX` at first.
pub fn write(
    out: &mut Vec<u8>,
    value_of: &mut [u32],
    solution: &Solution,
    cells: impl ExactSizeIterator<Item = CellOf>,
) -> Option<()> {
    let mut next = 0u32;
    leb128::push(out, solution.counted.len() as u64);
    for &edge in &solution.counted {
        value_of[edge as usize] = next;
        next += 1;
    }
    let rest = out.len();
    let back = |value_of: &[u32], edge: u32, next: u32| next.checked_sub(value_of[edge as usize]);
    leb128::push(out, solution.derived.len() as u64);
    for derived in &solution.derived {
        leb128::push(out, derived.terms.len() as u64);
        for &(edge, minus) in solution.terms_of(derived) {
            let distance = back(value_of, edge, next)?;
            leb128::push(out, u64::from(distance) << 1 | u64::from(minus));
        }
        value_of[derived.edge as usize] = next;
        next += 1;
    }
    leb128::push(out, cells.len() as u64);
    let mut last = 0i64;
    for CellOf { edge, cell, amount } in cells {
        let word = i64::from(cell / 8);
        leb128::push(out, leb128::zigzag(word - last));
        last = word;
        let distance = back(value_of, edge, next)?;
        leb128::push(out, u64::from(distance) << 1 | u64::from(amount != 1));
        if amount != 1 {
            leb128::push(out, leb128::zigzag(amount));
        }
    }
    let mut length = Vec::new();
    leb128::push(&mut length, (out.len() - rest) as u64);
    out.splice(rest..rest, length);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Derived, Solution};
    use super::*;

    /// Reads a record by the description at the head of this file.
    fn read(bytes: &[u8], counters: &[i64]) -> Vec<(i64, i64)> {
        let mut rest = bytes;
        let count = leb128::take::<u64>(&mut rest).expect("a number") as usize;
        assert_eq!(count, counters.len());
        let length = leb128::take::<u64>(&mut rest).expect("a number");
        assert_eq!(length, rest.len() as u64);
        let mut number = || leb128::take::<u64>(&mut rest).expect("a number");
        let mut values = counters.to_vec();
        for _ in 0..number() {
            let mut sum = 0;
            for _ in 0..number() {
                let term = number();
                let value = values[values.len() - (term / 2) as usize];
                sum += if term & 1 == 0 { value } else { -value };
            }
            values.push(sum);
        }
        let mut cells = Vec::new();
        let mut word = 0;
        for _ in 0..number() {
            word += leb128::unzigzag(number());
            let what = number();
            let amount = if what & 1 == 0 {
                1
            } else {
                leb128::unzigzag(number())
            };
            let value = values[values.len() - (what / 2) as usize];
            cells.push((8 * word, value * amount));
        }
        assert_eq!(rest, [], "nothing is left over");
        cells
    }

    #[test]
    fn what_is_written_is_read() {
        let derived = |edge, terms| Derived { edge, terms };
        let solution = Solution {
            counted: vec![4, 1],
            derived: vec![derived(0, 0..2), derived(200, 2..4)],
            terms: vec![(4, false), (1, true), (0, false), (4, false)],
        };
        let cell = |edge, cell, amount| CellOf { edge, cell, amount };
        let cells = [
            cell(200, 80_000, 1),
            cell(1, 16, -7),
            cell(0, 24, 1 << 40),
            cell(4, 24, 1),
        ];
        let mut bytes = Vec::new();
        write(
            &mut bytes,
            &mut [u32::MAX; 201],
            &solution,
            cells.into_iter(),
        )
        .expect("all is solved");
        let expected = [(80_000, 190), (16, -70), (24, 90 << 40), (24, 100)];
        assert_eq!(read(&bytes, &[100, 10]), expected);
        let unsolved = [cell(7, 0, 1)];
        assert!(
            write(
                &mut Vec::new(),
                &mut [u32::MAX; 201],
                &solution,
                unsolved.into_iter()
            )
            .is_none()
        );
    }
}
