//! Running a tool's instrument routine: it navigates the cfg and adds calls.

pub mod calls;

pub use calls::{Argument, Call, Calls};
