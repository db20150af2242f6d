//! Measures what a rewrite costs: user time over that of the original, in pairs.
//!
//! Machines are shared and noisy, so no time is compared with one of another
//! day: original and rewrites run in turns, each ratio is formed within its
//! turn, and the median and the spread of the ratios are printed. The programs
//! are compiled here from the sources of well-known crates and linked
//! statically, so that all of their user time is spent in their own text.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use atom_tests::atom::{self, Job};
use atom_tests::corpus::sample;
use atom_tests::error::{Error, Result};
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use clap::Parser;

/// Prints a table of run time ratios for five programs.
#[derive(Parser)]
struct Args {
    /// Turns for each program.
    #[arg(long, default_value_t = 11)]
    runs: usize,
    /// Tools to measure (repeatable); "empty" is the rewrite without a tool,
    /// "moved" the same with every procedure moved.
    #[arg(long, default_values_t = ["empty".to_string(), "moved".to_string(), "icount".to_string(), "branch".to_string()])]
    tool: Vec<String>,
    /// Only this program (repeatable).
    #[arg(long)]
    only: Vec<String>,
}

/// How a program is compiled and run.
struct Program {
    name: &'static str,
    /// The crate whose sources it is made of; none for our own.
    source: Option<&'static str>,
    /// Shell command: `$SRC` is the crate's folder, `$HERE` ours, `$OUT` the result.
    build: &'static str,
    /// Arguments; `$HERE` and `$IN` (inputs) are replaced.
    args: &'static [&'static str],
}

const PROGRAMS: [Program; 5] = [
    Program {
        name: "bzip2",
        source: Some("bzip2-sys"),
        build: "cd $SRC/bzip2-1.0.8 && gcc -O2 -static -D_FILE_OFFSET_BITS=64 bzip2.c blocksort.c huffman.c crctable.c \
                randtable.c compress.c decompress.c bzlib.c -o $OUT",
        args: &["-9", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "zstd",
        source: Some("zstd-sys"),
        build: "gcc -O2 -static -DZSTD_DISABLE_ASM=1 -I$SRC/zstd/lib $HERE/zstd.c $SRC/zstd/lib/common/*.c \
                $SRC/zstd/lib/compress/*.c $SRC/zstd/lib/decompress/*.c -o $OUT",
        args: &["$IN/large"],
    },
    Program {
        name: "lua",
        source: Some("lua-src"),
        build: "gcc -O2 -static -I$SRC/lua-5.4.8 $HERE/lua.c $SRC/lua-5.4.8/*.c -lm -o $OUT",
        args: &["$HERE/work.lua"],
    },
    Program {
        name: "sqlite3",
        source: Some("libsqlite3-sys"),
        build: "gcc -O2 -static -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_THREADSAFE=0 -I$SRC/sqlite3 $HERE/sqlite.c \
                $SRC/sqlite3/sqlite3.c -lm -o $OUT",
        args: &["$HERE/work.sql"],
    },
    Program {
        name: "c++ objects",
        source: None,
        build: "g++ -O2 -static -std=c++17 $HERE/objects.cc -o $OUT",
        args: &["200000"],
    },
];

/// Folders of the crates' sources by crate name.
fn sources(here: &Path) -> Result<Vec<(String, PathBuf)>> {
    let fail = |reason: String| Error::new("finding the programs' sources", reason);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--manifest-path"])
        .arg(here.join("Cargo.toml"))
        .output()
        .map_err(|e| fail(e.to_string()))?;
    if !output.status.success() {
        return Err(fail(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let json: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|e| fail(e.to_string()))?;
    let packages = json["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let folder = |p: &serde_json::Value| {
        let manifest = Path::new(p["manifest_path"].as_str()?).parent()?;
        Some((p["name"].as_str()?.to_string(), manifest.to_path_buf()))
    };
    Ok(packages.iter().filter_map(folder).collect())
}

fn build(program: &Program, here: &Path, sources: &[(String, PathBuf)], out: &Path) -> Result<()> {
    let fail = |reason: &str| Error::new("building the benchmark", reason).file(program.name);
    if out.exists() {
        return Ok(());
    }
    let mut command = Command::new("sh");
    if let Some(name) = program.source {
        let (_, folder) = sources
            .iter()
            .find(|(n, _)| n == name)
            .ok_or_else(|| fail("its crate is missing"))?;
        command.env("SRC", folder);
    }
    let partial = out.with_extension("partial");
    let output = command
        .args(["-c", program.build])
        .env("HERE", here)
        .env("OUT", &partial)
        .output();
    let output = output.map_err(|e| fail(&e.to_string()))?;
    if !output.status.success() {
        return Err(fail(&String::from_utf8_lossy(&output.stderr)));
    }
    std::fs::rename(&partial, out).map_err(|e| fail(&e.to_string()))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n % 2 == 1 {
        values[n / 2]
    } else {
        (values[n / 2 - 1] + values[n / 2]) / 2.0
    }
}

struct Figures {
    seconds: f64,
    /// Median, smallest and largest ratio for each tool.
    ratios: Vec<(f64, f64, f64)>,
    /// Wall time of instrumenting for each tool.
    making: Vec<f64>,
    size: u64,
}

fn measure(
    args: &Args,
    program: &Program,
    here: &Path,
    inputs: &Path,
    file: &Path,
    folder: &Path,
) -> Result<Figures> {
    let place = |a: &&str| {
        a.replace("$HERE", &here.display().to_string())
            .replace("$IN", &inputs.display().to_string())
    };
    let arguments: Vec<String> = program.args.iter().map(place).collect();
    let mut rewritten = Vec::new();
    let mut making = Vec::new();
    for tool in &args.tool {
        let out = folder.join(format!(
            "{}.{tool}",
            file.file_name().unwrap_or_default().to_string_lossy()
        ));
        let figures = folder.join(format!("figures.{tool}")).display().to_string();
        let job = match tool.as_str() {
            "empty" => Job::Empty,
            "moved" => Job::Moved,
            name => Job::Tool(name.into(), vec!["--output".into(), figures]),
        };
        making.push(atom::instrument(file, &out, &job, false)?.seconds);
        rewritten.push(out);
    }
    let start = |file: &Path| -> Result<Outcome> {
        let mut command = Command::new(file);
        plain_environment(&mut command);
        command.args(&arguments).current_dir(folder);
        run(
            &mut command,
            &Setting {
                timeout: Duration::from_secs(600),
                ..Setting::default()
            },
        )
    };
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); rewritten.len()];
    let mut seconds = Vec::new();
    for _ in 0..args.runs.max(1) {
        let original = start(file)?;
        seconds.push(original.user.as_secs_f64());
        for ((out, ratios), tool) in rewritten.iter().zip(&mut ratios).zip(&args.tool) {
            let outcome = start(out)?;
            if let Some(d) = outcome.differs_from(&original) {
                return Err(Error::new("measuring", format!("with {tool}: {d}")).file(program.name));
            }
            ratios.push(outcome.user.as_secs_f64() / original.user.as_secs_f64());
        }
    }
    let summary = |r: &mut Vec<f64>| {
        (
            median(r),
            r.iter().copied().fold(f64::MAX, f64::min),
            r.iter().copied().fold(0.0, f64::max),
        )
    };
    let size = std::fs::metadata(file).map(|m| m.len()).unwrap_or(0);
    Ok(Figures {
        seconds: median(&mut seconds),
        ratios: ratios.iter_mut().map(summary).collect(),
        making,
        size,
    })
}

fn main_result(args: &Args) -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench");
    let folder = atom::target_folder()?.join("bench-programs");
    let inputs = folder.join("inputs");
    std::fs::create_dir_all(&inputs).map_err(|e| Error::new("making a folder", e).file(&inputs))?;
    let fail = |e: std::io::Error| Error::new("making the inputs", e).file(&inputs);
    std::fs::write(inputs.join("large"), sample(4_000_000)).map_err(fail)?;
    let sources = sources(&here)?;
    let heads: String = args
        .tool
        .iter()
        .map(|t| format!(" {t} | instrumented in |"))
        .collect();
    println!("| program | MB | own text | user s |{heads}");
    println!(
        "| --- | --- | --- | --- |{}",
        " --- | --- |".repeat(args.tool.len())
    );
    let mut medians: Vec<Vec<f64>> = vec![Vec::new(); args.tool.len()];
    for program in &PROGRAMS {
        if !args.only.is_empty() && !args.only.iter().any(|o| o == program.name) {
            continue;
        }
        let file = folder.join(program.name.replace(' ', "-"));
        build(program, &here, &sources, &file)?;
        let f = measure(args, program, &here, &inputs, &file, &folder)?;
        let mut line = format!(
            "| {} | {:.1} | 100 % | {:.2} |",
            program.name,
            f.size as f64 / 1e6,
            f.seconds
        );
        for (i, ((middle, low, high), making)) in f.ratios.iter().zip(&f.making).enumerate() {
            medians[i].push(*middle);
            line += &format!(" {middle:.3} ({low:.2}-{high:.2}) | {making:.2} s |");
        }
        println!("{line}");
    }
    let mut line = String::from("| geometric mean | | | |");
    for m in &medians {
        let mean = (m.iter().map(|x| x.ln()).sum::<f64>() / m.len().max(1) as f64).exp();
        line += &format!(" {mean:.3} | |");
    }
    println!("{line}");
    println!();
    println!(
        "User time of the rewritten program over that of the original: median of {} alternating pairs (smallest-largest). \
         gcc -O2, linked statically: all user time is spent in the program's own text.",
        args.runs.max(1)
    );
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
