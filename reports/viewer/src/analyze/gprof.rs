//! Comparison of a log of calls with the `gmon.out` of the same program.

use std::path::Path;

use atom_core::{Error, Result};
use call_log::gprof::{Logged, Symbol, compare as compare_with};
use call_log::indat::Wanted;
use call_log::reader::Log;
use call_log::table::Report;
use call_log::{Event, gmon};
use object::{Object, ObjectSymbol, SymbolKind};

use super::{Analyze, failed};

/// The comparison of the first report's log with `gmon.out`.
pub fn compare(args: &Analyze, file: &Path, reports: &[(Report, Wanted)]) -> Result<String> {
    let Some((report, wanted)) = reports.first() else {
        return Ok(String::new());
    };
    let gmon = gmon::read(file).map_err(failed)?;
    let addresses = addresses(&wanted.data)?;
    let logged: Vec<Logged> = report
        .lines
        .iter()
        .filter_map(|line| {
            let figures = line.figures?;
            let found = addresses.iter().find(|(number, ..)| *number == line.number);
            Some(Logged {
                name: line.name.clone(),
                pc: found.map_or(0, |(_, pc)| *pc),
                calls: figures.calls,
                own: report.millis(figures.own),
                inclusive: report.millis(figures.inclusive),
            })
        })
        .collect();
    let symbols = match &args.app {
        Some(app) => symbols(app)?,
        None => from_log(&logged, &gmon),
    };
    if symbols.is_empty() {
        let error = Error::new("analyzing", "the addresses of the procedures are not known");
        return Err(error
            .file(file)
            .advice("name the program: atom analyze FILE APP --gprof gmon.out"));
    }
    let comparison = compare_with(&logged, &gmon, &symbols);
    Ok(if args.json {
        format!("{:#}\n", comparison.json())
    } else {
        comparison.text(args.width.columns())
    })
}

/// Numbers and addresses of the procedures that a log names.
fn addresses(file: &Path) -> Result<Vec<(u32, u64)>> {
    let mut log = Log::open(file).map_err(failed)?;
    let mut events: Vec<Event> = Vec::new();
    while log.next_events(&mut events).map_err(failed)?.is_some() {}
    Ok(log.procedures().iter().map(|p| (p.number, p.pc)).collect())
}

/// Procedures of a program's symbol table, in the order of their addresses.
fn symbols(app: &Path) -> Result<Vec<Symbol>> {
    let fail = |reason: String| Error::new("reading the program", reason).file(app);
    let bytes = std::fs::read(app).map_err(|e| fail(e.to_string()))?;
    let elf = object::File::parse(&*bytes).map_err(|e| fail(e.to_string()))?;
    let mut all: Vec<Symbol> = elf
        .symbols()
        .filter(|s| s.kind() == SymbolKind::Text && s.size() != 0)
        .filter_map(|s| {
            Some(Symbol {
                name: atom_core::tool::demangle(s.name().ok()?),
                start: s.address(),
                end: s.address() + s.size(),
            })
        })
        .collect();
    all.sort_by_key(|s| s.start);
    all.dedup_by_key(|s| s.start);
    if all.is_empty() {
        Err(fail("it has no symbols".into()).advice("gprof needs them too"))
    } else {
        Ok(all)
    }
}

/// Procedures of the log, for a comparison without the program's file. Each ends where the next one starts.
fn from_log(logged: &[Logged], gmon: &gmon::Gmon) -> Vec<Symbol> {
    let mut known: Vec<&Logged> = logged.iter().filter(|l| l.pc != 0).collect();
    known.sort_by_key(|l| l.pc);
    let end = gmon
        .histograms
        .iter()
        .map(|h| h.high)
        .max()
        .unwrap_or(u64::MAX);
    let ends = known.iter().skip(1).map(|l| l.pc).chain([end]);
    known
        .iter()
        .zip(ends)
        .map(|(l, end)| Symbol {
            name: l.name.clone(),
            start: l.pc,
            end: end.max(l.pc),
        })
        .collect()
}
