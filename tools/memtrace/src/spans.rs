//! Where the references of a batch are, for each of its values: most entries are decided by that, without a look at single
//! references.

use mem_trace::MOST_VALUES;

atom_tool::plain_data! {
    /// Addresses from `start` to `end`, which does not belong to them.
    pub struct Addresses {
        pub start: u64,
        pub end: u64,
    }
}

/// Number of sets of values.
pub const SETS: usize = 1 << MOST_VALUES;

/// The memory that references with one value span.
#[derive(Clone, Copy, Default)]
struct Span {
    /// Distance of its first byte from the value.
    first: u64,
    /// Its length in bytes; 0 if no reference has the value.
    len: u64,
}

/// The spans of a batch. What few values need is together.
#[repr(C)]
pub struct Spans {
    /// Number of values up to the last one that references have.
    values: usize,
    /// The values that references have, by bits.
    used: usize,
    spans: [Span; MOST_VALUES],
}

impl Spans {
    /// The spans of references, each with the number of its value, its distance from it and its size. `None` if these
    /// references have to be looked at one by one.
    pub fn new(references: &[(usize, u64, u64)]) -> Option<Self> {
        let mut bounds = [(i64::MAX, i64::MIN); MOST_VALUES];
        for &(value, offset, size) in references {
            let first = offset as i64;
            let end = first.checked_add(i64::try_from(size).ok()?)?;
            // An access without bytes touches nothing where a range begins.
            if size == 0 {
                return None;
            }
            let bound = bounds.get_mut(value)?;
            *bound = (bound.0.min(first), bound.1.max(end));
        }
        let mut found = Self {
            spans: [Span::default(); MOST_VALUES],
            values: 0,
            used: 0,
        };
        for (value, (first, end)) in bounds.into_iter().enumerate() {
            if first < end {
                let len = end.checked_sub(first)? as u64;
                let first = first as u64;
                found.spans[value] = Span { first, len };
                found.values = value + 1;
                found.used |= 1 << value;
            }
        }
        Some(found)
    }

    /// The values whose references all fit, by bits, where those of the other values do not fit; `None` if references of
    /// one value differ, or may. `value` gives a value by its number.
    #[inline(always)]
    pub fn fitting(&self, ranges: &[Addresses], value: impl Fn(usize) -> u64) -> Option<usize> {
        let mut fitting = 0;
        for (i, span) in self.spans.iter().enumerate().take(self.values) {
            let start = value(i).wrapping_add(span.first);
            let end = start.checked_add(span.len)?;
            for range in ranges {
                if start >= range.end || end <= range.start {
                    continue;
                }
                if start < range.start || end > range.end {
                    return None;
                }
                fitting |= 1 << i;
                break;
            }
        }
        Some(fitting & self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_decide_for_all_references_of_a_value() {
        let references = [(0, 8, 8), (0, -16i64 as u64, 4), (2, 0, 1)];
        let spans = Spans::new(&references).unwrap();
        assert_eq!((spans.used, spans.values), (0b101, 3));
        let ranges = [(0x100, 0x200), (0x1000, 0x1010)];
        let ranges = ranges.map(|(start, end)| Addresses { start, end });
        let fitting = |a, b| spans.fitting(&ranges, |i| [a, 0x150, b, 0x150][i]);
        // The first value's span reaches from -16 to 16.
        assert_eq!(fitting(0x110, 0), Some(0b1));
        assert_eq!(fitting(0x1f0, 0x100f), Some(0b101));
        assert_eq!(fitting(0x1f1, 0), None);
        assert_eq!(fitting(0x10f, 0), None);
        assert_eq!(fitting(0xf0, 0x1010), Some(0));
        assert_eq!(fitting(0x210, 0xff), Some(0));
        assert_eq!(fitting(0x1008, 0), None);
        // An address that wraps around.
        assert_eq!(fitting(u64::MAX - 4, 0), None);
        assert!(Spans::new(&[(0, 0, 0)]).is_none());
        assert_eq!(Spans::new(&[]).unwrap().used, 0);
    }
}
