//! Adding a library to a running process: `atom` as the runtime starts it when the program opens a library.
//!
//! A process that `atom run` has instrumented asks for this with the path of a [`State`]: what the command needs to know of
//! the process. The command instruments the same objects again with the library after them (`atom_core::plan::kept` says
//! why, and what must be equal), and writes into a folder the library, the file that is mapped into the area, and the
//! state for the next library. The folder's name is a digest of the state before and of the library's file, so other
//! processes and later runs find it there. Those that want the same library at the same time take turns.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File as LockFile};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atom_core::error::Reason;
use atom_core::image::{Image, ObjectKind};
use atom_core::pipeline::{self, Input};
use atom_core::{Error, Result};

use super::deliver;
use super::graphs::Graphs;
use super::objects;
use super::settings::{LATE, Settings};
use super::state::{DOING, STATE, State, stamps, text};
use crate::closure;
use crate::kept::identity::{Identity, stamp};
use crate::request::Request;
use crate::steps::Steps;

/// The word by which this command is known.
pub const WORD: &str = "--opened";
/// Name of the file that is mapped into the area.
const AREA: &str = "area";
/// Name of the folder with the instrumented libraries.
const LIBRARIES: &str = "lib";
/// Ending of the name of a file that says why a library is left as it is.
const REFUSED: &str = "refused";
/// Number of libraries of one folder that a program has opened before others of that folder are added with the next one.
const OPENED_BEFORE_SIBLINGS: usize = 2;
/// Size in bytes of the files that are added so in one step at most.
const MOST_BYTES_OF_SIBLINGS: u64 = 8 << 20;
/// Size in bytes of the files at most that one of them may bring because it names them.
const MOST_BYTES_OF_DEPENDENCIES: u64 = 1 << 20;

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
    let all = if before.file_name().is_some_and(|name| name == LATE) {
        before
    } else {
        before.parent().unwrap_or(before)
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
    let before = State::read(state)?;
    let mut with_siblings = true;
    let mut made = make(&before, library, (&making, &folder), &mut with_siblings);
    if made.is_err() && with_siblings {
        made = make(&before, library, (&making, &folder), &mut false);
    }
    let made = made.and_then(|()| fs::rename(&making, &folder).map_err(|e| fail(e, &folder)));
    if let Err(error) = made {
        fs::remove_dir_all(&making).unwrap_or_default();
        // Without it the next process tries again.
        fs::write(&refused, error.to_string()).unwrap_or_default();
        return Err(error);
    }
    Ok(folder)
}

/// Libraries that are added to the objects of a process.
struct Additions<'a> {
    inputs: &'a mut Vec<Input>,
    /// The folder that will have their files.
    folder: &'a Path,
    /// Real paths of all objects.
    known: BTreeSet<PathBuf>,
    /// Names of the files in the folder.
    names: BTreeSet<OsString>,
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
}

impl<'a> Additions<'a> {
    fn new(inputs: &'a mut Vec<Input>, folder: &'a Path) -> Self {
        Self {
            known: inputs.iter().map(|input| real(&input.path)).collect(),
            names: BTreeSet::new(),
            inputs,
            folder,
        }
    }

    fn add(&mut self, path: PathBuf, image: Image) {
        let name = path.file_name().unwrap_or("library".as_ref());
        let mut name = name.to_os_string();
        while !self.names.insert(name.clone()) {
            name.push(".2");
        }
        self.inputs.push(Input {
            output: self.folder.join(LIBRARIES).join(name),
            path,
            is_global: false,
            known: usize::MAX,
            ..Input::alone(image)
        });
    }

    /// Adds a library, and with it the libraries that it names and that are not there yet: the interpreter opens them
    /// next. If it finds others instead, these come by themselves.
    fn with_dependencies(&mut self, library: &Path, image: Image) {
        let dependencies = self.dependencies(library);
        self.known.insert(real(library));
        self.add(library.to_path_buf(), image);
        dependencies.into_iter().for_each(|d| self.add_if_new(d));
    }

    /// The libraries that the interpreter loads with a library and that are not there yet.
    fn dependencies(&self, library: &Path) -> Vec<PathBuf> {
        let is_interpreter = |input: &&Input| input.image.kind == ObjectKind::Interpreter;
        let interpreter = self.inputs.iter().find(is_interpreter);
        let loaded = interpreter.map(|interpreter| closure::libraries(&interpreter.path, library));
        let loaded = loaded.and_then(Result::ok).unwrap_or_default();
        let paths = loaded.into_iter().filter_map(|loaded| loaded.path);
        paths
            .filter(|path| !self.known.contains(&real(path)))
            .collect()
    }

    fn add_if_new(&mut self, path: PathBuf) {
        let file = real(&path);
        if self.known.insert(file.clone())
            && let Some(image) = objects::library(&file)
            && image.kind == ObjectKind::SharedObject
        {
            self.add(path, image);
        }
    }

    /// Adds further libraries of the library's folder, if the program has opened some of them already: a folder of
    /// extensions or plug-ins, of which it will open more. All libraries of one step cost little more than one, as each
    /// step analyses all objects of the process. A folder with libraries that others name is none of these.
    fn siblings(&mut self, library: &Path) {
        let Some(place) = library.parent() else {
            return;
        };
        let named: BTreeSet<String> = (self.inputs.iter())
            .flat_map(|input| input.image.needed())
            .collect();
        let is_named = |path: &Path| {
            let name = path.file_name().unwrap_or_default();
            named.contains(name.to_string_lossy().as_ref())
        };
        let here = self.inputs.iter().map(|input| input.path.as_path());
        let here: Vec<&Path> = here.filter(|path| path.parent() == Some(place)).collect();
        if here.len() <= OPENED_BEFORE_SIBLINGS || here.iter().any(|path| is_named(path)) {
            return;
        }
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let mut others: Vec<(PathBuf, u64)> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension() == library.extension())
            .filter_map(|path| fs::metadata(&path).ok().map(|m| (path, m.len())))
            .collect();
        others.sort_unstable();
        let mut bytes = 0;
        for (path, size) in others {
            let file = real(&path);
            if bytes + size > MOST_BYTES_OF_SIBLINGS || self.known.contains(&file) {
                continue;
            }
            let image = objects::library(&file);
            let Some(image) = image.filter(|i| i.kind == ObjectKind::SharedObject) else {
                continue;
            };
            let is_complete = image.needed().iter().all(|name| named.contains(name));
            let dependencies = if is_complete {
                Vec::new()
            } else {
                self.dependencies(&path)
            };
            let sizes = dependencies
                .iter()
                .map(|path| fs::metadata(path).map_or(0, |m| m.len()));
            let more: u64 = sizes.sum();
            if more <= MOST_BYTES_OF_DEPENDENCIES && bytes + size + more <= MOST_BYTES_OF_SIBLINGS {
                bytes += size + more;
                self.known.insert(file);
                self.add(path, image);
                dependencies.into_iter().for_each(|d| self.add_if_new(d));
            }
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

/// Makes the files in `making`, which will be `folder`; `with_siblings` asks for further libraries of the library's folder,
/// and tells whether there were any.
fn make(
    before: &State,
    library: &Path,
    (making, folder): (&Path, &Path),
    with_siblings: &mut bool,
) -> Result<()> {
    let fail = |e: Reason| Error::new(DOING, e).file(library);
    let image = image(library).map_err(fail)?;
    let run = before.command_line()?;
    let request = Request::new(&run)?;
    let mut steps = Steps::new(&request);

    let program = Image::read(request.app)?;
    let bundle = deliver::folder(&request.output)?;
    let mut inputs = objects::all(&request, program, &bundle)?;
    before.add_libraries(&mut inputs)?;
    let first = inputs.len();
    if before.process.objects() != first {
        return Err(fail("the process has other objects".into()));
    }
    let mut additions = Additions::new(&mut inputs, folder);
    additions.with_dependencies(library, image);
    let alone = additions.inputs.len();
    if *with_siblings {
        additions.siblings(library);
    }
    *with_siblings = inputs.len() > alone;
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
        let after = before.with_libraries(stamps, process, &made.inputs[first..])?;
        let libraries = making.join(LIBRARIES);
        fs::create_dir_all(&libraries).map_err(|e| fail(e.into()))?;
        deliver::write_objects(made, first, &libraries)?;
        fs::write(making.join(AREA), area.to_vec()?).map_err(|e| fail(e.into()))?;
        after.write(making)
    })
}
