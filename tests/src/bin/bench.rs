//! Prints what rewriting costs, beside other ways to the same figures.

use std::process::ExitCode;

use atom_tests::bench::{self, Bench, Column, PROGRAMS};
use atom_tests::error::Result;
use clap::Parser;

/// Prints tables of run time ratios for five programs.
#[derive(Parser)]
struct Args {
    /// Turns for each program; slow columns take part in three.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// What to measure (repeatable): `empty` is the rewrite without a tool, `moved` the
    /// same with every procedure moved; a tool by its name,
    /// perhaps with options in the same word; valgrind:TOOL; gcc:profile-arcs.
    #[arg(long, default_values_t = ["empty", "moved", "icount", "branch", "cache", "dtb", "prof", "inline"].map(String::from))]
    tool: Vec<String>,
    /// Measure others too: Valgrind's none and cachegrind, gcc -fprofile-arcs.
    #[arg(long)]
    others: bool,
    /// Only this program (repeatable).
    #[arg(long)]
    only: Vec<String>,
    /// Put the tables into docs/performance.md with date and commit; the tables that stood there
    /// move to docs/lab-notes.md.
    #[arg(long)]
    record: bool,
}

fn main_result(args: &Args) -> Result<()> {
    let mut columns = Vec::new();
    for text in &args.tool {
        columns.push(text.parse::<Column>()?);
    }
    if args.others {
        columns.push(Column::ProfileArcs);
        columns.extend(["none", "cachegrind"].map(|t| Column::Valgrind(t.into())));
    }
    let bench = Bench::new()?;
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        if !args.only.is_empty() && !args.only.iter().any(|o| o == program.name) {
            continue;
        }
        eprintln!("{}", program.name);
        rows.push(bench.measure(program, &columns, args.runs)?);
    }
    let tables = bench::tables(&rows, &columns);
    println!("{tables}");
    println!(
        "User time over that of the original: median of {} turns (smallest-largest), the mean with the range \
         of single turns. gcc -O2, linked statically: all user time is spent in the program's own text.",
        args.runs.max(1)
    );
    if args.record {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!(
            "cargo run --release -p atom-tests --bin bench -- {}",
            words.join(" ")
        );
        bench::record(&tables, &command)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match main_result(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e}");
            ExitCode::FAILURE
        }
    }
}
