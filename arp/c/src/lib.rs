//! The C interface of `arp`; `include/atomium_rp.h` declares it.
//!
//! All functions may be called from any thread at any time. An invalid call is reported and has no
//! effect, so a program that is instrumented wrongly keeps running.
#![deny(missing_docs)]

mod active;
mod context;
mod end;
mod entry;
mod fork;
mod query;
mod report;
mod setup;
mod slot;
mod system;
mod threads;
