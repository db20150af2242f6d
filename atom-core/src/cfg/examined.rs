//! What a body keeps from one round to the next: what is known of its indirect jumps, of their tables, and of its traps.

use std::sync::Arc;

/// The parts of a jump through a relative table.
#[derive(Debug)]
pub(super) struct TableUse {
    /// Address of the instruction that loads an entry.
    pub load: u64,
    /// Address of the table, if it is known.
    pub table: Option<u64>,
    /// Size of an entry in bytes.
    pub entry_size: u8,
    /// Address that is added to an entry, if it is known; `None` too if entries are addresses.
    pub relative_to: Option<u64>,
    /// Address of a table of bytes whose values are the indices, if there is one.
    pub bytes: Option<u64>,
    /// Number of entries, if the code tells something of it.
    pub bound: Option<Bound>,
}

/// Number of entries of a table, by the code before the jump.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bound {
    /// By a comparison.
    Exact(u32),
    /// By a mask of the index, which may never have some of its values.
    AtMost(u32),
}

/// How the jumps of one procedure use tables, as far as the procedure's own code tells.
#[derive(Debug, Default)]
pub(super) struct JumpUses {
    /// The jumps that use a table, in the order of [`Body::indirect_jumps`](super::traverse::Body::indirect_jumps).
    pub uses: Vec<(u64, TableUse)>,
    /// True if all other jumps go to stored pointers.
    pub others_are_pointers: bool,
}

/// What tables depend on beside their procedure. As long as none of it changes, the same tables are found again.
#[derive(Clone, Debug, Default)]
pub(super) struct Dependencies {
    /// True if more entries may be found if more may be taken of a table whose size is not known.
    pub is_limited: bool,
    /// First and last byte of each place where a reference to data would cut a table.
    pub uncut: Vec<(u64, u64)>,
    /// Addresses outside of the procedure at which no instruction is known, and where there may be code or not.
    pub outside: Vec<u64>,
}

/// The start of the body at an address with the number of its changes, if there is one.
pub(super) type Place = Option<(u64, u32)>;

/// What was found in the jump tables of a body.
#[derive(Clone, Debug, Default)]
pub(super) struct Examined {
    /// [`Body::changes`](super::traverse::Body::changes) at that time; `None` if the body was not examined.
    pub changes: Option<u32>,
    /// What its jumps do, which depends on the body alone.
    pub jumps: Arc<JumpUses>,
    /// True if the tables cannot give new targets until the body changes.
    pub is_settled: bool,
    /// True if these are all tables, and their sizes are known.
    pub are_complete: bool,
    /// Number of entries that were taken at most of a table whose size is not known.
    pub limit: usize,
    /// Targets that were no leaders.
    pub targets: Vec<u64>,
    /// What the tables depend on beside the body.
    pub depends: Dependencies,
    /// What lay at the addresses outside of the body.
    pub outside: Vec<Place>,
}

/// The traps of a body with possible code after them, as indices of its instructions.
#[derive(Clone, Debug, Default)]
pub(super) struct Traps {
    /// [`Body::changes`](super::traverse::Body::changes) when they were looked for; `None` if that was never so.
    pub changes: Option<u32>,
    /// Those that control may certainly reach.
    pub certain: Vec<usize>,
    /// Those that are reached only from the returns of calls, so that the callees decide, each with these.
    pub open: Vec<(usize, Vec<Callee>)>,
}

impl Traps {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.certain.is_empty() && self.open.is_empty()
    }
}

/// Where a call in front of a trap leads.
#[derive(Clone, Copy, Debug)]
pub(super) enum Callee {
    /// To an address.
    Address(u64),
    /// To the address in a slot.
    Slot(u64),
    /// Anywhere.
    Unknown,
}
