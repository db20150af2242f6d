//! The analysis image: a tool's shared object, made ready to live inside
//! another program.
//!
//! The dynamic loader does not know the analysis routines in the instrumented program. So the work of
//! the loader is done here, once, at instrumentation time: segments are laid out, and imports are bound
//! to the runtime that is linked into the tool. What remains is a list of slots to which the start-up
//! code adds the load address. All addresses are those of the tool's file, which start at 0; the layout
//! adds the image's place.
//!
//! - [`image`] has the result; its parts are read in `load` and `relocate`.
//! - [`code`] decodes functions of the image.
//! - [`reach`] finds missing imports that a routine can reach.
//! - [`summary`] tells what a routine may change in the processor.
//! - [`specialise`] makes the code that can be in place of a call.

pub mod code;
mod effect;
pub mod image;
mod load;
pub mod reach;
mod relocate;
pub mod specialise;
pub mod summary;
mod unwind_ranges;

pub use effect::Summary;
pub use image::{AnalysisImage, Symbol, Tls};
pub use summary::Summaries;
