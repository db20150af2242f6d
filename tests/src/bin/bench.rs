//! Prints what rewriting costs, beside other ways to the same figures.

use std::process::ExitCode;

use atom_tests::bench::{self, Bench, Column, GO_PROGRAMS, Part, STATIC, WHOLE};
use atom_tests::error::{Result, exit_code};
use clap::Parser;

/// Prints tables of run time ratios for five static programs, for eleven dynamic ones as whole processes, or for
/// six workloads of Go.
#[derive(Parser)]
struct Args {
    /// Turns for each program; slow columns take part in three.
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// What to measure (repeatable): `empty` is the rewrite without a tool, `moved` the
    /// same with every procedure moved; a tool by its name,
    /// perhaps with options in the same word, or off:TOOL for the same outside of windows; valgrind:TOOL; heaptrack; gcc:profile-arcs. Without it eight columns, or
    /// with `--tools` those of its table.
    #[arg(long)]
    tool: Vec<String>,
    /// Measure others too: Valgrind's none, cachegrind and callgrind, gcc -fprofile-arcs.
    #[arg(long)]
    others: bool,
    /// Only this program (repeatable).
    #[arg(long)]
    only: Vec<String>,
    /// Measure dynamic programs with all that they load.
    #[arg(long)]
    whole: bool,
    /// Measure dynamic programs with all that they load, with the tools that the other tables do not have, beside
    /// programs of others for the same purposes.
    #[arg(long, conflicts_with_all = ["whole", "others"])]
    tools: bool,
    /// Measure programs of Go.
    #[arg(long, conflicts_with_all = ["whole", "others", "tools"])]
    go: bool,
    /// Put the tables into docs/performance.md with date and commit; the tables that stood there
    /// move to docs/lab-notes.md.
    #[arg(long)]
    record: bool,
}

/// The columns, if none are named.
const COLUMNS: [&str; 8] = [
    "empty",
    "moved",
    "icount",
    "branch",
    "cache --preset atom",
    "dtb",
    "prof",
    "inline",
];

/// The columns of `--tools`: each tool with what Debian has for the same.
const TOOLS: [&str; 17] = [
    "cover",
    "cover --counts",
    "bbv",
    "valgrind:exp-bbv",
    "mix",
    "heap",
    "heaptrack",
    "valgrind:massif",
    "calltree",
    "valgrind:callgrind",
    "memtrace --output /dev/null",
    "memtrace",
    "predict --model gshare",
    "predict",
    "valgrind:callgrind --branch-sim=yes",
    "reuse --sample 64",
    "reuse",
];

fn main_result(args: &Args) -> Result<()> {
    let names: Vec<&str> = match (args.tool.is_empty(), args.tools) {
        (false, _) => args.tool.iter().map(String::as_str).collect(),
        (true, true) => TOOLS.to_vec(),
        (true, false) => COLUMNS.to_vec(),
    };
    let columns: Result<Vec<Column>> = names.iter().map(|name| name.parse()).collect();
    let mut columns = columns?;
    if args.others {
        if !args.whole {
            columns.push(Column::ProfileArcs);
        }
        let tools = ["none", "cachegrind", "callgrind"];
        columns.extend(tools.map(|t| Column::Valgrind(t.into(), Vec::new())));
    }
    let bench = Bench::new()?;
    let mut rows = Vec::new();
    let (programs, part): (&[_], _) = match () {
        () if args.whole => (&WHOLE, Part::Whole),
        () if args.tools => (&WHOLE, Part::Tools),
        () if args.go => (&GO_PROGRAMS, Part::Go),
        () => (&STATIC, Part::Static),
    };
    for program in programs {
        if !args.only.is_empty() && !args.only.iter().any(|o| o == program.name) {
            continue;
        }
        if program.is_missing() {
            println!("{} is not installed", program.name);
            continue;
        }
        eprintln!("{}", program.name);
        rows.push(bench.measure(program, &columns, args.runs)?);
    }
    let tables = bench::tables(&rows, &columns);
    println!("{tables}");
    println!(
        "User time over that of the original: median of {} turns (smallest-largest), the mean with the range \
         of single turns. {}",
        args.runs.max(1),
        match part {
            Part::Static =>
                "gcc -O2, linked statically: all user time is spent in the program's own text.",
            Part::Go =>
                "Static programs of the distribution's Go, one processor's time (`GOMAXPROCS=1`).",
            Part::Whole | Part::Tools =>
                "Programs of the distribution, start and end included: the program, its loader, all libraries.",
        }
    );
    if args.record {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let command = format!(
            "cargo run --release -p atom-tests --bin bench -- {}",
            words.join(" ")
        );
        bench::record(part, &tables, &command)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    exit_code("bench", main_result(&Args::parse()).map(|()| true))
}
