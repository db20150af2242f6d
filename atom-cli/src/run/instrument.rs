//! The instrumented program in the store: found there, or made now.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use atom_core::error::Reason;
use atom_core::image::separate;
use atom_core::{Error, Result};

use super::Arguments;
use super::program::Program;
use super::remembered::{self, List};
use super::shortcut::{Found, Shortcut, Stamps};
use crate::closure;
use crate::driver::{ORIGINAL, late};
use crate::job::{self, Answer, Job, Word};
use crate::kept::identity::Identity;
use crate::kept::records;
use crate::kept::store::{Entry, Store};
use crate::{debuginfod, find, source};

/// The file in an entry that names the objects which the program loads and the tool does not see.
pub const UNSEEN: &str = "unseen";

/// Who wants the program, and so who is told what goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Voice<'a> {
    /// A person: notes and errors go to standard error.
    Loud,
    /// A process that another program has started: nothing is printed. Paths in the tool's options count
    /// from this folder.
    Silent(&'a Path),
}

/// How programs are instrumented.
pub struct RunRequest<'a> {
    /// The command line of `atom run`.
    pub arguments: &'a Arguments,
    /// The tool's file.
    pub tool: PathBuf,
    /// First words of the command line that instruments executed programs; none if they run as they are.
    pub follow: Vec<OsString>,
}

/// What came of it.
pub enum Made {
    /// The entry with the instrumented program.
    Entry(Entry),
    /// Nothing, for this reason.
    Nothing(String),
    /// Nothing, and the reason has been told; the exit code.
    Told(u8),
}

impl<'a> RunRequest<'a> {
    /// By a command line, and the tool's file.
    pub fn new(arguments: &'a Arguments, tool: PathBuf) -> Self {
        Self {
            arguments,
            tool,
            follow: Vec::new(),
        }
    }

    /// Words that tell any two requests apart.
    fn words(&self) -> Vec<String> {
        let mut words = vec![self.tool.display().to_string()];
        words.extend(self.arguments.own.then(|| "--own".into()));
        words.extend(self.arguments.no_late.then(|| "--no-late".into()));
        words.extend(self.arguments.choices.words());
        words.push("--".into());
        words.extend(self.arguments.words.options().iter().cloned());
        words.push("--".into());
        let follow = self.follow.iter().map(|w| w.to_string_lossy().into_owned());
        words.extend(follow);
        words
    }

    /// The program from an earlier run, or made now.
    pub fn instrumented(&self, program: &Program, store: &Store, voice: Voice<'_>) -> Result<Made> {
        let shortcut = Shortcut::new(store, &self.words(), program);
        if self.arguments.fresh {
            shortcut.forget();
        } else {
            match shortcut.follow(store) {
                Some(Found::Entry(entry)) => return Ok(Made::Entry(entry)),
                // A person is told by a new attempt, with all details.
                Some(Found::Reason(reason)) if voice != Voice::Loud => {
                    return Ok(Made::Nothing(reason));
                }
                _ => {}
            }
        }
        let known = |lists: &[List]| {
            let parts = Parts::find(self, program, store, lists)?;
            let stamps = parts.stamps(self, program, store)?;
            let name = parts.name(self, program, store)?;
            Ok((parts, stamps, name))
        };
        let (mut parts, mut stamps, mut name) = known(&[List::Missed, List::Added])?;
        let has_added = !remembered::get(store, &program.file, List::Added).is_empty();
        if has_added && !self.arguments.fresh && store.get(&name).is_none() {
            // The entry to which libraries were added need not be made again to have them from its start.
            let before = known(&[List::Missed])?;
            if store.get(&before.2).is_some() {
                (parts, stamps, name) = before;
            }
        }
        if self.arguments.fresh {
            store.remove(&name)?;
        }
        let mut failure = None;
        let mut is_new = false;
        let label = format!(
            "{} with {}",
            parts.file.display(),
            self.arguments.words.tool()
        );
        let made = store.get_or_make(&name, &label, |folder| {
            let made = self.make(program, &parts, store, (&name, folder, voice));
            match &made {
                Ok(()) => is_new = true,
                Err(Failure::Told(code)) => failure = Some(Made::Told(*code)),
                Err(Failure::Job(answer)) => {
                    if !answer.may_pass {
                        shortcut.to_reason(&answer.reason, &stamps);
                    }
                    failure = Some(Made::Nothing(answer.reason.clone()));
                }
                Err(Failure::Other(_)) => {}
            }
            made.map_err(Failure::into_error)
        });
        match (made, failure) {
            (Ok(entry), _) => {
                shortcut.to_entry(&name, &stamps);
                if is_new {
                    store.trim(Store::limit()?)?;
                }
                Ok(Made::Entry(entry))
            }
            (Err(error), None) => Err(error),
            (Err(_), Some(failure)) => Ok(failure),
        }
    }

    /// Makes the files of an entry in a folder.
    fn make(
        &self,
        program: &Program,
        parts: &Parts,
        store: &Store,
        (name, folder, voice): (&str, &Path, Voice<'_>),
    ) -> std::result::Result<(), Failure> {
        let placed_at = store.folder_of(name).join(program.file_name());
        let mut job = Job {
            placed_at: Some(placed_at.into()),
            named: Some((&program.file).into()),
            tool_source: source::source_of(&self.tool).map(Word::from),
            record: Some(records::stem(store.folder()).into()),
            follow: self.follow.iter().map(Word::from).collect(),
            answers: voice != Voice::Loud,
            quiet: self.arguments.quiet,
            ..Job::default()
        };
        if parts.is_whole {
            if !self.arguments.no_late {
                let command = Identity::command().map_err(Failure::Other)?;
                job.late = vec![command.into(), late::WORD.into()];
            }
            let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or(path.clone());
            job.loads = (parts.libraries.iter())
                .map(|l| absolute(l).into())
                .collect();
        }
        let mut command = self.command(parts, &folder.join(program.file_name()), &job)?;
        run(&mut command, &parts.file, voice)?;
        if !parts.is_whole {
            // Bundles have a link of their own.
            let link = folder.join(ORIGINAL);
            std::os::unix::fs::symlink(&parts.file, &link)
                .map_err(|e| Error::new("linking the original", e).file(link))
                .map_err(Failure::Other)?;
        }
        let unseen = folder.join(UNSEEN);
        let names = if parts.is_whole {
            String::new()
        } else {
            names(&parts.libraries)
        };
        std::fs::write(&unseen, names)
            .map_err(|e| Error::new("noting the program's libraries", e).file(unseen))
            .map_err(Failure::Other)
    }

    /// The command that instruments in a process of its own, whose memory is gone when the program runs.
    fn command(
        &self,
        parts: &Parts,
        output: &Path,
        job: &Job,
    ) -> std::result::Result<Command, Failure> {
        let mut command = Command::new(Identity::command().map_err(Failure::Other)?);
        // A copy of the command may have the name under which it takes Valgrind's options.
        command.arg0("atom");
        command.arg(&parts.file).arg(&self.tool);
        command.arg("-q").arg("-o").arg(output);
        command.args(self.arguments.choices.words());
        if parts.is_whole {
            command.arg("--libs");
            for library in &parts.later {
                command.arg("--with").arg(library);
            }
        }
        command.arg(job::OPTION).arg(job.to_word());
        command.arg("--").args(self.arguments.words.options());
        Ok(command)
    }
}

/// What an instrumented program is made of.
struct Parts {
    /// The program's file, without symbolic links.
    file: PathBuf,
    /// The objects that it loads at its start.
    libraries: Vec<PathBuf>,
    /// Libraries that earlier runs opened while they ran.
    later: Vec<PathBuf>,
    /// Its libraries are instrumented too.
    is_whole: bool,
    /// Where names and lines of all these objects may be, if not in the objects.
    separate: Vec<PathBuf>,
}

impl Parts {
    fn find(
        request: &RunRequest<'_>,
        program: &Program,
        store: &Store,
        known: &[List],
    ) -> Result<Self> {
        const DOING: &str = "finding the program to run";
        let file = std::fs::canonicalize(&program.file)
            .map_err(|e| Error::new(DOING, e).file(&program.file))?;
        let libraries = libraries(&file)?;
        let later = known
            .iter()
            .flat_map(|list| remembered::get(store, &program.file, *list));
        let mut parts = Self {
            is_whole: !request.arguments.own && !libraries.is_empty(),
            later: later.collect(),
            file,
            libraries,
            separate: Vec::new(),
        };
        let objects = parts.objects(request);
        debuginfod::ask_for(&objects);
        parts.separate = objects
            .iter()
            .flat_map(|o| separate::candidates(o))
            .collect();
        Ok(parts)
    }

    /// The objects that are instrumented.
    fn objects<'a>(&'a self, request: &'a RunRequest<'_>) -> Vec<&'a Path> {
        let others = self.libraries.iter().chain(&request.arguments.choices.with);
        let others = others.chain(&self.later).filter(|_| self.is_whole);
        let all = std::iter::once(&self.file).chain(others);
        all.map(PathBuf::as_path).collect()
    }

    /// The files that decide which entry is the right one.
    fn stamps(&self, request: &RunRequest<'_>, program: &Program, store: &Store) -> Result<Stamps> {
        let command = Identity::command()?;
        let remembered = remembered::file(store, &program.file, List::Missed);
        let some = [
            &command,
            &self.file,
            &program.file,
            &request.tool,
            &remembered,
        ];
        let others = self.libraries.iter().chain(&request.arguments.choices.with);
        let others = others.chain(&self.later).chain(&self.separate);
        let all = some.into_iter().chain(others);
        Ok(Stamps::take(all.map(PathBuf::as_path)))
    }

    /// The name of the entry.
    fn name(&self, request: &RunRequest<'_>, program: &Program, store: &Store) -> Result<String> {
        let mut identity = Identity::new(store.digests());
        identity.add_command()?;
        identity.add_file(&request.tool)?;
        let with = &request.arguments.choices.with;
        let libraries = self.libraries.iter().chain(with).chain(&self.later);
        for object in std::iter::once(&self.file).chain(libraries.filter(|_| self.is_whole)) {
            identity.add_file(object)?;
            // The runtime knows an object by what the file system says of it.
            let m = object
                .metadata()
                .map_err(|e| Error::new("looking at an object", e).file(object))?;
            let known = [m.dev(), m.ino(), m.mtime() as u64, m.mtime_nsec() as u64];
            identity.add_words("file", &known.map(|word| word.to_string()));
        }
        identity.add_words("named", &[program.file.display().to_string()]);
        identity.add_separate(&self.separate);
        identity.add_words("options", &request.words());
        Ok(identity.name())
    }
}

/// The objects that the program loads at its start, the loader included. None for a static program, or
/// if its loader cannot tell: then it cannot load them either, and says so when the program is run.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let Some(interpreter) = closure::interpreter(program)? else {
        return Ok(Vec::new());
    };
    let loaded = closure::libraries(&interpreter, program).unwrap_or_default();
    Ok(loaded
        .into_iter()
        .filter_map(|object| object.path)
        .collect())
}

/// File names of objects, each once, with commas.
pub fn names(libraries: &[PathBuf]) -> String {
    let mut names: Vec<String> = Vec::new();
    for path in libraries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !names.iter().any(|known| *known == name) {
            names.push(name.into_owned());
        }
    }
    names.join(", ")
}

/// Variables that say where debug information is.
const DEBUG_VARIABLES: [&str; 3] = ["HOME", "XDG_CACHE_HOME", "DEBUGINFOD_CACHE_PATH"];
/// What an error says of a job that did not end by itself.
const MAKING: &str = "making the instrumented program";

/// Why an entry was not made.
enum Failure {
    /// The program cannot be instrumented, which has been told; the exit code.
    Told(u8),
    /// The program cannot be instrumented.
    Job(Answer),
    /// Something else.
    Other(Error),
}

impl Failure {
    fn into_error(self) -> Error {
        match self {
            Self::Told(_) | Self::Job(_) => Error::new("instrumenting the program", "it failed"),
            Self::Other(error) => error,
        }
    }
}

/// Runs a command that instruments the program in `file`.
fn run(command: &mut Command, file: &Path, voice: Voice<'_>) -> std::result::Result<(), Failure> {
    let fail = |reason: Reason| Failure::Other(Error::new(MAKING, reason).file(file));
    let Voice::Silent(folder) = voice else {
        let status = command.status().map_err(|e| fail(e.into()))?;
        return match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(Failure::Told(code as u8)),
            None => Err(fail(format!("instrumenting ended: {status}").into())),
        };
    };
    // The program's environment is not the command's. The variables that lead to debug information stay.
    command.env_clear().stdin(Stdio::null());
    let kept = DEBUG_VARIABLES
        .iter()
        .filter_map(|v| Some((v, std::env::var_os(v)?)));
    command.envs(kept);
    if folder.is_dir() {
        command.current_dir(folder);
    }
    let output = command.output().map_err(|e| fail(e.into()))?;
    match output.status.code() {
        Some(0) => Ok(()),
        Some(_) => Err(Failure::Job(answer(&output))),
        None => Err(fail(
            format!("instrumenting ended: {}", output.status).into(),
        )),
    }
}

/// The answer of a process that has failed. Without memory it cannot answer, and the reason is all that it has printed.
fn answer(output: &Output) -> Answer {
    let printed = || {
        let text = String::from_utf8_lossy(&output.stderr);
        Answer {
            reason: text.trim().replace('\n', "; "),
            may_pass: true,
        }
    };
    Answer::read(&output.stdout).unwrap_or_else(printed)
}

/// The tool's file, by the tool's name, the path of its source, or its path. A tool in C may have further parts.
pub fn tool_file(tool: &str, parts: &[PathBuf]) -> Result<PathBuf> {
    let path = Path::new(tool);
    if source::is_source(path) {
        return source::compiled(path, parts);
    }
    if !tool.contains('/') {
        return find::named_tool(tool);
    }
    std::fs::canonicalize(path).map_err(|e| Error::new("loading the tool", e).file(path))
}
