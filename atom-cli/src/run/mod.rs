//! `atom run`: instruments a program, keeps the result, and runs it.
//!
//! The steps, each in a file of its own: which file is run (`program`), what it loads (`closure`,
//! `remembered`), what the result depends on (`identity`, `shortcut`), where it is kept (`store`), how it is
//! made (`instrument`), the run itself (`child`), and what is told of it (`record`, `processes`). With
//! `--children` the programs that the process executes come back to this command (`followed`,
//! `surroundings`).

mod child;
pub mod closure;
pub mod followed;
pub mod identity;
mod instrument;
mod processes;
mod program;
mod record;
mod remembered;
mod shortcut;
pub mod store;
mod surroundings;
mod watch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atom_core::{Error, Result};
use clap::{Args as ClapArgs, CommandFactory};

use crate::args::Choices;
use crate::message::note;
use crate::{exhausted, help, profiles, source};
use instrument::{Made, UNSEEN, Voice, Wish};
use processes::Processes;
use program::Program;
use record::Record;
use store::Store;
use watch::{Asking, Wishes};

/// Arguments of `atom run`.
#[derive(ClapArgs, Clone)]
pub struct Arguments {
    /// Say nothing beside what the program says
    #[arg(short, long)]
    pub quiet: bool,
    /// Instrument the program alone, without its libraries and its loader
    #[arg(long)]
    pub own: bool,
    /// Instrument the programs that the process executes as well, each when it is executed, with its
    /// libraries. Each process has a report of its own; those that were not instrumented are listed
    #[arg(long, conflicts_with = "own")]
    pub children: bool,
    /// Instrument again, even if the result of an earlier run is there
    #[arg(long)]
    pub fresh: bool,
    /// Reports while the program runs
    #[command(flatten)]
    pub reports: Wishes,
    /// What is instrumented, and how
    #[command(flatten)]
    pub choices: Choices,
    /// The tool: its name (`atom tools` lists them), the path of a shared object built with atom-tool, or
    /// its source: mytool.rs, or in C mytool.inst.c mytool.anal.c
    pub tool: String,
    /// Options of the tool
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub tool_options: Vec<String>,
    /// Behind the first part of a tool in C its other parts
    #[arg(skip)]
    pub tool_parts: Vec<PathBuf>,
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
    let arguments = &with_parts(arguments);
    if let Some(code) = instead(arguments)? {
        return Ok(code);
    }
    if arguments.command.is_empty() {
        return Err(
            Error::new("reading the command line", "no program is named").advice(
                "write it behind the tool and `--`, as in `atom run icount -- bzip2 -k FILE`",
            ),
        );
    }
    let arguments = &in_any_folder(arguments);
    let program = Program::find(&arguments.command)?;
    let store = Store::open()?;
    let mut wish = Wish::new(arguments)?;
    if arguments.children {
        wish.follow = followed::follow_words(&wish, &store)?;
    }
    let entry = match wish.instrumented(&program, &store, Voice::Loud)? {
        Made::Entry(entry) => entry,
        Made::Nothing(_) => return Ok(ExitCode::FAILURE),
    };
    let record = Record::make(store.folder())?;
    let asking = Asking::start(&arguments.reports, &record)?;
    let file = entry.folder.join(program.file_name());
    exhausted::check_limit(&file)?;
    let (first, status) = child::run(&file, &program, arguments.reports.report_on)?;
    asking.stop();
    watch::finish(&record::watchers(&record::read(record.file())));
    let said = record::read(record.file());
    drop(record);
    let has_failed = record::tell_failures(&said);
    let program = record::Program {
        path: std::path::absolute(&program.file).unwrap_or_else(|_| program.file.clone()),
        file: program.file,
        arguments: followed::quoted(&program.arguments),
    };
    let processes = Processes::new(said, first, program.clone());
    let later = Later::remember(&processes, &store);
    let list = arguments.children.then(|| processes.write_list()).flatten();
    let all = arguments.children.then(|| together(&processes)).flatten();
    if !arguments.quiet {
        tell(&processes, &later, list, all);
    } else if let Some(Err(e)) = all {
        note(&e.to_string());
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

/// What is done instead of a run: the words that are no tools, and the help of a tool.
fn instead(arguments: &Arguments) -> Result<Option<ExitCode>> {
    let done = |()| Some(ExitCode::SUCCESS);
    let tool = &arguments.tool;
    match tool.as_str() {
        "tools" | "list" => return help::list(&help::Tools { verbose: false }).map(done),
        "help" => {
            let mut command = crate::args::Args::command();
            command.build();
            let run = command
                .find_subcommand_mut("run")
                .map(|run| run.render_help());
            let text = run.map_or(String::new(), |text| text.to_string());
            return crate::analyze::print(&text).map(done);
        }
        _ if !help::is_wanted(&arguments.tool_options) => return Ok(None),
        _ => {}
    }
    show_help(tool).map(done)
}

/// Shows the options of a tool.
pub fn show_help(tool: &str) -> Result<()> {
    let usage = format!("atom run {tool} [OPTIONS] -- PROGRAM [ARGUMENTS]");
    help::show(&instrument::tool_file(tool, &[])?, &usage)
}

/// The arguments with the files behind a tool in C as its parts.
fn with_parts(arguments: &Arguments) -> Arguments {
    let mut arguments = arguments.clone();
    if source::is_part_in_c(Path::new(&arguments.tool)) {
        let options = &mut arguments.tool_options;
        let is_part = |word: &&String| source::is_part_in_c(Path::new(word));
        let count = options.iter().take_while(is_part).count();
        arguments.tool_parts = options.drain(..count).map(PathBuf::from).collect();
    }
    arguments
}

/// The arguments with absolute paths, which executed programs need: they run in other folders.
fn in_any_folder(arguments: &Arguments) -> Arguments {
    let mut arguments = arguments.clone();
    if arguments.children {
        for file in &mut arguments.choices.with {
            *file = std::path::absolute(&*file).unwrap_or_else(|_| file.clone());
        }
    }
    arguments
}

/// Writes the report of all processes together and its profile, if several processes have left profiles. Returns
/// where they are: the report, the profile, and the number of processes.
fn together(processes: &Processes) -> Option<Result<(PathBuf, PathBuf, usize)>> {
    let (report, to) = processes.together()?;
    let write = || {
        // A profile that was replaced or removed meanwhile is left out.
        let mut files = processes.profiles();
        files.retain(|file| file.is_file());
        let (sum, number) = profiles::together::sum(&files)?;
        let fail = |path: &Path, e: String| {
            Error::new("writing the report of all processes", e).file(path)
        };
        let mut text = Vec::new();
        profiles::write_report(&mut text, &sum, number)
            .and_then(|()| std::fs::write(&report, text))
            .map_err(|e| fail(&report, e.to_string()))?;
        sum.write(&to).map_err(|e| fail(&to, e.to_string()))?;
        Ok((report.clone(), to.clone(), number))
    };
    Some(write())
}

/// Libraries that processes loaded while they ran, and that were not instrumented.
#[derive(Default)]
struct Later {
    /// The next run instruments them.
    new: Vec<PathBuf>,
    /// They were known before this run, so they cannot be instrumented.
    known: Vec<PathBuf>,
}

impl Later {
    /// Collects and remembers them for each program.
    fn remember(processes: &Processes, store: &Store) -> Self {
        let mut later = Self::default();
        for (program, loaded) in processes.loaded() {
            let before = remembered::get(store, program);
            let (known, new): (Vec<_>, Vec<_>) =
                loaded.iter().cloned().partition(|l| before.contains(l));
            later.known.extend(known);
            later.new.extend(new);
        }
        for (program, loaded) in processes.loaded() {
            remembered::add(store, program, loaded);
        }
        later
    }
}

/// Says on standard error where the reports and the list of processes are, and what was not seen.
fn tell(
    processes: &Processes,
    later: &Later,
    list: Option<std::io::Result<PathBuf>>,
    all: Option<Result<(PathBuf, PathBuf, usize)>>,
) {
    if let Some(line) = processes.line() {
        eprintln!("{line}");
    }
    match &all {
        Some(Ok((report, _, number))) => {
            eprintln!("all {number} together: {}", processes.short(report));
        }
        Some(Err(e)) => note(&e.to_string()),
        None => {}
    }
    let closer = match all {
        Some(Ok((_, profile, _))) => Some(profile),
        _ => processes.profiles().first().map(|p| p.to_path_buf()),
    };
    if let Some(profile) = closer {
        eprintln!("look closer: atom report {}", processes.short(&profile));
    }
    match list {
        Some(Ok(file)) => eprintln!("{}: listed in {}", processes.size(), file.display()),
        Some(Err(e)) => note(&format!("the list of processes cannot be written: {e}")),
        None => {}
    }
    if let Some(line) = processes.unseen_line() {
        note(&line);
    }
    let not_seen = [
        (&later.new, "; the next run sees them"),
        (&later.known, ", which cannot be instrumented"),
    ];
    for (libraries, what) in not_seen.iter().filter(|(l, _)| !l.is_empty()) {
        let names = instrument::names(libraries);
        note(&format!("loaded later and not instrumented: {names}{what}"));
    }
}
