//! Prints how often each instruction of a program ran: `address<TAB>count`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use atom_tests::stepper::{self, Options, Process};
use clap::Parser;

/// Runs a program one instruction at a time and counts its own instructions.
#[derive(Parser)]
struct Args {
    /// Where the counts go; standard error if absent.
    #[arg(short, long)]
    output: Option<PathBuf>,
    /// Print conditional branches (address, taken, not taken) instead.
    #[arg(short, long)]
    branches: bool,
    /// Count in forked children too; each address space is printed under its process id.
    #[arg(short, long)]
    forks: bool,
    /// Step through libraries as well instead of running them at full speed.
    #[arg(long)]
    step_libraries: bool,
    /// Number of steps after which the run is given up.
    #[arg(long, default_value_t = u64::MAX)]
    max_steps: u64,
    /// The program: a file, not looked up in PATH.
    program: PathBuf,
    /// Its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn print(to: &mut dyn Write, process: &Process, branches: bool) -> std::io::Result<()> {
    if branches {
        for (address, n) in &process.branches {
            writeln!(to, "{address:#x}\t{}\t{}", n.taken, n.not_taken)?;
        }
    } else {
        for (address, n) in &process.counts {
            writeln!(to, "{address:#x}\t{n}")?;
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        follow_forks: args.forks,
        skip_libraries: !args.step_libraries,
        max_steps: args.max_steps,
        capture: false,
    };
    let profile = match stepper::run(
        &args.program,
        Command::new(&args.program).args(&args.args),
        options,
    ) {
        Ok(profile) => profile,
        Err(e) => {
            eprintln!("stepper: {e}");
            return ExitCode::from(125);
        }
    };
    let mut text = Vec::new();
    for process in &profile.processes {
        if profile.processes.len() > 1 {
            let _ = writeln!(text, "# process {}", process.pid);
        }
        let _ = print(&mut text, process, args.branches);
    }
    let written = match &args.output {
        Some(path) => std::fs::write(path, text),
        None => std::io::stderr().write_all(&text),
    };
    if let Err(e) = written {
        eprintln!("stepper: writing the counts: {e}");
        return ExitCode::from(125);
    }
    let status = profile.wait_status;
    if libc::WIFEXITED(status) {
        ExitCode::from(libc::WEXITSTATUS(status) as u8)
    } else {
        eprintln!(
            "stepper: the program died of signal {}",
            libc::WTERMSIG(status)
        );
        ExitCode::from(128 + libc::WTERMSIG(status) as u8)
    }
}
