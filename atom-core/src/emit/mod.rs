//! The output file: the original with pads, and new segments far from it.
//!
//! [`Placement`](crate::layout::Placement) has the addresses of everything after the new text.
//! [`write()`] puts the file together:
//!
//! - one read-execute segment: start-up code, new text, exception tables,
//!   tables of the start-up code, the tool's read-only part;
//! - one read-write segment: the tool's data, the plan's data, `StartInfo`,
//!   the preinit array.
//!
//! Nothing of the original file moves. Its program header table keeps its
//! place if entries can be spared, its dynamic section if it has spare tags.
//! [`crate::layout::Region`] decides where the new segments are.

mod appended;
pub mod area;
pub mod area_sections;
pub mod debug;
mod elf;
pub mod facts;
pub mod late;
mod libc_view;
mod output;
mod program_headers;
mod sections;
pub mod start;
mod start_info;
mod start_process;
mod symbols;
mod tables;

pub use elf::write;
pub use output::{Output, Sink};
