//! Running a tool's instrument routine: it navigates the cfg and adds calls.
//!
//! A tool is a shared object that is loaded into this process. What it sees of
//! the program, and what it may do, is the table of functions in
//! [`atom_abi::host`]; everything it passes is checked before it is believed,
//! so that a mistake in a tool is a message and not a broken program.

pub mod calls;
mod check;
mod constants;
mod facts;
mod host;
pub mod libraries;
mod load;
mod names;
pub(crate) mod operand;
mod places;
mod query;
pub mod select;
mod session;
mod threads;
pub(crate) mod value;

pub use crate::image::{LineInfo, SourceFrame};
pub use calls::{ANY_OPERAND, Argument, Call, CallPlace, Calls, Scope, ThreadData};
pub use facts::ToolFacts;
pub use load::{Application, Tool};
pub use names::demangle;
pub use threads::{may_have_threads, may_start_threads, uses_gs};
