//! Instrumenting, step by step.
//!
//! Each value is frozen once its step is done: later steps borrow it and make
//! a new one.

pub mod bundle;
mod calls;
mod deliver;
mod describe;
mod graphs;
pub mod late;
mod origin;
mod process;

use atom_core::emit;
use atom_core::emit::debug;
use atom_core::image::Image;
use atom_core::layout::{self, Options, Placed, Region};
use atom_core::live::Live;
use atom_core::plan::{Clobbers, Plan};
use atom_core::{Error, Result, check, memory, rewrite};

use crate::args::Run;
use crate::find;
use crate::message::{count, note};
use crate::request::Request;
use crate::steps::{Step, Steps};
use crate::tool_code::Loaded;
use calls::Instrumentation;

/// Name of the link to the original beside a program that `atom run` has instrumented alone.
pub const ORIGINAL: &str = ".original";

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
    let mut steps = Steps::new(&request);

    // The program as it is in its file, and where the new segments are to lie.
    let image = steps.run(Step::Image, || open(&request), describe::image)?;
    refuse_unsupported(&image, &request)?;
    if request.libraries && image.kind.is_dynamic_program() {
        return process::run(&request, image, &mut steps);
    }
    let region = region(&image, &request)?;
    // What the exception tables tell about code.
    let unwind = steps.run(
        Step::Unwind,
        || image.unwind_table(),
        |table| count(table.fdes.len(), "frame description"),
    )?;
    let load = |file| {
        let name = |loaded: &Loaded| loaded.tool.path().display().to_string();
        steps.run(Step::Load, || Loaded::new(file), name)
    };
    let loaded = request.tool.as_deref().map(load).transpose()?;
    // The program as procedures, blocks and instructions.
    let understand = || {
        let understood = layout::understand(&image, unwind, request.returns)?;
        memory::give_back();
        image.release_pages();
        Ok(understood)
    };
    let (object, sites) = steps.run(Step::Cfg, understand, |(o, _)| describe::cfg(&o.cfg))?;

    // The tool's calls and its code; what is live; and the calls as code.
    let instrumented = loaded.map(|tool| calls::instrument(tool, &request, &object, &mut steps));
    let (mut tool, live) = instrumented.transpose()?.unzip();
    let plan = match (&mut tool, &live) {
        (Some(tool), Some(live)) => tool.plan(&request, &object, live, &mut steps)?,
        _ => Plan::default(),
    };
    let live = live.filter(|_| request.check.is_some());
    let analysis = tool.as_ref().map(|tool| &tool.analysis);
    let unselected = tool.as_ref().map_or(0, |tool| tool.unselected);

    // Where everything will be; no address changes from here on.
    let options = Options {
        strict: request.strict,
        extra: request.extra,
        region: Some(region),
        area: None,
    };
    let place = || {
        let placed = Placed::new(&object, &plan, analysis, sites, &options)?;
        if placed.layout.region.start != region.start {
            note(NEAR);
        }
        Ok(placed)
    };
    let placed = steps.run(Step::Layout, place, |p| describe::layout(&p.layout))?;
    // The code at these addresses, and the output.
    let code = steps.run(
        Step::Rewrite,
        || rewrite::code(&placed),
        |code| describe::old_text(&code.old),
    )?;
    let debug = debug_sections(&request, &placed, &mut steps)?;
    let output = steps.run(
        Step::Emit,
        || emit::write(&placed, code, &debug),
        |output| describe::bytes(output.len()),
    )?;
    if let Some(scope) = request.check {
        let output = (&output.to_vec()?[..], scope);
        compare(&placed, live, tool.as_ref(), output, &mut steps)?;
    }
    deliver::deliver(&request, &placed, &output, unselected, &mut steps)?;
    if !request.quiet {
        let line = describe::summary(&request, &object.cfg, &plan, unselected, &steps);
        eprintln!("{line}");
        if let Some(tool) = &tool
            && let Some(line) = describe::left_out(&image, &object.cfg, tool.code)
        {
            eprintln!("{line}");
        }
    }
    // The process ends now, and its memory goes as a whole.
    std::mem::forget(output);
    std::mem::forget(placed);
    std::mem::forget((object, plan, tool));
    Ok(())
}

/// Opens the program.
fn open(request: &Request) -> Result<Image> {
    let opened = Image::open(request.app).map_err(|e| find::advise_program(request.app, e))?;
    // With its libraries a program knows itself by its original path.
    match request.libraries {
        true => Ok(opened),
        false => Ok(origin::keep(opened, &request.output)),
    }
}

/// Refuses programs that cannot be instrumented although the file is sound.
fn refuse_unsupported(image: &Image, request: &Request) -> Result<()> {
    let (reason, advice) = if image.interpreter.is_some() && image.dynamic.is_empty() {
        (
            "it names an interpreter but has no dynamic section, so only that knows how it starts",
            "link it statically (klibc: `klcc -static`)",
        )
    } else {
        return Ok(());
    };
    Err(Error::new("reading the program", reason)
        .file(request.app)
        .advice(advice))
}

/// The region for the new segments as the command line wants it.
fn region(image: &Image, request: &Request) -> Result<Region> {
    let region = Region::wanted(image, &request.wishes)?;
    if region.is_near(image) {
        note(NEAR);
    }
    Ok(region)
}

/// Debug information for the output, if it is wanted.
fn debug_sections(
    request: &Request,
    placed: &Placed<'_>,
    steps: &mut Steps,
) -> Result<Vec<debug::DebugSection>> {
    if !request.debug_info {
        return Ok(Vec::new());
    }
    let size = |sections: &Vec<debug::DebugSection>| {
        let size: usize = sections.iter().map(|s| s.bytes.len()).sum();
        describe::bytes(size as u64)
    };
    steps.run(Step::Debug, || Ok(debug::build(placed)), size)
}

/// Compares the output with the original.
fn compare(
    placed: &Placed<'_>,
    live: Option<Live<'_>>,
    tool: Option<&Instrumentation>,
    (output, scope): (&[u8], check::Scope),
    steps: &mut Steps,
) -> Result<()> {
    let object = placed.object;
    let clobbers = |routine| tool.map_or(Clobbers::EVERYTHING, |tool| tool.clobbers(routine));
    let subject = check::Subject {
        placed,
        live: &live.unwrap_or_else(|| Live::compute(object.image, &object.cfg)),
        clobbers: &clobbers,
        output,
        scope,
    };
    steps.run(
        Step::Check,
        || check::check(&subject),
        |done| describe::checked(*done),
    )?;
    Ok(())
}
