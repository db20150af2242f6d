//! Runs everything that judges `atom`, at full depth, for hours.
//!
//! `.ci/run` makes each kind of check on some subjects; this command makes it on all. A job that
//! has passed is noted in `target/nightly/passed` and not run again, so that the command can be
//! interrupted and continues where it was. It is to be run in the project's folder.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use atom_tests::atom;
use atom_tests::check::SWITCHES;
use atom_tests::corpus::read_table;
use atom_tests::depth;
use atom_tests::error::{Error, Result, exit_code};
use clap::Parser;

/// Runs all tests at full depth, all programs of the corpus with all rewrites, rewrites of all
/// programs of this system, and all fuzz targets.
#[derive(Parser)]
struct Args {
    /// Only jobs whose name contains one of these: `corpus/`, `tests/atom-core`, `gzip`.
    filter: Vec<String>,
    /// List the jobs with what each does.
    #[arg(long)]
    list: bool,
    /// Run jobs again that have passed before.
    #[arg(long)]
    again: bool,
    /// Seconds for each fuzz target.
    #[arg(long, default_value_t = 1800)]
    fuzz: u32,
}

/// One command that must end with code 0.
struct Job {
    name: String,
    /// What it checks, for `--list`.
    what: String,
    command: Command,
}

/// The packages of the workspace, whose tests are jobs of their own.
const PACKAGES: [&str; 13] = [
    "analysis-rt",
    "arp",
    "arp-c",
    "atom-abi",
    "atom-cli",
    "atom-core",
    "atom-kernel",
    "atom-tool",
    "call-log",
    "counters",
    "events",
    "house",
    "ranges",
];

const FUZZ_TARGETS: [&str; 6] = ["elf", "eh_frame", "dwarf", "arp", "call_log", "mem_trace"];

/// Rewrites of the corpus that choose procedures by a seed: these seeds.
const SEEDS: [u64; 3] = [1, 2, 3];

fn job(name: String, what: &str, program: impl AsRef<Path>, words: &[&str]) -> Job {
    let mut command = Command::new(program.as_ref());
    command.args(words);
    let what = what.to_owned();
    Job {
        name,
        what,
        command,
    }
}

/// All tests of the workspace, with all builds of test programs and all programs to read.
fn tests(jobs: &mut Vec<Job>) {
    let what = "its tests at full depth";
    let mut add = |name: &str, words: &[&str]| {
        let words = [&["test", "--release", "--quiet"][..], words].concat();
        let mut job = job(format!("tests/{name}"), what, "cargo", &words);
        job.command.env(depth::VARIABLE, "all");
        jobs.push(job);
    };
    for package in PACKAGES {
        add(package, &["-p", package]);
    }
    add("helpers", &["-p", "atom-tests", "--lib"]);
    add("judges", &["-p", "atom-tests", "--test", "judges"]);
}

/// Each program of the corpus with each rewrite, and halves by other seeds.
fn corpus(jobs: &mut Vec<Job>, folder: &Path) -> Result<()> {
    let rewrites = "empty moved icount branch cache flow calllog counters dtb prof";
    let rewrites = rewrites.split(' ').flat_map(|name| ["--job", name]);
    let rewrites: Vec<&str> = rewrites.collect();
    let command = folder.join("corpus");
    for entry in read_table()? {
        // A program that is not installed is told and no failure.
        if entry.file().is_none() {
            println!("not installed: {} ({})", entry.name, entry.package);
            continue;
        }
        let words = [&["--only", &entry.name][..], &rewrites].concat();
        let name = format!("corpus/{}", entry.name);
        jobs.push(job(name, "all rewrites of it behave", &command, &words));
        let name = format!("corpus/{}/reads", entry.name);
        let words = ["--only", &entry.name, "--whole", "--job", "reads"];
        let what = "no load of the process reads text that has been overwritten";
        jobs.push(job(name, what, &command, &words));
        for (seed, every) in SWITCHES.iter().enumerate() {
            let name = format!("corpus/{}/versions-{every}", entry.name);
            let seed = seed.to_string();
            let words = [
                "--only",
                &entry.name,
                "--whole",
                "--job",
                "versions",
                "--seed",
                &seed,
            ];
            let what = "with two versions of its procedures, between which control goes to and fro, it behaves";
            jobs.push(job(name, what, &command, &words));
        }
        for seed in SEEDS {
            let (name, seed) = (
                format!("corpus/{}/half-{seed}", entry.name),
                seed.to_string(),
            );
            let words = ["--only", &entry.name, "--job", "half", "--seed", &seed];
            let what = "with half of its procedures moved it behaves";
            jobs.push(job(name, what, &command, &words));
        }
    }
    Ok(())
}

/// Rewrites of all programs and libraries that this system has, checked block by block and not run.
fn programs(jobs: &mut Vec<Job>, folder: &Path, place: &Path) {
    let mut files = BTreeSet::new();
    for directory in [
        "/usr/bin",
        "/usr/sbin",
        "/usr/libexec",
        "/usr/lib/postgresql/15/bin",
        "/usr/lib/x86_64-linux-gnu",
    ] {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            files.extend(std::fs::canonicalize(entry.path()).ok());
        }
    }
    let is_elf = |file: &PathBuf| {
        let mut magic = [0; 4];
        let read = std::fs::File::open(file)
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
        read.is_ok() && magic == *b"\x7fELF"
    };
    let out = place.join("rewritten").to_string_lossy().into_owned();
    for file in files.iter().filter(|file| is_elf(file)) {
        let path = file.to_string_lossy();
        for (kind, more) in [
            ("moved", &["--move-all"][..]),
            ("icount", &["--tool", "icount"]),
        ] {
            let words = [&[&*path, "--strict", "--check", "-o", &out][..], more].concat();
            let name = format!("programs{path}/{kind}");
            let what = "the checker accepts its rewrite; 1 and 3: refused with a reason";
            jobs.push(job(name, what, folder.join("atom"), &words));
        }
    }
}

/// Programs of Go that Debian does not have, and Go's own tests; both are fetched.
fn go(jobs: &mut Vec<Job>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let what = "programs of npm and PyPI behave as before";
    let rewrites = ["moved", "icount", "cache"];
    let words: Vec<&str> = rewrites.iter().flat_map(|r| ["--job", r]).collect();
    jobs.push(job(
        "go/programs".into(),
        what,
        folder.join("programs"),
        &words,
    ));
    for version in ["debian", "1.22.10", "1.27.3"] {
        let what = "tests of Go's standard library have the original's verdicts";
        let name = format!("go/tests/{version}");
        jobs.push(job(name, what, folder.join("run"), &[version]));
    }
}

/// All installed programs, and those of other distributions, with tools drawn at random.
fn drawn(jobs: &mut Vec<Job>, folder: &Path) {
    let what = "programs behave under tools that are drawn, with all that they load";
    for seed in SEEDS.map(|seed| seed.to_string()) {
        let words = ["--installed", "--any-tool", &seed];
        let name = format!("drawn/installed/{seed}");
        jobs.push(job(name, what, folder.join("corpus"), &words));
        let words = ["--whole", "--any-tool", &seed];
        let name = format!("drawn/corpus/{seed}");
        jobs.push(job(name, what, folder.join("corpus"), &words));
        for suite in ["trixie", "sid"] {
            let words = ["--suite", suite, "--seed", &seed];
            let name = format!("drawn/{suite}/{seed}");
            jobs.push(job(name, what, folder.join("distributions"), &words));
        }
    }
}

/// Packages of PyPI and npm, and public suites, all of which are fetched.
fn public(jobs: &mut Vec<Job>, folder: &Path) {
    for seed in SEEDS.map(|seed| seed.to_string()) {
        let what = "packages of PyPI and npm behave under tools that are drawn";
        let name = format!("public/published/{seed}");
        let words = ["--seed", &seed];
        jobs.push(job(name, what, folder.join("published"), &words));
        let what = "programs of public suites behave under tools that are drawn";
        let name = format!("public/suites/{seed}");
        jobs.push(job(name, what, folder.join("suites"), &words));
    }
}

/// Test programs by many compilers, two cases of each by each seed.
fn compilers(jobs: &mut Vec<Job>, folder: &Path) {
    let what = "programs by other compilers, with other options, behave under tools that are drawn";
    for seed in 1..=10 {
        let seed = seed.to_string();
        let words = ["--sample", "100", "--seed", &seed];
        let name = format!("compilers/{seed}");
        jobs.push(job(name, what, folder.join("compilers"), &words));
    }
}

/// Random tools of users: ten in each source, a thousand in all.
fn random_tools(jobs: &mut Vec<Job>, folder: &Path, place: &Path) {
    let place = place.join("random-tools").to_string_lossy().into_owned();
    for first in (1..=50).step_by(5) {
        let seed = first.to_string();
        let words = ["--seed", &seed, "--sources", "5", "--tools", "10", &place];
        let what = "routines in line do what calls of them do, and the checker accepts libraries with them";
        let name = format!("random-tools/{seed}");
        jobs.push(job(name, what, folder.join("random_tools"), &words));
    }
}

fn fuzz(jobs: &mut Vec<Job>, seconds: u32) {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/run");
    for target in FUZZ_TARGETS {
        let name = format!("fuzz/{target}");
        let what = "no input makes the reader panic, hang or take much memory";
        jobs.push(job(name, what, &run, &[target, &seconds.to_string()]));
    }
}

/// Whether `atom` refused a program in words, as it does with what it does not support.
fn is_refusal(job: &Job, code: Option<i32>, log: &Path) -> bool {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    job.name.starts_with("programs/")
        && matches!(code, Some(1 | atom::TOO_LARGE))
        && !text.contains("panicked")
        && !text.contains("checking the output")
}

/// Runs a job and answers whether it passed. Its output goes to `log`.
fn passes(job: &mut Job, log: &Path) -> Result<bool> {
    let fail = |e: std::io::Error| Error::new("running a job", e).file(log);
    let file = std::fs::File::create(log).map_err(fail)?;
    let errors = file.try_clone().map_err(fail)?;
    let command = job.command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let status = command.status().map_err(fail)?;
    Ok(status.success() || is_refusal(job, status.code(), log))
}

/// Builds the commands that jobs run.
fn build() -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--workspace", "--quiet"]);
    let fail = |reason: String| Error::new("building the workspace", reason);
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(fail(status.to_string())),
        Err(error) => Err(fail(error.to_string())),
    }
}

fn run(args: &Args) -> Result<bool> {
    build()?;
    let command = atom::command()?;
    let folder = command.parent().unwrap_or(Path::new("."));
    let place = atom_tests::cache::target_folder()?.join("nightly");
    let fail = |e: std::io::Error| Error::new("keeping what passed", e).file(&place);
    std::fs::create_dir_all(&place).map_err(fail)?;
    let mut jobs = Vec::new();
    tests(&mut jobs);
    corpus(&mut jobs, folder)?;
    programs(&mut jobs, folder, &place);
    go(&mut jobs);
    drawn(&mut jobs, folder);
    public(&mut jobs, folder);
    compilers(&mut jobs, folder);
    random_tools(&mut jobs, folder, &place);
    fuzz(&mut jobs, args.fuzz);
    jobs.retain(|job| args.filter.is_empty() || args.filter.iter().any(|f| job.name.contains(f)));
    if args.list {
        jobs.iter()
            .for_each(|job| println!("{:<40} {}", job.name, job.what));
        return Ok(true);
    }
    let notes = place.join("passed");
    let passed = if args.again {
        String::new()
    } else {
        std::fs::read_to_string(&notes).unwrap_or_default()
    };
    let passed: BTreeSet<&str> = passed.lines().collect();
    let notes = std::fs::File::options()
        .create(true)
        .append(true)
        .open(notes);
    let mut notes = notes.map_err(fail)?;
    let (mut count, mut before, mut failed) = (0, 0, Vec::new());
    for job in &mut jobs {
        if passed.contains(job.name.as_str()) {
            before += 1;
            continue;
        }
        let log = place.join(format!("{}.log", job.name.replace('/', "-")));
        let start = Instant::now();
        let is_passed = passes(job, &log)?;
        let seconds = start.elapsed().as_secs_f64();
        let verdict = if is_passed { "ok" } else { "FAILED" };
        println!("{verdict:<7} {seconds:>8.1} s  {}", job.name);
        // A closed pipe shows at the next line.
        let _ = std::io::stdout().flush();
        if is_passed {
            count += 1;
            writeln!(notes, "{}", job.name).map_err(fail)?;
            // Only logs of failures are of interest.
            let _ = std::fs::remove_file(&log);
        } else {
            failed.push((job.name.clone(), log))
        }
    }
    println!(
        "{count} jobs passed, {} failed, {before} had passed before",
        failed.len()
    );
    for (name, log) in &failed {
        println!("    {name}: {}", log.display());
    }
    Ok(failed.is_empty())
}

fn main() -> ExitCode {
    exit_code("nightly", run(&Args::parse()))
}
