//! Start and end of the runtime in a process.

pub(crate) mod actions;
pub(crate) mod attached;
pub(crate) mod deaths;
mod deferred;
pub(crate) mod dispositions;
pub(crate) mod end;
pub(crate) mod exec;
mod faults;
pub(crate) mod follow;
pub(crate) mod handlers;
mod last_stack;
pub(crate) mod late;
pub(crate) mod lookups;
pub(crate) mod start;
pub(crate) mod system_call;
pub(crate) mod totals;
mod trail;
pub(crate) mod watcher;
pub(crate) mod windows;
