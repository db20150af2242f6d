//! The tool's part of instrumenting: its calls, its code, and the plan that is made from them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::Path;

use atom_core::analysis::specialise::Specialiser;
use atom_core::analysis::{AnalysisImage, Summaries};
use atom_core::cfg::{Cfg, Object};
use atom_core::image::Image;
use atom_core::layout::Region;
use atom_core::live::{Live, RegSet, has_foreign};
use atom_core::memory;
use atom_core::plan::{self, Clobbers, Home, Plan, ThreadOptions, ThreadWants, Told};
use atom_core::tool::{
    Application, Argument, Calls, ToolFacts, libraries, may_have_threads, uses_gs,
};
use atom_core::{Error, Result};

use crate::cleanup;
use crate::help;
use crate::message::{self, count, note, number};
use crate::report::{Code, Totals};
use crate::request::Request;
use crate::run::closure;
use crate::steps::{Step, Steps};
use crate::tool_code::Loaded;

/// What a tool wants of this program.
pub struct Instrumentation {
    calls: Calls,
    /// Number of calls that were dropped because what they are on is not selected.
    pub unselected: usize,
    /// The tool's code and data.
    pub analysis: AnalysisImage,
    /// What the called routines change.
    pub summaries: Summaries,
    /// Sizes of the program's code and of the code of the libraries that it loads at its start, which are left out.
    pub code: Code,
}

/// Collects the tool's calls and its code as it will lie in the program. The tool uses one
/// thread; meanwhile the other threads compute liveness.
pub fn instrument<'a>(
    loaded: Loaded,
    request: &Request,
    object: &'a Object<'_>,
    steps: &mut Steps,
) -> Result<(Instrumentation, Live<'a>)> {
    let (image, cfg) = (object.image, &object.cfg);
    std::thread::scope(|scope| {
        let live = scope.spawn(|| Live::compute(image, cfg));
        let tool = call_tool(loaded, request, object, steps)?;
        let live = steps.run(
            Step::Live,
            || {
                let live = live.join().unwrap_or_else(|e| resume_unwind(e));
                memory::give_back();
                image.release_pages();
                Ok(match request.keep_registers {
                    true => live.keeping(RegSet::ALL),
                    false => live,
                })
            },
            |_| count(cfg.blocks.len(), "block"),
        )?;
        Ok((tool, live))
    })
}

/// Runs the tool's instrument routine, and takes its code.
fn call_tool(
    loaded: Loaded,
    request: &Request,
    object: &Object<'_>,
    steps: &mut Steps,
) -> Result<Instrumentation> {
    let (image, cfg) = (object.image, &object.cfg);
    let lines = object.unwind.lines(image);
    // Before the tool runs, as a wrong pattern is the user's mistake.
    let selected = match request.selection.is_all() {
        true => None,
        false => Some(request.selection.resolve(cfg, &lines)?),
    };
    let mut calls = steps.run(
        Step::Tool,
        || {
            let options = request.tool_options;
            let application = Application {
                path: &image.path,
                image,
                cfg,
                lines: &lines,
                selected: selected.as_ref(),
                is_global: true,
                known: 1,
            };
            let tool = &loaded.tool;
            tool.instrument(
                &[application],
                options,
                Default::default(),
                &end_after_panic,
            )
        },
        |calls| count(calls.calls.len(), "call"),
    )?;
    memory::give_back();
    let unselected = selected.map_or(0, |s| s.filter(cfg, &mut calls));
    let (analysis, summaries) = steps.run(
        Step::Analysis,
        || loaded.code(&routines(&calls)),
        |(analysis, _)| {
            format!(
                "{} bytes of code and tables",
                number(analysis.text.len() as u64)
            )
        },
    )?;
    Ok(Instrumentation {
        calls,
        unselected,
        analysis,
        summaries,
        code: code(request.app, image, cfg),
    })
}

impl Instrumentation {
    /// Turns the calls into code with symbolic targets, and forgets them.
    pub fn plan(
        &mut self,
        request: &Request,
        object: &Object<'_>,
        live: &Live<'_>,
        steps: &mut Steps,
    ) -> Result<Plan> {
        let (image, cfg) = (object.image, &object.cfg);
        let calls = std::mem::take(&mut self.calls);
        let summaries = &self.summaries;
        steps.run(
            Step::Plan,
            || {
                refuse_wide_registers(&self.analysis, summaries, &routines(&calls))?;
                let may_have_threads = may_have_threads(image, cfg);
                let facts = &self.analysis.facts;
                let wants = ThreadWants {
                    has_data: calls.thread_data.len != 0,
                    may_have_threads,
                    own_stack: own_stack(object, facts)?,
                    has_foreign: &|| has_foreign(image, cfg),
                    uses_gs: &|| no_gs(image, request) || uses_gs(image, cfg),
                };
                let bodies = Specialiser::new(&self.analysis);
                let options = plan::Options {
                    finish: Some(facts.finish),
                    exec: facts.export("__atom_exec"),
                    apart: facts.export(plan::APART),
                    system_call: facts.export("__atom_system_call"),
                    follows: !request.follow.is_empty(),
                    may_have_threads,
                    bodies: request.inline.then_some(&bodies),
                    threads: ThreadOptions::new(&wants, facts),
                    home: Home::Own,
                    every_point: request.precise_signals,
                    low_room: low_room(image, request)?,
                };
                let clobbers = |routine| summaries.of(routine).into();
                let mut plan = Plan::build(image, cfg, live, calls, &clobbers, &options)?;
                memory::give_back();
                tell(&mut plan, request, image, (cfg, self.code));
                Ok(plan)
            },
            |plan| {
                let points = count(plan.insertions.len(), "insertion");
                let flow = number(plan.calls_by_flow);
                let shared = count(plan.shared.len(), "shared piece");
                format!("{points}, {shared}, {flow} counted by flow")
            },
        )
    }

    /// What a routine of the tool may change.
    pub fn clobbers(&self, routine: u64) -> Clobbers {
        Clobbers::from(self.summaries.of(routine))
    }
}

/// Adds to the plan what the runtime tells in reports and leaves for `atom run`.
fn tell(plan: &mut Plan, request: &Request, image: &Image, (cfg, code): (&Cfg, Code)) {
    fn bytes(path: Option<&Path>) -> &[u8] {
        path.map_or_else(Default::default, |path| path.as_os_str().as_bytes())
    }
    let record = request.record.map(|path| path.as_os_str().as_bytes());
    let link = request
        .placed_at
        .map(|file| file.with_file_name(super::ORIGINAL));
    plan.tell(&Told {
        record: record.unwrap_or_default(),
        unseen: &image.needed().join(", "),
        opaque: Totals::of(cfg).opaque as u64,
        code: code.told(),
        follow: &request.follow,
        original: original(request),
        tool: &tool_name(request),
        late: &[],
        named: bytes(request.named),
        link: bytes(link.as_deref()),
    });
}

/// The name of the tool, or of its file.
pub(super) fn tool_name(request: &Request) -> String {
    let tool = request.tool.as_deref();
    let named = |file: &Path| Some(file.file_name()?.to_string_lossy().into_owned());
    tool.and_then(|file| help::tool_name(file).or_else(|| named(file)))
        .unwrap_or_default()
}

/// See [`Told::original`].
pub(super) fn original(request: &Request) -> [u64; 2] {
    let file = request
        .record
        .and_then(|_| std::fs::metadata(request.app).ok());
    file.map_or([0; 2], |file| [file.dev(), file.ino()])
}

/// See [`Instrumentation::code`].
fn code(program: &Path, image: &Image, cfg: &Cfg) -> Code {
    let libraries = match &image.interpreter {
        Some(interpreter) if image.kind.is_program() => {
            closure::libraries(Path::new(&interpreter.path), program).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let paths = libraries.iter().filter_map(|loaded| loaded.path.as_deref());
    Code::of(cfg).and(paths.map(closure::code_size).sum())
}

/// Version of the tool interface from which the runtime has stacks for analysis routines.
const STACKS: u32 = 15;

/// True if analysis routines need stacks of their own: a goroutine's is small, and moves when it grows.
pub fn own_stack(object: &Object<'_>, facts: &ToolFacts) -> Result<bool> {
    if object.unwind.go.is_none() {
        return Ok(false);
    }
    let reason = if facts.version < STACKS {
        "the tool was built before Go programs were supported"
    } else if uses_gs(object.image, &object.cfg) {
        "the program uses the gs segment, by which the stacks of analysis routines are found"
    } else {
        return Ok(true);
    };
    Err(Error::new("instrumenting a program of Go", reason)
        .file(&object.image.path)
        .advice("build the tool again; a program that uses gs cannot be instrumented"))
}

/// True if gs must be left to the program's libraries.
fn no_gs(image: &Image, request: &Request) -> bool {
    if request.no_gs {
        return true;
    }
    let library = libraries::that_uses_gs([image]);
    if let Some(path) = &library {
        note(&format!(
            "{} uses the gs segment, so threads' own counters are found more slowly",
            path.display()
        ));
    }
    library.is_some()
}

/// Bytes of the new segments that certainly lie below 2 GiB.
fn low_room(image: &Image, request: &Request) -> Result<u64> {
    let region = Region::wanted(image, &request.wishes)?;
    let is_fixed = !image.kind.is_position_independent() && region.data.is_none();
    let low = (1u64 << 31).saturating_sub(region.start);
    Ok(if is_fixed { low.min(region.size) } else { 0 })
}

/// Refuses analysis routines that change AVX or x87 registers: calls keep the application's general,
/// xmm and flag registers only.
pub(super) fn refuse_wide_registers(
    analysis: &AnalysisImage,
    summaries: &Summaries,
    routines: &[u64],
) -> Result<()> {
    for &routine in routines {
        let summary = summaries.of(routine);
        if summary.avx || summary.x87 {
            let registers = if summary.avx { "AVX" } else { "x87" };
            return Err(Error::new(
                "planning the calls",
                format!("the analysis routine uses {registers} registers, which calls do not save"),
            )
            .file(&analysis.file)
            .symbol(analysis.name_at(routine))
            .advice("build the tool for baseline x86-64, without target-cpu or target-feature"));
        }
    }
    Ok(())
}

/// Addresses of the analysis routines that are called, each once.
pub(super) fn routines(calls: &Calls) -> Vec<u64> {
    let mut routines = BTreeSet::new();
    // Runs of calls mostly name the same routine.
    for same in calls.calls.chunk_by(|a, b| a.routine == b.routine) {
        routines.insert(same[0].routine.get());
    }
    // Routines that are passed as arguments may be called, too.
    routines.extend(calls.args.iter().filter_map(|argument| match argument {
        Argument::Routine(address) => Some(*address),
        _ => None,
    }));
    routines.into_iter().collect()
}

/// A panic of the tool cannot be unwound through its own standard library.
pub(super) fn end_after_panic(error: &Error) -> Infallible {
    message::error(error);
    cleanup::remove_all();
    std::process::exit(1)
}
