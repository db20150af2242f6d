//! Instrumenting, step by step.
//!
//! Each value is frozen once its step is done: later steps borrow it and make
//! a new one.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atom_core::cfg::Cfg;
use atom_core::cfg::seeds::FrameFacts;
use atom_core::image::Image;
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
    let mut steps = Steps::new(args.verbose, 9);

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

    // INTERIM: the steps that make the bytes come with their merge.
    let bytes: Vec<u8> = return Err(Error::new("rewriting", "this build lacks the step"));
    #[allow(unreachable_code)]
    let calls = report::Calls {
        added: 0,
        inlined: 0,
        called: 0,
    };
    let mode = output_mode(request.app)?;
    let output = PendingFile::write(&request.output, &bytes, mode)?;
    let report = request
        .report
        .map(|file| {
            let text_bytes = TextBytes {
                r#in: text_size(&image),
                out: 0,
            };
            let report = Report {
                program: FileFacts::new(request.app, image.file.len() as u64),
                tool: request.tool.as_deref().map(|t| t.display().to_string()),
                output: FileFacts::new(&request.output, bytes.len() as u64),
                procedures: Procedures::of(&cfg),
                blocks: cfg.blocks.len(),
                instructions: cfg.insts.len(),
                calls,
                text_bytes,
                steps: report::steps(&steps),
                seconds: steps.elapsed().as_secs_f64(),
                peak_memory_bytes: report::peak_memory(),
            };
            PendingFile::write(file, &report.to_json(), 0o644)
        })
        .transpose()?;
    output.commit()?;
    report.map_or(Ok(()), PendingFile::commit)?;
    eprintln!("{}", summary(&request, &cfg, 0, &steps));
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
fn summary(request: &Request, cfg: &Cfg, calls: u64, steps: &Steps) -> String {
    format!(
        "{}: {} ({}), {}, {} -> {} in {:.2} s",
        Path::new(request.app.file_name().unwrap_or(request.app.as_os_str())).display(),
        count(cfg.procs.len(), "procedure"),
        Totals::of(cfg).text(),
        count(cfg.blocks.len(), "block"),
        count(calls as usize, "call"),
        request.output.display(),
        steps.elapsed().as_secs_f64(),
    )
}
