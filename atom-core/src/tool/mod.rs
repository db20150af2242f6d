//! Running a tool's instrument routine: it navigates the cfg and adds calls.
//!
//! A tool is a shared object that is loaded into this process. What it sees of
//! the program, and what it may do, is the table of functions in
//! [`atom_abi::host`]; everything it passes is checked before it is believed,
//! so that a mistake in a tool is a message and not a broken program.

pub mod calls;
mod check;
mod constants;
mod host;
pub mod libraries;
mod load;
mod names;
mod places;
mod query;
pub mod select;
mod session;
mod threads;

pub use calls::{ANY_OPERAND, Argument, Call, Calls, Place, Scope, ThreadData};
pub use load::Tool;
pub use names::demangle;
pub use threads::{may_have_threads, may_start_threads, uses_gs};

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

/// No debug information.
impl LineInfo for () {
    fn line_at(&self, _: u64) -> Option<(&str, u32)> {
        None
    }
}
