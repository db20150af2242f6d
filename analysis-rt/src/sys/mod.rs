//! The kernel's side: system calls, memory, stacks, signals, segment bases, the processor's modes. Nothing here uses any other part of
//! the runtime, and no thread-local storage: all of it works before the start.

pub(crate) mod apart;
pub(crate) mod broker;
pub(crate) mod call;
pub(crate) mod clone;
pub(crate) mod decimal;
pub(crate) mod fatal;
pub(crate) mod limit;
pub(crate) mod masks;
pub(crate) mod memory;
pub(crate) mod processor;
pub(crate) mod registers;
pub(crate) mod sandbox;
pub(crate) mod segments;
pub(crate) mod signals;
pub(crate) mod spin;
pub(crate) mod stacks;
