//! What is instrumented, and how: the options of `atom APP`, and those of them that `atom run` has, too.

use std::path::PathBuf;

use clap::{Args, Parser};

use crate::job::Job;
use crate::sampling::Sampling;

/// What is instrumented, and how: the options that `atom APP` and `atom run` share.
#[derive(Args, Clone, Default)]
pub struct Choices {
    /// Instrument only this; may be repeated. A procedure (`main`, `std::*`),
    /// a source file (`file:*.c`) or addresses (`0x1000-0x2000`); of one object with its file name
    /// before it (`libz.so.1:deflate*`)
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Do not instrument this; may be repeated, and prevails over --only
    #[arg(long, value_name = "PATTERN")]
    pub skip: Vec<String>,
    /// Make the tool's calls only from this place on; may be repeated. A procedure (its entry), a line (`app.c:12`), an
    /// address, or a mark (`mark:NAME`)
    #[arg(long, value_name = "PLACE")]
    pub from: Vec<String>,
    /// Make the tool's calls no more from this place on, until a --from; may be repeated
    #[arg(long, value_name = "PLACE")]
    pub to: Vec<String>,
    /// Write each procedure with and without the tool's calls; the run decides which is used
    #[arg(long, hide = true, conflicts_with_all = ["from", "to"])]
    pub switchable: bool,
    /// How the run is sampled.
    #[command(flatten)]
    pub sampling: Sampling,
    /// Call every analysis routine, instead of making small ones part of the program
    #[arg(long)]
    pub no_inline: bool,
    /// Make each call that only counts at its own point, so that counts are exact even if a signal
    /// handler jumps out of the code that it interrupts
    #[arg(long)]
    pub precise_signals: bool,
    /// Keep all registers at each call, those that the program does not need as well, for signal
    /// handlers that look at them or that skip an instruction
    #[arg(long)]
    pub keep_registers: bool,
    /// Let the program find its original return addresses on its stack, for programs that look them up
    #[arg(long)]
    pub original_returns: bool,
    /// Instrument this library too, which the program may load while it runs; may be repeated. For
    /// whole processes
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// Instrument all libraries in this folder and below it too; may be repeated. For whole processes
    #[arg(long, value_name = "FOLDER")]
    pub with_folder: Vec<PathBuf>,
    /// Leave the gs segment to libraries that use it: threads' own counters are then found more slowly
    #[arg(long)]
    pub no_gs: bool,
    /// Do not check what a tool of your own adds to the program
    #[arg(long)]
    pub no_check: bool,
}

impl Choices {
    /// True if procedures have two versions, between which a word decides.
    pub fn has_windows(&self) -> bool {
        self.switchable || !self.from.is_empty() || !self.to.is_empty()
    }

    /// True if the program itself begins and ends what is measured: windows at places, or bursts.
    pub fn measures_itself(&self) -> bool {
        let has_places = !self.from.is_empty() || !self.to.is_empty();
        has_places || self.sampling.sample.is_some()
    }

    /// The name of the fact that says what was measured.
    pub fn name_of_measured(&self) -> &'static str {
        match self.sampling.sample {
            Some(_) => "sampled",
            None => "windows",
        }
    }

    /// The options as words that tell any two choices apart.
    pub fn words(&self) -> Vec<String> {
        let patterns = |option: &str, patterns: &[String]| {
            let pairs = patterns.iter().flat_map(|p| [option.to_owned(), p.clone()]);
            pairs.collect::<Vec<_>>()
        };
        let flags = [
            ("--switchable", self.switchable),
            ("--no-inline", self.no_inline),
            ("--precise-signals", self.precise_signals),
            ("--keep-registers", self.keep_registers),
            ("--original-returns", self.original_returns),
            ("--no-gs", self.no_gs),
            ("--no-check", self.no_check),
        ];
        let mut words = patterns("--only", &self.only);
        words.extend(patterns("--skip", &self.skip));
        words.extend(patterns("--from", &self.from));
        words.extend(patterns("--to", &self.to));
        words.extend(self.sampling.words());
        let with = self.with.iter().map(|f| f.display().to_string());
        words.extend(with.flat_map(|file| ["--with".to_owned(), file]));
        words.extend(flags.iter().filter(|f| f.1).map(|f| f.0.to_owned()));
        words
    }
}

/// Arguments of `atom APP ...`.
#[derive(Parser, Default)]
pub struct Run {
    /// The program: a linked ELF x86-64 file
    #[arg(required = true)]
    pub app: Option<PathBuf>,
    /// The tool: a shared object built with atom-tool, one source file in Rust, or the instrument file of a tool in C
    #[arg(value_name = "TOOL", conflicts_with = "tool")]
    pub tool_file: Option<PathBuf>,
    /// The analysis files of a tool in C: sources, objects and archives
    #[arg(value_name = "ANALYSIS-FILES", conflicts_with = "tool")]
    pub tool_parts: Vec<PathBuf>,
    /// A tool, by name; `atom tools` lists them
    #[arg(long, value_name = "NAME")]
    pub tool: Option<String>,
    /// Where to write the instrumented program [default: <program name>.atom]
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Tell each step, its time and what it found
    #[arg(short, long)]
    pub verbose: bool,
    /// Write what was done to a JSON file
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// What is instrumented, and how.
    #[command(flatten)]
    pub choices: Choices,
    /// Instrument the program with all that it loads: the other files of the result lie in the folder
    /// OUT.libs
    #[arg(long)]
    pub libs: bool,
    /// What `atom run` wants of this program
    #[arg(long, value_name = "JSON", hide = true, value_parser = Job::parse)]
    pub job: Option<Job>,
    /// Put debug information into the output: for the program's new text, and for the
    /// analysis routines
    #[arg(short = 'g', long = "debug-info")]
    pub debug_info: bool,
    /// Run this command under gdb and stop in the tool's instrument routine (ATOM: -dbx)
    #[arg(long)]
    pub gdb: bool,
    /// Keep the tool that was used in a file of this name
    #[arg(short = 'P', long, value_name = "NAME")]
    pub keep_tool: Option<PathBuf>,
    /// Where the new text starts
    #[arg(short = 'T', long, value_name = "ADDRESS", value_parser = address)]
    pub text_address: Option<u64>,
    /// Where the tool's data starts
    #[arg(short = 'D', long, value_name = "ADDRESS", value_parser = address)]
    pub data_address: Option<u64>,
    /// Keep all addresses below 4 GiB (ATOM: -32addr)
    #[arg(long = "32addr")]
    pub low_addresses: bool,
    /// Not needed: both heaps are apart in any case (ATOM: -heap)
    #[arg(long, value_name = "OFFSET", value_parser = address)]
    pub heap: Option<u64>,
    /// Fill the text that is no longer used with traps, so that a jump to it fails at once
    #[arg(long)]
    pub strict: bool,
    /// Compare all of the output with the original, block by block, before it is written
    #[arg(long, conflicts_with = "no_check")]
    pub check: bool,
    /// Move every procedure that can be moved, also those that get no calls
    #[arg(long)]
    pub move_all: bool,
    /// Move half of the procedures that get no calls, chosen by this number: for tests
    #[arg(long, value_name = "SEED", hide = true)]
    pub move_half: Option<u64>,
    /// Write each procedure twice, with the tool's calls and without them, and go from one version to the other at
    /// each N-th place where that is possible: for tests
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub switch_every: Option<u32>,
    /// Do not print the summary
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Options of the tool, after `--`
    #[arg(last = true, value_name = "TOOL-OPTIONS")]
    pub tool_options: Vec<String>,
}

/// Parses an address: decimal, or hexadecimal after `0x`.
fn address(text: &str) -> Result<u64, String> {
    crate::spelling::number(text)
        .ok_or_else(|| "a number is wanted, such as 0x20000000".to_string())
}
