//! `atom run`: instruments a program, keeps the result, and runs it.
//!
//! The steps, each in a file of its own: which file is run (`program`), what it loads (`remembered`), what the result
//! depends on (`shortcut`), how it is made (`instrument`), the run itself (`child`), and what is told of it (`record`,
//! `processes`, `samples`, `generated`). With `--children` the programs that the process executes come back to this
//! command (`followed`).

mod child;
pub mod control;
pub mod ctl;
pub mod followed;
mod generated;
mod instrument;
mod places;
pub mod processes;
pub mod program;
pub mod record;
mod remembered;
pub mod samples;
mod shortcut;
pub mod watch;
mod words;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};

use atom_core::{Error, Result};
use clap::Parser;

use crate::choices::Choices;
use crate::kept::identity::Identity;
use crate::kept::store::Store;
use crate::message::{self, note};
use crate::{exhausted, help};
use control::Controlling;
pub use instrument::tool_file;
use instrument::{Made, RunRequest, UNSEEN, Voice};
use output::message::say;
use processes::Processes;
use program::Program;
use record::Record;
use remembered::List;
use viewer::report;
use watch::{Asking, ReportRequests};
pub use words::ToolWords;

/// Arguments of `atom run`.
#[derive(Parser, Clone)]
#[command(override_usage = "atom run [OPTIONS] TOOL [TOOL-OPTIONS] -- PROGRAM [ARGUMENTS]")]
pub struct Arguments {
    /// Say nothing beside what the program says
    #[arg(short, long)]
    pub quiet: bool,
    /// Instrument the program alone, without its libraries and its loader
    #[arg(long)]
    pub own: bool,
    /// Instrument the programs that the process executes as well, each when it is executed, with its
    /// libraries. Those that were not instrumented are listed
    #[arg(long, conflicts_with = "own")]
    pub children: bool,
    /// With --children: leave programs whose paths match as they are, with all that they execute; may be repeated
    #[arg(long, value_name = "PATTERN", requires = "children")]
    pub children_skip: Vec<String>,
    /// Leave a report of each process, instead of one of all
    #[arg(long)]
    pub per_process: bool,
    /// Let libraries that the program opens while it runs run as they are in this run; the next run instruments them.
    /// Else they are instrumented when they are opened
    #[arg(long)]
    pub no_late: bool,
    /// Instrument again, even if the result of an earlier run is there
    #[arg(long)]
    pub fresh: bool,
    /// Reports while the program runs
    #[command(flatten)]
    pub reports: ReportRequests,
    /// When is measured
    #[command(flatten)]
    pub windows: control::WindowRequests,
    /// What is instrumented, and how
    #[command(flatten)]
    pub choices: Choices,
    /// The tool
    #[command(flatten)]
    pub words: ToolWords,
    /// Behind the first part of a tool in C its other parts
    #[arg(skip)]
    pub tool_parts: Vec<PathBuf>,
    /// The program and its arguments, after the first `--`
    #[arg(skip)]
    pub command: Vec<OsString>,
}

/// Takes the program and its arguments off the words of a command line of `atom run`, or the process's number of
/// `atom attach`: what is
/// after the first `--`. The tool's options are before it and may look like anything.
pub fn split_command(words: &mut Vec<OsString>) -> Vec<OsString> {
    let is_run = words.get(1).is_some_and(|w| w == "run" || w == "attach");
    match words.iter().position(|w| w == "--") {
        Some(at) if is_run => {
            let command = words.split_off(at + 1);
            words.pop();
            command
        }
        _ => Vec::new(),
    }
}

/// How a run ended.
pub struct Ended {
    /// The process of the program.
    pub process: u32,
    /// The profiles that the tool wrote.
    pub profiles: Vec<PathBuf>,
    status: ExitStatus,
    /// A report could not be written.
    has_failed: bool,
}

impl Ended {
    /// The program's exit code, or 1 if it is 0 and a report could not be written. Does not return if a signal ended the program:
    /// it ends this process as well.
    pub fn exit_code(&self) -> ExitCode {
        match child::exit_code(self.status) {
            0 if self.has_failed => ExitCode::FAILURE,
            code => ExitCode::from(code),
        }
    }
}

/// Runs `atom run ...`; the exit code is the program's.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let arguments = &with_parts(arguments);
    if arguments.quiet {
        message::leave_out_notes();
    }
    if let Some(code) = instead(arguments)? {
        return Ok(code);
    }
    let ended = run_program(arguments)?;
    Ok(ended.map_or_else(ExitCode::from, |ended| ended.exit_code()))
}

/// Runs the program; an exit code if it cannot be instrumented, which is told.
pub fn run_program(arguments: &Arguments) -> Result<std::result::Result<Ended, u8>> {
    if arguments.command.is_empty() {
        return Err(Error::usage("no program is named").advice(
            "write it behind the tool and `--`, as in `atom run icount -- bzip2 -k FILE`",
        ));
    }
    arguments.windows.check(&arguments.choices.sampling)?;
    let mut arguments = in_any_folder(arguments);
    let tool = tool_file(arguments.words.tool(), &arguments.tool_parts)?;
    let of_report = arguments.words.take_report_options(&tool);
    places::check(&tool, &[arguments.words.options(), &of_report].concat())?;
    let arguments = &arguments;
    let program = Program::find(&arguments.command)?;
    let store = Store::open()?;
    let mut request = RunRequest::new(arguments, tool);
    if arguments.children {
        request.follow = followed::follow_words(&request, &store)?;
    }
    let entry = match request.instrumented(&program, &store, Voice::Loud)? {
        Made::Entry(entry) => entry,
        Made::Nothing(reason) => return Err(Error::new("instrumenting the program", reason)),
        Made::Told(code) => return Ok(Err(code)),
    };
    let record = Record::make(store.folder())?;
    record.add_report_options(&of_report)?;
    let asking = Asking::start(&arguments.reports, &record)?;
    let choices = &arguments.choices;
    let start = || Controlling::start(&arguments.windows, &record, choices);
    let is_sampled = choices.sampling.sample.is_some();
    let is_controlled = choices.has_windows() || is_sampled;
    let controlling = is_controlled.then(start).transpose()?;
    let file = entry.folder.join(program.file_name());
    exhausted::check_limit(&file)?;
    let watching = samples::start();
    let (first, status) = child::run(&file, &program, arguments.reports.report_on)?;
    asking.stop();
    let measured = controlling.and_then(Controlling::stop);
    watch::finish(&record::watchers(&record::read(record.file())));
    let said = record::read(record.file());
    drop(record);
    let command = Identity::command()?;
    let shares = watching.map(|watching| watching.finish(store.folder(), &command));
    let not_counted = shares.and_then(|shares| shares.line(!arguments.own));
    let has_failed = record::tell_failures(&said);
    let program = record::Program {
        path: std::path::absolute(&program.file).unwrap_or_else(|_| program.file.clone()),
        file: program.file,
        arguments: followed::quoted(&program.arguments),
    };
    let mut processes = Processes::new(said, first, program.clone());
    if !watch::was_asked() {
        processes.remove_replaced();
    }
    let later = Later::remember(&processes, &store);
    let number = if arguments.per_process {
        1
    } else {
        put_together(&mut processes)
    };
    let list = arguments.children.then(|| processes.write_list()).flatten();
    let became = processes.became_line(arguments.words.tool());
    let part = choices.name_of_measured();
    let lines = [
        ("time", &not_counted),
        (part, &measured),
        (EXECUTED, &became),
    ];
    for (name, line) in lines {
        if let Some(line) = line
            && let Err(e) = add_line(&processes, name, line)
        {
            note(&e.to_string());
        }
    }
    if !arguments.quiet {
        tell(&processes, &later, list, number);
        let lines = became.iter().chain(&not_counted).chain(&measured);
        lines.for_each(|line| note(line));
    }
    if !arguments.quiet
        && let Ok(libraries) = std::fs::read_to_string(entry.folder.join(UNSEEN))
        && !libraries.is_empty()
    {
        note(&format!(
            "{} saw the code of {} itself; not instrumented: {libraries}",
            arguments.words.tool(),
            program.file.display()
        ));
    }
    Ok(Ok(Ended {
        process: first,
        profiles: processes
            .profiles()
            .into_iter()
            .map(Path::to_path_buf)
            .collect(),
        status,
        has_failed,
    }))
}

/// What is done instead of a run: the words that are no tools, and the help of a tool.
fn instead(arguments: &Arguments) -> Result<Option<ExitCode>> {
    let done = |()| Some(ExitCode::SUCCESS);
    let tool = arguments.words.tool();
    match tool {
        "tools" | "list" => return help::list(&help::Tools { verbose: false }).map(done),
        _ if !help::is_wanted(arguments.words.options()) => return Ok(None),
        _ => {}
    }
    show_help(tool).map(done)
}

/// Shows the options of a tool.
pub fn show_help(tool: &str) -> Result<()> {
    let usage = format!("atom run {tool} [OPTIONS] -- PROGRAM [ARGUMENTS]");
    help::show(&instrument::tool_file(tool, &[])?, &usage)
}

/// The arguments with what follows from them: procedures have two versions if windows are wanted, and the files after a tool in C
/// are its parts.
fn with_parts(arguments: &Arguments) -> Arguments {
    let mut arguments = arguments.clone();
    arguments.choices.switchable |= arguments.windows.are_any();
    arguments.tool_parts = arguments.words.take_parts();
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

/// Makes one report of those of all processes, if they can be added up. Returns how many were.
fn put_together(processes: &mut Processes) -> usize {
    let Some(pairs) = processes.replaceable() else {
        return 1;
    };
    match together(&pairs) {
        Ok(number) => {
            processes.have_been_replaced(&pairs);
            number
        }
        Err(e) => {
            note(&e.to_string());
            1
        }
    }
}

/// Puts one report of all processes and one profile in the place of the first pair of a report and a profile, and
/// removes the others. Returns the number of profiles that were added up.
fn together(pairs: &[(PathBuf, PathBuf)]) -> Result<usize> {
    let Some((report, profile)) = pairs.first() else {
        return Ok(0);
    };
    let fail =
        |path: &Path, e: String| Error::new("writing the report of all processes", e).file(path);
    let files: Vec<&Path> = pairs.iter().map(|(_, profile)| profile.as_path()).collect();
    let (sum, number) = report::together::sum(&files)?;
    let mut text = Vec::new();
    report::write_report(&mut text, &sum, number).map_err(|e| fail(report, e.to_string()))?;
    for (file, bytes) in [(report, text), (profile, sum.to_bytes())] {
        replace(file, &bytes).map_err(|e| fail(file, e.to_string()))?;
    }
    for (report, profile) in pairs.iter().skip(1) {
        for file in [report, profile] {
            std::fs::remove_file(file).map_err(|e| fail(file, e.to_string()))?;
        }
    }
    Ok(number)
}

/// Puts other contents in the place of a file's.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut new = file.to_owned().into_os_string();
    new.push(".new");
    std::fs::write(&new, bytes).and_then(|()| std::fs::rename(&new, file))
}

/// Name of the fact that the process became another program. It is said first.
const EXECUTED: &str = "executed";

/// Adds a line to the head of the first report for people, and to its profile, if there is one, as a fact of this name.
pub fn add_line(processes: &Processes, name: &str, line: &str) -> Result<()> {
    let Some((report, profile)) = processes.summed() else {
        return Ok(());
    };
    let fail = |e: String| Error::new("completing the report", e).file(report);
    let text = std::fs::read_to_string(report).map_err(|e| fail(e.to_string()))?;
    let place = match name {
        EXECUTED => after_title(&text),
        _ => place_in_head(&text),
    };
    let (head, rest) = text.split_at(place);
    replace(report, format!("{head}{line}\n{rest}").as_bytes()).map_err(|e| fail(e.to_string()))?;
    let Some(file) = profile else {
        return Ok(());
    };
    let mut profile = report::read(file)?;
    profile.facts.push(report::text_fact(name, line));
    replace(file, &profile.to_bytes()).map_err(|e| fail(e.to_string()))
}

/// Where a report's head takes one more line, in bytes from the report's start: in front of the last line of the head. Lines
/// that are too long continue in indented ones, and so are the facts after the head.
fn place_in_head(report: &str) -> usize {
    let (mut starts, mut at) = (Vec::new(), 0);
    let lines = report.split_inclusive('\n');
    for line in lines.take_while(|line| !line.trim().is_empty()) {
        if !line.starts_with(' ') {
            starts.push(at);
        }
        at += line.len();
    }
    match starts.as_slice() {
        [_, .., last] => *last,
        _ => after_title(report),
    }
}

/// Size in bytes of a report's first line.
fn after_title(report: &str) -> usize {
    report.find('\n').map_or(report.len(), |end| end + 1)
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
            let before = remembered::get(store, program, List::Missed);
            let (known, new): (Vec<_>, Vec<_>) =
                loaded.iter().cloned().partition(|l| before.contains(l));
            later.known.extend(known);
            later.new.extend(new);
        }
        for (program, loaded) in processes.loaded() {
            remembered::add(store, program, List::Missed, loaded);
        }
        for (program, added) in processes.added() {
            remembered::add(store, program, List::Added, added);
        }
        later
    }
}

/// Says on standard error where the only report is, what loads later, and where to look closer.
pub fn tell_reports(processes: &Processes) {
    tell(processes, &Later::default(), None, 1);
}

/// Says on standard error where the reports and the list of processes are, and what was not seen.
fn tell(
    processes: &Processes,
    later: &Later,
    list: Option<std::io::Result<PathBuf>>,
    number: usize,
) {
    if let Some(line) = processes.line() {
        let of = match number {
            1 => String::new(),
            _ => format!(" (the sum of {number}; --per-process leaves each)"),
        };
        say(&format!("{line}{of}"));
    }
    if let Some(profile) = processes.profiles().first() {
        say(&format!(
            "look closer: atom report {}",
            processes.short(profile)
        ));
    }
    match list {
        Some(Ok(file)) => say(&format!(
            "{}: listed in {}",
            processes.size(),
            file.display()
        )),
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

#[cfg(test)]
mod tests {
    use super::place_in_head;

    #[test]
    fn a_line_is_put_between_lines_of_the_head() {
        let long = "icount of a\nnot instrumented: a, b (atom show lists\n  them)\n";
        let head = format!("{long}instrumented: 93 %\n  instructions 170\n\nrows\n");
        assert_eq!(place_in_head(&head), long.len());
        assert_eq!(place_in_head("icount of a\n  instructions 170\n"), 12);
        assert_eq!(place_in_head(""), 0);
    }
}
