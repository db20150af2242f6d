//! The C functions that a tool's code may call, each by the system call or by the parts of the runtime below.

pub(crate) mod directories;
pub(crate) mod environment;
pub(crate) mod errno;
pub(crate) mod files;
pub(crate) mod futex;
pub(crate) mod keys;
pub(crate) mod math;
pub(crate) mod memory;
pub(crate) mod paths;
pub(crate) mod process;
pub(crate) mod string;
pub(crate) mod threads;
pub(crate) mod time;
pub(crate) mod tls;
pub(crate) mod unwind;
