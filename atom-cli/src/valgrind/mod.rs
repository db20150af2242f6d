//! Valgrind's command line: `atom valgrind`, and the command under the name `valgrind` or `atom-valgrind`.
//!
//! `settings` collects the options, of which `known` tells what becomes of each. A tool of atom takes the place of Valgrind's
//! (`memcheck`, `profilers`); `given` has what the run is told in a file, so that the instrumented program does not depend on it;
//! `sinks` are where it is told.

mod given;
mod known;
mod memcheck;
mod profilers;
mod settings;
mod sinks;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

use atom_core::Error;
use clap::{Args, Parser};

use crate::message;
use crate::run;
use settings::{Asked, Settings};

/// The names under which the command is this one.
const NAMES: [&str; 2] = ["valgrind", "atom-valgrind"];
/// The version that is answered, since callers choose their options by it.
const VERSION: &str = "valgrind-3.19.0";
/// Exit codes of a shell.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Arguments of `atom valgrind`.
#[derive(Args)]
pub struct Words {
    /// Valgrind's options, then the program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// A tool of Valgrind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Memcheck,
    Callgrind,
    Cachegrind,
    Massif,
    Lackey,
    None,
}

impl Tool {
    const ALL: [(Self, &str); 6] = [
        (Self::Memcheck, "memcheck"),
        (Self::Callgrind, "callgrind"),
        (Self::Cachegrind, "cachegrind"),
        (Self::Massif, "massif"),
        (Self::Lackey, "lackey"),
        (Self::None, "none"),
    ];

    fn named(name: &str) -> Result<Self, Complaint> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        let others = match name {
            "dhat" => "; `atom run heap` has the heap by call path",
            "exp-bbv" => "; `atom run bbv` counts blocks",
            _ => "",
        };
        found.map(|(tool, _)| *tool).ok_or_else(|| {
            Complaint::new(format!(
                "failed to start tool '{name}': there is none in its place{others}"
            ))
        })
    }

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What is said in place of a run.
#[derive(Debug)]
pub struct Complaint {
    text: String,
    code: u8,
}

/// Why there is no run.
enum Stop {
    /// The command line.
    Complaint(Complaint),
    /// A step of atom failed.
    Error(Error),
}

impl From<Complaint> for Stop {
    fn from(complaint: Complaint) -> Self {
        Self::Complaint(complaint)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Complaint {
    fn new(text: String) -> Self {
        Self { text, code: 1 }
    }

    /// A mistake on the command line.
    fn usage(text: String) -> Self {
        let advice = "Use --help for more information or consult the user manual.";
        Self::new(format!("{text}\n{advice}"))
    }

    fn bad(word: &str, why: &str) -> Self {
        Self::usage(format!("Bad option: {word}\n{why}"))
    }
}

/// The words after the name of this command, if it is the one that is called: its own name, and these words.
pub fn called(words: &[OsString]) -> Option<(String, Vec<OsString>)> {
    let own = Path::new(words.first()?).file_name()?.to_str()?;
    if NAMES.contains(&own) {
        return Some((own.to_owned(), words[1..].to_vec()));
    }
    let second = words.get(1).filter(|word| *word == NAMES[0])?;
    Some((format!("{own} {}", second.display()), words[2..].to_vec()))
}

/// Runs the command. `name` is for messages.
pub fn main(name: &str, words: &[OsString]) -> ExitCode {
    message::leave_out_notes();
    let settings = match Settings::read(words) {
        Ok(settings) => settings,
        Err(complaint) => return tell(name, &complaint),
    };
    match settings.asked {
        Some(Asked::Version) => return printed(&format!("{VERSION}\n")),
        Some(Asked::Help) => return printed(&help(name)),
        None => {}
    }
    if let Err(complaint) = check_program(settings.command.first()) {
        return tell(name, &complaint);
    }
    let result = match settings.tool {
        Tool::Memcheck => memcheck::run(name, &settings),
        _ => profilers::run(&settings),
    };
    match result {
        Ok(Some(ended)) => ended.exit_code(),
        Ok(None) => ExitCode::FAILURE,
        Err(Stop::Complaint(complaint)) => tell(name, &complaint),
        Err(Stop::Error(error)) => {
            message::error(&error);
            ExitCode::FAILURE
        }
    }
}

fn printed(text: &str) -> ExitCode {
    match output::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn tell(name: &str, complaint: &Complaint) -> ExitCode {
    for line in complaint.text.lines() {
        message::say(&format!("{name}: {line}"));
    }
    ExitCode::from(complaint.code)
}

fn help(name: &str) -> String {
    let tools: Vec<&str> = Tool::ALL.iter().map(|(_, name)| *name).collect();
    format!(
        "usage: {name} [options] prog-and-args\n\n\
         Takes the command line of Valgrind 3.19, runs the program with a tool of atom, and writes Valgrind's files.\n\n  \
         --tool=NAME  one of {} [memcheck]\n\n\
         docs/valgrind.md has all options: which have their effect, which have none, and which are refused.\n\
         `atom run memcheck --help` shows the options of the tool memcheck.\n\n  \
         Extra options read from ~/.valgrindrc, $VALGRIND_OPTS, ./.valgrindrc\n",
        tools.join(", ")
    )
}

/// Checks that there is a program, with a shell's exit codes.
fn check_program(name: Option<&OsString>) -> Result<(), Complaint> {
    let Some(name) = name else {
        return Err(Complaint::new(
            "no program specified\nUse --help for more information.".to_owned(),
        ));
    };
    let fail = |why: &str, code| {
        Err(Complaint {
            text: format!("{}: {why}", name.display()),
            code,
        })
    };
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match path.metadata() {
            Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                fail("No such file or directory", NOT_FOUND)
            }
            _ => fail("Permission denied", NOT_EXECUTABLE),
        };
    }
    match run::program::in_path(path) {
        Some(_) => Ok(()),
        None => fail("command not found", NOT_FOUND),
    }
}

/// Runs the program with a tool of atom and its options.
fn run_tool(
    settings: &Settings,
    tool: &str,
    options: Vec<String>,
) -> Result<Option<run::Ended>, Stop> {
    let mut words: Vec<String> = vec!["run".into(), "--quiet".into()];
    if settings.is_yes("--trace-children") {
        words.push("--children".into());
        let skipped = settings
            .values("--trace-children-skip")
            .flat_map(|all| all.split(','));
        words
            .extend(skipped.flat_map(|pattern| ["--children-skip".to_owned(), pattern.to_owned()]));
    }
    words.push(tool.to_owned());
    words.extend(options);
    let arguments = run::Arguments::try_parse_from(words)
        .map_err(|error| Error::new("reading the command line", error.to_string()))?;
    let arguments = run::Arguments {
        command: settings.command.clone(),
        ..arguments
    };
    Ok(run::run_program(&arguments)?.ok())
}

/// A word of the command line, for a log.
fn shown(words: &[OsString]) -> String {
    let words: Vec<_> = words
        .iter()
        .map(OsString::as_os_str)
        .map(OsStr::to_string_lossy)
        .collect();
    words.join(" ")
}
