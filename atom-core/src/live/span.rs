//! Some blocks of a procedure.

use std::ops::Range;

/// Blocks of a procedure, by number, that something may have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// The number of blocks up to the last one of them; 0: there is none.
    end: u32,
    /// The first one, counted down from the largest number.
    before: u32,
}

impl Span {
    /// One block.
    pub fn one(block: u32) -> Self {
        Self::of(block..block + 1)
    }

    /// These.
    pub fn of(blocks: Range<u32>) -> Self {
        match blocks.is_empty() {
            true => Self::default(),
            false => Self {
                end: blocks.end,
                before: u32::MAX - blocks.start,
            },
        }
    }

    /// The blocks, with those that lie between them.
    pub fn blocks(self) -> Range<u32> {
        u32::MAX - self.before..self.end
    }

    /// Both, and what lies between.
    pub fn with(self, other: Self) -> Self {
        Self {
            end: self.end.max(other.end),
            before: self.before.max(other.before),
        }
    }

    /// As one number; 0 if it is empty.
    pub fn to_bits(self) -> u64 {
        u64::from(self.end) << 32 | u64::from(self.before)
    }

    /// Back from the number.
    pub fn from_bits(bits: u64) -> Self {
        Self {
            end: (bits >> 32) as u32,
            before: bits as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Span;

    #[test]
    fn spans_are_joined() {
        assert!(Span::default().blocks().is_empty());
        assert_eq!(Span::of(7..7), Span::default());
        assert_eq!(Span::default().to_bits(), 0);
        let joined = Span::one(3).with(Span::of(5..9)).with(Span::default());
        assert_eq!(joined.blocks(), 3..9);
        assert_eq!(Span::from_bits(joined.to_bits()), joined);
        assert_eq!(Span::one(0).with(Span::one(2)).blocks(), 0..3);
    }
}
