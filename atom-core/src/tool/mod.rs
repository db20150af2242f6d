//! Running a tool's instrument routine: it navigates the cfg and adds calls.
//!
//! A tool is a shared object that is loaded into this process. It looks at
//! the program and adds calls through the table of functions in
//! [`atom_abi::host`]. Everything that it passes is checked,
//! so that a mistake in a tool leads to a message and not to a broken program.
//!
//! A tool is loaded by `load`. Each object has a `session`, and all of them are a `process`. The functions of the table
//! are in `objects`, `places`, `query` and `host`, over `context`; `check` judges what they get. `run` uses them all.

mod application;
mod binding;
pub mod borders;
pub mod calls;
mod check;
mod constants;
mod context;
pub mod crossings;
mod facts;
mod host;
pub mod libraries;
mod load;
mod marks;
mod names;
mod objects;
pub(crate) mod operand;
mod places;
mod process;
mod query;
mod run;
pub mod select;
mod session;
pub mod space;
mod threads;
pub(crate) mod value;

pub use crate::image::{LineInfo, SourceFrame};
pub use application::Application;
pub use calls::{ANY_OPERAND, Argument, Call, CallPlace, Calls, Scope, ThreadData};
pub(crate) use constants::Constants;
pub use facts::ToolFacts;
pub use load::Tool;
pub use names::demangle;
pub use threads::{
    may_fork, may_have_threads, may_start_threads, process_may_have_threads, process_uses_gs,
    uses_gs,
};
