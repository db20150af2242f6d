//! What lists need of their unit, and what is added to numbers of a unit once the parts of sections are placed.

use super::bytes::Cursor;
use super::input::Input;

/// Facts about a unit, known once its first entry is read.
pub(super) struct Context {
    pub version: u16,
    pub offset_size: usize,
    /// Offset in `.debug_addr` from which addresses by index count.
    pub addr_base: u64,
    /// Base address of the unit's lists.
    pub low_pc: u64,
}

impl Context {
    /// An address of `.debug_addr`.
    pub fn indexed_address(&self, input: &Input<'_>, index: u64) -> Option<u64> {
        let at = self.addr_base.checked_add(index.checked_mul(8)?)?;
        Cursor::new(&input.addr, usize::try_from(at).ok()?).u64()
    }
}

/// A section of the output from whose part a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// The file's part of `.debug_info`.
    Info,
    /// This unit's range lists.
    Ranges,
    /// This unit's location lists.
    Locations,
}

/// A number of a unit to which the start of a section's part is added.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fixup {
    pub at: usize,
    pub size: usize,
    pub target: Target,
}
