//! Instrumenting, step by step.
//!
//! Each value is frozen once its step is done: later steps borrow it and make
//! a new one.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::panic::resume_unwind;
use std::path::Path;

use atom_core::analysis::specialise::Specialiser;
use atom_core::analysis::{AnalysisImage, Summaries};
use atom_core::cfg::Cfg;
use atom_core::cfg::seeds::FrameFacts;
use atom_core::check;
use atom_core::emit;
use atom_core::error::Kind;
use atom_core::image::Image;
use atom_core::image::debug::DebugLines;
use atom_core::layout::{self, Layout, MovedSet, Placement, Region, Sites};
use atom_core::live::{Live, RegSet};
use atom_core::memory;
use atom_core::plan::{self, Clobbers, Plan, ThreadOptions};
use atom_core::rewrite;
use atom_core::tool::{Application, Argument, Calls, libraries, may_have_threads};
use atom_core::{Error, Result};

use crate::args::Run;
use crate::message::{self, count, note, number};
use crate::output::PendingFile;
use crate::report::{self, FileFacts, Procedures, Report, TextBytes, Totals};
use crate::request::Request;
use crate::steps::{self, Steps};
use crate::tool_code::Loaded;
use crate::{cleanup, find};

const NEAR: &str = "the new text lies close to the program: the heap may meet it, and then \
                    starts elsewhere or grows less far than the original's";

/// Runs `atom APP ...`.
pub fn run(args: &Run) -> Result<()> {
    memory::keep_large_apart();
    memory::start_threads();
    let request = Request::new(args)?;
    if args.heap.is_some() {
        note(
            "-heap is not needed: the program and the tool have heaps of their own, \
             and the program's addresses do not change",
        );
    }
    let mut steps = Steps::new(
        request.verbose,
        12 + u64::from(request.check) + u64::from(request.debug_info),
    );

    // The program as it is in its file.
    let image = steps.run(
        "image",
        "reading the program",
        || Image::open(request.app).map_err(|e| find::advise_program(request.app, e)),
        describe_image,
    )?;
    if image.is_go() {
        return Err(Error::new(
            "reading the program",
            "it is a Go program, whose runtime looks its return addresses up in tables of its own",
        )
        .file(request.app)
        .advice("Go programs are not supported yet"));
    }
    if image.interpreter.is_some() && image.dynamic.is_empty() {
        return Err(Error::new(
            "reading the program",
            "it names an interpreter but has no dynamic section, so only that knows how it starts",
        )
        .file(request.app)
        .advice("link it statically (klibc: `klcc -static`)"));
    }
    let region = Region::wanted(&image, &request.wishes)?;
    if region.is_near(&image) {
        note(NEAR);
    }
    // What the exception tables tell about code.
    let unwind = steps.run(
        "unwind",
        "reading exception tables",
        || image.unwind_table(),
        |table| count(table.fdes.len(), "frame description"),
    )?;
    let frames = FrameFacts::new(&unwind);
    let loaded = match &request.tool {
        None => None,
        Some(file) => Some(steps.run(
            "load",
            "loading the tool",
            || Loaded::new(file),
            |loaded| loaded.tool.path().display().to_string(),
        )?),
    };
    // The program as procedures, blocks and instructions.
    let (cfg, pads) = steps.run(
        "cfg",
        "finding procedures",
        || {
            let understood = layout::understand(&image, &frames)?;
            memory::give_back();
            image.release_pages();
            Ok(understood)
        },
        |(cfg, _)| describe_cfg(cfg),
    )?;

    // The tool's calls, and its code as it will lie in the program. The tool uses
    // one thread; meanwhile the others find out what is live.
    let (mut tool, live) = match loaded {
        None => (None, None),
        Some(loaded) => std::thread::scope(|scope| {
            let live = scope.spawn(|| Live::compute(&image, &cfg));
            let tool = prepare_tool(loaded, &request, &image, &cfg, &mut steps)?;
            let live = steps.run(
                "live",
                "finding live registers",
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
            Ok((Some(tool), Some(live)))
        })?,
    };
    let unselected = tool.as_ref().map_or(0, |tool| tool.unselected);
    // The calls as code with symbolic targets.
    let plan = match (&mut tool, &live) {
        (Some(tool), Some(live)) => {
            let facts = (&image, &cfg, live);
            plan_calls(tool, &request, facts, &mut steps)?
        }
        _ => Plan::default(),
    };
    let live = live.filter(|_| request.check);
    let analysis = tool.as_ref().map(|tool| &tool.analysis);
    let mut options = layout::Options {
        strict: request.strict,
        extra: request.extra,
        region: Some(region),
    };
    // Where everything will be; no address changes from here on.
    let (layout, placement) = steps.run(
        "layout",
        "laying out the new text",
        || {
            let place = |pads, options: &layout::Options| -> Result<_> {
                let layout = Layout::new(&image, &cfg, &plan, pads, options)?;
                image.release_pages();
                memory::give_back();
                let placement = Placement::new(&image, &cfg, &layout, &unwind, &plan, analysis)?;
                Ok((layout, placement))
            };
            match (place(pads, &options), region.nearer(&image)) {
                (Err(e), Some(nearer)) if e.kind == Kind::TooLarge => {
                    note(NEAR);
                    options.region = Some(nearer);
                    place(Sites::new(&image, &cfg, &MovedSet::all(&cfg)), &options)
                }
                (placed, _) => placed,
            }
        },
        |(layout, _)| describe_layout(layout),
    )?;
    let (text, old_text) = steps.run(
        "rewrite",
        "planning the pads",
        || {
            let text = rewrite::encode(&image, &cfg, &plan, &layout, &placement.anchors())?;
            let old_text = rewrite::pads::place(&image, &cfg, &layout, &options)?;
            Ok((text, old_text))
        },
        |(_, old)| {
            let pads = count(old.patches.len(), "landing pad");
            format!("{pads}, {}", count(old.branches.len(), "patched call"))
        },
    )?;
    let debug = match request.debug_info {
        false => Vec::new(),
        true => steps.run(
            "debug",
            "converting debug information",
            || {
                Ok(emit::debug::build(
                    &image, &cfg, &plan, &layout, &placement, analysis,
                ))
            },
            |sections| {
                let size: usize = sections.iter().map(|s| s.bytes.len()).sum();
                format!("{} bytes", number(size as u64))
            },
        )?,
    };
    let output = steps.run(
        "emit",
        "putting the output together",
        || {
            emit::write(
                &image, &cfg, &plan, &layout, text, &old_text, &placement, analysis, &debug,
            )
        },
        |output| format!("{} bytes", number(output.len())),
    )?;

    if request.check {
        let clobbers = |routine| match &tool {
            Some(tool) => Clobbers::from(tool.summaries.of(routine)),
            None => Clobbers::EVERYTHING,
        };
        let subject = check::Subject {
            image: &image,
            cfg: &cfg,
            live: &live.unwrap_or_else(|| Live::compute(&image, &cfg)),
            plan: &plan,
            layout: &layout,
            analysis: (placement.analysis, placement.rw),
            end: placement.end,
            clobbers: &clobbers,
            output: &output.to_vec()?,
        };
        steps.run(
            "check",
            "comparing the output with the original",
            || check::check(&subject),
            |done| {
                format!(
                    "{} and {} inserted ones are right",
                    count(done.instructions as usize, "instruction"),
                    number(done.inserted)
                )
            },
        )?;
    }

    let mode = output_mode(request.app)?;
    let pending = steps.run(
        "write",
        "writing the output",
        || PendingFile::write(&request.output, |file| output.write_to(file), mode),
        |_| request.output.display().to_string(),
    )?;
    let report = request
        .report
        .map(|file| {
            let report = Report {
                program: FileFacts::new(request.app, image.file.len() as u64),
                tool: request.tool.as_deref().map(|t| t.display().to_string()),
                output: FileFacts::new(&request.output, output.len()),
                procedures: Procedures::of(&cfg, &layout.moved),
                blocks: cfg.blocks.len(),
                instructions: cfg.insts.len(),
                calls: report::Calls::of(&plan, unselected),
                text_bytes: TextBytes {
                    r#in: text_size(&image),
                    out: layout.end - layout.start,
                },
                steps: report::steps(&steps),
                seconds: steps.elapsed().as_secs_f64(),
                peak_memory_bytes: steps::memory("VmHWM:"),
            };
            PendingFile::write(file, |f| f.write_all(&report.to_json()), 0o644)
        })
        .transpose()?;
    let kept = match (request.keep_tool, &request.tool) {
        (Some(target), Some(tool)) => Some(keep(tool, target)?),
        _ => None,
    };
    pending.commit()?;
    for file in [kept, report].into_iter().flatten() {
        file.commit()?;
    }
    eprintln!("{}", summary(&request, &cfg, &plan, unselected, &steps));
    // The process ends now, and its memory goes as a whole.
    std::mem::forget(output);
    std::mem::forget((old_text, placement, layout, plan, tool, cfg, unwind));
    Ok(())
}

/// What a tool wants of this program.
struct Prepared {
    calls: Calls,
    /// Calls that were dropped because what they are on is not selected.
    unselected: usize,
    analysis: AnalysisImage,
    /// What the called routines change.
    summaries: Summaries,
}

/// Runs the tool's instrument routine, and takes its code.
fn prepare_tool(
    loaded: Loaded,
    request: &Request,
    image: &Image,
    cfg: &Cfg,
    steps: &mut Steps,
) -> Result<Prepared> {
    let lines = DebugLines::new(image);
    // Before the tool runs, as a wrong pattern is the user's mistake.
    let selected = match request.selection.is_all() {
        true => None,
        false => Some(request.selection.resolve(cfg, &lines)?),
    };
    let mut calls = steps.run(
        "tool",
        "running the instrument routine",
        || {
            let options = request.tool_options;
            let application = Application {
                image,
                cfg,
                lines: &lines,
                selected: selected.as_ref(),
            };
            let tool = &loaded.tool;
            tool.instrument(application, options, &end_after_panic)
        },
        |calls| count(calls.calls.len(), "call"),
    )?;
    memory::give_back();
    let unselected = selected.map_or(0, |s| s.filter(cfg, &mut calls));
    let (analysis, summaries) = steps.run(
        "analysis",
        "reading the analysis routines",
        || loaded.code(&routines(&calls)),
        |(analysis, _)| {
            format!(
                "{} bytes of code and tables",
                number(analysis.text.len() as u64)
            )
        },
    )?;
    Ok(Prepared {
        calls,
        unselected,
        analysis,
        summaries,
    })
}

/// Whether gs is to be left alone for the sake of libraries.
fn no_gs(image: &Image, calls: &Calls, may_have_threads: bool, request: &Request) -> bool {
    if request.no_gs || calls.thread_data.len == 0 || !may_have_threads {
        return request.no_gs;
    }
    let library = libraries::that_uses_gs(image);
    if let Some(path) = &library {
        note(&format!(
            "{} uses the gs segment, so threads' own counters are found more slowly",
            path.display()
        ));
    }
    library.is_some()
}

/// Turns the calls into code, and forgets them: needs to know what is live and
/// what routines change.
fn plan_calls(
    tool: &mut Prepared,
    request: &Request,
    (image, cfg, live): (&Image, &Cfg, &Live),
    steps: &mut Steps,
) -> Result<Plan> {
    let calls = std::mem::take(&mut tool.calls);
    let summaries = &tool.summaries;
    steps.run(
        "plan",
        "planning the calls",
        || {
            refuse_wide_registers(&tool.analysis, summaries, &routines(&calls))?;
            let may_have_threads = may_have_threads(image, cfg);
            let no_gs = no_gs(image, &calls, may_have_threads, request);
            let facts = &tool.analysis.facts;
            let bodies = Specialiser::new(&tool.analysis);
            let options = plan::Options {
                finish: Some(facts.finish),
                exec: facts.export("__atom_exec"),
                may_have_threads,
                bodies: request.inline.then_some(&bodies),
                threads: ThreadOptions::new(image, cfg, &calls, may_have_threads, no_gs, facts),
                every_point: request.precise_signals,
                low_room: low_room(image, request)?,
            };
            let clobbers = |routine| summaries.of(routine).into();
            let plan = Plan::build(image, cfg, live, calls, &clobbers, &options);
            memory::give_back();
            plan
        },
        |plan| {
            let points = count(plan.insertions.len(), "insertion");
            let flow = number(plan.calls_by_flow);
            let shared = count(plan.shared.len(), "shared piece");
            format!("{points}, {shared}, {flow} counted by flow")
        },
    )
}

/// Bytes of the new segments that certainly lie below 2 GiB.
fn low_room(image: &Image, request: &Request) -> Result<u64> {
    let region = Region::wanted(image, &request.wishes)?;
    let is_fixed = !image.kind.is_position_independent() && region.data.is_none();
    let low = (1u64 << 31).saturating_sub(region.start);
    Ok(if is_fixed { low.min(region.size) } else { 0 })
}

/// Calls keep the application's general, xmm and flag registers; what else an
/// analysis routine would change could not be put back.
fn refuse_wide_registers(
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

/// The analysis routines that are called, each once.
fn routines(calls: &Calls) -> Vec<u64> {
    let mut routines = BTreeSet::new();
    // Mostly the same one is called again.
    for same in calls.calls.chunk_by(|a, b| a.routine == b.routine) {
        routines.insert(same[0].routine.get());
    }
    // Those that are passed as arguments may be called, too.
    routines.extend(calls.args.iter().filter_map(|argument| match argument {
        Argument::Routine(address) => Some(*address),
        _ => None,
    }));
    routines.into_iter().collect()
}

/// A panic of the tool cannot be unwound through its own standard library.
fn end_after_panic(error: &Error) -> Infallible {
    message::error(error);
    cleanup::remove_all();
    std::process::exit(1)
}

/// A copy of the tool that was used.
fn keep(tool: &Path, target: &Path) -> Result<PendingFile> {
    let bytes = std::fs::read(tool)
        .map_err(|e| Error::new("keeping the tool", e.to_string()).file(tool))?;
    PendingFile::write(target, |file| file.write_all(&bytes), 0o755)
}

/// The program's own mode bits; but a changed program gets no privileges.
fn output_mode(app: &Path) -> Result<u32> {
    let metadata = std::fs::metadata(app)
        .map_err(|e| Error::new("reading the program", e.to_string()).file(app))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o6000 != 0 {
        note("the program's set-user-ID and set-group-ID bits are not given to the output");
    }
    if has_capabilities(app) {
        note("the program's file capabilities are not given to the output");
    }
    Ok(mode & 0o1777)
}

/// Whether the file gives capabilities to who runs it.
fn has_capabilities(app: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(app.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: two strings; nothing is written, as no room is offered.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            std::ptr::null_mut(),
            0,
        )
    };
    size > 0
}

fn text_size(image: &Image) -> u64 {
    image
        .segments
        .iter()
        .filter(|s| s.is_executable())
        .map(|s| s.file_size)
        .sum()
}

fn describe_image(image: &Image) -> String {
    let kind = if image.kind.is_position_independent() {
        "position independent"
    } else {
        "fixed address"
    };
    let linking = if image.kind.is_static() {
        "static"
    } else {
        "dynamic"
    };
    let symbols = if image.symbols.is_empty() {
        "stripped"
    } else {
        "with symbols"
    };
    let size = number(image.file.len() as u64);
    format!("{size} bytes, {kind}, {linking}, {symbols}")
}

fn describe_cfg(cfg: &Cfg) -> String {
    format!(
        "{} ({}), {}, {}, {}",
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(cfg.insts.len(), "instruction"),
        count(cfg.jump_tables.len(), "jump table"),
    )
}

fn describe_layout(layout: &Layout) -> String {
    format!(
        "{} bytes of new text, {}",
        number(layout.end - layout.start),
        count(layout.moved.count(), "moved procedure"),
    )
}

/// The one line that says what happened.
fn summary(request: &Request, cfg: &Cfg, plan: &Plan, unselected: usize, steps: &Steps) -> String {
    let left_out = match unselected {
        0 => String::new(),
        n => format!(" ({} not selected)", number(n as u64)),
    };
    let in_line = match plan.calls_inlined {
        0 => String::new(),
        n => format!(" ({} in line)", number(n)),
    };
    format!(
        "{}: {} ({}), {}, {}{in_line}{left_out} -> {} in {:.2} s",
        Path::new(request.app.file_name().unwrap_or(request.app.as_os_str())).display(),
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(plan.calls_added as usize, "call"),
        request.output.display(),
        steps.elapsed().as_secs_f64(),
    )
}
