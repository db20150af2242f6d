//! Everything that judges `atom`: ground truth, test programs, corpus, benchmarks.
//!
//! Nothing here is used by the rewriter, and nothing here uses its code: a
//! mistake in one is not repeated in the other.
#![deny(missing_docs)]

pub mod error;
pub mod stepper;
