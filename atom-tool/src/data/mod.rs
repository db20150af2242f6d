//! Data that an instrument routine prepares and analysis routines get as arguments, and the data of threads.

pub(crate) mod counters;
pub mod forks;
pub(crate) mod marks;
pub mod packed;
pub(crate) mod plain;
pub(crate) mod shared;
pub(crate) mod sites;
pub(crate) mod strings;
pub(crate) mod targets;
pub(crate) mod thread_data;
pub(crate) mod thread_rows;
pub mod threads;
