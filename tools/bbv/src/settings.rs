//! The user's choices, from the command line into the program.

use std::sync::OnceLock;

use atom_tool::plain_data;

use crate::States;
use crate::blocks::BlockList;

plain_data! {
    /// The settings as they cross to the analysis half. Texts are keys of a list of strings.
    pub struct SettingsData {
        /// Length of an interval in instructions.
        pub interval: u64,
        /// Key of the file of vectors.
        pub vectors: u32,
        /// Key of the file of blocks.
        pub blocks: u32,
        /// Key of the program's name.
        pub program: u32,
        pub _unused: [u8; 4],
    }
}

/// What stays the same during a run, but for tables that become longer when a library is added.
pub struct Run {
    /// Length of an interval in instructions.
    pub interval: u64,
    /// Name of the file of vectors.
    pub vectors: &'static str,
    /// Name of the file of blocks.
    pub blocks_file: &'static str,
    /// Name of the program.
    pub program: &'static str,
    /// The blocks in the order of their counters.
    pub blocks: BlockList,
    /// The states of all threads.
    pub states: States,
}

// SAFETY: all of it is data that never changes, or that is replaced as a whole.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

static RUN: OnceLock<Run> = OnceLock::new();

/// Keeps the settings at the program's start.
pub fn begin(run: Run) {
    // ProgramBefore comes once.
    let _ = RUN.set(run);
}

/// The settings; `None` before the program's start.
pub fn run() -> Option<&'static Run> {
    RUN.get()
}
