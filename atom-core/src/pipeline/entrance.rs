//! What has to be known to enter a process that runs already: where its parts go, and what is called in it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::analysis::AnalysisImage;
use crate::emit::area::file_offset;
use crate::layout::{Area, Placed};
use crate::plan::Whole;

use super::Input;

/// Export of the runtime by which the process that instruments speaks to it.
const ATTACHED: &str = "__atom_attached";

/// The parts of a process that is instrumented while it runs. All addresses of the area are those of the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entrance {
    /// The area: start, start of what is written, end.
    pub area: [u64; 3],
    /// Where in the area's file that is which is written, in bytes.
    pub written_at: u64,
    /// The `StartInfo`.
    pub info: u64,
    /// The runtime's `start`.
    pub start: u64,
    /// The runtime's `thread_enter`.
    pub enter: u64,
    /// The runtime's `__atom_attached`; 0 in a tool without it.
    pub attached: u64,
    /// The load biases, 8 bytes for each object.
    pub biases: u64,
    /// Number of the object that makes the calls on the program: the program interpreter, or a static program.
    pub starter: usize,
    /// In that object's file: the functions that make the calls at the program's start and end; 0 for none.
    pub calls: [u64; 2],
    /// Names of the procedures in place of which the tool's routines run; empty if the tool changes nothing.
    pub replaced: String,
    /// The objects in their order.
    pub objects: Vec<Entered>,
}

/// The parts of one object. Addresses are those in its file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entered {
    /// Path of the original.
    pub path: PathBuf,
    /// Name of the rewritten file.
    pub name: PathBuf,
    /// Start of the image.
    pub base: u64,
    /// Start of the new text, and the end of the new segment.
    pub text: [u64; 2],
    /// Where in the rewritten file that segment is, in bytes.
    pub offset: u64,
    /// The table of instruction boundaries; 0 if nothing moved.
    pub boundaries: u64,
    /// Start and end of segments to be written to; equal if there is none.
    pub written: [u64; 2],
}

impl Entrance {
    pub(super) fn new(
        (area, analysis): (&Area, &AnalysisImage),
        whole: &Whole,
        (inputs, placed): (&[Input], &[Placed<'_>]),
        starter: usize,
    ) -> Self {
        let calls_from = &placed[starter];
        let function = |snippet: Option<u32>| {
            let at = snippet.map(|i| u64::from(calls_from.layout.shared[i as usize]));
            at.map_or(0, |at| calls_from.layout.start + at)
        };
        let plan = calls_from.plan;
        let attached = analysis.facts.export(ATTACHED);
        Self {
            area: [area.start, area.rw, area.end],
            written_at: file_offset(area),
            info: area.info,
            start: area.runtime,
            enter: area.start + analysis.facts.thread_enter,
            attached: attached.map_or(0, |address| area.start + address),
            biases: area.data + u64::from(whole.biases),
            starter,
            calls: [function(plan.program_before), function(plan.program_after)],
            replaced: super::replaced(placed.iter().map(|p| (&p.object.cfg, p.plan))),
            objects: inputs.iter().zip(placed).map(Entered::new).collect(),
        }
    }
}

impl Entered {
    fn new((input, placed): (&Input, &Placed<'_>)) -> Self {
        let (layout, placement) = (&placed.layout, &placed.placement);
        Self {
            path: input.path.clone(),
            name: input.output.file_name().unwrap_or_default().into(),
            base: placed.object.image.base,
            text: [layout.start, placement.rx_end],
            offset: layout.region.file_offset,
            boundaries: layout.boundaries().unwrap_or(0),
            written: [placement.rw, placement.end],
        }
    }
}
