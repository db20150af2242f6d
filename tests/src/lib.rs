//! Everything that judges `atom`: ground truth, test programs, corpus, benchmarks.
//!
//! Nothing here is used by the rewriter, and nothing here uses its code: a
//! mistake in one is not repeated in the other.
#![deny(missing_docs)]

pub mod atom;
pub mod bench;
pub mod cache;
pub mod check;
pub mod compilers;
pub mod corpus;
pub mod counts;
pub mod depth;
pub mod elf;
pub mod error;
pub mod frames;
pub mod lock;
pub mod memcheck;
pub mod models;
pub mod one_file;
pub mod outcome;
pub mod programs;
pub mod random_tools;
pub mod roots;
pub mod source;
pub mod start;
pub mod stepper;
pub mod values;
pub mod whole;
