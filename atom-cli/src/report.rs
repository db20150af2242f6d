//! Figures of what was done, for `--report` and for the summary line.

use std::path::Path;

use atom_core::cfg::Cfg;
use atom_core::layout::{MovedSet, Placed};
use atom_core::pipeline::{Input, Rewritten};
use atom_core::plan::Plan;
use atom_core::tool::demangle;
use serde::Serialize;
use viewer::status::{Totals, hex, status};

use crate::request::Request;
use crate::steps::{self, Done, Steps};

/// The JSON of `--report`. For a whole process the figures stand for all objects together.
#[derive(Serialize)]
pub struct Report<'a> {
    /// The program that was read.
    program: FileFacts,
    /// Path of the tool; `None` for a rewrite without a tool.
    tool: Option<String>,
    /// Path of the rewritten program, and the total size in bytes of all files that were written.
    output: FileFacts,
    /// The procedures.
    procedures: Listed<'a>,
    /// Number of basic blocks of the procedures that can move.
    blocks: usize,
    /// Number of instructions of these blocks.
    instructions: usize,
    /// Calls of analysis routines.
    calls: Calls,
    /// Sizes of the text before and after, in bytes.
    text_bytes: TextBytes,
    /// Each object of a process: the program, libraries and the interpreter in load order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    objects: Vec<ObjectReport<'a>>,
    /// The steps in the order in which they were done.
    steps: Vec<StepTime>,
    /// Time of all steps together.
    seconds: f64,
    /// Largest resident set of this command; `None` if the system does not tell it.
    peak_memory_bytes: Option<u64>,
}

/// The procedures of a program alone, or the numbers of those of a process, which each object lists.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed<'a> {
    Alone(Procedures<'a>),
    Together(Totals),
}

impl<'a> Report<'a> {
    /// What was made.
    pub fn new(request: &Request, made: &Rewritten<'a>, steps: &Steps) -> Self {
        let mut objects: Vec<ObjectReport<'a>> = (made.inputs.iter().zip(made.placed))
            .zip(made.outputs)
            .map(|((input, placed), output)| ObjectReport::new(input, placed, output.len()))
            .collect();
        let text = |of: fn(&TextBytes) -> u64| objects.iter().map(|o| of(&o.text_bytes)).sum();
        let area = made.area.map_or(0, |area| area.len());
        let size = area + made.outputs.iter().map(|o| o.len()).sum::<u64>();
        Self {
            program: FileFacts::new(request.app, made.inputs[0].image.file.len() as u64),
            tool: request.tool.as_deref().map(|t| t.display().to_string()),
            output: FileFacts::new(&request.output, size),
            blocks: objects.iter().map(|o| o.blocks).sum(),
            instructions: objects.iter().map(|o| o.instructions).sum(),
            calls: Calls::of(made),
            text_bytes: TextBytes {
                r#in: text(|t| t.r#in),
                out: text(|t| t.out),
            },
            procedures: match made.area {
                None => Listed::Alone(objects.remove(0).procedures),
                Some(_) => Listed::Together(objects.iter().map(|o| o.procedures.totals).sum()),
            },
            objects,
            steps: steps.done().iter().map(StepTime::of).collect(),
            seconds: steps.elapsed().as_secs_f64(),
            peak_memory_bytes: steps::memory("VmHWM:"),
        }
    }
}

/// An object.
#[derive(Serialize)]
struct ObjectReport<'a> {
    /// The file that was read.
    original: FileFacts,
    /// The file that was written.
    output: FileFacts,
    /// Its procedures.
    procedures: Procedures<'a>,
    /// Number of basic blocks of the procedures that can move.
    blocks: usize,
    /// Number of instructions of these blocks.
    instructions: usize,
    /// Sizes of its text before and after, in bytes.
    text_bytes: TextBytes,
}

impl<'a> ObjectReport<'a> {
    fn new(input: &Input, placed: &Placed<'a>, size: u64) -> Self {
        let (cfg, layout) = (&placed.object.cfg, &placed.layout);
        let segments = input.image.segments.iter();
        Self {
            original: FileFacts::new(&input.path, input.image.file.len() as u64),
            output: FileFacts::new(&input.output, size),
            procedures: Procedures::of(cfg, &layout.moved),
            blocks: cfg.blocks.len(),
            instructions: cfg.insts.len(),
            text_bytes: TextBytes {
                r#in: (segments.filter(|s| s.is_executable()))
                    .map(|s| s.file_size)
                    .sum(),
                out: layout.end - layout.start,
            },
        }
    }
}

/// The contents of the JSON file.
pub fn to_json(report: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec_pretty(report).expect("plain fields always serialise");
    json.push(b'\n');
    json
}

/// Path and size of a file.
#[derive(Serialize)]
struct FileFacts {
    path: String,
    bytes: u64,
}

impl FileFacts {
    /// Facts of a file with a path and a size in bytes.
    fn new(path: &Path, bytes: u64) -> Self {
        Self {
            path: path.display().to_string(),
            bytes,
        }
    }
}

/// Procedures by status.
#[derive(Serialize)]
struct Procedures<'a> {
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
    fn of(cfg: &'a Cfg, moved: &MovedSet) -> Self {
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
    /// The calls of all objects that are rewritten.
    pub fn of(made: &Rewritten<'_>) -> Self {
        let sum = |of: fn(&Plan) -> u64| made.placed.iter().map(|p| of(p.plan)).sum();
        Self {
            added: sum(|plan| plan.calls_added),
            by_flow: sum(|plan| plan.calls_by_flow),
            inlined: sum(|plan| plan.calls_inlined),
            // A call in line at several edges of one branch counts at each.
            called: sum(|plan| {
                let made = plan.calls_by_flow + plan.calls_inlined;
                plan.calls_added.saturating_sub(made)
            }),
            unselected: made.unselected,
        }
    }
}

/// Sizes of text in bytes.
#[derive(Serialize)]
struct TextBytes {
    /// Size of the program's executable segments.
    pub r#in: u64,
    /// Size of the added text, instrumentation included; the old text stays as well.
    pub out: u64,
}

/// A step and its time.
#[derive(Serialize)]
struct StepTime {
    name: &'static str,
    seconds: f64,
}

impl StepTime {
    fn of(done: &Done) -> Self {
        Self {
            name: done.name,
            seconds: done.time.as_secs_f64(),
        }
    }
}
