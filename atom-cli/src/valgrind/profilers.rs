//! Valgrind's other tools: *calltree* for callgrind, *cache* or *icount* for cachegrind, *heap* for massif, *icount* for lackey,
//! and *empty* for none.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atom_core::Error;
use profile::{Profile, Value};
use viewer::report;

use super::settings::Settings;
use super::sinks::{Sink, expand};
use super::{Complaint, Stop, Tool, run_tool, shown};
use crate::kept::records;
use crate::kept::store::Store;
use crate::message;
use crate::run::Ended;

/// Where the profile of a process is until it is exported. The name is the same in all runs, so that the instrumented program
/// is, too.
const PROFILE: &str = "valgrind-%p.profile";

/// Runs the program.
pub fn run(settings: &Settings) -> Result<Option<Ended>, Stop> {
    let log = Sink::of(settings, "--log")?.unwrap_or(Sink::Fd(2));
    let profile = records::folder(Store::open()?.folder()).join(PROFILE);
    let (tool, options) = tool(settings, &profile)?;
    let ended = run_tool(settings, tool, options)?;
    let Some(ended) = ended else {
        return Ok(None);
    };
    let mut text = head(settings, tool);
    if settings.tool == Tool::Callgrind {
        text.push_str(&collected(settings, ended.process));
    }
    for file in &ended.profiles {
        let written = exported(settings, file, ended.process, &mut text);
        let _ = std::fs::remove_file(file);
        written?;
    }
    if !settings.is_yes("--quiet")
        && let Err(error) = log.tell(ended.process, &text)
    {
        message::say(&format!("the log cannot be written: {error}"));
    }
    Ok(Some(ended))
}

/// The name of the file that the tool writes.
fn out(settings: &Settings) -> String {
    let name = settings.tool.name();
    let given = settings.value(&format!("--{name}-out-file"));
    given.map_or_else(|| format!("{name}.out.%p"), str::to_owned)
}

/// The tool of atom with its options.
fn tool(settings: &Settings, profile: &Path) -> Result<(&'static str, Vec<String>), Complaint> {
    let out = out(settings);
    // Variables are known here, and the tool does not know `%q`.
    let file = out
        .contains("%q")
        .then(|| expand(&out.replace("%p", "\0"), 0))
        .transpose();
    let file = file
        .map_err(Complaint::new)?
        .map(|file| file.replace('\0', "%p"));
    let file = file.unwrap_or(out);
    let profile = format!("--profile={}", profile.display());
    let words = |option: &str| vec![option.to_owned(), file.clone(), "--no-profile".into()];
    let counts = || vec![profile.clone()];
    let (tool, mut options) = match settings.tool {
        Tool::Callgrind => ("calltree", words("--callgrind")),
        Tool::Massif => ("heap", words("--massif")),
        Tool::Cachegrind if settings.value("--cache-sim") != Some("no") => {
            let mut options = counts();
            options.extend(geometry(settings)?);
            ("cache", options)
        }
        Tool::Cachegrind | Tool::Lackey => ("icount", counts()),
        Tool::None | Tool::Memcheck => return Ok(("empty", Vec::new())),
    };
    options.push("--output=/dev/null".into());
    Ok((tool, options))
}

/// The options of *cache* for the caches.
fn geometry(settings: &Settings) -> Result<Vec<String>, Complaint> {
    let parts = |option: &str| match settings.value(option) {
        None => Ok(None),
        Some(value) => match value.split(',').collect::<Vec<_>>().as_slice() {
            [size, ways, line] => Ok(Some([size, ways, line].map(|part| (*part).to_owned()))),
            _ => Err(Complaint::bad(
                &format!("{option}={value}"),
                "size, associativity and line size are wanted, with commas between them",
            )),
        },
    };
    let mut options = Vec::new();
    if let Some([size, ways, line]) = parts("--D1")? {
        for (option, value) in [("--size", size), ("--ways", ways), ("--line", line)] {
            options.push(format!("{option}={value}"));
        }
    }
    options.extend(parts("--LL")?.map(|parts| format!("--l2={}", parts.join(","))));
    Ok(options)
}

/// The first lines of the log.
fn head(settings: &Settings, tool: &str) -> String {
    let mut text = format!(
        "{}, by the tool {tool} of atom {}\nCommand: {}\n",
        settings.tool.name(),
        env!("CARGO_PKG_VERSION"),
        shown(&settings.command)
    );
    for note in &settings.notes {
        let _ = writeln!(text, "{note}");
    }
    if tool == "cache" {
        text.push_str("Instructions (Ir) are counted with --cache-sim=no\n");
    }
    text.push('\n');
    text
}

/// What callgrind says at the end.
fn collected(settings: &Settings, process: u32) -> String {
    let file = expand(&out(settings), process).unwrap_or_default();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let totals = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "));
    let Some(count) = totals.and_then(|totals| totals.trim().parse().ok()) else {
        return String::new();
    };
    format!(
        "Events    : Ir\nCollected : {count}\n\nI   refs:      {}\n",
        message::number(count)
    )
}

/// Exports the profile of a process, and tells the figures of the first one.
fn exported(settings: &Settings, file: &Path, first: u32, text: &mut String) -> Result<(), Error> {
    let profile = report::read(file)?;
    let process = process_of(file).unwrap_or(first);
    if process == first {
        text.push_str(&figures(settings.tool, &profile));
    }
    if settings.tool != Tool::Cachegrind {
        return Ok(());
    }
    let mut name = expand(&out(settings), process).unwrap_or_default();
    // As the other tools' files of forked children.
    if process != first && !out(settings).contains("%p") {
        let _ = write!(name, ".{process}");
    }
    let bytes = report::cachegrind(&profile)?;
    let bytes = String::from_utf8_lossy(&bytes);
    let bytes = bytes.replacen("events: count\n", "events: Ir\n", 1);
    let fail = |e| Error::new("writing", e).file(PathBuf::from(&name));
    std::fs::write(&name, bytes).map_err(fail)
}

/// The number of the process in the name of a profile.
fn process_of(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?;
    let (start, _) = PROFILE.split_once("%p")?;
    name.strip_prefix(start)?.split('.').next()?.parse().ok()
}

/// The sums of a profile, as Valgrind's tool tells them.
fn figures(tool: Tool, profile: &Profile) -> String {
    let fact = |name: &str| {
        let fact = profile.facts.iter().find(|fact| fact.name == name)?;
        match fact.number() {
            Value::Unknown => None,
            number => number.integer(),
        }
    };
    let lines: &[(&str, &str)] = match tool {
        Tool::Cachegrind => &[
            ("I   refs:     ", "instructions"),
            ("D   refs:     ", "references"),
            ("D1  misses:   ", "misses"),
            ("LLd misses:   ", "L2 misses"),
        ],
        _ => &[
            ("Executed:\n  SBs entered:  ", "blocks executed"),
            ("  guest instrs: ", "instructions"),
        ],
    };
    let mut text = String::new();
    for (line, name) in lines {
        if let Some(count) = fact(name) {
            let _ = writeln!(text, "{line} {:>10}", message::number(count));
        }
    }
    text
}
