//! The corpus: real programs, whose originals and rewrites run and are compared.
//!
//! The table is `programs.txt` beside this crate. Each program runs in a fresh
//! working directory, always the same path, with the file under test first in
//! PATH under its own name, so that nothing but the file differs. Output that differs
//! between two runs of the original itself (times, process ids) is not
//! compared, and the table says so.

pub mod drawn;
pub mod inputs;
mod installed;
mod launched;
mod runs;
mod table;

pub use inputs::{make as make_inputs, sample};
pub use installed::installed;
pub use launched::{Launcher, Tally};
pub use runs::{Bench, Difference, Verdict};
pub use table::{Entry, read as read_table, read_from as read_table_from};
