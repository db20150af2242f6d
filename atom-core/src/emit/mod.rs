//! The output file: the original with pads, and new segments far from it.
//!
//! [`Placement`] fixes where everything behind the new text lies; then the
//! text is encoded; then [`write()`] puts the file together:
//!
//! - one read-execute segment: start-up code, new text, exception tables,
//!   tables of the start-up code, the tool's read-only part;
//! - one read-write segment: the tool's data, the plan's data, `StartInfo`,
//!   the preinit array.
//!
//! Nothing of the original file moves. Its program header table keeps its
//! place if entries can be spared, its dynamic section if it has spare tags.
//! Where the new segments lie is the business of [`crate::layout::Region`].

mod appended;
pub mod debug;
mod elf;
mod libc_view;
mod output;
mod program_headers;
mod sections;
pub mod start;

pub use elf::write;
pub use output::{Output, Sink};
