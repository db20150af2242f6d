//! `atom run`: instruments a program, keeps the result, and runs it.
//!
//! The steps, each in a file of its own: which file is run (`program`), what the result depends on
//! (`identity`), where it is kept (`store`), what the program loads (`closure`), and the run itself
//! (`child`).

mod child;
pub mod closure;
mod identity;
mod program;
mod record;
mod remembered;
pub mod store;
mod watch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use atom_core::{Error, Result};
use clap::Args as ClapArgs;

use crate::args::Choices;
use crate::find;
use crate::message::note;
use identity::Identity;
use program::Program;
use record::{Record, Said};
use store::{Entry, Store};
use watch::{Asking, Wishes};

/// The file in an entry that names the objects which the program loads and the tool does not see.
const UNSEEN: &str = "unseen";

/// Arguments of `atom run`.
#[derive(ClapArgs)]
pub struct Arguments {
    /// Say nothing beside what the program says
    #[arg(short, long)]
    pub quiet: bool,
    /// Instrument the program alone, without its libraries and its loader
    #[arg(long)]
    pub own: bool,
    /// Instrument again, even if the result of an earlier run is there
    #[arg(long)]
    pub fresh: bool,
    /// Reports while the program runs
    #[command(flatten)]
    pub reports: Wishes,
    /// What is instrumented, and how
    #[command(flatten)]
    pub choices: Choices,
    /// The tool: a shipped one's name, or the path of a shared object built with atom-tool
    pub tool: String,
    /// Options of the tool
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub tool_options: Vec<String>,
    /// The program and its arguments, behind the first `--`
    #[arg(skip)]
    pub command: Vec<OsString>,
}

/// Takes the program and its arguments off the words of a command line of `atom run`: what stands
/// behind the first `--`. The tool's options stand before it and may look like anything.
pub fn split_command(words: &mut Vec<OsString>) -> Vec<OsString> {
    let is_run = words.get(1).is_some_and(|w| w == "run");
    match words.iter().position(|w| w == "--") {
        Some(at) if is_run => {
            let command = words.split_off(at + 1);
            words.pop();
            command
        }
        _ => Vec::new(),
    }
}

/// Runs `atom run ...`; the exit code is the program's.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.command.is_empty() {
        return Err(
            Error::new("reading the command line", "no program is named").advice(
                "write it behind the tool and `--`, as in `atom run icount -- bzip2 -k FILE`",
            ),
        );
    }
    let program = Program::find(&arguments.command)?;
    let store = Store::open()?;
    let Some(entry) = instrumented(arguments, &program, &store)? else {
        return Ok(ExitCode::FAILURE);
    };
    let record = Record::make(&entry.folder)?;
    let asking = Asking::start(&arguments.reports, &record)?;
    let file = entry.folder.join(file_name(&program.file));
    let status = child::run(&file, &program, arguments.reports.report_on)?;
    asking.stop();
    watch::finish(&Said::read(record.file()).watchers);
    let said = Said::read(record.file());
    drop(record);
    remembered::add(&store, &program.file, &said.loaded);
    let has_failed = said.tell_failures();
    if !arguments.quiet {
        said.tell_reports();
        if !said.loaded.is_empty() {
            let names = names(&said.loaded);
            note(&format!(
                "loaded later and not instrumented: {names}; the next run sees them"
            ));
        }
    }
    if !arguments.quiet
        && let Ok(libraries) = std::fs::read_to_string(entry.folder.join(UNSEEN))
        && !libraries.is_empty()
    {
        note(&format!(
            "{} saw the code of {} itself; not instrumented: {libraries}",
            arguments.tool,
            program.file.display()
        ));
    }
    match child::exit_code(status) {
        0 if has_failed => Ok(ExitCode::FAILURE),
        code => Ok(ExitCode::from(code)),
    }
}

/// The entry with the instrumented program: from an earlier run, or made now. `None` if it could
/// not be made and the reason has been told.
fn instrumented(arguments: &Arguments, program: &Program, store: &Store) -> Result<Option<Entry>> {
    let tool = tool_file(&arguments.tool)?;
    let file = std::fs::canonicalize(&program.file)
        .map_err(|e| Error::new("finding the program to run", e.to_string()).file(&program.file))?;
    let mut identity = Identity::new(store.digests());
    identity.add_command()?;
    identity.add_file(&file)?;
    identity.add_file(&tool)?;
    let libraries = libraries(&file)?;
    let later = remembered::get(store, &program.file);
    let whole = !arguments.own && !libraries.is_empty();
    if whole {
        for library in libraries
            .iter()
            .chain(&arguments.choices.with)
            .chain(&later)
        {
            identity.add_file(library)?;
        }
        identity.add_words("named", &[program.file.display().to_string()]);
    }
    identity.add_words("tool options", &arguments.tool_options);
    identity.add_words("choices", &arguments.choices.words());
    let name = identity.name();
    if arguments.fresh {
        store.remove(&name)?;
    } else if let Some(entry) = store.get(&name) {
        return Ok(Some(entry));
    }
    let label = format!("{} with {}", file.display(), arguments.tool);
    let mut is_told = false;
    let made = store.get_or_make(&name, &label, |folder| {
        let output = folder.join(file_name(&program.file));
        let mut job = Job::new(arguments, &file, &tool, &output);
        job.path("--record", &record::stem(&store.folder_of(&name)));
        if whole {
            let placed_at = store.folder_of(&name).join(file_name(&program.file));
            job.whole(&placed_at, &program.file);
            later.iter().for_each(|library| job.path("--with", library));
        }
        job.run().inspect_err(|_| is_told = true)?;
        let unseen = folder.join(UNSEEN);
        let names = if whole {
            String::new()
        } else {
            names(&libraries)
        };
        std::fs::write(&unseen, names)
            .map_err(|e| Error::new("noting the program's libraries", e.to_string()).file(unseen))
    });
    match made {
        Err(_) if is_told => Ok(None),
        Err(error) => Err(error),
        Ok(entry) => {
            store.trim(Store::limit()?)?;
            Ok(Some(entry))
        }
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
fn names(libraries: &[PathBuf]) -> String {
    let mut names: Vec<String> = Vec::new();
    for path in libraries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !names.iter().any(|known| *known == name) {
            names.push(name.into_owned());
        }
    }
    names.join(", ")
}

/// Instrumenting in a process of its own, whose memory is gone when the program runs.
struct Job<'a> {
    file: &'a Path,
    words: Vec<OsString>,
    tool_options: &'a [String],
}

impl<'a> Job<'a> {
    fn new(arguments: &'a Arguments, file: &'a Path, tool: &Path, output: &Path) -> Self {
        let words = [file, tool, Path::new("-q"), Path::new("-o"), output];
        let words = words.iter().map(|w| w.as_os_str().to_os_string());
        let choices = arguments.choices.words().into_iter().map(OsString::from);
        Self {
            file,
            words: words.chain(choices).collect(),
            tool_options: &arguments.tool_options,
        }
    }

    /// With all that the program loads. The result will be run at `placed_at`, and know itself as `named`.
    fn whole(&mut self, placed_at: &Path, named: &Path) {
        self.words.push("--libs".into());
        for (option, path) in [("--placed-at", placed_at), ("--named", named)] {
            self.path(option, path);
        }
    }

    /// With an option that takes a path.
    fn path(&mut self, option: &str, path: &Path) {
        self.words.push(option.into());
        self.words.push(path.as_os_str().to_os_string());
    }

    /// Runs it. An error has been printed by that process.
    fn run(&self) -> Result<()> {
        const DOING: &str = "instrumenting the program";
        let fail = |reason: String| Error::new(DOING, reason).file(self.file);
        let command = std::env::current_exe().map_err(|e| fail(e.to_string()))?;
        let status = Command::new(command)
            .args(&self.words)
            .arg("--")
            .args(self.tool_options)
            .status()
            .map_err(|e| fail(e.to_string()))?;
        match status.success() {
            true => Ok(()),
            false => Err(fail("it failed".into())),
        }
    }
}

/// The tool's file, by the shipped tool's name or a path.
fn tool_file(tool: &str) -> Result<PathBuf> {
    if !tool.contains('/') {
        return find::shipped_tool(tool);
    }
    let path = Path::new(tool);
    std::fs::canonicalize(path)
        .map_err(|e| Error::new("loading the tool", e.to_string()).file(path))
}

/// The name under which the program is run: what `ps` and the program's own messages show.
fn file_name(program: &Path) -> OsString {
    program
        .file_name()
        .unwrap_or("program".as_ref())
        .to_os_string()
}
