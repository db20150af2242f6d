//! Compares programs by many compilers, with many options, with their rewrites.
//!
//! A sample is drawn from all cases of the table `tests/compilers.txt`. Each case's program is rewritten alone and as a
//! whole process, by a tool that the seed and the case's name draw. Compilers of Debian's releases run in root folders:
//! the command starts itself there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use atom_tests::atom;
use atom_tests::compilers::{Case, Judge, Table, Verdict, spread};
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::roots::{self, BUILD, Root, TESTS, must};
use clap::Parser;

/// Builds test programs by many compilers, and compares them with their rewrites.
#[derive(Parser)]
struct Args {
    /// Only compilers of this system that the tests need anyway.
    #[arg(long)]
    quick: bool,
    /// Number of cases, drawn by the seed.
    #[arg(long, default_value_t = 40)]
    sample: usize,
    /// Seed that draws cases and tools.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// All tools for each case.
    #[arg(long)]
    all_tools: bool,
    /// Only cases whose name contains this (repeatable): `gcc-16/`, `/mixed.d/`, `-flto`.
    #[arg(long, allow_hyphen_values = true)]
    only: Vec<String>,
    /// Only compilers of these places: `here`, `trixie` (repeatable).
    #[arg(long)]
    root: Vec<String>,
    /// Folder for the root folders; `roots` beside the build otherwise.
    #[arg(long)]
    roots: Option<PathBuf>,
    /// List the cases that are drawn.
    #[arg(long)]
    list: bool,
    /// Judge the cases of this place, in its root folder, with the sources of `--sources`.
    #[arg(long, hide = true)]
    inside: Option<String>,
    /// Folder of the sources.
    #[arg(long, hide = true)]
    sources: Option<PathBuf>,
}

/// The cases that the arguments choose.
fn chosen(args: &Args) -> Result<Vec<Case>> {
    let sources = match &args.sources {
        Some(folder) => folder.clone(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("sources"),
    };
    let mut cases = Table::read()?.cases(&sources)?;
    cases.retain(|case| {
        let is_named = |only: &String| case.name.contains(only.as_str());
        let is_there = |root: &String| case.compiler.root == *root;
        (case.compiler.quick || !args.quick)
            && (args.only.is_empty() || args.only.iter().any(is_named))
            && (args.root.is_empty() || args.root.iter().any(is_there))
    });
    Ok(spread(args.seed, cases, args.sample))
}

/// Judges cases here, and prints a line for each; whether none is wrong.
fn judge(args: &Args, cases: &[Case], wheels: &Path) -> Result<bool> {
    let folder = std::env::temp_dir().join(format!("atom-compilers-{}", std::process::id()));
    let mut judge = Judge::new(&folder, wheels, args.seed, args.all_tools);
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for case in cases {
        let verdict = judge.judge(case)?;
        let (word, text) = match &verdict {
            Verdict::Right(text) => ("ok", text),
            Verdict::NotBuilt(text) => ("not built", text),
            Verdict::Refused(text) => ("refused", text),
            Verdict::Wrong(text) => ("FAILED", text),
        };
        println!("{word:<9} {}: {text}", case.name);
        // Each line should appear at once. A closed pipe is noticed at the next line.
        let _ = std::io::stdout().flush();
        *counts.entry(word).or_default() += 1;
    }
    // Nothing depends on it; a leftover is in the system's temporary folder.
    let _ = std::fs::remove_dir_all(&folder);
    for (reason, n) in &judge.missed {
        println!("    {n} procedures {reason}");
    }
    let counts: Vec<String> = counts.iter().map(|(w, n)| format!("{n} {w}")).collect();
    println!("{} cases: {}", cases.len(), counts.join(", "));
    // A matrix of which nothing can be built says nothing.
    Ok(!counts.iter().any(|c| c.ends_with("FAILED")) && counts.iter().any(|c| c.ends_with(" ok")))
}

/// Installs packages of PyPI that compilers come in.
fn install_wheels(cases: &[&Case], wheels: &Path) -> Result<()> {
    let names: BTreeSet<&String> = cases
        .iter()
        .filter_map(|c| c.compiler.wheel.as_ref())
        .collect();
    for name in names {
        if !wheels.join(name).exists() {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--target"]);
            must("installing a package of PyPI", pip.arg(wheels).arg(name))?;
        }
    }
    Ok(())
}

/// Judges the cases of one place, in a root folder if it is a release of Debian.
fn judge_there(args: &Args, place: &str, cases: &[&Case]) -> Result<bool> {
    let wheels = atom_tests::cache::target_folder()?.join("wheels");
    if place == "here" {
        install_wheels(cases, &wheels)?;
        let cases: Vec<Case> = cases.iter().map(|case| (*case).clone()).collect();
        return judge(args, &cases, &wheels);
    }
    let root = Root::of(place, &roots::folder(args.roots.as_deref())?)?;
    let packages = cases.iter().flat_map(|case| case.compiler.packages.iter());
    let missing = root.install(&packages.cloned().collect())?;
    if !missing.is_empty() {
        println!("{place} has no {}", missing.join(", "));
    }
    let (seed, sample) = (args.seed.to_string(), args.sample.to_string());
    let command = format!("{BUILD}/compilers");
    let sources = format!("{TESTS}/sources");
    let mut words = vec![command.as_str(), "--inside", place, "--sources", &sources];
    words.extend(["--seed", &seed, "--sample", &sample]);
    for flag in [(args.all_tools, "--all-tools"), (args.quick, "--quick")] {
        words.extend(flag.0.then_some(flag.1));
    }
    for (option, values) in [("--only", &args.only), ("--root", &args.root)] {
        words.extend(values.iter().flat_map(|value| [option, value.as_str()]));
    }
    let status = root.command(words)?.status();
    let status = status.map_err(|e| Error::new("judging in a root folder", e).file(place))?;
    Ok(status.success())
}

fn run(args: &Args) -> Result<bool> {
    let cases = chosen(args)?;
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(true);
    }
    let at = |place: &str| -> Vec<&Case> {
        let there = cases.iter().filter(|case| case.compiler.root == place);
        there.collect()
    };
    if let Some(place) = &args.inside {
        let own: Vec<Case> = at(place).into_iter().cloned().collect();
        return judge(args, &own, Path::new("/nowhere"));
    }
    // Root folders have no cargo.
    atom::command()?;
    println!("seed {}, {} cases", args.seed, cases.len());
    let places: BTreeSet<&str> = cases.iter().map(|c| c.compiler.root.as_str()).collect();
    let mut is_right = !cases.is_empty();
    for place in places {
        println!("== {place}");
        is_right &= judge_there(args, place, &at(place))?;
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    exit_code("compilers", run(&Args::parse()))
}
