//! What was done, as numbers: for `--report` and for the summary line.

use std::path::Path;

use atom_core::cfg::{Cfg, Status};
use atom_core::layout::MovedSet;
use atom_core::plan::Plan;
use atom_core::tool::demangle;
use serde::Serialize;

use crate::steps::Steps;

/// How many procedures there are of each status.
#[derive(Serialize, Clone, Copy)]
pub struct Totals {
    /// Understood and moved.
    pub full: usize,
    /// Moved, with a gap.
    pub partial: usize,
    /// Left in place.
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

    /// `100 full, 1 opaque`: what there is none of is left out.
    pub fn text(self) -> String {
        [
            (self.full, "full"),
            (self.partial, "partial"),
            (self.opaque, "opaque"),
        ]
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{} {what}", crate::message::number(*n as u64)))
        .collect::<Vec<_>>()
        .join(", ")
    }
}

/// The JSON of `--report`.
#[derive(Serialize)]
pub struct Report<'a> {
    /// The program that was read.
    pub program: FileFacts,
    /// The tool, if there was one.
    pub tool: Option<String>,
    /// The program that was written.
    pub output: FileFacts,
    /// The program's procedures.
    pub procedures: Procedures<'a>,
    /// Number of basic blocks of the procedures that move.
    pub blocks: usize,
    /// Number of their instructions.
    pub instructions: usize,
    /// The calls.
    pub calls: Calls,
    /// The text before and after.
    pub text_bytes: TextBytes,
    /// The steps in order.
    pub steps: Vec<Step>,
    /// Time of all steps.
    pub seconds: f64,
    /// The most memory that this command had resident at a time.
    pub peak_memory_bytes: Option<u64>,
}

impl Report<'_> {
    /// The file's contents.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("plain fields always serialise");
        json.push(b'\n');
        json
    }
}

/// A file.
#[derive(Serialize)]
pub struct FileFacts {
    path: String,
    bytes: u64,
}

impl FileFacts {
    /// A file by its path and size.
    pub fn new(path: &Path, bytes: u64) -> Self {
        Self {
            path: path.display().to_string(),
            bytes,
        }
    }
}

/// Procedures by status.
#[derive(Serialize)]
pub struct Procedures<'a> {
    #[serde(flatten)]
    totals: Totals,
    /// How many of them moved; the others stay in place.
    moved: usize,
    list: Vec<Procedure<'a>>,
}

#[derive(Serialize)]
struct Procedure<'a> {
    name: String,
    address: String,
    size: u64,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> Procedures<'a> {
    /// Those of `cfg`.
    pub fn of(cfg: &'a Cfg, moved: &MovedSet) -> Self {
        let list = cfg
            .procs
            .iter()
            .map(|proc| {
                let (status, reason) = status(&proc.status);
                let name = demangle(&proc.display_name());
                let size = proc.end - proc.start;
                Procedure {
                    name,
                    address: hex(proc.start),
                    size,
                    status,
                    reason,
                }
            })
            .collect();
        Self {
            totals: Totals::of(cfg),
            moved: moved.count(),
            list,
        }
    }
}

/// Calls of analysis routines.
#[derive(Serialize)]
pub struct Calls {
    /// Added by the tool.
    pub added: u64,
    /// Of these, made by code in line.
    pub inlined: u64,
    /// Of these, made by a call.
    pub called: u64,
    /// Not added because `--only` or `--skip` left them out.
    pub unselected: usize,
}

impl Calls {
    /// Those of `plan`, and how many were left out before.
    pub fn of(plan: &Plan, unselected: usize) -> Self {
        let (added, inlined) = (plan.calls_added, plan.calls_inlined);
        Self {
            added,
            inlined,
            called: added - inlined,
            unselected,
        }
    }
}

/// Sizes of text.
#[derive(Serialize)]
pub struct TextBytes {
    /// Executable segments of the program.
    pub r#in: u64,
    /// Text that was added, the instrumentation in it; the old text stays as well.
    pub out: u64,
}

/// A step and its time.
#[derive(Serialize)]
pub struct Step {
    name: &'static str,
    seconds: f64,
}

/// The steps that were done.
pub fn steps(steps: &Steps) -> Vec<Step> {
    let step = |d: &crate::steps::Done| Step {
        name: d.name,
        seconds: d.time.as_secs_f64(),
    };
    steps.done().iter().map(step).collect()
}

/// An address as JSON has it.
pub fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// `full`, `partial` or `opaque`, and why not full.
pub fn status(status: &Status) -> (&'static str, Option<&str>) {
    match status {
        Status::Full => ("full", None),
        Status::Partial(reason) => ("partial", Some(reason)),
        Status::Opaque(reason) => ("opaque", Some(reason)),
    }
}
