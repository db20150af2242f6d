//! What is asked of debug information about an address: its line and its functions.

/// Source lines from debug information, for what the tool asks.
pub trait LineInfo {
    /// File and line of the instruction at a virtual address.
    fn line_at(&self, address: u64) -> Option<(&str, u32)>;

    /// The functions that an address belongs to by inlining, innermost first.
    fn frames_at(&self, address: u64) -> Vec<SourceFrame> {
        let _ = address;
        Vec::new()
    }
}

/// A function that an address belongs to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceFrame {
    /// Its name as in the debug information; empty if unknown.
    pub function: String,
    /// Source file, or empty.
    pub file: String,
    /// Line, or 0: of the instruction in the innermost function, of the
    /// inlined call in the others.
    pub line: u32,
    /// Column, or 0.
    pub column: u32,
}

/// Source lines that are elsewhere than in debug information.
pub trait LineSource {
    /// The lines by address, each up to the next one's start, and the address after the last.
    fn rows(&self) -> (Vec<SourceRow<'_>>, u64);
}

/// The line of the code from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceRow<'a> {
    /// The address.
    pub start: u64,
    /// Source file; empty if unknown.
    pub file: &'a str,
    /// Line; 0 if unknown.
    pub line: u32,
}

/// No debug information.
impl LineInfo for () {
    fn line_at(&self, _: u64) -> Option<(&str, u32)> {
        None
    }
}
