//! `atom report`: prints, adds up, compares and exports profiles of any tool.
//!
//! A profile says for each column what it means, so nothing here knows single tools, but for the exports to formats
//! that need certain counts.

mod diff;
mod export;
mod grid;
mod group;
mod parquet;
mod print;
mod spots;
pub mod together;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::profile::{Adder, Fact, FactValue, Profile, Readers, Sum, Type};
use atom_core::{Error, Result};
use clap::{Args, Subcommand};

use grid::Grid;
use output::message::note;
use output::progress::Progress;
use output::width::Width;

const DOING: &str = "reporting";

/// Number of rows of each table for people, unless the user says otherwise.
const ROWS: usize = 30;

/// Arguments of `atom report`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "atom report FILE... [OPTIONS]\n       \
        atom report diff A B [OPTIONS]\n       \
        atom report FILE... --export FORMAT -o OUT\n       \
        atom report FILE... --parquet FOLDER",
    after_help = "A file called `diff` in the working directory is ./diff."
)]
pub struct Report {
    /// A job other than looking at profiles.
    #[command(subcommand)]
    job: Option<Job>,
    /// What to look at.
    #[command(flatten)]
    view: View,
}

/// The jobs other than looking at profiles.
#[derive(Subcommand)]
enum Job {
    /// Compare two profiles of one tool
    Diff(diff::Diff),
}

/// Arguments of `atom report FILE...`.
#[derive(Args)]
struct View {
    /// Profiles that tools have written (NAME.profile); several of one program and tool are added up
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Add profiles of different programs up, as those of the processes of one run
    #[arg(long)]
    together: bool,
    /// Show only this table; names are those of the profile, `list` lists them
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Sort by this column
    #[arg(long, value_name = "COLUMN")]
    sort: Option<String>,
    /// Show only rows with a name, an object or a file that contains this; with `*` or `?` the whole name must fit
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Show only the first N rows of each table; 0 shows all [default: 30; with --csv and --json all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Put the measures together by this
    #[arg(long, value_enum, value_name = "UNIT")]
    by: Option<spots::Unit>,
    /// Write the table as comma-separated values
    #[arg(long, group = "form")]
    csv: bool,
    /// Write facts and tables as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Write a page for a browser: tables that sort and search, pictures, source and instructions
    #[arg(long, value_name = "OUT", group = "form", conflicts_with = "output")]
    html: Option<PathBuf>,
    /// With --html: look for source files in this folder too; may be repeated
    #[arg(long, value_name = "FOLDER", requires = "html")]
    source: Vec<PathBuf>,
    #[command(flatten)]
    roofs: crate::page::Roofs,
    /// Write the file of another program; profiles of several tools may be given
    #[arg(
        long,
        group = "form",
        value_enum,
        value_name = "FORMAT",
        requires = "output"
    )]
    export: Option<export::Format>,
    /// With --export fdata: the object that will be optimised [default: the program]
    #[arg(long, value_name = "NAME", requires = "export")]
    object: Option<String>,
    /// Append all facts and measures to the Parquet files in a folder, for queries over many runs
    #[arg(long, group = "form", value_name = "FOLDER", conflicts_with_all = ["output", "table", "by", "sort", "filter", "top", "together"])]
    parquet: Option<PathBuf>,
    /// Write to this file [default: standard output]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    #[command(flatten)]
    width: Width,
}

/// Runs the command.
pub fn run(args: &Report) -> Result<ExitCode> {
    match &args.job {
        Some(Job::Diff(diff)) => diff::run(diff),
        None => view(&args.view).map(|()| ExitCode::SUCCESS),
    }
}

/// A fact that is a text.
pub fn text_fact(name: &str, text: &str) -> Fact {
    Fact {
        name: name.into(),
        kind: Type::Text,
        unit: None,
        sum: Sum::None,
        from: None,
        part: None,
        whole: None,
        value: FactValue::Text(text.into()),
    }
}

/// The bytes of a file for cg_annotate.
pub fn cachegrind(profile: &Profile) -> Result<Vec<u8>> {
    export::bytes(profile, export::Format::Cachegrind, None).map(|(bytes, _)| bytes)
}

/// Reads a profile.
pub fn read(path: &Path) -> Result<Profile> {
    Profile::read(path).map_err(|e| Error::new("reading a profile", e.to_string()))
}

/// The sum of some profiles, and their number.
fn sum(files: &[PathBuf]) -> Result<(Profile, usize)> {
    let mut adder: Option<Adder> = None;
    let progress = Progress::start_at("reading profiles", 0, files.len() as u64);
    for path in files {
        let next = read(path)?;
        match &mut adder {
            None => adder = Some(Adder::new(next)),
            Some(adder) => adder.add(&next).map_err(|e| {
                let error = Error::new("adding profiles up", e.to_string()).file(path);
                error.advice(
                    "`atom report diff A B` compares builds of one program; \
                     --together adds different programs up",
                )
            })?,
        }
        progress.advance();
    }
    let adder = adder.ok_or_else(|| Error::new(DOING, "no profile is named"))?;
    let number = adder.files();
    Ok((adder.finish(), number))
}

/// The sum of the profiles of each tool, and all sums as one profile with the tables of all tools.
fn joined(files: &[PathBuf]) -> Result<Profile> {
    let mut tools: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for path in files {
        let tool = read(path)?.tool;
        match tools.iter_mut().find(|(known, _)| *known == tool) {
            Some((_, files)) => files.push(path.clone()),
            None => tools.push((tool, vec![path.clone()])),
        }
    }
    let mut sums = Vec::new();
    for (_, files) in &tools {
        sums.push(sum(files)?.0);
    }
    ::profile::join(sums)
        .map_err(|e| Error::new("putting profiles together", e.to_string()))?
        .ok_or_else(|| Error::new(DOING, "no profile is named"))
}

/// Writes the file of another program.
fn export(args: &View, format: export::Format, path: &Path) -> Result<()> {
    let profile = if args.together {
        together(args)?.0
    } else {
        joined(&args.files)?
    };
    let (bytes, notes) = export::bytes(&profile, format, args.object.as_deref())?;
    notes.iter().for_each(|n| note(n));
    std::fs::write(path, bytes).map_err(|e| Error::new("writing the report", e).file(path))
}

/// The sum of the profiles of one tool and several programs, and their number.
fn together(args: &View) -> Result<(Profile, usize)> {
    together::sum(&args.files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
}

fn view(args: &View) -> Result<()> {
    if let (Some(format), Some(path)) = (args.export, &args.output) {
        return export(args, format, path);
    }
    if let Some(folder) = &args.parquet {
        return parquet::append(&args.files, folder);
    }
    let (profile, files) = if args.together {
        together(args)?
    } else {
        sum(&args.files)?
    };
    let fail = |e: std::io::Error| {
        let error = Error::new("writing the report", e);
        match &args.output {
            Some(path) => error.file(path),
            None => error,
        }
    };
    if let Some(path) = &args.html {
        let problems = crate::page::write(path, &profile, &args.source, &args.roofs)?;
        problems.iter().for_each(|p| note(p));
        return Ok(());
    }
    let grids = grids(args, &profile)?;
    let mut to: Box<dyn Write> = match &args.output {
        Some(path) => Box::new(BufWriter::new(File::create(path).map_err(fail)?)),
        None => Box::new(BufWriter::new(std::io::stdout().lock())),
    };
    let top = |default| args.top.unwrap_or(default);
    let mut write = || {
        if args.csv {
            let first = grids
                .first()
                .map_or(Ok(()), |g| print::csv(&mut to, &profile, g, top(0)));
            return first.and_then(|()| to.flush());
        }
        if args.json {
            print::json(&mut to, &profile, files, &grids, top(0))?;
            return to.flush();
        }
        print::head(&mut to, &profile, files, args.width.columns())?;
        for grid in &grids {
            print::grid(&mut to, &profile, grid, top(ROWS), args.width.columns())?;
        }
        to.flush()
    };
    match write() {
        // The reader of a pipe has seen enough.
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(fail),
    }
}

/// Writes a sum of profiles as a table for people, with as many rows as are shown by default.
pub fn write_report(to: &mut dyn Write, profile: &Profile, files: usize) -> std::io::Result<()> {
    print::head(to, profile, files, None)?;
    let people = profile.tables.iter().filter(|t| t.readers == Readers::All);
    for table in people {
        let mut grid = Grid::of(profile, table);
        if let Some(column) = grid.measure() {
            grid.sort(column);
        }
        print::grid(to, profile, &grid, ROWS, None)?;
    }
    to.flush()
}

/// The tables that the user wants, sorted and filtered.
fn grids(args: &View, profile: &Profile) -> Result<Vec<Grid>> {
    let names = || {
        let names: Vec<String> = profile
            .tables
            .iter()
            .map(|t| format!("`{}`", t.name))
            .collect();
        format!("its tables are {}", names.join(", "))
    };
    let mut grids = match (args.by, &args.table) {
        (Some(unit), table) => {
            let (grid, notes) = group::by(profile, unit, table.as_deref(), args.filter.as_deref())?;
            notes.iter().for_each(|n| note(n));
            vec![grid]
        }
        (None, Some(name)) => {
            let found = profile.tables.iter().filter(|t| t.name == *name);
            let grids: Vec<Grid> = found.map(|t| Grid::of(profile, t)).collect();
            if grids.is_empty() {
                let reason = format!("the profile has no table `{name}`");
                return Err(Error::new(DOING, reason).advice(names()));
            }
            grids
        }
        (None, None) => {
            let people = profile.tables.iter().filter(|t| t.readers == Readers::All);
            people.map(|t| Grid::of(profile, t)).collect()
        }
    };
    let has = |grid: &Grid, column: &String| grid.find(column).is_some();
    if let Some(column) = &args.sort
        && !grids.iter().any(|grid| has(grid, column))
    {
        let heads = grids
            .iter()
            .flat_map(|g| g.heads.iter().map(|h| format!("`{}`", h.name)));
        let mut heads: Vec<String> = heads.collect();
        heads.dedup();
        let reason = format!("no table has a column `{column}`");
        return Err(Error::new(DOING, reason).advice(format!("there are {}", heads.join(", "))));
    }
    for grid in &mut grids {
        let wanted = args.sort.as_ref().and_then(|column| grid.find(column));
        if let Some(column) = wanted.or_else(|| grid.measure()) {
            grid.sort(column);
        }
        if let Some(pattern) = args.filter.as_ref().filter(|_| args.by.is_none()) {
            grid.filter(profile, pattern);
        }
    }
    Ok(grids)
}
