//! The options that say how a report is written, and where.
//!
//! They change nothing in an instrumented program. So `atom run` leaves them out where it looks for an earlier result, and
//! gives them to the processes of the run in a file beside the run's record: the words with a null after each.

/// The options, as `report = FILE` of the tools' interface declares them.
pub const OPTIONS: [&str; 7] = [
    "--output",
    "--json",
    "--profile",
    "--no-profile",
    "--top",
    "--width",
    "--full-names",
];

/// What follows the name of the run's record in the name of the file.
pub const SUFFIX: &str = ".report";
