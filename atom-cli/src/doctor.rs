//! `atom doctor`: what this machine and its kernel allow, and what each lack costs.

use std::fs;
use std::path::Path;

use atom_core::Result;
use clap::Args;
use events::Source;

use crate::disk::{free_space, is_writable};
use crate::find;
use crate::kept::store::Store;
use crate::message::number;

/// Arguments of `atom doctor`.
#[derive(Args)]
pub struct Doctor {}

/// What was looked at.
struct Finding {
    what: &'static str,
    /// What was found.
    found: String,
    /// What is lost because of it, and what can be done; `None` if all is there.
    cost: Option<String>,
}

impl Finding {
    fn new(what: &'static str, found: impl Into<String>, cost: Option<&str>) -> Self {
        Self {
            what,
            found: found.into(),
            cost: cost.map(str::to_owned),
        }
    }
}

/// Runs `atom doctor`.
pub fn run(_: &Doctor) -> Result<()> {
    let findings = [
        kernel(),
        tools(),
        cache(),
        folder(),
        memory(),
        samples(),
        counters(),
        tracing(),
        filter(),
        names(),
    ];
    let mut lacks = 0;
    for Finding { what, found, cost } in findings {
        let mark = if cost.is_none() { "ok  " } else { "lack" };
        println!("{mark}  {what:15}  {found}");
        if let Some(cost) = cost {
            lacks += 1;
            for line in tables::wrapped(&cost, 90) {
                println!("{:23}{}", "", line.trim_start());
            }
        }
    }
    match lacks {
        0 => println!("nothing is lacking"),
        1 => println!("1 thing is lacking; all else works"),
        n => println!("{n} things are lacking; all else works"),
    }
    Ok(())
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let release = text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::new(
        "kernel",
        format!("{release}, {processors} processors"),
        None,
    )
}

fn tools() -> Finding {
    let found = find::tools();
    let names: Vec<&str> = found.iter().map(|tool| &*tool.name).collect();
    let cost = "no tool is found: ./install in the sources of atom installs them, and ATOM_TOOLS names further folders";
    Finding::new("tools", names.join(", "), found.is_empty().then_some(cost))
}

/// The cache of `atom run`: whether it can be written to, and how much space there is.
fn cache() -> Finding {
    let store = match Store::open() {
        Ok(store) => store,
        Err(error) => {
            let cost = "`atom run` and `atom attach` keep instrumented programs there, and need it: set XDG_CACHE_HOME to a folder of yours";
            return Finding::new("cache", error.to_string(), Some(cost));
        }
    };
    let path = store.folder();
    let limit = Store::limit().unwrap_or_default();
    let free = free_space(path);
    let found = format!(
        "{}, {} free, at most {} are used",
        path.display(),
        megabytes(free),
        megabytes(limit)
    );
    let cost = "instrumented programs take 10 to 500 MB each: make space, or set XDG_CACHE_HOME to a folder elsewhere; `atom kept --clear` removes those that are kept";
    Finding::new("cache", found, (free < 1_000_000_000).then_some(cost))
}

/// The working folder, into which tools write their reports.
fn folder() -> Finding {
    let path = std::env::current_dir().unwrap_or_default();
    let cost = "reports cannot be written here: run in another folder, or name files elsewhere with --output";
    let found = format!("{}, {} free", path.display(), megabytes(free_space(&path)));
    let is_usable = is_writable(&path) && free_space(&path) > 0;
    Finding::new("working folder", found, (!is_usable).then_some(cost))
}

fn memory() -> Finding {
    let all = text("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = all.lines().find(|line| line.starts_with(name));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        kilobytes.unwrap_or(0) * 1024
    };
    let available = field("MemAvailable:");
    let cost = "a program with its libraries takes 100 to 1,000 MB to instrument, very large ones 4 GB: `--own` or `--only` instrument less";
    let found = format!(
        "{} of {} available",
        megabytes(available),
        megabytes(field("MemTotal:"))
    );
    Finding::new("memory", found, (available < 1_000_000_000).then_some(cost))
}

/// Samples of the program counter, which the kernel takes.
fn samples() -> Finding {
    let allowed = crate::run::samples::are_permitted();
    let paranoid = events::paranoid().map_or("missing".into(), |n| n.to_string());
    let cost = "reports do not say what share of the time was spent in code that is not instrumented: sysctl kernel.perf_event_paranoid=1 allows it";
    Finding::new(
        "perf samples",
        format!("kernel.perf_event_paranoid is {paranoid}"),
        (!allowed).then_some(cost),
    )
}

/// The processor's counters.
fn counters() -> Finding {
    let hardware: Vec<_> = events::all()
        .filter(|event| event.source == Source::Hardware)
        .collect();
    let usable = hardware
        .iter()
        .filter(|event| event.probe().is_ok())
        .count();
    let found = format!(
        "{usable} of {} events of the processor can be counted",
        hardware.len()
    );
    let cost = "the tool counters has the kernel's events and exact ones only; `atom events` says why, for each event";
    Finding::new("perf counters", found, (usable == 0).then_some(cost))
}

/// Tracing of processes that run already.
fn tracing() -> Finding {
    // SAFETY: a system call without effects.
    let is_root = unsafe { libc::geteuid() } == 0;
    let scope = text("/proc/sys/kernel/yama/ptrace_scope");
    let found = match &scope {
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}"),
        None => "own processes may be traced".to_owned(),
    };
    let allowed =
        matches!(scope.as_deref(), None | Some("0")) || is_root && scope.as_deref() != Some("3");
    let cost = "`atom attach` works as root only: sysctl kernel.yama.ptrace_scope=0 allows it. A program that was started by `atom run --off` needs none of that: `atom ctl PID on`";
    Finding::new("ptrace", found, (!allowed).then_some(cost))
}

/// A filter of system calls that holds for all that is started here, as in containers.
fn filter() -> Finding {
    let mode = crate::proc_stat::status(std::process::id(), "Seccomp");
    let cost = "this shell has a filter of system calls, as containers have: what it forbids, instrumented programs lack as well";
    let is_filtered = mode.trim() == "2";
    let found = if is_filtered {
        "a filter is set"
    } else {
        "no filter"
    };
    Finding::new("seccomp", found, is_filtered.then_some(cost))
}

/// Names and lines of stripped programs.
fn names() -> Finding {
    let servers = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
    let has_files = Path::new("/usr/lib/debug/.build-id").is_dir();
    let found = match (has_files, servers.is_empty()) {
        (_, false) => format!("debuginfod: {servers}"),
        (true, true) => "debug files in /usr/lib/debug".to_owned(),
        (false, true) => "no debug files and no servers of debuginfod".to_owned(),
    };
    let cost = "procedures of stripped programs have addresses for names: install debug packages such as libc6-dbg, or set DEBUGINFOD_URLS";
    let is_none = !has_files && servers.is_empty();
    Finding::new("debug files", found, is_none.then_some(cost))
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", number(bytes / 1_000_000))
}
