//! Figures of what was done, for `--report` and for the summary line.

use std::path::Path;

use atom_core::cfg::{Cfg, Status};
use atom_core::layout::MovedSet;
use atom_core::plan::Plan;
use atom_core::tool::demangle;
use serde::Serialize;
pub use viewer::status::Totals;
use viewer::status::{hex, status};

use crate::steps::Steps;

/// Sizes in bytes: of all known code, and of the code that is understood.
#[derive(Clone, Copy, Default)]
pub struct Code {
    /// The procedures, and the executable segments of libraries that are not instrumented.
    pub all: u64,
    /// The procedures that a tool can instrument.
    pub understood: u64,
}

impl Code {
    /// The procedures of an object.
    pub fn of(cfg: &Cfg) -> Self {
        let size = |procs: &mut dyn Iterator<Item = &atom_core::cfg::Proc>| {
            procs.map(|p| p.end - p.start).sum::<u64>()
        };
        let is_understood = |p: &&atom_core::cfg::Proc| !matches!(p.status, Status::Opaque(_));
        Self {
            all: size(&mut cfg.procs.iter()),
            understood: size(&mut cfg.procs.iter().filter(is_understood)),
        }
    }

    /// With code that is not instrumented.
    pub fn and(self, unseen: u64) -> Self {
        Self {
            all: self.all + unseen,
            ..self
        }
    }

    /// As the runtime is told it.
    pub fn told(self) -> [u64; 2] {
        [self.all, self.understood]
    }
}

impl std::iter::Sum for Code {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |a, b| Self {
            all: a.all + b.all,
            understood: a.understood + b.understood,
        })
    }
}

/// The JSON of `--report`.
#[derive(Serialize)]
pub struct Report<'a> {
    /// The program that was read.
    pub program: FileFacts,
    /// Path of the tool; `None` for a rewrite without a tool.
    pub tool: Option<String>,
    /// The program that was written.
    pub output: FileFacts,
    /// The program's procedures.
    pub procedures: Procedures<'a>,
    /// Number of basic blocks of the procedures that can move.
    pub blocks: usize,
    /// Number of instructions of these blocks.
    pub instructions: usize,
    /// Calls of analysis routines.
    pub calls: Calls,
    /// Sizes of the text before and after, in bytes.
    pub text_bytes: TextBytes,
    /// The steps in the order in which they were done.
    pub steps: Vec<StepTime>,
    /// Time of all steps together.
    pub seconds: f64,
    /// Largest resident set of this command; `None` if the system does not tell it.
    pub peak_memory_bytes: Option<u64>,
}

/// The JSON of `--report` for a whole process. Keys that a program alone has too stand for all objects together.
#[derive(Serialize)]
pub struct ProcessReport<'a> {
    /// The program that was read.
    pub program: FileFacts,
    /// Path of the tool.
    pub tool: Option<String>,
    /// The instrumented program; the size is the size of all files.
    pub output: FileFacts,
    /// The procedures of all objects.
    pub procedures: Totals,
    /// Number of basic blocks of the procedures that can move.
    pub blocks: usize,
    /// Number of instructions of these blocks.
    pub instructions: usize,
    /// Calls of analysis routines.
    pub calls: Calls,
    /// Sizes of the text before and after, in bytes.
    pub text_bytes: TextBytes,
    /// Each object: the program, libraries and the interpreter in load order.
    pub objects: Vec<ObjectReport<'a>>,
    /// The steps in the order in which they were done.
    pub steps: Vec<StepTime>,
    /// Time of all steps together.
    pub seconds: f64,
    /// Largest resident set of this command; `None` if the system does not tell it.
    pub peak_memory_bytes: Option<u64>,
}

/// An object of a whole process.
#[derive(Serialize)]
pub struct ObjectReport<'a> {
    /// The file that was read.
    pub original: FileFacts,
    /// The file that was written.
    pub output: FileFacts,
    /// Its procedures.
    pub procedures: Procedures<'a>,
    /// Number of basic blocks of the procedures that can move.
    pub blocks: usize,
    /// Number of instructions of these blocks.
    pub instructions: usize,
    /// Sizes of its text before and after, in bytes.
    pub text_bytes: TextBytes,
}

/// The contents of the JSON file.
pub fn to_json(report: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec_pretty(report).expect("plain fields always serialise");
    json.push(b'\n');
    json
}

/// Path and size of a file.
#[derive(Serialize)]
pub struct FileFacts {
    path: String,
    bytes: u64,
}

impl FileFacts {
    /// Facts of a file with a path and a size in bytes.
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
    /// Number of procedures that moved; the others stay in place.
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
    /// The procedures of `cfg`.
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

/// Numbers of calls of analysis routines.
#[derive(Serialize)]
pub struct Calls {
    /// Number of calls that the tool added.
    pub added: u64,
    /// Number of these calls that are not made: edges of the control flow are counted instead.
    pub by_flow: u64,
    /// Number of these calls that are made by code in line.
    pub inlined: u64,
    /// Number of these calls that are made by a call instruction.
    pub called: u64,
    /// Number of calls left out because of `--only` or `--skip`.
    pub unselected: usize,
}

impl Calls {
    /// The calls of the plans of all objects; `unselected` is the number of calls left out before planning.
    pub fn of<'p>(plans: impl IntoIterator<Item = &'p Plan>, unselected: usize) -> Self {
        let none = Self {
            added: 0,
            by_flow: 0,
            inlined: 0,
            called: 0,
            unselected,
        };
        plans.into_iter().fold(none, |sum, plan| Self {
            added: sum.added + plan.calls_added,
            by_flow: sum.by_flow + plan.calls_by_flow,
            inlined: sum.inlined + plan.calls_inlined,
            // A call in line at several edges of one branch counts at each.
            called: sum.called
                + plan
                    .calls_added
                    .saturating_sub(plan.calls_by_flow + plan.calls_inlined),
            unselected,
        })
    }
}

/// Sizes of text in bytes.
#[derive(Serialize)]
pub struct TextBytes {
    /// Size of the program's executable segments.
    pub r#in: u64,
    /// Size of the added text, instrumentation included; the old text stays as well.
    pub out: u64,
}

/// A step and its time.
#[derive(Serialize)]
pub struct StepTime {
    name: &'static str,
    seconds: f64,
}

/// The steps that were done.
pub fn steps(steps: &Steps) -> Vec<StepTime> {
    let step = |d: &crate::steps::Done| StepTime {
        name: d.name,
        seconds: d.time.as_secs_f64(),
    };
    steps.done().iter().map(step).collect()
}
