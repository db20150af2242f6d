//! The objects of a process: the area that they share, and adding libraries to a process that runs.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::analysis::AnalysisImage;
use crate::cfg::{CodeSize, Object};
use crate::emit::debug::DebugSection;
use crate::emit::facts::{Facts, Member, Places};
use crate::emit::late::{self, Addition};
use crate::emit::{Output, area, area_sections};
use crate::error::{Error, Result};
use crate::image::{LoaderFamily, ObjectKind};
use crate::layout::{self, Area, AreaSizes, Placed, Spaces};
use crate::plan::Whole;
use crate::plan::kept::{Kept, Late};

use super::Input;

const DOING: &str = "instrumenting the program with its libraries";
const ADDING: &str = "adding a library to a running process";

/// Objects that are instrumented together, the program first.
#[derive(Clone, Copy)]
pub struct Process<'a> {
    /// Path that the area's file will have.
    pub area: &'a Path,
    /// The path by which the program is run.
    pub named: &'a Path,
    /// Path of a symbolic link to the original program.
    pub link: &'a Path,
    /// The process that runs already, if libraries are added to it: then only these are rewritten.
    pub state: Option<&'a State>,
    /// Addresses that the area may have, if the process runs already without being instrumented.
    pub attached: Option<&'a Range<u64>>,
}

/// What has to be known of a process to add libraries to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// Number of objects that the process began with.
    begun: usize,
    /// Addresses of the area: start, data, information for the start, facts.
    area: [u64; 4],
    /// Offset of the `ThreadInfo`, if the tool has cells.
    thread_info: Option<u32>,
    /// Offset of the `RunInfo`.
    run_info: u32,
    /// Where the next file goes, and the end of the addresses for such files.
    next: [u64; 2],
    /// Size in bytes of the last such file. The next one is no smaller, since its tables are of all objects.
    last: u64,
    /// By object: what the runtime is told of its addresses.
    places: Vec<Places>,
    /// What a [`Kept`] consists of.
    kept: Vec<u64>,
}

impl State {
    /// Number of objects of the process.
    pub fn objects(&self) -> usize {
        self.places.len()
    }

    /// The area as the process began with it.
    fn area(&self) -> Area {
        let [start, data, info, facts] = self.area;
        Area {
            file: PathBuf::new(),
            loader: PathBuf::new(),
            runtime: 0,
            start,
            rw: data,
            data,
            slots: 0,
            routines: Vec::new(),
            info,
            facts,
            end: self.next[0],
        }
    }
}

/// A process to which libraries are added.
struct Running<'a> {
    state: &'a State,
    area: Area,
    kept: Kept,
}

/// What is known of a process before its objects are looked at.
pub(super) struct Begun<'a> {
    process: &'a Process<'a>,
    inputs: &'a [Input],
    /// Number of the object that makes the calls on the program: the program interpreter, or a static program that runs already.
    pub starter: usize,
    running: Option<Running<'a>>,
}

impl<'a> Begun<'a> {
    pub fn new(process: &'a Process<'a>, inputs: &'a [Input]) -> Result<Self> {
        let program = &inputs[0].path;
        let is_starter = |input: &Input| match input.image.kind {
            ObjectKind::Interpreter => true,
            kind => process.attached.is_some() && kind.is_static(),
        };
        let starter = inputs.iter().position(is_starter).ok_or_else(|| {
            Error::new(DOING, "its program interpreter is not known")
                .file(program)
                .advice("instrument the program alone")
        })?;
        let running = |state: &'a State| {
            let fail = |reason: &str| Error::new(ADDING, reason).file(program);
            let area = state.area();
            let mut kept = Kept::from_words(&state.kept).ok_or_else(|| fail("bad state"))?;
            if kept.objects != state.objects() || kept.objects >= inputs.len() {
                return Err(fail("the process has other objects"));
            }
            if state.next[1] - state.next[0] < state.last {
                return Err(fail("the addresses for added libraries are used up"));
            }
            kept.fixed.rest = u32::try_from(state.next[0] + late::HEAD - area.data)
                .map_err(|_| fail("there is no space"))?;
            Ok(Running { state, area, kept })
        };
        Ok(Self {
            process,
            inputs,
            starter,
            running: process.state.map(running).transpose()?,
        })
    }

    /// Number of objects that have been rewritten before.
    pub fn first(&self) -> usize {
        self.running.as_ref().map_or(0, |r| r.kept.objects)
    }

    /// Number of objects that the process began with.
    pub fn begun(&self) -> usize {
        (self.running.as_ref()).map_or(self.inputs.len(), |r| r.state.begun)
    }

    /// Whether libraries may be added, if that is `wanted`. In musl the loader is the C library: nothing tells a library
    /// that is loaded from a file that the program reads.
    pub fn late(&self, wanted: bool) -> Late<'_> {
        if let Some(running) = &self.running {
            return Late::Added(&running.kept);
        }
        let interpreter = self.inputs[0].image.interpreter.as_ref();
        let is_glibc = interpreter.is_some_and(|i| i.family == LoaderFamily::Glibc);
        if wanted && is_glibc {
            Late::Possible
        } else {
            Late::Never
        }
    }

    /// Places the area, and gathers what the runtime is told of the objects.
    pub fn lay_out(
        &self,
        analysis: &AnalysisImage,
        used: &[u64],
        whole: &Whole,
    ) -> Result<(Area, Facts)> {
        let members: Vec<Member<'_>> = (self.inputs.iter())
            .map(|input| Member {
                path: &input.path,
                // The interpreter of a process that runs already does not open them.
                instrumented: match self.process.attached {
                    Some(_) => Path::new(""),
                    None => &input.output,
                },
                image: &input.image,
            })
            .collect();
        let Process { named, link, .. } = *self.process;
        let is_interpreter = |member: &Member<'_>| member.image.kind == ObjectKind::Interpreter;
        let interpreter = members.iter().position(is_interpreter);
        let facts = Facts::of_process(&members, interpreter, named, link)?;
        let sizes = AreaSizes {
            data: whole.shared.data.len() as u64,
            facts: facts.bytes.len() as u64,
        };
        let area = match &self.running {
            None => {
                let loader = &self.inputs[self.starter].output;
                let spaces = self.spaces(whole);
                Area::new(analysis, used, &sizes, self.process.area, loader, spaces)?
            }
            Some(running) => {
                let start = running.state.next[0];
                running.area.with_library(analysis, used, &sizes, start)
            }
        };
        Ok((area, facts))
    }

    /// See [`layout::spaces`].
    fn spaces(&self, whole: &Whole) -> Spaces {
        match self.process.attached {
            Some(space) => Spaces {
                all: space.clone(),
                added: 0,
            },
            None => layout::spaces(&self.inputs[0].image, whole.kept.is_some()),
        }
    }

    /// What the runtime is told of all objects' addresses; `placed` are those that are rewritten now.
    pub fn places(&self, placed: &[Placed<'_>]) -> Vec<Places> {
        let before = self.running.as_ref().map(|r| &*r.state.places);
        let mut places = before.unwrap_or_default().to_vec();
        places.extend(placed.iter().map(Places::of));
        places
    }
}

/// What the area's file is made of.
pub(super) struct Parts<'a> {
    pub begun: &'a Begun<'a>,
    pub area: &'a Area,
    pub facts: &'a Facts,
    pub places: Vec<Places>,
    pub analysis: &'a AnalysisImage,
    pub whole: &'a Whole,
    pub objects: &'a [Object<'a>],
    pub placed: &'a [Placed<'a>],
    /// The tool's debug information.
    pub debug: &'a [DebugSection],
}

impl<'a> Parts<'a> {
    /// The contents of the area's file, or of the file of added libraries; and the state for the next library, if
    /// there may be one.
    pub fn write(self) -> Result<(Output<'a>, Option<State>)> {
        match &self.begun.running {
            Some(running) => self.add_to(running),
            None => Ok(self.begin()),
        }
    }

    fn begin(self) -> (Output<'a>, Option<State>) {
        let (area, whole) = (self.area, self.whole);
        let mut output = area::write(
            area,
            self.analysis,
            &whole.shared,
            (whole.biases, whole.identities),
            &self.placed[self.begun.starter],
            self.facts,
        );
        area_sections::append(area, self.analysis, self.debug, &mut output);
        let state = whole.kept.as_ref().map(|(kept, _)| State {
            begun: self.objects.len(),
            area: [area.start, area.data, area.info, area.facts],
            thread_info: whole.shared.cell_info,
            run_info: whole.shared.run_info.unwrap_or(0),
            next: [area.end, self.begun.spaces(whole).all.end],
            last: 0,
            places: self.places,
            kept: kept.to_words(),
        });
        (output, state)
    }

    fn add_to(self, running: &Running<'_>) -> Result<(Output<'a>, Option<State>)> {
        let Some((kept, replaced)) = &self.whole.kept else {
            return Err(Error::new(ADDING, "nothing is kept"));
        };
        let state = running.state;
        let code: CodeSize = self.objects.iter().map(|o| CodeSize::of(&o.cfg)).sum();
        let bytes = late::write(&Addition {
            area: &running.area,
            own: self.area,
            shared: &self.whole.shared,
            replaced,
            facts: self.facts,
            thread_info: state.thread_info,
            run_info: state.run_info,
            told: [opaque(self.objects), code.all, code.understood],
            object: running.kept.objects,
            end: state.next[1],
        })?;
        let after = State {
            next: [state.next[0] + bytes.len(), state.next[1]],
            last: bytes.len(),
            places: self.places,
            kept: kept.to_words(),
            ..state.clone()
        };
        Ok((bytes, Some(after)))
    }
}

/// Number of procedures that are not understood.
pub(super) fn opaque(objects: &[Object<'_>]) -> u64 {
    let procs = objects.iter().flat_map(|object| &object.cfg.procs);
    procs.filter(|proc| proc.status.is_opaque()).count() as u64
}
