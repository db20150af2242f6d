//! How many procedures of a program can be instrumented, and the words for it.

use atom_core::cfg::{Cfg, Status};
use output::message::number;
use serde::Serialize;

/// Number of procedures of each status.
#[derive(Serialize, Clone, Copy)]
pub struct Totals {
    /// Number of procedures of which all code is understood.
    pub full: usize,
    /// Number of procedures that can be instrumented except for a gap.
    pub partial: usize,
    /// Number of procedures that always stay in place.
    pub opaque: usize,
}

impl Totals {
    /// Counts the procedures of `cfg`.
    pub fn of(cfg: &Cfg) -> Self {
        let count =
            |test: fn(&Status) -> bool| cfg.procs.iter().filter(|p| test(&p.status)).count();
        Self {
            full: count(|s| *s == Status::Full),
            partial: count(|s| matches!(s, Status::Partial(_))),
            opaque: count(|s| matches!(s, Status::Opaque(_))),
        }
    }

    /// The counts as text, such as `100 full, 1 opaque`; counts of 0 are left out.
    pub fn text(self) -> String {
        [
            (self.full, "full"),
            (self.partial, "partial"),
            (self.opaque, "opaque"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", number(*n as u64)))
        .collect::<Vec<_>>()
        .join(", ")
    }
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        let none = Self {
            full: 0,
            partial: 0,
            opaque: 0,
        };
        each.fold(none, |a, b| Self {
            full: a.full + b.full,
            partial: a.partial + b.partial,
            opaque: a.opaque + b.opaque,
        })
    }
}

/// An address as a string for JSON, in hexadecimal.
pub fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// The word for a status, `full`, `partial` or `opaque`, and the reason why it is not full.
pub fn status(status: &Status) -> (&'static str, Option<&str>) {
    match status {
        Status::Full => ("full", None),
        Status::Partial(reason) => ("partial", Some(reason)),
        Status::Opaque(reason) => ("opaque", Some(reason)),
    }
}
