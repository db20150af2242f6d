//! Adding a library to a running process: `atom` as the runtime starts it when the program opens a library.
//!
//! A process that `atom run` has instrumented asks for this with the path of a [`State`]: what the command needs to know of
//! the process. The command instruments the same objects again with the library after them (`atom_core::plan::kept` says
//! why, and what must be equal), and writes into a folder the library, the file that is mapped into the area, and the
//! state for the next library. The folder's name is a digest of the state before and of the library's file, so other
//! processes and later runs find it there. Those that want the same library at the same time take turns.

use std::collections::BTreeSet;
use std::fs::{self, File as LockFile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atom_core::error::Reason;
use atom_core::image::{Image, ObjectKind};
use atom_core::pipeline::{self, Input, Rewritten};
use atom_core::{Error, Result, memory};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::deliver::{self, LATE};
use super::graphs::Graphs;
use super::objects;
use super::settings::Settings;
use crate::args::Args;
use crate::request::Request;
use crate::run::closure;
use crate::run::identity::{Identity, stamp};
use crate::steps::Steps;
use crate::with;

/// The word by which this command is known.
pub const WORD: &str = "--opened";
/// Name of the file with the state.
pub const STATE: &str = "state";
/// Name of the file that is mapped into the area.
const AREA: &str = "area";
/// Name of the folder with the instrumented libraries.
const LIBRARIES: &str = "lib";
/// Ending of the name of a file that says why a library is left as it is.
const REFUSED: &str = "refused";
/// Variables that say where debug information is, on which names depend.
const VARIABLES: [&str; 3] = ["HOME", "XDG_CACHE_HOME", "DEBUGINFOD_CACHE_PATH"];
const DOING: &str = "adding a library to a running process";

/// What has to be known of a process to add a library to it.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct State {
    /// The command line that instrumented the process.
    words: Vec<String>,
    /// The folder in which that command ran.
    folder: String,
    /// Its variables of [`VARIABLES`].
    variables: Vec<(String, String)>,
    /// What the file system says of the tool, of this command and of the originals of all objects.
    stamps: Vec<String>,
    /// Libraries that were added: the original and the instrumented file, and the number of objects after that.
    added: Vec<(String, String, usize)>,
    /// What the stages have to know.
    process: pipeline::State,
}

/// A path as text; others are refused.
fn text(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::new(DOING, "its path is no text").file(path))
}

impl State {
    /// The state of a process that begins.
    pub(super) fn of_process(
        process: &pipeline::State,
        request: &Request,
        inputs: &[Input],
    ) -> Result<Self> {
        let words = std::env::args_os().map(|word| text(Path::new(&word)));
        let folder = std::env::current_dir().map_err(|e| Error::new(DOING, e))?;
        let variables = VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        Ok(Self {
            words: words.collect::<Result<_>>()?,
            folder: text(&folder)?,
            variables: variables.collect(),
            stamps: stamps(request, inputs)?,
            added: Vec::new(),
            process: process.clone(),
        })
    }

    /// Writes it into a folder, which is made.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let file = folder.join(STATE);
        let fail = |e: std::io::Error| Error::new(DOING, e).file(&file);
        fs::create_dir_all(folder).map_err(fail)?;
        let json = serde_json::to_vec(self).map_err(|e| fail(e.into()))?;
        fs::write(&file, json).map_err(fail)
    }

    /// Keeps the graphs of the process's objects in the same folder, so that adding a library does not build them again.
    pub(super) fn keep_graphs(&self, folder: &Path, made: &Rewritten<'_>) {
        let of_objects = &self.stamps[self.stamps.len() - made.inputs.len()..];
        Graphs::new(folder, made.inputs, of_objects).keep(made.objects, made.lives);
    }

    fn read(file: &Path) -> Result<Self> {
        let fail = |e: std::io::Error| Error::new(DOING, e).file(file);
        let json = fs::read(file).map_err(fail)?;
        serde_json::from_slice(&json).map_err(|e| fail(e.into()))
    }

    /// The command line that instrumented the process, in the folder and with the variables of that time.
    fn command_line(&self) -> Result<Args> {
        std::env::set_current_dir(&self.folder).map_err(|e| Error::new(DOING, e))?;
        for (name, value) in &self.variables {
            // SAFETY: the process has one thread.
            unsafe { std::env::set_var(name, value) };
        }
        memory::keep_large_apart();
        memory::start_threads();
        let mut args =
            Args::try_parse_from(&self.words).map_err(|e| Error::new(DOING, e.to_string()))?;
        with::add_folders(&mut args.run.choices)?;
        // The file under its temporary name is gone.
        let placed_at = args.run.job.as_ref().and_then(|job| job.placed_at.as_ref());
        let placed_at = placed_at.map(|path| path.path().to_path_buf());
        args.run.output = placed_at.or(args.run.output);
        Ok(args)
    }

    /// Adds the libraries that were added to the process.
    fn add_libraries(&self, inputs: &mut Vec<Input>) -> Result<()> {
        for (path, output, known) in &self.added {
            let path = PathBuf::from(path);
            let fail = |e: &str| Error::new(DOING, e).file(&path);
            let real = fs::canonicalize(&path).map_err(|e| fail(&e.to_string()))?;
            let image = objects::library(&real);
            let image = image.ok_or_else(|| fail("it is another file now"))?;
            inputs.push(Input {
                output: output.into(),
                is_global: false,
                known: *known,
                path: path.clone(),
                ..Input::alone(image)
            });
        }
        Ok(())
    }
}

/// See [`State::stamps`].
fn stamps(request: &Request, inputs: &[Input]) -> Result<Vec<String>> {
    let command = Identity::command()?;
    let tool = request.tool.as_deref();
    let others = inputs.iter().map(|input| input.path.as_path());
    let all = tool.into_iter().chain([command.as_path()]).chain(others);
    all.map(|path| {
        let metadata = fs::metadata(path);
        let metadata = metadata.map_err(|e| Error::new(DOING, e).file(path))?;
        Ok(stamp(&metadata))
    })
    .collect()
}

/// Adds a library, if the command line asks for that.
pub fn main() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != WORD {
        return None;
    }
    unblock_signals();
    // Nobody else reads the files, and their owner does.
    // SAFETY: a plain system call on this process.
    unsafe { libc::umask(0o077) };
    let (state, library) = (PathBuf::from(words.next()?), PathBuf::from(words.next()?));
    let library = std::path::absolute(&library).unwrap_or(library);
    // The runtime reads the path of the folder; nobody reads an error.
    Some(match found_or_made(&state, &library) {
        Ok(folder) => {
            print!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    })
}

/// The runtime starts the command with all signals blocked.
fn unblock_signals() {
    // SAFETY: a mask of this thread's, the only one.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// The folder with the library's files, from earlier or made now. `state` is the file with the process's state.
fn found_or_made(state: &Path, library: &Path) -> Result<PathBuf> {
    let fail = |e: std::io::Error, file: &Path| Error::new(DOING, e).file(file);
    let metadata = fs::metadata(library).map_err(|e| fail(e, library))?;
    let name = Identity::of_words(&[text(state)?, text(library)?, stamp(&metadata)]);
    let before = state.parent().unwrap_or(Path::new("/"));
    // Folders of later libraries lie beside those of earlier ones.
    let all = match before.file_name().is_some_and(|name| name == LATE) {
        true => before,
        false => before.parent().unwrap_or(before),
    };
    let folder = all.join(&name);
    if folder.join(STATE).exists() {
        return Ok(folder);
    }
    let lock_file = folder.with_extension("lock");
    let lock = LockFile::create(&lock_file).map_err(|e| fail(e, &lock_file))?;
    lock.lock().map_err(|e| fail(e, &lock_file))?;
    if folder.join(STATE).exists() {
        return Ok(folder);
    }
    let refused = folder.with_extension(REFUSED);
    if let Ok(reason) = fs::read_to_string(&refused) {
        return Err(Error::new(DOING, reason).file(library));
    }
    let making = folder.with_extension("making");
    fs::remove_dir_all(&making).unwrap_or_default();
    fs::create_dir(&making).map_err(|e| fail(e, &making))?;
    let made = make(&State::read(state)?, library, &making, &folder)
        .and_then(|()| fs::rename(&making, &folder).map_err(|e| fail(e, &folder)));
    if let Err(error) = made {
        fs::remove_dir_all(&making).unwrap_or_default();
        // Without it the next process tries again.
        fs::write(&refused, error.to_string()).unwrap_or_default();
        return Err(error);
    }
    Ok(folder)
}

/// Adds a library to the objects, and with it the libraries that it names and that are not there yet: the interpreter opens
/// them next. If it finds others instead, these come by themselves.
fn add_with_dependencies(inputs: &mut Vec<Input>, (library, image): (&Path, Image), folder: &Path) {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let is_interpreter = |input: &&Input| input.image.kind == ObjectKind::Interpreter;
    let interpreter = inputs.iter().find(is_interpreter);
    let loaded = interpreter.map(|interpreter| closure::libraries(&interpreter.path, library));
    let loaded = loaded.and_then(Result::ok).unwrap_or_default();
    let mut known: BTreeSet<PathBuf> = inputs.iter().map(|input| real(&input.path)).collect();
    let mut names = BTreeSet::new();
    let mut add = |path: PathBuf, image: Image| {
        let mut name = path
            .file_name()
            .unwrap_or("library".as_ref())
            .to_os_string();
        while !names.insert(name.clone()) {
            name.push(".2");
        }
        inputs.push(Input {
            output: folder.join(LIBRARIES).join(name),
            path,
            is_global: false,
            known: usize::MAX,
            ..Input::alone(image)
        });
    };
    known.insert(real(library));
    add(library.to_path_buf(), image);
    for path in loaded.into_iter().filter_map(|loaded| loaded.path) {
        let file = real(&path);
        if known.insert(file.clone())
            && let Some(image) = objects::library(&file)
            && image.kind == ObjectKind::SharedObject
        {
            add(path, image);
        }
    }
}

/// The image of a library that may be added. What can never be added costs nothing more.
fn image(library: &Path) -> Result<Image, Reason> {
    let real = fs::canonicalize(library)?;
    let image = objects::library(&real).ok_or("it cannot be instrumented")?;
    match image.kind {
        ObjectKind::SharedObject => Ok(image),
        _ => Err("it is no library".into()),
    }
}

/// Makes the files in `making`, which will be `folder`.
fn make(before: &State, library: &Path, making: &Path, folder: &Path) -> Result<()> {
    let fail = |e: Reason| Error::new(DOING, e).file(library);
    let image = image(library).map_err(fail)?;
    let args = before.command_line()?;
    let request = Request::new(&args.run)?;
    let mut steps = Steps::new(&request);

    let program = Image::read(request.app)?;
    let bundle = deliver::folder(&request.output)?;
    let mut inputs = objects::all(&request, program, &bundle)?;
    before.add_libraries(&mut inputs)?;
    let first = inputs.len();
    if before.process.objects() != first {
        return Err(fail("the process has other objects".into()));
    }
    add_with_dependencies(&mut inputs, (library, image), folder);
    let stamps = stamps(&request, &inputs)?;
    if !stamps.starts_with(&before.stamps) {
        return Err(fail("the tool, atom or an object has been replaced".into()));
    }
    let of_objects = &stamps[stamps.len() - inputs.len()..];
    let all = folder.parent().unwrap_or(folder);
    let graphs = Graphs::new(all, &inputs, of_objects);
    graphs.read(&mut inputs[..first]);
    let settings = Settings::process(&request, &bundle, Path::new(""));
    let options = settings.options(&request, Some(&before.process));
    let tool = request.tool.as_deref();
    pipeline::instrument(inputs, tool, &options, &mut steps, |made, _| {
        graphs.keep(made.objects, made.lives);
        let (Some(area), Some(process)) = (made.area, made.state) else {
            return Err(fail("nothing is kept".into()));
        };
        let mut after = State {
            stamps,
            process: process.clone(),
            ..before.clone()
        };
        for input in &made.inputs[first..] {
            let added = (text(&input.path)?, text(&input.output)?, made.inputs.len());
            after.added.push(added);
        }
        let libraries = making.join(LIBRARIES);
        fs::create_dir_all(&libraries).map_err(|e| fail(e.into()))?;
        deliver::write_objects(made, first, &libraries)?;
        fs::write(making.join(AREA), area.to_vec()?).map_err(|e| fail(e.into()))?;
        after.write(making)
    })
}
