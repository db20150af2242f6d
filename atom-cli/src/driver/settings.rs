//! What the runtime is told of the files of a run, and where the stages' options come from.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atom_core::image::Image;
use atom_core::pipeline::{Options, Process, State};
use atom_core::plan::Told;

use crate::closure;
use crate::help;
use crate::job::Word;
use crate::request::Request;

/// The file of the area in a bundle's folder.
pub const AREA: &str = "area";
/// The symbolic link to the original program in a bundle's folder.
pub(super) const LINK: &str = "program";
/// What has to be known to enter a process that runs already, in a bundle's folder.
pub const ENTRANCE: &str = "entrance";
/// The folder, in a bundle's folder, of libraries that are added to running processes.
pub(super) const LATE: &str = "late";

/// Values that the stages' options borrow.
pub(super) struct Settings {
    /// The path of the area's file; `None` for a program alone.
    area: Option<PathBuf>,
    /// The path by which the program is run; may be empty.
    named: PathBuf,
    /// Path of a symbolic link to the original program; may be empty.
    link: PathBuf,
    /// Words of the command line that instruments libraries when they are opened, each with a null after it.
    late: Vec<u8>,
    /// Name of the tool, or of its file.
    tool: String,
    /// Addresses for the area, if the process runs already.
    attached: Option<Range<u64>>,
    /// Size in bytes of the code of libraries that are left out.
    unseen_code: u64,
}

impl Settings {
    /// For a program alone.
    pub fn alone(request: &Request, image: &Image) -> Self {
        let path = |word: &Option<Word>| word.as_ref().map(|word| word.path().to_path_buf());
        let placed_at = path(&request.job.placed_at);
        let link = placed_at.map(|file| file.with_file_name(super::ORIGINAL));
        Self {
            area: None,
            named: path(&request.job.named).unwrap_or_default(),
            link: link.unwrap_or_default(),
            late: Vec::new(),
            tool: tool_name(request),
            attached: None,
            unseen_code: unseen_code(request, image),
        }
    }

    /// For a process whose bundle is in a folder. `state` is the file for libraries that come later.
    pub fn process(request: &Request, folder: &Path, state: &Path) -> Self {
        // A relative path would be another file's in another folder.
        let absolute = || std::path::absolute(request.app).unwrap_or(request.app.to_path_buf());
        let mut late = request.late.clone();
        if !late.is_empty() {
            late.extend(state.as_os_str().as_bytes());
            late.push(0);
        }
        Self {
            area: Some(folder.join(AREA)),
            named: (request.job.named.as_ref()).map_or_else(absolute, |w| w.path().to_path_buf()),
            link: folder.join(LINK),
            late,
            tool: tool_name(request),
            attached: (request.job.attach.as_ref()).map(|running| running.area[0]..running.area[1]),
            unseen_code: 0,
        }
    }

    /// Makes the options for `atom_core::pipeline::instrument`. `state` describes the running process if libraries are
    /// added to one, and is `None` otherwise.
    pub fn options<'a>(
        &'a self,
        request: &'a Request<'_>,
        state: Option<&'a State>,
    ) -> Options<'a> {
        let bytes = |path: &'a Path| path.as_os_str().as_bytes();
        let [named, link] = match self.area {
            Some(_) => [&[][..]; 2],
            None => [bytes(&self.named), bytes(&self.link)],
        };
        let area = self.area.as_deref();
        Options {
            told: Told {
                record: request.job.record.as_ref().map_or(&[], Word::bytes),
                follow: &request.follow,
                late: &self.late,
                named,
                link,
                original: original(request),
                tool: &self.tool,
                ..Told::default()
            },
            unseen_code: self.unseen_code,
            process: area.map(|area| Process {
                area,
                named: &self.named,
                link: &self.link,
                state,
                attached: self.attached.as_ref(),
            }),
            ends_soon: true,
            ..request.options.clone()
        }
    }
}

/// The name of the tool, or of its file.
fn tool_name(request: &Request) -> String {
    let named = |file: &Path| Some(file.file_name()?.to_string_lossy().into_owned());
    let tool = request.tool.as_deref();
    tool.and_then(|file| help::tool_name(file).or_else(|| named(file)))
        .unwrap_or_default()
}

/// See [`Told::original`].
fn original(request: &Request) -> [u64; 2] {
    let is_run = request.job.record.is_some();
    let file = is_run
        .then(|| std::fs::metadata(request.app).ok())
        .flatten();
    file.map_or([0; 2], |file| [file.dev(), file.ino()])
}

/// Size in bytes of the code of the libraries that a program loads at its start.
fn unseen_code(request: &Request, image: &Image) -> u64 {
    let libraries = match &image.interpreter {
        Some(interpreter) if request.tool.is_some() && image.kind.is_program() => {
            closure::libraries(Path::new(&interpreter.path), request.app).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let paths = libraries.iter().filter_map(|loaded| loaded.path.as_deref());
    paths.map(closure::code_size).sum()
}
