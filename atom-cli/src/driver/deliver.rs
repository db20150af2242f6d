//! The files that the command leaves: the output, the report, a copy of the tool.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atom_core::emit::Output;
use atom_core::image::Image;
use atom_core::layout::Placed;
use atom_core::{Error, Result};

use crate::message::note;
use crate::output::PendingFile;
use crate::report::{self, FileFacts, Procedures, Report, TextBytes};
use crate::request::Request;
use crate::steps::{self, Step, Steps};

/// Writes all files. They appear under their names when the last of them has been written.
pub fn deliver(
    request: &Request,
    placed: &Placed<'_>,
    output: &Output<'_>,
    unselected: usize,
    steps: &mut Steps,
) -> Result<()> {
    let mode = output_mode(request.app)?;
    let pending = steps.run(
        Step::Write,
        || PendingFile::write(&request.output, |file| output.write_to(file), mode),
        |_| request.output.display().to_string(),
    )?;
    let report = request
        .report
        .map(|file| {
            let json = report(request, placed, output.len(), unselected, steps);
            PendingFile::write(file, |f| f.write_all(&json), 0o644)
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
    Ok(())
}

/// The contents of the JSON file.
fn report(
    request: &Request,
    placed: &Placed<'_>,
    output_len: u64,
    unselected: usize,
    steps: &Steps,
) -> Vec<u8> {
    let (object, layout) = (placed.object, &placed.layout);
    let (image, cfg) = (object.image, &object.cfg);
    let report = Report {
        program: FileFacts::new(request.app, image.file.len() as u64),
        tool: request.tool.as_deref().map(|t| t.display().to_string()),
        output: FileFacts::new(&request.output, output_len),
        procedures: Procedures::of(cfg, &layout.moved),
        blocks: cfg.blocks.len(),
        instructions: cfg.insts.len(),
        calls: report::Calls::of([placed.plan], unselected),
        text_bytes: TextBytes {
            r#in: text_size(image),
            out: layout.end - layout.start,
        },
        steps: report::steps(steps),
        seconds: steps.elapsed().as_secs_f64(),
        peak_memory_bytes: steps::memory("VmHWM:"),
    };
    report::to_json(&report)
}

/// Size in bytes of the executable segments.
pub(super) fn text_size(image: &Image) -> u64 {
    image
        .segments
        .iter()
        .filter(|s| s.is_executable())
        .map(|s| s.file_size)
        .sum()
}

/// A copy of the tool that was used.
pub(super) fn keep(tool: &Path, target: &Path) -> Result<PendingFile> {
    let bytes = std::fs::read(tool)
        .map_err(|e| Error::new("keeping the tool", e.to_string()).file(tool))?;
    PendingFile::write(target, |file| file.write_all(&bytes), 0o755)
}

/// Mode bits for the output: the program's, without privileges.
pub(super) fn output_mode(app: &Path) -> Result<u32> {
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

/// True if the file gives capabilities to the process that runs it.
fn has_capabilities(app: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(app.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: both pointers are strings. Nothing is written, as the buffer has size 0.
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
