//! Compares what `icount` counts in a whole process with a single-stepper, address by address.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use atom_tests::error::{Error, Result, exit_code};
use atom_tests::whole;
use clap::Parser;

/// Steps through a program, runs its instrumented bundle, and prints what differs.
#[derive(Parser)]
struct Args {
    /// The bundle's program, made by `atom PROGRAM --tool icount --libs -o BUNDLE -- --format tsv --per
    /// instruction --output COUNTS`.
    bundle: String,
    /// The counts that it writes.
    counts: String,
    /// Number of differences to print.
    #[arg(long, default_value_t = 40)]
    top: usize,
    /// The original program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    exit_code("whole", run(&Args::parse()).map(|()| true))
}

fn run(args: &Args) -> Result<()> {
    let program = Path::new(&args.command[0]);
    let command = |file: &str| {
        let mut command = Command::new(file);
        command.arg0(&args.command[0]).args(&args.command[1..]);
        command.stdout(std::process::Stdio::null());
        command
    };
    let (end, expected) = whole::step(program, &mut command(&args.command[0]), u64::MAX)?;
    let mut bundle = Command::new("setarch");
    bundle.args(["-R", &args.bundle]).args(&args.command[1..]);
    bundle.stdout(std::process::Stdio::null());
    let status = bundle
        .status()
        .map_err(|e| Error::new("running the bundle", e))?;
    let found = whole::read(Path::new(&args.counts))?;
    let sum = |counts: &whole::Counts| counts.values().sum::<u64>();
    println!(
        "{end:?} and {status}: {} stepped, {} counted",
        sum(&expected),
        sum(&found)
    );
    let differences = whole::difference(&expected, &found);
    println!("{} addresses, {} differ", expected.len(), differences.len());
    for (key, a, b) in differences.iter().take(args.top) {
        println!("{key}\t{a}\t{b}");
    }
    Ok(())
}
