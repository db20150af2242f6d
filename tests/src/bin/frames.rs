//! Judges a program's unwind tables at each instruction that it executes.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use atom_tests::frames;
use clap::Parser;

/// Runs a program one instruction at a time and compares what its unwind tables
/// say with the calls that were really made.
#[derive(Parser)]
struct Args {
    /// Run libraries at full speed; what they call back is not judged then.
    #[arg(long)]
    skip_libraries: bool,
    /// Number of steps after which the program continues by itself.
    #[arg(long, default_value_t = u64::MAX)]
    max_steps: u64,
    /// The program: a file, not looked up in PATH.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut command = Command::new(&args.program);
    command.args(&args.args);
    let findings = frames::judge(
        &args.program,
        &mut command,
        !args.skip_libraries,
        args.max_steps,
    );
    let findings = match findings {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for (address, wrong) in &findings.wrong {
        println!("{address:#x}\t{}\t{}", wrong.count, wrong.reason);
    }
    eprintln!(
        "{} steps, judged {:?}, wrong at {} addresses, wait status {:#x}",
        findings.steps,
        findings.judged,
        findings.wrong.len(),
        findings.wait_status
    );
    ExitCode::from(u8::from(!findings.wrong.is_empty()))
}
