//! Runs real programs, the originals and their rewrites, and prints a table of differences.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use atom_tests::atom::{self, Job};
use atom_tests::check::SWITCHES;
use atom_tests::corpus::{Bench, Entry, drawn, installed, read_table, read_table_from};
use atom_tests::counts::{read_branch, read_flow, read_icount, read_text_reads};
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::models;
use atom_tests::outcome::{Setting, run};
use call_log::EventKind;
use call_log::reader::Log;
use clap::Parser;

/// Runs programs as they are, rewritten without a tool, with icount, branch, cache and
/// flowjudge; compares output, error output, exit code and files.
#[derive(Parser)]
struct Args {
    /// Only the quick part, for every change.
    #[arg(long)]
    quick: bool,
    /// Number of programs that are checked at the same time, the largest first.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Only this program of the table (repeatable).
    #[arg(long)]
    only: Vec<String>,
    /// Only these rewrites (repeatable). Without it, all but the last four.
    #[arg(long, value_parser = JOBS)]
    job: Vec<String>,
    /// Only this tool, with these options (repeatable): `cache --ways 4 --json`. The last
    /// one is given the name of a file.
    #[arg(long)]
    with: Vec<String>,
    /// Only one rewrite of each program, with a shipped tool and options that this seed and the program's
    /// name draw.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["job", "with"])]
    any_tool: Option<u64>,
    /// Only this number of programs, drawn by the seed of `--any-tool`, and none of more than 8 MB.
    #[arg(long, requires = "any_tool")]
    sample: Option<usize>,
    /// Which half of the procedures the rewrite "half" moves.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rewrite programs with all that they load.
    #[arg(long)]
    whole: bool,
    /// Instead of the table, every ELF executable of the folders for commands, run with `--version` and
    /// `--help`; whole, with icount unless other rewrites or `--any-tool` are named.
    #[arg(long)]
    installed: bool,
    /// Do not fill dead text with traps.
    #[arg(long)]
    lenient: bool,
    /// Keep rewritten files here instead of in a temporary folder.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Print what the original programs say.
    #[arg(long)]
    show: bool,
    /// List the table.
    #[arg(long)]
    list: bool,
    /// Use this file as the table. Its programs are looked up in PATH.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Any program with its arguments, instead of the table.
    #[arg(last = true)]
    command: Vec<String>,
}

/// The rewrites in the order of the table's columns.
const JOBS: [&str; 13] = [
    "empty", "moved", "half", "icount", "branch", "cache", "flow", "calllog", "counters", "dtb",
    "prof", "reads", "versions",
];

/// Rewrites that are made only if they are named.
const ON_DEMAND: [&str; 6] = ["calllog", "counters", "dtb", "prof", "reads", "versions"];

impl Args {
    /// The table of programs.
    fn read_table(&self) -> Result<Vec<Entry>> {
        self.table
            .as_deref()
            .map_or_else(read_table, read_table_from)
    }

    /// Names of the columns.
    fn columns(&self) -> Vec<&str> {
        match self.any_tool {
            Some(_) => vec!["drawn"],
            None => self.kinds().collect(),
        }
    }

    /// All rewrites in the order of the columns.
    fn kinds(&self) -> impl Iterator<Item = &str> {
        JOBS.into_iter().chain(self.with.iter().map(String::as_str))
    }

    /// The rewrite of each column for a program, and whether it is made. `quick_jobs` has the program's
    /// rewrites in the quick part, if they are not the usual ones.
    fn rewrites(&self, program: &str, quick_jobs: &[String]) -> Vec<(&str, bool)> {
        if let Some(seed) = self.any_tool {
            return vec![(drawn::tool(seed, program), true)];
        }
        let is_wanted = |number: usize, kind: &str| match self.job.as_slice() {
            _ if number >= JOBS.len() => true,
            [] if self.quick && !quick_jobs.is_empty() => quick_jobs.iter().any(|j| j == kind),
            [] => self.with.is_empty() && !ON_DEMAND.contains(&kind),
            wanted => wanted.iter().any(|j| j == kind),
        };
        let kinds = self.kinds().enumerate();
        kinds.map(|(n, kind)| (kind, is_wanted(n, kind))).collect()
    }
}

struct Row {
    name: String,
    size: u64,
    procedures: String,
    seconds: Option<f64>,
    cells: Vec<String>,
    failures: Vec<String>,
    note: String,
}

fn job(kind: &str, output: &Path, seed: u64) -> Job {
    match kind {
        "icount" => Job::Icount(output.into()),
        "branch" => Job::Branch(output.into()),
        "cache" => drawn::job("cache --preset atom --json", output),
        "dtb" | "prof" => drawn::job(&format!("{kind} --json"), output),
        "flow" => Job::Tool(
            "flowjudge".into(),
            vec!["--output".into(), output.display().to_string()],
        ),
        "reads" => {
            let options = vec!["--output".into(), output.display().to_string()];
            let job = Job::Tool("textreads".into(), options);
            Job::With(Box::new(job), vec!["--move-all".into()])
        }
        "calllog" => Job::Tool(
            "calllog".into(),
            vec!["--output".into(), output.display().to_string()],
        ),
        "counters" => {
            let output = output.display().to_string();
            let events = "exact:instructions,exact:loads,exact:taken,model:L1-misses,page-faults";
            let options = ["--json".into(), output, "--events".into(), events.into()];
            Job::Tool("counters".into(), options.into())
        }
        "versions" => {
            let every = SWITCHES[seed as usize % SWITCHES.len()];
            let words = vec!["--switch-every".into(), every.into()];
            Job::With(Box::new(job("flow", output, seed)), words)
        }
        with if with.contains(' ') => drawn::job(with, output),
        "moved" => Job::Moved,
        "half" => Job::Half(seed),
        _ => Job::Empty,
    }
}

/// Time for a rewritten program.
const LIMIT: Duration = Duration::from_secs(300);

/// What is said of a tool that has written nothing.
const NO_FIGURES: &str = "the tool left no figures";

/// Fails unless the tool has written at least one file with at least one count.
fn tool_wrote(kind: &str, folder: &Path) -> Option<String> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("figures-") {
            continue;
        }
        if name.contains(".profile") {
            let _ = std::fs::remove_file(entry.path());
            continue;
        }
        let counted = match kind {
            "flow" | "versions" => read_flow(&entry.path()),
            "reads" => read_text_reads(&entry.path()).map(|reads| reads.loads),
            "calllog" => read_log(&entry.path()),
            "counters" => read_counters(&entry.path()),
            "icount" => read_icount(&entry.path()).map(|c| c.values().sum::<u64>()),
            "prof" => read_prof(&entry.path()),
            with if with.contains(' ') => read_any(&entry.path()),
            "cache" | "dtb" => models::read(&entry.path(), "instructions")
                .map(|c| c.values().map(|n| n.references).sum()),
            _ => {
                read_branch(&entry.path()).map(|c| c.values().map(|n| n.taken + n.not_taken).sum())
            }
        };
        match counted {
            Ok(n) => sum += n,
            Err(e) => return Some(e.to_string()),
        }
        // A leftover would only be read again by the next rewrite.
        let _ = std::fs::remove_file(entry.path());
    }
    (sum == 0).then(|| NO_FIGURES.to_owned())
}

/// Size of a file of figures in bytes. A file that looks like JSON must be valid JSON.
fn read_any(file: &Path) -> Result<u64> {
    let fail = |reason: &str| Error::new("reading the figures", reason).file(file);
    let text = std::fs::read(file).map_err(|e| fail(&e.to_string()))?;
    if text.starts_with(b"{") {
        let json: std::result::Result<serde_json::Value, _> = serde_json::from_slice(&text);
        json.map_err(|e| fail(&e.to_string()))?;
    }
    Ok(text.len() as u64)
}

/// Number of entries that `prof` counted. The calls of its arcs must account for all of them.
fn read_prof(file: &Path) -> Result<u64> {
    let fail = |reason: &str| Error::new("reading what prof wrote", reason).file(file);
    let text = std::fs::read(file).map_err(|e| fail(&e.to_string()))?;
    let json: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| fail(&e.to_string()))?;
    let sum = |table: &str, column: &str| {
        let rows = json[table].as_array()?.iter();
        rows.map(|row| row[column].as_u64()).sum::<Option<u64>>()
    };
    match (sum("procedures", "entries"), sum("arcs", "calls")) {
        (Some(entries), Some(calls)) if calls >= entries => Ok(entries),
        found => Err(fail(&format!("entries and calls: {found:?}"))),
    }
}

/// Sum of the exclusive events of procedures. Together with the events outside of procedures
/// it must be the sum of all events.
fn read_counters(file: &Path) -> Result<u64> {
    let fail = |reason: String| Error::new("reading the figures", reason).file(file);
    let text = std::fs::read(file).map_err(|e| fail(e.to_string()))?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| fail(e.to_string()))?;
    let mut sum = 0;
    for event in ["exact:instructions", "exact:loads", "exact:taken"] {
        let rows = json["events"].as_array().into_iter().flatten();
        let mut row = rows.filter(|row| row["event"] == event);
        let row = row
            .next()
            .ok_or_else(|| fail(format!("it has no {event}")))?;
        let table = json[event].as_array().into_iter().flatten();
        let own: u64 = table.filter_map(|row| row["self"].as_u64()).sum();
        // In a forked child the sum of all events includes those that the parent counted before the fork.
        if let (Some(all), Some(outside)) = (row["in_all"].as_u64(), row["outside"].as_u64())
            && own + outside != all
        {
            return Err(fail(format!("of {all} {event}, {own} and {outside}")));
        }
        sum += own;
    }
    Ok(sum)
}

/// Number of entries in a log of calls, which must be complete.
fn read_log(file: &Path) -> Result<u64> {
    let fail = |reason: String| Error::new("reading the log", reason).file(file);
    let mut log = Log::open(file).map_err(|e| fail(e.to_string()))?;
    let (mut events, mut entries) = (Vec::new(), 0);
    while let Some(_thread) = log
        .next_events(&mut events)
        .map_err(|e| fail(e.to_string()))?
    {
        entries += events.iter().filter(|e| e.kind == EventKind::Entry).count() as u64;
    }
    let tail = log.tail().copied().unwrap_or_default();
    if !log.is_ended() || tail.lost != 0 {
        return Err(fail(format!("it is not whole: {tail:?}")));
    }
    Ok(entries)
}

fn procedures(report: &serde_json::Value) -> String {
    let n = |key: &str| {
        report["procedures"][key]
            .as_u64()
            .map_or("?".into(), |n| n.to_string())
    };
    format!("{}/{}/{}", n("full"), n("partial"), n("opaque"))
}

/// Rewrites `file` for each job and lets `compare` judge the result.
fn each_job(
    args: &Args,
    file: &Path,
    out: &Path,
    quick_jobs: &[String],
    row: &mut Row,
    mut compare: impl FnMut(&Path) -> Result<(Option<String>, Option<f64>)>,
) -> Result<()> {
    for (kind, is_wanted) in args.rewrites(&row.name, quick_jobs) {
        if !is_wanted {
            row.cells.push("-".into());
            continue;
        }
        let rewritten = out.join(kind.split(' ').next().unwrap_or(kind));
        let mut job = job(kind, &out.join("figures-%p"), args.seed);
        if args.whole {
            job = Job::Whole(Box::new(job), Vec::new());
        }
        let verdict = match atom::instrument(file, &rewritten, &job, !args.lenient) {
            Ok(made) => {
                if kind == "empty" || row.seconds.is_none() {
                    row.procedures = procedures(&made.report);
                    row.seconds = Some(made.seconds);
                }
                let (text, slowdown) = compare(&rewritten)?;
                let needs_figures = !["empty", "moved", "half"].contains(&kind);
                let figures = needs_figures.then(|| tool_wrote(kind, out)).flatten();
                // Of all programs of a distribution some forbid themselves to write files (xz in Debian 13).
                let is_silent = args.any_tool.is_some() && figures.as_deref() == Some(NO_FIGURES);
                if is_silent {
                    row.note.push_str(" without figures");
                }
                let text = text.or(figures.filter(|_| !is_silent));
                (text, slowdown)
            }
            // A documented limit, refused with a message: not a broken program.
            Err(e) if e.code == Some(atom::TOO_LARGE) => {
                row.cells.push("too large".into());
                continue;
            }
            Err(e) if args.installed && e.to_string().contains("it is a Go program") => {
                row.cells.push("Go".into());
                continue;
            }
            Err(e) if e.to_string().contains("have one version of each procedure") => {
                row.cells.push("Go".into());
                continue;
            }
            Err(e) if args.installed && e.to_string().contains("it is a program interpreter") => {
                row.cells.push("loader".into());
                continue;
            }
            Err(e) => (Some(e.to_string()), None),
        };
        row.cells.push(match verdict {
            (None, Some(slowdown)) => format!("ok {slowdown:.2}"),
            (None, None) => "ok".into(),
            (Some(text), _) => {
                row.failures.push(format!("{kind}: {text}"));
                "FAILED".into()
            }
        });
        if args.any_tool.is_some() {
            row.cells.push(kind.into());
        }
    }
    Ok(())
}

fn table_row(args: &Args, bench: &Bench, entry: &Entry, file: &Path) -> Result<Row> {
    bench.clear_out()?;
    let original = bench.original(entry, file)?;
    if args.show {
        println!("--- {}\n{}", entry.name, original.says());
    }
    let note = if original.unstable.is_empty() {
        String::new()
    } else {
        format!("differs by itself: {}", original.unstable.join(", "))
    };
    let mut row = new_row(&entry.name, file, note);
    let quick_jobs = &entry.quick_jobs;
    each_job(
        args,
        file,
        &bench.out(),
        quick_jobs,
        &mut row,
        |rewritten| {
            let difference = bench.rewritten(entry, rewritten, &original, LIMIT)?;
            Ok((difference.text, difference.slowdown))
        },
    )?;
    Ok(row)
}

fn new_row(name: &str, file: &Path, note: String) -> Row {
    let size = std::fs::metadata(file).map(|m| m.len()).unwrap_or(0);
    let name = name.to_string();
    Row {
        name,
        size,
        procedures: "?".into(),
        seconds: None,
        cells: Vec::new(),
        failures: Vec::new(),
        note,
    }
}

/// A program given on the command line: the caller's folder and environment.
fn given_row(args: &Args, out: &Path) -> Result<Row> {
    let program = &args.command[0];
    let file = atom_tests::programs::in_path(program)
        .and_then(|f| std::fs::canonicalize(f).ok())
        .ok_or_else(|| Error::new("finding the program", "there is no such file").file(program))?;
    let setting = Setting {
        timeout: Duration::from_secs(600),
        ..Setting::default()
    };
    let start = |file: &Path| {
        use std::os::unix::process::CommandExt;
        run(
            Command::new(file).arg0(program).args(&args.command[1..]),
            &setting,
        )
    };
    let first = start(&file)?;
    let second = start(&file)?;
    let note = second
        .differs_from(&first)
        .map(|d| format!("differs by itself: {d}"))
        .unwrap_or_default();
    let mut row = new_row(program, &file, note.clone());
    each_job(args, &file, out, &[], &mut row, |rewritten| {
        let got = start(rewritten)?;
        let base = first.user.as_secs_f64();
        let slowdown = (base > 0.05).then(|| got.user.as_secs_f64() / base);
        let text = if note.is_empty() {
            got.differs_from(&first)
        } else {
            (got.end != first.end)
                .then(|| format!("ended with {:?} instead of {:?}", got.end, first.end))
        };
        Ok((text, slowdown))
    })?;
    Ok(row)
}

fn print(row: &Row) {
    let seconds = row.seconds.map_or("?".into(), |s| format!("{s:.2}"));
    let size = format!("{:.2}", row.size as f64 / 1e6);
    let cells: Vec<String> = row.cells.iter().map(|c| format!("{c:<8}")).collect();
    println!(
        "{:<16} {size:>7} {:>16} {seconds:>7}  {} {}",
        row.name,
        row.procedures,
        cells.join(" "),
        row.note
    );
    for failure in &row.failures {
        println!("    {failure}");
    }
    // Each line should appear at once. A closed pipe is noticed at the next line.
    let _ = std::io::stdout().flush();
}

/// An entry of the table and its program's file.
type Subject = (Entry, PathBuf);

/// The entries that the arguments choose, with their files; and the names of the entries whose programs
/// are not installed.
fn chosen(args: &Args) -> Result<(Vec<Subject>, Vec<String>)> {
    let (mut found, missing) = all_chosen(args)?;
    if let (Some(seed), Some(count)) = (args.any_tool, args.sample) {
        let size = |file: &Path| std::fs::metadata(file).map_or(0, |m| m.len());
        found.retain(|(_, file)| size(file) <= drawn::LARGEST);
        found = drawn::sample(seed, found, count, |(entry, _)| &entry.name);
    }
    Ok((found, missing))
}

/// The same without a sample.
fn all_chosen(args: &Args) -> Result<(Vec<Subject>, Vec<String>)> {
    if args.installed {
        let mut all = installed();
        all.retain(|(entry, _)| args.only.is_empty() || args.only.contains(&entry.name));
        return Ok((all, Vec::new()));
    }
    let table = args.read_table()?;
    let is_unknown = |name: &&String| !table.iter().any(|e| e.name == **name);
    if let Some(unknown) = args.only.iter().find(is_unknown) {
        let reason = format!("the table has no \"{unknown}\"");
        return Err(Error::new("choosing programs", reason));
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for entry in table {
        let is_chosen = if args.only.is_empty() {
            entry.quick || !args.quick
        } else {
            args.only.contains(&entry.name)
        };
        match entry.file() {
            _ if !is_chosen => {}
            Some(file) => found.push((entry, file)),
            None => missing.push(format!("{} ({})", entry.name, entry.package)),
        }
    }
    if args.threads > 1 {
        let size = |file: &Path| std::fs::metadata(file).map_or(0, |m| m.len());
        found.sort_by_key(|(_, file)| std::cmp::Reverse(size(file)));
    }
    Ok((found, missing))
}

/// Checks entries on several threads, each with folders of its own, and prints the rows.
fn table_rows(args: &Args, root: &Path, entries: &[Subject]) -> Result<Vec<Row>> {
    let rows = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = |number: usize| -> Result<()> {
        let bench = Bench::new(&root.join(number.to_string()))?;
        while let Some((entry, file)) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = table_row(args, &bench, entry, file).unwrap_or_else(|e| {
                let mut row = new_row(&entry.name, file, String::new());
                // Some of all installed programs wait for ever.
                if args.installed && e.doing == "running the original" {
                    row.note = e.to_string()
                } else {
                    row.failures.push(e.to_string())
                }
                row
            });
            let mut rows = rows.lock().expect("no thread panics with the lock");
            print(&row);
            rows.push(row);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads = (0..args.threads.max(1)).map(|number| scope.spawn(move || work(number)));
        let threads: Vec<_> = threads.collect();
        let mut ended = threads.into_iter().map(|t| t.join());
        ended.try_for_each(|end| end.expect("a thread ends without a panic"))
    })?;
    Ok(rows.into_inner().expect("no thread panics with the lock"))
}

fn main_result(args: &Args) -> Result<bool> {
    let root = match &args.keep {
        Some(folder) => std::path::absolute(folder)
            .map_err(|e| Error::new("finding the folder", e).file(folder))?,
        None => std::env::temp_dir().join(format!("atom-corpus-{}", std::process::id())),
    };
    let jobs = args.columns().into_iter().map(|j| format!("{j:<8.8}"));
    let jobs: Vec<String> = jobs.collect();
    println!(
        "{:<16} {:>7} {:>16} {:>7}  {}",
        "program",
        "MB",
        "full/part/opaque",
        "s",
        jobs.join(" ")
    );
    let mut missing = Vec::new();
    let rows = if args.command.is_empty() {
        let (entries, not_installed) = chosen(args)?;
        missing = not_installed;
        table_rows(args, &root, &entries)?
    } else {
        let row = given_row(args, &Bench::new(&root)?.out())?;
        print(&row);
        vec![row]
    };
    if args.keep.is_none() {
        // Nothing depends on it; a leftover is in the system's temporary folder.
        let _ = std::fs::remove_dir_all(&root);
    }
    let failed = rows.iter().filter(|r| !r.failures.is_empty()).count();
    println!("{} programs, {failed} failed", rows.len());
    if !missing.is_empty() {
        println!("not installed: {}", missing.join(", "));
    }
    // The quick part is a fixed list: `.ci/run` installs it.
    Ok(failed == 0 && !rows.is_empty() && (missing.is_empty() || !args.quick))
}

/// Prints the table: a line for each program.
fn list(args: &Args) -> Result<bool> {
    for entry in args.read_table()? {
        let quick = if entry.quick { "quick" } else { "" };
        println!("{}\t{}\t{quick}", entry.name, entry.package);
    }
    Ok(true)
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.installed {
        args.whole = true;
        if args.job.is_empty() && args.with.is_empty() && args.any_tool.is_none() {
            args.job.push("icount".into());
        }
    }
    let done = if args.list {
        list(&args)
    } else {
        main_result(&args)
    };
    exit_code("corpus", done)
}
