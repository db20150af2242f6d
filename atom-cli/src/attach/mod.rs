//! `atom attach`: instruments a process that runs, and leaves it again.
//!
//! The steps, each in a file of its own: what the process has mapped (`maps`), its objects (`objects`), where new segments
//! go (`places`), the rewritten files (`instrument`), a process that acts for this command (`helper`), entering (`enter`, `start_block`), the
//! time in between (`session`, and `stay` if the command ends before), leaving (`leave`), and what is told (`results`). `trace` and
//! `inject` have what `ptrace` does, `urgent` this command's priority meanwhile, `table` the addresses of the new text.

mod enter;
mod helper;
mod inject;
mod instrument;
mod leave;
mod maps;
mod objects;
mod places;
mod results;
mod session;
mod start_block;
mod stay;
mod table;
mod trace;
mod urgent;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use atom_core::image::Image;
use atom_core::{Error, Result};
use clap::Parser;
use clap::builder::Resettable;

use crate::choices::Choices;
use crate::kept::store::Store;
use crate::message;
use crate::proc_stat;
use crate::run;
use crate::run::control::WindowRequests;
use crate::{help, message::note};
use maps::Map;
use results::Folder;
use session::{End, Session};

const DOING: &str = "attaching to the process";

/// What `--for` means here: also the process with windows at places, or that is sampled, is left then.
const FOR: &str = "Leave after this time, such as `10s` or `1m 30s`; after --after it is the time from there. With --each, how long each window is. Without it, Ctrl-C or `atom ctl PID detach` leaves";

/// Arguments of `atom attach`.
#[derive(Parser, Clone)]
#[command(mut_arg("length", |arg| arg.conflicts_with(Resettable::Reset).help(FOR)))]
pub struct Arguments {
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Instrument again, even if the result of an earlier time is there
    #[arg(long)]
    pub fresh: bool,
    /// End the command once the process is entered, and measure until TIME is over, `atom ctl PID detach` or the process's end
    #[arg(long)]
    pub stay: bool,
    /// When is measured
    #[command(flatten)]
    pub windows: WindowRequests,
    /// What is instrumented, and how
    #[command(flatten)]
    pub choices: Choices,
    /// The tool
    #[command(flatten)]
    pub words: run::ToolWords,
    /// The process number, after the first `--`
    #[arg(skip)]
    pub command: Vec<OsString>,
}

/// Runs `atom attach ...`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.quiet {
        message::leave_out_notes();
    }
    if help::is_wanted(arguments.words.options()) {
        let file = run::tool_file(arguments.words.tool(), &[])?;
        help::show(
            &file,
            &format!("atom attach {} [OPTIONS] -- PID", arguments.words.tool()),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let pid = process_number(&arguments.command)?;
    check_windows(arguments)?;
    let second = match arguments.stay.then(|| stay::divide(pid)).transpose()? {
        Some(stay::Side::First(code)) => return Ok(code),
        Some(stay::Side::Second(second)) => Some(second),
        None => None,
    };
    let store = Store::open()?;
    let tool = run::tool_file(arguments.words.tool(), &[])?;
    let maps = maps::read(pid).map_err(|e| trace::refused(pid, e))?;
    refuse_process(pid, &maps, &store)?;
    let objects = objects::find(pid, &maps, store.folder())?;
    refuse_program(&objects[0])?;
    let places = places::choose(&maps, proc_stat::heap_of(pid as u32), &objects)?;
    let files = instrument::files(arguments, &tool, (&objects, &places), &store)?;
    if !files.entrance.replaced.is_empty() {
        let reason = format!(
            "{} changes the program ({}), which has begun without that",
            arguments.words.tool(),
            files.entrance.replaced
        );
        return Err(Error::new(DOING, reason).advice("start the program with `atom run`"));
    }
    let program = objects[0].path.clone();
    let folder = Folder::of(pid).map_err(|e| trace::gone(pid).unwrap_or(e))?;
    let mut session = Session::begin(&store, pid, arguments)?;
    let mut attached = enter::enter(pid, objects, files, &folder)?;
    session.has_begun(&attached, &arguments.windows);
    note(&format!(
        "attached to {pid} (stopped for {:.1} ms)",
        attached.pause.as_secs_f64() * 1e3
    ));
    if let Some(second) = second {
        second.settle();
    }
    let end = session.wait(&mut attached)?;
    let line = session.end(&attached, end);
    match end {
        End::Left => match attached.leave() {
            Ok(pause) => note(&format!(
                "left {pid} (stopped for {:.1} ms)",
                pause.as_secs_f64() * 1e3
            )),
            Err(e) => {
                attached.remains = true;
                message::error(&e);
            }
        },
        End::Gone => {}
    }
    let reported = attached.report();
    let part = arguments.choices.name_of_measured();
    let measured = session.measured().map(|line| (part, line));
    let lines: Vec<_> = [("attached", line)].into_iter().chain(measured).collect();
    if attached.remains {
        note("the new code and the tool's data stay in the process, which may return to them");
    } else {
        attached.unmap();
    }
    drop(attached);
    reported?;
    results::tell(
        &session.record,
        (pid, &program),
        &folder,
        &lines,
        arguments.quiet,
    )
}

/// The process number that the command line has.
fn process_number(words: &[OsString]) -> Result<i32> {
    let fail = |reason: &str| {
        let error = Error::usage(reason.to_owned());
        error.advice("write it behind the tool and `--`, as in `atom attach icount -- 1234`")
    };
    let [word] = words else {
        return Err(fail("no process is named, or more than one"));
    };
    let number = word.to_str().and_then(|word| word.parse::<i32>().ok());
    let number = number
        .filter(|n| *n > 0)
        .ok_or_else(|| fail("the process is not named by its number"))?;
    if number as u32 == std::process::id() {
        return Err(fail("that is this command itself"));
    }
    Ok(number)
}

/// Refuses options that contradict each other. `--for` alone says when the process is left, whatever decides what is measured.
fn check_windows(arguments: &Arguments) -> Result<()> {
    let (windows, choices) = (&arguments.windows, &arguments.choices);
    let by_time = WindowRequests {
        length: windows.length.filter(|_| windows.each.is_some()),
        ..windows.clone()
    };
    by_time.check(&choices.sampling)
}

/// Refuses processes that cannot be entered.
fn refuse_process(pid: i32, maps: &[Map], store: &Store) -> Result<()> {
    let fail =
        |reason: String, advice: &str| Err(Error::new(DOING, reason).advice(advice.to_owned()));
    if is_instrumented(pid, maps, store) {
        return fail(
            format!("{pid} is instrumented already"),
            "`atom ctl PID` begins and ends windows of a run with windows, and `atom ctl PID detach` leaves",
        );
    }
    if proc_stat::status(pid as u32, "Seccomp") == "2" {
        return fail(
            format!(
                "{pid} has a seccomp filter, which may end it at a system call that entering needs"
            ),
            "start it under `atom run --off`, and begin windows with `atom ctl PID on`",
        );
    }
    // The fifth byte of the program's file is 1 for 32 bits.
    let mut head = [0; 5];
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|mut f| f.read_exact(&mut head));
    if read.is_ok() && head[4] == 1 {
        return fail(
            format!("{pid} is a 32-bit program"),
            "only programs for x86-64 can be instrumented",
        );
    }
    if proc_stat::status(pid as u32, "State").starts_with('T') {
        return fail(
            format!("{pid} is stopped"),
            "continue it first: kill -CONT PID",
        );
    }
    Ok(())
}

/// True if a process runs instrumented code: an object's text is mapped from the store, in front of what follows it in the object.
/// New code alone has stayed from an earlier time, as a signal handler might return to it.
fn is_instrumented(pid: i32, maps: &[Map], store: &Store) -> bool {
    let is_ours = |path: &Path| path.starts_with(store.folder());
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let is_text = |pair: &[Map]| {
        let [text, next] = pair else { return false };
        let is_within = next.is_file() && next.offset > 0 && !is_ours(&next.path);
        text.is_code() && is_ours(&text.path) && text.end == next.start && is_within
    };
    program.is_ok_and(|program| is_ours(&program)) || maps.windows(2).any(is_text)
}

/// Refuses programs that cannot be entered.
fn refuse_program(program: &objects::Object) -> Result<()> {
    let image = Image::read(&program.path)?;
    if image.is_go() {
        let reason = "programs of Go cannot be entered yet: their own tables would have to change while goroutines run";
        return Err(Error::new(DOING, reason)
            .file(&program.path)
            .advice("start it with `atom run`"));
    }
    Ok(())
}
