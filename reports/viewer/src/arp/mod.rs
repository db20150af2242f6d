//! `atom arp`: looking at data files of recorded kernels.
//!
//! The library adds up, compares and combines; this module prints. A damaged file is shown as far as
//! it can be read, because data that took long to record should not be lost for one bad block.

mod data;
mod diff;
mod files;
mod folded;
mod html;
mod names;
mod numbers;
mod rows;
mod table;
mod text;

use std::path::{Path, PathBuf};

use ::arp::analyse::{Analysis, Options};
use ::arp::{Reader, Tid};
use atom_core::{Error, Result};
use clap::{Args, Subcommand};

use output::message;
use rows::Order;

/// Arguments of `atom arp`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "atom arp FILE [OPTIONS]\n       \
        atom arp diff A B [OPTIONS]\n       \
        atom arp merge FILE... -o OUT [OPTIONS]\n       \
        atom arp convert IN OUT [OPTIONS]",
    after_help = "A file called `diff` in the working directory is ./diff."
)]
pub struct Arp {
    /// A job other than looking at one file.
    #[command(subcommand)]
    job: Option<Job>,
    /// What to look at.
    #[command(flatten)]
    view: View,
}

/// The jobs other than looking at one file.
#[derive(Subcommand)]
enum Job {
    /// Compare two files, by section and context
    Diff(diff::Diff),
    /// Make one file from several
    Merge(files::Merge),
    /// Write a file in another format
    Convert(files::Convert),
}

/// Arguments of `atom arp FILE`.
#[derive(Args)]
pub struct View {
    /// The data file, in any format
    #[arg(required = true)]
    file: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// Sort by this
    #[arg(long, value_enum, default_value_t = Order::Total, value_name = "COLUMN")]
    sort: Order,
    /// Show only the first N rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show only N levels of the tree
    #[arg(long, value_name = "N", requires = "tree")]
    depth: Option<u32>,
    /// Which quantiles to show
    #[arg(
        long,
        value_name = "Q,...",
        value_delimiter = ',',
        default_value = "0.5,0.9,0.99"
    )]
    quantiles: Vec<f64>,
    /// Show sections by context: the tree of what was open
    #[arg(long)]
    tree: bool,
    /// In contexts, keep executions with different counters apart
    #[arg(long)]
    counters: bool,
    /// In contexts, keep threads apart
    #[arg(long)]
    by_thread: bool,
    /// With --counters, keep at most N contexts
    #[arg(long, value_name = "N", default_value_t = 1 << 20, requires = "counters")]
    max_contexts: usize,
    /// Write comma-separated values
    #[arg(long, group = "form")]
    csv: bool,
    /// Write JSON: all sections and contexts
    #[arg(long, group = "form", conflicts_with = "tree")]
    json: bool,
    /// Write folded stacks with self values, for flame graph programs
    #[arg(long, group = "form", conflicts_with = "tree")]
    folded: bool,
    /// Write a page for a browser, with tree, flame graph and histograms
    #[arg(long, value_name = "OUT", group = "form", conflicts_with = "tree")]
    html: Option<PathBuf>,
}

/// What to take of a file.
#[derive(Args)]
struct Choice {
    /// Take only this set of values: its number, from 0, or its name
    #[arg(long, value_name = "SET")]
    set: Option<String>,
    /// Take only this thread; may be repeated
    #[arg(long, value_name = "TID")]
    thread: Vec<u32>,
}

impl Choice {
    /// Numbers of the chosen sets of values.
    fn sets(&self, analysis: &Analysis) -> Result<Vec<usize>> {
        let sets = analysis.sets();
        let Some(wanted) = &self.set else {
            return Ok((0..sets.len()).collect());
        };
        let by_name = sets.iter().position(|s| s.name == *wanted);
        let by_number = wanted.parse().ok().filter(|n| *n < sets.len());
        by_name.or(by_number).map(|set| vec![set]).ok_or_else(|| {
            let all: Vec<_> = (0..sets.len()).map(|s| names::of_set(sets, s)).collect();
            Error::new("choosing values", format!("there is no set `{wanted}`"))
                .advice(format!("there are: {}", all.join("; ")))
        })
    }

    fn threads(&self) -> Vec<Tid> {
        self.thread.iter().map(|tid| Tid(*tid)).collect()
    }
}

/// Runs the command.
pub fn run(args: &Arp) -> Result<()> {
    match (&args.job, &args.view.file) {
        (Some(Job::Diff(diff)), _) => diff::run(diff),
        (Some(Job::Merge(merge)), _) => files::merge(merge),
        (Some(Job::Convert(convert)), _) => files::convert(convert),
        (None, Some(file)) => view(file, &args.view),
        (None, None) => Err(Error::new("looking at data", "there is no file")),
    }
}

fn view(file: &Path, args: &View) -> Result<()> {
    if args.quantiles.iter().any(|q| !(0.0..=1.0).contains(q)) {
        return Err(Error::new("choosing quantiles", "they lie between 0 and 1"));
    }
    let (analysis, damage) = load(
        file,
        &Options {
            counters: args.counters,
            by_thread: args.by_thread,
            threads: args.choice.threads(),
            max_contexts: args.max_contexts,
        },
    )?;
    let sets = args.choice.sets(&analysis)?;
    if let Some(out) = &args.html {
        html::write(out, file, &analysis, &damage, args, &sets)?;
    } else {
        output::print_with(|out| {
            if args.json {
                data::json(out, file, &analysis, &damage, args, &sets)
            } else if args.csv && args.tree {
                data::tree_csv(out, &analysis, args, &sets)
            } else if args.csv {
                data::csv(out, &analysis, args, &sets)
            } else if args.folded {
                // The format has one value a line, so only one set is written.
                folded::write(out, &analysis, sets[0])
            } else {
                text::write(out, file, &analysis, args, &sets)
            }
        })?;
    }
    damage.tell()
}

/// Errors found in files that are shown as far as possible.
#[derive(Default)]
struct Damage(Vec<::arp::Error>);

impl Damage {
    /// The errors as texts.
    fn texts(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Reports the errors after the data was shown. A file that only ends too early is no failure,
    /// because a program that was killed leaves such a file.
    fn tell(self) -> Result<()> {
        let mut failure = None;
        for error in self.0 {
            let cut = error.kind == ::arp::ErrorKind::Truncated;
            if cut || failure.is_some() {
                message::note(&error.to_string());
                if cut {
                    message::note("sections that were still open there have no values");
                }
            } else {
                failure = Some(failed(error));
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Reads a file and prints notes on what is left out.
fn load(file: &Path, options: &Options) -> Result<(Analysis, Damage)> {
    let reader = Reader::open(file).map_err(failed)?;
    if options.counters && reader.mode() != ::arp::Mode::RecordAll {
        message::note(&format!("mode {} has no counters", reader.mode()));
    }
    let mut analysis = Analysis::read(reader, options).map_err(failed)?;
    if analysis.shared() > 0 {
        let shared = message::number(analysis.shared());
        message::note(&format!(
            "{shared} executions share contexts (`*`): there are more than --max-contexts {}",
            options.max_contexts
        ));
    }
    if analysis.records() == 0 && !options.threads.is_empty() {
        message::note("there are no records of these threads (ASCII files have no threads)");
    }
    let damage = analysis.take_damage();
    Ok((analysis, Damage(damage.into_iter().collect())))
}

/// Turns an error of the library into an error of the command.
fn failed(error: ::arp::Error) -> Error {
    let place = match error.position {
        ::arp::FilePosition::Nowhere => String::new(),
        ::arp::FilePosition::Offset(offset) => format!("at byte {offset}: "),
        ::arp::FilePosition::Line(line) => format!("at line {line}: "),
    };
    let doing = match error.doing {
        "read" => "reading",
        "open" => "opening",
        "create" => "creating",
        "write" => "writing",
        "merge" => "merging",
        "add up" => "adding up",
        _ => "using recorded data",
    };
    let mut result = Error::new(doing, format!("{place}{}", error.reason));
    result.file = error.file;
    if !error.advice.is_empty() {
        result.advice = Some(error.advice.into());
    }
    result
}
