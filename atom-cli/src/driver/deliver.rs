//! The files that the command leaves: the output, the other files of a bundle, the report, a copy of the tool.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atom_core::emit::Output;
use atom_core::pipeline::Rewritten;
use atom_core::{Error, Result};

use super::settings::{AREA, ENTRANCE, LATE, LINK};
use super::state::State;
use crate::message::note;
use crate::output::PendingFile;
use crate::report::{self, Report};
use crate::request::Request;
use crate::steps::{Step, Steps};

const DOING: &str = "writing the bundle";

/// The folder beside the output in which the other files of the bundle are, as an absolute path.
pub(super) fn folder(output: &Path) -> Result<PathBuf> {
    let parent = match output.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = std::fs::canonicalize(parent).map_err(|e| Error::new(DOING, e).file(parent))?;
    Ok(beside(&parent.join(output.file_name().unwrap_or_default())))
}

/// The path of the folder that belongs to the program of a bundle.
pub fn beside(program: &Path) -> PathBuf {
    let mut path = program.as_os_str().to_os_string();
    path.push(".libs");
    path.into()
}

/// Writes all files. The program, the report and the tool appear under their names when the last of the files has been
/// written, so a bundle whose program exists is whole.
pub fn deliver(request: &Request, made: &Rewritten<'_>, steps: &mut Steps) -> Result<()> {
    let write = || {
        if let Some(area) = made.area {
            write_shared(request, made, area)?;
        }
        pending(&made.outputs[0], request.app, &request.output)
    };
    let path = |_: &PendingFile| request.output.display().to_string();
    let program = steps.run(Step::Write, write, path)?;
    let report = (request.report)
        .map(|file| {
            let json = report::to_json(&Report::new(request, made, steps));
            PendingFile::write(file, |f| f.write_all(&json), 0o644)
        })
        .transpose()?;
    let kept = match (request.keep_tool, &request.tool) {
        (Some(target), Some(tool)) => Some(keep(tool, target)?),
        _ => None,
    };
    program.commit()?;
    for file in [kept, report].into_iter().flatten() {
        file.commit()?;
    }
    Ok(())
}

/// Writes the files of a bundle but for the program.
fn write_shared(request: &Request, made: &Rewritten<'_>, area: &Output<'_>) -> Result<()> {
    let folder = folder(&request.output)?;
    let fail = |e: std::io::Error| Error::new(DOING, e).file(&folder);
    if let Some(state) = made.state {
        let state = State::of_process(state, request, made.inputs)?;
        state.write(&folder.join(LATE))?;
        state.keep_graphs(&folder.join(LATE), made);
    }
    std::fs::create_dir_all(&folder).map_err(fail)?;
    let link = folder.join(LINK);
    let program = std::fs::canonicalize(request.app).map_err(fail)?;
    match std::fs::remove_file(&link) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
        _ => {}
    }
    std::os::unix::fs::symlink(program, &link).map_err(fail)?;
    if let Some(entrance) = made.entrance {
        let json = serde_json::to_vec(entrance).expect("plain fields always serialise");
        std::fs::write(folder.join(ENTRANCE), json).map_err(fail)?;
    }
    PendingFile::write(&folder.join(AREA), |file| area.write_to(file), 0o644)?.commit()?;
    write_objects(made, 1, &folder)
}

/// Writes the rewritten objects from the one with the number `first` on into a folder.
pub(super) fn write_objects(made: &Rewritten<'_>, first: usize, folder: &Path) -> Result<()> {
    let before = made.inputs.len() - made.outputs.len();
    let outputs = &made.outputs[first - before..];
    for (input, output) in made.inputs[first..].iter().zip(outputs).rev() {
        let target = folder.join(input.output.file_name().unwrap_or_default());
        pending(output, &input.path, &target)?.commit()?;
    }
    Ok(())
}

/// Writes the rewrite of a file.
fn pending(output: &Output<'_>, original: &Path, target: &Path) -> Result<PendingFile> {
    let mode = output_mode(original)?;
    PendingFile::write(target, |file| output.write_to(file), mode)
}

/// A copy of the tool that was used.
fn keep(tool: &Path, target: &Path) -> Result<PendingFile> {
    let bytes = std::fs::read(tool).map_err(|e| Error::new("keeping the tool", e).file(tool))?;
    PendingFile::write(target, |file| file.write_all(&bytes), 0o755)
}

/// Mode bits for the output: the program's, without privileges.
fn output_mode(app: &Path) -> Result<u32> {
    let metadata =
        std::fs::metadata(app).map_err(|e| Error::new("reading the program", e).file(app))?;
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
