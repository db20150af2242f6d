//! Facts of a tool that later stages need.

/// Contents of the tool's header and symbol table, with addresses in the tool's file.
#[derive(Clone, Debug, Default)]
pub struct ToolFacts {
    /// Functions of the runtime: C symbol and address.
    pub exports: Vec<(String, u64)>,
    /// The runtime's start function.
    pub start: u64,
    /// The runtime's end function.
    pub finish: u64,
    /// The function that a guard calls when a thread enters with another thread's block.
    pub thread_enter: u64,
    /// The function that is called where a thread may have started.
    pub thread_started: u64,
    /// The function that returns the calling thread's block.
    pub thread_block: u64,
    /// The analysis routines: name and address.
    pub routines: Vec<(String, u64)>,
}

impl ToolFacts {
    /// The runtime's function that replaces an imported symbol.
    pub fn export(&self, symbol: &str) -> Option<u64> {
        let found = self.exports.iter().find(|e| e.0 == symbol);
        found.map(|e| e.1)
    }
}
