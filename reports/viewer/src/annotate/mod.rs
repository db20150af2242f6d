//! `atom annotate`: source and instructions of procedures with the counts of a profile.
//!
//! The same annotated procedures are part of the page of `atom report --html`.

mod code;
mod collect;
mod counts;
mod loops;
mod pager;
mod source;
mod tables;
mod terminal;

use std::io::IsTerminal;
use std::path::PathBuf;

use atom_core::{Error, Result};
use clap::{Args, ValueEnum};
use profile::Profile;

use counts::Row;

pub use code::{Annotated, Inst};
pub use collect::annotate as procedures;
pub use counts::{CodeCounts, Measure};
pub use source::Sources;
pub use tables::read as counts_of;

/// When to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// If standard output is a terminal and `NO_COLOR` is not set.
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

/// Arguments of `atom annotate`.
#[derive(Args)]
pub struct Annotate {
    /// A profile that a tool has written (NAME.profile)
    pub file: PathBuf,
    /// The procedure: a name, OBJECT:NAME, or an address in the program [default: the hottest ones]
    #[arg(value_name = "PROC")]
    pub procedure: Option<String>,
    /// Without PROC: the number of procedures
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top: usize,
    /// Heat and percentages by this measure, such as misses
    #[arg(long, value_name = "MEASURE")]
    pub by: Option<String>,
    /// Look for source files in this folder too; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub source: Vec<PathBuf>,
    /// Show the instructions' bytes
    #[arg(long)]
    pub bytes: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = When::Auto)]
    pub color: When,
    /// Do not use a pager
    #[arg(long)]
    pub no_pager: bool,
}

const DOING: &str = "annotating";

/// Runs the command.
pub fn run(args: &Annotate) -> Result<()> {
    let profile = Profile::read(&args.file).map_err(|e| Error::new(DOING, e.to_string()))?;
    let mut counts = counts_of(&profile);
    if let Some(by) = &args.by {
        choose(&mut counts, by).map_err(|e| e.file(&args.file))?;
    }
    if counts.measures.is_empty() && counts.branches.is_empty() {
        let reason = format!("{} counts neither instructions nor blocks", profile.tool);
        output::message::note(&format!("{reason}: the code is shown without counts"));
    }
    let rows = match &args.procedure {
        None => counts.procedures.iter().take(args.top).cloned().collect(),
        Some(wanted) => find(&profile, &counts, wanted).map_err(|e| e.file(&args.file))?,
    };
    if rows.is_empty() {
        let error = Error::new(DOING, "the profile has no procedures").file(&args.file);
        return Err(error.advice("name a procedure of the program"));
    }
    let style = terminal::Style {
        is_coloured: match args.color {
            When::Always => true,
            When::Never => false,
            When::Auto => {
                let is_off = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
                !is_off && std::io::stdout().is_terminal()
            }
        },
        has_bytes: args.bytes,
    };
    let collected = procedures(&profile, &counts, &rows);
    for problem in &collected.problems {
        output::message::note(problem);
    }
    if collected.procedures.is_empty() {
        let reason = "no procedure could be shown: the code of its object cannot be read";
        return Err(Error::new(DOING, reason).file(&args.file));
    }
    let mut sources = Sources::new(&args.source);
    let texts: Vec<String> = collected
        .procedures
        .iter()
        .map(|p| terminal::procedure(&profile, &counts, p, &mut sources, &style))
        .collect();
    pager::show(&texts.join("\n"), !args.no_pager)
}

/// Puts a measure first.
fn choose(counts: &mut CodeCounts, by: &str) -> Result<()> {
    match counts.measures.iter().position(|m| m.name == by) {
        Some(at) => {
            let measure = counts.measures.remove(at);
            counts.measures.insert(0, measure);
            Ok(())
        }
        None => {
            let names: Vec<&str> = counts.measures.iter().map(|m| &*m.name).collect();
            let error = Error::new(DOING, format!("instructions have no measure `{by}`"));
            Err(error.advice(format!("measures: {}", names.join(", "))))
        }
    }
}

/// The rows of the procedures that the user names.
fn find(profile: &Profile, counts: &CodeCounts, wanted: &str) -> Result<Vec<Row>> {
    let object = |name: &str| {
        let mut objects = profile.objects.iter();
        objects.position(|o| o.name == name || o.soname.as_deref() == Some(name))
    };
    // An address, of an object after its name as reports write it: libz.so.1+0x1230.
    let (place, digits) = match wanted.rsplit_once("+0x") {
        Some((name, digits)) => (object(name), Some(digits)),
        None => (Some(0), wanted.strip_prefix("0x")),
    };
    if let (Some(object), Some(address)) = (
        place,
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()),
    ) {
        let (name, weight) = (String::new(), 0);
        return Ok(vec![Row {
            object,
            address,
            name,
            weight,
        }]);
    }
    let (only, name) = match wanted.split_once(':') {
        Some((before, name)) if object(before).is_some() => (object(before), name),
        _ => (None, wanted),
    };
    let rows = counts.procedures.iter();
    let rows: Vec<Row> = rows
        .filter(|row| only.is_none_or(|only| only == row.object))
        .filter(|row| row.name == name || row.name == wanted)
        .cloned()
        .collect();
    if !rows.is_empty() {
        return Ok(rows);
    }
    let lower = name.to_lowercase();
    let similar: Vec<&str> = counts
        .procedures
        .iter()
        .filter(|row| row.name.to_lowercase().contains(&lower))
        .map(|row| &*row.name)
        .take(5)
        .collect();
    // Only one procedure is meant.
    if let [one] = similar.as_slice() {
        let rows = counts.procedures.iter().filter(|row| row.name == *one);
        return Ok(rows.cloned().collect());
    }
    let error = Error::new(DOING, "the profile has no procedure of this name").symbol(wanted);
    Err(match similar.as_slice() {
        [] => {
            error.advice("only procedures that were executed have rows; give an address for others")
        }
        names => error.advice(format!("similar names: {}", names.join(", "))),
    })
}
