//! Debug information of the output: the program's for its new text, and the
//! tool's for the analysis routines.
//!
//! Every entry of `.debug_info` keeps its size and its offset in its unit, so that references to it
//! do not change. Only numbers in the entry change: addresses of moved code, and offsets into other
//! sections. Line programs, range lists and location lists contain addresses and are written again.
//! Indexes by address (`.gdb_index` and similar sections) are left out. `.debug_aranges` is made
//! again, since a unit may have become several ranges.
//!
//! A unit that cannot be read is left out: debuggers then know less, but nothing wrong.

mod bytes;
mod context;
mod expr;
// The names of the DWARF standard are in patterns.
#[allow(non_upper_case_globals)]
mod form;
mod input;
#[allow(non_upper_case_globals)]
mod lines;
mod lists;
mod map;
#[allow(non_upper_case_globals)]
mod unit;
mod write;

pub use write::{DebugSection, build, build_analysis};

/// True for sections that tell about the original's text only: without debug
/// information made for the output they would mislead a debugger, which could
/// even set a breakpoint into the middle of a pad.
pub fn misleads(section: &str) -> bool {
    (section.starts_with(".debug_") && section != ".debug_gdb_scripts")
        || section.starts_with(".zdebug_")
        || matches!(
            section,
            ".gdb_index" | ".gnu_debuglink" | ".gnu_debugdata" | ".note.gnu.build-id"
        )
}
