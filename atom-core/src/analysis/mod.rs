//! The analysis image: a tool's shared object, made ready to live inside
//! another program.
//!
//! A tool's analysis routines run in the instrumented program without the
//! dynamic loader's knowledge. So what the loader would do is done here, once,
//! at instrumentation time: segments are laid out, imports are bound to the
//! runtime that is linked into the tool, and what remains is a list of slots
//! to which the start stub adds the load address. Everything is in the tool
//! file's own virtual addresses, which start at 0; whoever places the image
//! adds the place.
//!
//! - [`image`] is what comes out; its parts are read in `load` and `relocate`.
//! - [`code`] decodes functions of the image.
//! - [`reach`] finds missing imports that a routine can reach.
//! - [`summary`] says what a routine may change in the processor.

pub mod code;
mod effect;
pub mod image;
mod load;
pub mod reach;
mod relocate;
pub mod specialise;
pub mod summary;
mod unwind_ranges;

pub use image::{AnalysisImage, Symbol, Tls};
pub use summary::{Summaries, Summary};
