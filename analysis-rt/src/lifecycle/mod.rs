//! Start and end of the runtime in a process.

pub(crate) mod deaths;
pub(crate) mod end;
pub(crate) mod exec;
pub(crate) mod follow;
pub(crate) mod start;
pub(crate) mod system_call;
pub(crate) mod totals;
pub(crate) mod watcher;
