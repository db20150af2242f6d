//! Instrumenting, step by step.
//!
//! Each value is frozen once its step is done: later steps borrow it and make
//! a new one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atom_core::analysis::AnalysisImage;
use atom_core::cfg::Cfg;
use atom_core::cfg::seeds::FrameFacts;
use atom_core::emit::{self, Placement};
use atom_core::image::Image;
use atom_core::plan::Plan;
use atom_core::rewrite::{self, Layout};
use atom_core::tool::Calls;
use atom_core::{Error, Result};

use crate::args::Run;
use crate::find;
use crate::message::{count, note, number};
use crate::output::PendingFile;
use crate::report::{self, FileFacts, Procedures, Report, TextBytes, Totals};
use crate::request::Request;
use crate::steps::Steps;

/// Runs `atom APP ...`.
pub fn run(args: &Run) -> Result<()> {
    let request = Request::new(args)?;
    let mut steps = Steps::new(request.verbose, 9);

    // The program as it is in its file.
    let image = steps.run(
        "image",
        "reading the program",
        || Image::open(request.app).map_err(|e| find::advise_program(request.app, e)),
        describe_image,
    )?;
    // What the exception tables tell about code.
    let unwind = steps.run(
        "unwind",
        "reading exception tables",
        || image.unwind_table(),
        |table| count(table.fdes.len(), "frame description"),
    )?;
    let frames = FrameFacts::new(&unwind);
    // The program as procedures, blocks and instructions.
    let cfg = steps.run(
        "cfg",
        "finding procedures",
        || Cfg::build(&image, &frames),
        describe_cfg,
    )?;

    // INTERIM: the tool's half comes with its merge.
    let analysis: Option<&AnalysisImage> = None;
    let calls = Calls::default();
    if request.tool.is_some() {
        return Err(Error::new("loading the tool", "this build lacks the step"));
    }

    // The calls as code with symbolic targets.
    let plan = match analysis {
        None => Plan::default(),
        Some(_) => unreachable!(),
    };
    // Where everything will be; no address changes from here on.
    let (layout, placement) = steps.run(
        "layout",
        "laying out the new text",
        || {
            let layout = Layout::new(&image, &cfg, &plan, emit::start::HEAD)?;
            let placement = Placement::new(&image, &cfg, &layout, &unwind, &plan, analysis)?;
            Ok((layout, placement))
        },
        |(layout, _)| format!("{} bytes of new text", number(layout.end - layout.start)),
    )?;
    let (text, old_text) = steps.run(
        "rewrite",
        "moving the text",
        || {
            let text = rewrite::encode(&image, &cfg, &plan, &layout, &placement.anchors())?;
            let options = rewrite::Options {
                strict: request.strict,
            };
            let old_text = rewrite::pads::place(&image, &cfg, &layout, &options)?;
            Ok((text, old_text))
        },
        |(_, old)| count(old.patches.len(), "landing pad"),
    )?;
    let bytes = steps.run(
        "emit",
        "putting the output together",
        || {
            emit::write(
                &image, &cfg, &plan, &layout, text, &old_text, &placement, analysis,
            )
        },
        |bytes| format!("{} bytes", number(bytes.len() as u64)),
    )?;

    let mode = output_mode(request.app)?;
    let output = PendingFile::write(&request.output, &bytes, mode)?;
    let report = request
        .report
        .map(|file| {
            let report = Report {
                program: FileFacts::new(request.app, image.file.len() as u64),
                tool: request.tool.as_deref().map(|t| t.display().to_string()),
                output: FileFacts::new(&request.output, bytes.len() as u64),
                procedures: Procedures::of(&cfg),
                blocks: cfg.blocks.len(),
                instructions: cfg.insts.len(),
                calls: report::Calls::of(&plan),
                text_bytes: TextBytes {
                    r#in: text_size(&image),
                    out: layout.end - layout.start,
                },
                steps: report::steps(&steps),
                seconds: steps.elapsed().as_secs_f64(),
                peak_memory_bytes: report::peak_memory(),
            };
            PendingFile::write(file, &report.to_json(), 0o644)
        })
        .transpose()?;
    output.commit()?;
    report.map_or(Ok(()), PendingFile::commit)?;
    eprintln!("{}", summary(&request, &cfg, &plan, &steps));
    Ok(())
}

/// The program's own mode bits; but a changed program gets no privileges.
fn output_mode(app: &Path) -> Result<u32> {
    let metadata = std::fs::metadata(app)
        .map_err(|e| Error::new("reading the program", e.to_string()).file(app))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o6000 != 0 {
        note("the program's set-user-ID and set-group-ID bits are not given to the output");
    }
    Ok(mode & 0o1777)
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
    let kind = if image.is_pie {
        "position independent"
    } else {
        "fixed address"
    };
    let linking = if image.is_static() {
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

/// The one line that says what happened.
fn summary(request: &Request, cfg: &Cfg, plan: &Plan, steps: &Steps) -> String {
    format!(
        "{}: {} ({}), {}, {} -> {} in {:.2} s",
        Path::new(request.app.file_name().unwrap_or(request.app.as_os_str())).display(),
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(plan.calls_added as usize, "call"),
        request.output.display(),
        steps.elapsed().as_secs_f64(),
    )
}
