//! Judges `atom` by random tools, as many as are wanted.

use std::path::PathBuf;
use std::process::ExitCode;

use atom_tests::random_tools::{self, Language, Night};
use clap::Parser;

/// Makes random tools, compares their routines in line with calls of them, and has the checker look at
/// instrumented libraries.
#[derive(Parser)]
struct Args {
    /// Seed of the first source.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of sources.
    #[arg(long, default_value_t = 1)]
    sources: u64,
    /// Number of tools in each source.
    #[arg(long, default_value_t = 10)]
    tools: usize,
    /// Number of instructions of libraries of which one gets calls.
    #[arg(long, default_value_t = 3)]
    every: usize,
    /// Do not check libraries.
    #[arg(long)]
    no_libraries: bool,
    /// Only tools in this language: rust or c.
    #[arg(long)]
    language: Option<String>,
    /// Folder for the tools and the programs made with them.
    folder: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut failures = 0;
    for seed in args.seed..args.seed + args.sources {
        for (name, language) in [("c", Language::C), ("rust", Language::Rust)] {
            if args.language.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let night = Night {
                seed,
                language,
                tools: args.tools,
                every: (!args.no_libraries).then_some(args.every),
            };
            match random_tools::all(&night, &args.folder) {
                Ok(found) => {
                    for what in &found {
                        println!("seed {seed} {language:?} {what}");
                    }
                    failures += found.len();
                }
                Err(e) => {
                    println!("seed {seed} {language:?}: {e}");
                    failures += 1;
                }
            }
        }
    }
    println!("{failures} failures");
    ExitCode::from(u8::from(failures != 0))
}
