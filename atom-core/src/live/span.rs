//! A contiguous range of a procedure's blocks.

use std::ops::Range;

/// A contiguous range of a procedure's blocks, by their numbers in the procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Number of the last block plus 1; 0 if the span is empty.
    end: u32,
    /// `u32::MAX` minus the number of the first block, so that joining spans is taking maxima.
    before: u32,
}

impl Span {
    /// The span of one block.
    pub fn one(block: u32) -> Self {
        Self::of(block..block + 1)
    }

    /// The span of a range of blocks.
    pub fn of(blocks: Range<u32>) -> Self {
        if blocks.is_empty() {
            Self::default()
        } else {
            Self {
                end: blocks.end,
                before: u32::MAX - blocks.start,
            }
        }
    }

    /// The blocks of the span.
    pub fn blocks(self) -> Range<u32> {
        u32::MAX - self.before..self.end
    }

    /// The smallest span that contains both spans.
    pub fn with(self, other: Self) -> Self {
        Self {
            end: self.end.max(other.end),
            before: self.before.max(other.before),
        }
    }

    /// The span as one number; 0 if it is empty.
    pub fn to_bits(self) -> u64 {
        u64::from(self.end) << 32 | u64::from(self.before)
    }

    /// The span that [`Span::to_bits`] has made a number of.
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
