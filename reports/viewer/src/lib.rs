//! The views of the command `atom`: what it shows of programs, of profiles and of other results.
//!
//! Each view has its arguments beside its code, as the command's parser wants them, and a function `run`. Views print to
//! standard output, or write files for a browser or another program.
#![deny(missing_docs)]

pub mod analyze;
pub mod annotate;
pub mod arp;
mod page;
pub mod report;
pub mod show;
pub mod status;
pub mod trace;
