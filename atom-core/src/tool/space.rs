//! Space that pieces of placed data may grow into.
//!
//! When a library is instrumented while the program runs, the instrument routine runs again, with the library after it
//! the objects that are there. It places the same pieces of data again, some of them longer. Each piece has to begin
//! where the running process has it, so each is given more addresses than it needs at first.

use crate::error::{Error, Result};

/// Bytes from which a piece may be a table with an entry for each procedure, block or instruction.
const TABLE: usize = 4096;
/// Bytes of space for a shorter piece.
const SMALL: usize = 1 << 16;
/// Space for a table, as a multiple of its size, and its bounds in bytes.
const TIMES: usize = 16;
const LEAST: usize = 12 << 20;
const MOST: usize = 64 << 20;

/// Bytes of data and of space that are much.
const MUCH: usize = 384 << 20;

/// Which space pieces have.
#[derive(Clone, Default, Debug)]
pub enum Space {
    /// None: pieces follow each other.
    #[default]
    None,
    /// Enough for libraries that come later.
    Ample,
    /// The space in bytes that each piece had in an earlier run of the instrument routine.
    Kept(Vec<u32>),
}

/// Size in bytes of a piece, and of the space in which it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset of the piece.
    pub start: u32,
    /// Size of the piece.
    pub size: u32,
    /// Size of its space.
    pub space: u32,
}

impl Space {
    /// The space in bytes for the piece with this number, which has `len` bytes. `used` bytes of data and of space are there
    /// already: when there is much, pieces get no more space than they need.
    pub(super) fn of(&self, number: usize, len: usize, used: usize) -> Result<usize> {
        match self {
            Self::None => Ok(len),
            // A tool places nothing to find out where the next piece will be.
            _ if len == 0 => Ok(0),
            Self::Ample if used > MUCH => Ok(len),
            Self::Ample if len < TABLE => Ok(len + SMALL),
            Self::Ample => Ok(len + (TIMES * len).clamp(LEAST, MOST)),
            Self::Kept(spaces) => match spaces.get(number) {
                Some(space) if *space as usize >= len => Ok(*space as usize),
                _ => Err(Error::new(
                    "placing the tool's data",
                    "with the library it is larger than its space",
                )),
            },
        }
    }
}
