//! The C interface of `arp`; `include/atomium_rp.h` declares it.
//!
//! All functions may be called from any thread at any time. What makes no
//! sense is reported and not followed, so that a program that is instrumented wrongly keeps running.
#![deny(missing_docs)]

mod active;
mod context;
mod entry;
mod fork;
mod query;
mod report;
mod setup;
mod slot;
mod system;
mod threads;
