//! `atom analyze`: reports on logs of procedure entries and exits.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use atom_core::{Error, Result};
use call_log::indat::{self, Wanted};
use call_log::reader::{self, Log};
use call_log::table::Report;
use clap::Args;

/// Arguments of `atom analyze`.
#[derive(Args)]
pub struct Analyze {
    /// A description of reports (analyze.indat), or a log that the tool calllog has written
    pub file: PathBuf,
    /// Write the figures as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Write the figures as comma-separated values
    #[arg(long)]
    pub csv: bool,
}

/// Runs the command.
pub fn run(args: &Analyze) -> Result<()> {
    let reports = reports(args)?;
    print(&in_format(args, &reports))
}

/// An error of the library as one of the command.
fn failed(error: call_log::Error) -> Error {
    Error {
        advice: (!error.advice.is_empty()).then(|| error.advice.clone()),
        ..Error::new("analyzing", error.problem())
    }
}

/// The reports that the file describes, or the one of a log.
fn reports(args: &Analyze) -> Result<Vec<Report>> {
    if reader::is_compact(&args.file).map_err(failed)? {
        let mut log = Log::open(&args.file).map_err(failed)?;
        let heading = heading(&log);
        return Ok(vec![Report::of_all(&mut log, &heading).map_err(failed)?]);
    }
    let wanted: Vec<Wanted> = indat::read(&args.file).map_err(failed)?;
    wanted
        .iter()
        .map(|wanted| {
            Report::make(wanted).map_err(|error| {
                // The line that names the data is where to look first.
                let described = format!("(of line {} of {})", wanted.line, args.file.display());
                let mut error = failed(error);
                error.reason = format!("{} {described}", error.reason);
                error
            })
        })
        .collect()
}

/// The heading of a report that nobody has described.
fn heading(log: &Log) -> String {
    match log.header() {
        None => format!("Calls logged in {}", log.file().display()),
        Some(header) => format!(
            "Calls of {}, process {}, by the {}",
            header.program,
            header.process,
            header.clock.name()
        ),
    }
}

fn in_format(args: &Analyze, reports: &[Report]) -> String {
    if args.json {
        let all: Vec<_> = reports.iter().map(Report::json).collect();
        return format!("{:#}\n", serde_json::json!({ "reports": all }));
    }
    if args.csv {
        let mut text = String::new();
        for (i, report) in reports.iter().enumerate() {
            let csv = report.csv();
            // One line of names for all of them.
            let rest = if i == 0 {
                &csv
            } else {
                csv.split_once('\n').map_or("", |c| c.1)
            };
            text.push_str(rest);
        }
        return text;
    }
    let texts: Vec<_> = reports.iter().map(Report::text).collect();
    texts.join("\n")
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as `head` does.
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(Error::new("writing to standard output", e.to_string())),
        Ok(()) => Ok(()),
    }
}
