//! Valgrind's memcheck: the tool *memcheck*.

use std::path::absolute;

use super::given::RunFolder;
use super::settings::Settings;
use super::sinks::{self, Sink};
use super::{Complaint, Stop, VERSION, run_tool};
use crate::message;
use crate::run::Ended;

/// Options that the tool has under the same names, with the same values.
const SAME: [&str; 14] = [
    "--leak-check",
    "--leak-resolution",
    "--errors-for-leak-kinds",
    "--freelist-vol",
    "--malloc-fill",
    "--free-fill",
    "--partial-loads-ok",
    "--show-mismatched-frees",
    "--error-limit",
    "--error-exitcode",
    "--exit-on-first-error",
    "--gen-suppressions",
    "--child-silent-after-fork",
    "--xml",
];
/// Options that choose kinds of leaks.
const KINDS: [&str; 3] = [
    "--show-leak-kinds",
    "--show-reachable",
    "--show-possibly-lost",
];
/// Most and fewest calls of a stack: of the tool, and of Valgrind.
const MOST_CALLERS: u32 = 48;
const MOST_OF_VALGRIND: u32 = 500;
/// What files of XML that go to a socket are called.
const XML: &str = "xml.";
const LOG: &str = "log.";

/// Runs the program.
pub fn run(name: &str, settings: &Settings) -> Result<Option<Ended>, Stop> {
    let mut notes = settings.notes.clone();
    let mut options = options(settings, &mut notes)?;
    let log = Sink::of(settings, "--log")?;
    let xml = Sink::of(settings, "--xml")?;
    if settings.is_yes("--xml") && xml.is_none() {
        return Err(Stop::Complaint(Complaint::bad(
            "--xml=yes",
            "You must specify an XML output destination\nusing --xml-fd, --xml-file or --xml-socket.",
        )));
    }
    let folder = RunFolder::make()?;
    let mut lines = given(name, settings, &notes);
    for (sink, word, file, option) in [
        (&log, "log", LOG, "--log-fd"),
        (&xml, "xml", XML, "--xml-fd"),
    ] {
        match sink {
            None => {}
            Some(Sink::Fd(fd)) => options.push(format!("{option}={fd}")),
            Some(Sink::File(template)) => lines.push((word, template.clone())),
            Some(Sink::Socket(_)) => {
                let template = folder.file(&format!("{file}%p"));
                lines.push((word, template.display().to_string()));
            }
        }
    }
    folder.write(&lines)?;
    options.push(format!("--run-file={}", folder.template));
    let ended = run_tool(settings, "memcheck", options)?;
    for (sink, start) in [(log, LOG), (xml, XML)] {
        let Some(Sink::Socket(address)) = sink else {
            continue;
        };
        for file in folder.files(start) {
            if let Err(error) = sinks::send(&file, &address) {
                message::say(&format!("{name}: cannot send to {address}: {error}"));
            }
        }
    }
    Ok(ended)
}

/// The options of the tool.
fn options(settings: &Settings, notes: &mut Vec<String>) -> Result<Vec<String>, Complaint> {
    let exit_code = settings.value("--error-exitcode").unwrap_or("0");
    if settings.is_yes("--exit-on-first-error") && exit_code == "0" {
        return Err(Complaint::bad(
            "--exit-on-first-error=yes",
            "You must define a non nul exit error code, with --error-exitcode=...",
        ));
    }
    let mut options = Vec::new();
    for option in SAME {
        options.extend(
            settings
                .value(option)
                .map(|value| format!("{option}={value}")),
        );
    }
    options.extend(shown_kinds(settings).map(|kinds| format!("--show-leak-kinds={kinds}")));
    if let Some(callers) = settings.value("--num-callers") {
        let callers: u32 = callers.parse().unwrap_or(0);
        if callers == 0 || callers > MOST_OF_VALGRIND {
            return Err(Complaint::bad(
                &format!("--num-callers={callers}"),
                &format!("'--num-callers' argument must be between 1 and {MOST_OF_VALGRIND}"),
            ));
        }
        if callers > MOST_CALLERS {
            notes.push(format!(
                "--num-callers={callers}: stacks have {MOST_CALLERS} calls at most"
            ));
        }
        options.push(format!("--num-callers={}", callers.min(MOST_CALLERS)));
    }
    if settings.is_yes("--quiet") {
        options.push("--quiet".into());
    }
    options.push("--running-on-valgrind=yes".into());
    Ok(options)
}

/// The kinds of leaks that are shown, by options of which later ones prevail; `None` for the usual ones.
fn shown_kinds(settings: &Settings) -> Option<&str> {
    let mut kinds = None;
    for (option, value) in settings.in_order(&KINDS) {
        kinds = Some(match (option, value) {
            ("--show-leak-kinds", kinds) => kinds,
            ("--show-reachable", "yes") => "all",
            ("--show-possibly-lost", "no") => "definite",
            _ => "definite,possible",
        });
    }
    kinds
}

/// What the tool is told by the file of the run.
fn given(name: &str, settings: &Settings, notes: &[String]) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let version = env!("CARGO_PKG_VERSION");
    let mut line = |text: String| lines.push(("line", text));
    if !settings.is_yes("--quiet") {
        line(format!("Using atom {version} in the place of {VERSION}"));
        if settings.value("--undef-value-errors") != Some("no") {
            line(
                "Undefined values are not looked for: --undef-value-errors=yes has no effect"
                    .into(),
            );
        }
        notes.iter().for_each(|note| line(note.clone()));
    }
    for file in settings.values("--suppressions") {
        let file = absolute(file).unwrap_or_else(|_| file.into());
        lines.push(("suppressions", file.display().to_string()));
    }
    lines.push(("word", name.to_owned()));
    lines.extend(settings.words.iter().map(|word| ("word", word.clone())));
    let comment = settings.value("--xml-user-comment");
    lines.extend(comment.map(|comment| ("comment", comment.to_owned())));
    lines
}
