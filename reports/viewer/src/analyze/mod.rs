//! `atom analyze`: reports on logs of procedure entries and exits.

mod calls;
mod export;
mod gprof;
mod html;
mod kind;

use std::path::PathBuf;

use atom_core::{Error, Result};
use call_log::indat::{self, Wanted};
use call_log::reader::{self, Log};
use call_log::table::Report;
use clap::Args;

use output::width::Width;

/// Arguments of `atom analyze`.
#[derive(Args)]
pub struct Analyze {
    /// A description of reports (analyze.indat), or a log that the tool calllog has written
    pub file: PathBuf,
    /// The program, for --gprof
    #[arg(requires = "gprof")]
    pub app: Option<PathBuf>,
    /// Write the figures as JSON
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Write the figures as comma-separated values
    #[arg(long, conflicts_with = "gprof")]
    pub csv: bool,
    /// Compare the log with what gprof makes of this gmon.out, and explain the differences
    #[arg(long, value_name = "gmon.out")]
    pub gprof: Option<PathBuf>,
    /// Write a page that shows the calls over time
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a trace for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub chrome: Option<PathBuf>,
    /// Write a profile for speedscope
    #[arg(long, value_name = "FILE")]
    pub speedscope: Option<PathBuf>,
    /// How wide tables are
    #[command(flatten)]
    pub width: Width,
}

/// Runs the command.
pub fn run(args: &Analyze) -> Result<()> {
    let reports = reports(args)?;
    let text = match &args.gprof {
        None => in_format(args, &reports.iter().map(|r| &r.0).collect::<Vec<_>>()),
        Some(gmon) => gprof::compare(args, gmon, &reports)?,
    };
    export::run(args, &reports)?;
    output::print(&text)
}

/// Turns an error of the library into an error of the command.
fn failed(error: call_log::Error) -> Error {
    Error {
        advice: (!error.advice.is_empty()).then(|| error.advice.clone()),
        ..Error::new("analyzing", error.problem())
    }
}

/// The reports that the file describes; of a log, one report on all its procedures.
fn reports(args: &Analyze) -> Result<Vec<(Report, Wanted)>> {
    if reader::is_compact(&args.file).map_err(failed)? {
        let mut log = Log::open(&args.file).map_err(failed)?;
        let wanted = Wanted {
            data: args.file.clone(),
            heading: heading(&log),
            procs: Vec::new(),
            line: 0,
        };
        let report = Report::of_all(&mut log, &wanted.heading).map_err(failed)?;
        return Ok(vec![(report, wanted)]);
    }
    let wanted: Vec<Wanted> = indat::read(&args.file).map_err(failed)?;
    wanted
        .into_iter()
        .map(|wanted| match Report::make(&wanted) {
            Ok(report) => Ok((report, wanted)),
            Err(error) => {
                // The line that names the data is where to look first.
                let described = format!("(of line {} of {})", wanted.line, args.file.display());
                let mut error = failed(error);
                error.reason = format!("{} {described}", error.reason);
                Err(error)
            }
        })
        .collect()
}

/// The heading of a report on a log for which there is no description.
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

fn in_format(args: &Analyze, reports: &[&Report]) -> String {
    if args.json {
        let all: Vec<_> = reports.iter().map(|r| r.json()).collect();
        return format!("{:#}\n", serde_json::json!({ "reports": all }));
    }
    if args.csv {
        let mut text = String::new();
        for (i, report) in reports.iter().enumerate() {
            let csv = report.csv();
            // The line with the names of the columns stands only in front of the first report.
            let rest = csv.split_once('\n').map_or("", |c| c.1);
            text.push_str(if i == 0 { &csv } else { rest });
        }
        return text;
    }
    let texts: Vec<_> = reports
        .iter()
        .map(|r| r.text(args.width.columns()))
        .collect();
    texts.join("\n")
}
