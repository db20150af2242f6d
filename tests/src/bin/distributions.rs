//! Runs programs of other distributions beside their rewrites, each under a tool drawn at random.
//!
//! A distribution is a root folder, which debootstrap makes once and which is kept. The packages are
//! those of the corpus, as far as the distribution has them. The command `corpus` runs inside the root
//! folder, so that programs find the distribution's libraries, and `atom` finds its loader.
//!
//! Needed are the user root and Debian's package `debootstrap`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use atom_tests::atom;
use atom_tests::corpus::read_table;
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::roots::{self, BUILD, Root};
use clap::Parser;

/// Makes root folders of Debian's releases, and compares programs in them with their rewrites.
#[derive(Parser)]
struct Args {
    /// A release that debootstrap knows (repeatable).
    #[arg(long, default_values_t = [String::from("trixie"), String::from("sid")])]
    suite: Vec<String>,
    /// Only the packages of the corpus' quick part, and a sample of programs, for every change.
    #[arg(long)]
    quick: bool,
    /// Seed that draws the tools and the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of programs of the sample.
    #[arg(long, default_value_t = 40)]
    sample: usize,
    /// Only this program (repeatable).
    #[arg(long)]
    only: Vec<String>,
    /// Folder for the root folders; `roots` beside the build otherwise.
    #[arg(long)]
    roots: Option<PathBuf>,
    /// A command to run in each root folder instead, with the build's folder at `/opt/atom/release`.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Packages that the inputs of the corpus are made with, besides those of its programs.
const FOR_INPUTS: [&str; 1] = ["g++"];

/// Compares programs of one distribution; whether all are right.
fn judge(args: &Args, root: &Root) -> Result<bool> {
    let table = read_table()?.into_iter();
    let table = table.filter(|entry| entry.quick || !args.quick);
    let packages = table.map(|entry| entry.package);
    let packages = packages.chain(FOR_INPUTS.map(String::from));
    let packages: BTreeSet<String> = packages.collect();
    let missing = root.install(&packages)?;
    if !missing.is_empty() {
        println!("the distribution has no {}", missing.join(", "));
    }
    let seed = args.seed.to_string();
    let sample = args.sample.to_string();
    let mut runs = vec![vec!["--whole"], vec!["--installed"]];
    for words in &mut runs {
        words.extend(["--any-tool", &seed, "--threads", "2"]);
        if args.quick {
            words.extend(["--sample", &sample]);
        }
        for name in &args.only {
            words.extend(["--only", name]);
        }
    }
    let mut is_right = true;
    for words in runs {
        let corpus = format!("{BUILD}/corpus");
        let mut command = root.command([&[corpus.as_str()][..], &words].concat())?;
        let status = command.status();
        let status = status.map_err(|e| Error::new("running the corpus", e))?;
        is_right &= status.success();
    }
    Ok(is_right)
}

fn run(args: &Args) -> Result<bool> {
    // The corpus in the root folder does not build.
    atom::command()?;
    let roots = roots::folder(args.roots.as_deref())?;
    let mut is_right = true;
    for suite in &args.suite {
        println!("== {suite}, seed {}", args.seed);
        let root = Root::of(suite, &roots)?;
        is_right &= match args.command.as_slice() {
            [] => judge(args, &root)?,
            words => {
                let status = root.command(words)?.status();
                let fail = |e| Error::new("running the command", e).file(&words[0]);
                status.map_err(fail)?.success()
            }
        };
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    exit_code("distributions", run(&Args::parse()))
}
