//! What later stages have to know of a tool: addresses in its file.

/// What the tool's header says, as addresses in the tool's file.
#[derive(Clone, Debug, Default)]
pub struct ToolFacts {
    /// Functions of the runtime by C symbol.
    pub exports: Vec<(String, u64)>,
    /// The runtime's start.
    pub start: u64,
    /// The runtime's end.
    pub finish: u64,
    /// What a thread calls that enters with another thread's block.
    pub thread_enter: u64,
    /// What is called where a thread may have started.
    pub thread_started: u64,
    /// Yields the calling thread's block.
    pub thread_block: u64,
    /// The analysis routines by name.
    pub routines: Vec<(String, u64)>,
}

impl ToolFacts {
    /// The runtime's function that stands for a symbol.
    pub fn export(&self, symbol: &str) -> Option<u64> {
        let found = self.exports.iter().find(|e| e.0 == symbol);
        found.map(|e| e.1)
    }
}
