//! A report for people: aligned columns, digits in groups of three, names shortened to the width.

use std::borrow::Cow;
use std::io::{self, Write};

use tables::{Column, Kind, Width, columns, grouped};

use super::unseen::Unseen;
use super::{Cell, Readers, Report, Table, shown as show};
use crate::navigation::address::Address;

/// How much a report for people shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Extent {
    /// Number of rows of each table; 0 for all.
    pub(super) rows: usize,
    pub(super) width: Width,
}

/// Writes the report.
pub(super) fn write(to: &mut dyn Write, report: &Report, extent: Extent) -> io::Result<()> {
    head(to, report, extent)?;
    for table in &report.tables {
        if table.readers != Readers::Programs {
            write_table(to, table, extent)?;
        }
    }
    Ok(())
}

/// Writes a line below the report; nothing if it is empty.
pub(super) fn write_note(to: &mut dyn Write, note: &str, extent: Extent) -> io::Result<()> {
    if note.is_empty() {
        return Ok(());
    }
    writeln!(to)?;
    let lines = tables::wrapped(note, extent.width.of_prose());
    lines.iter().try_for_each(|line| writeln!(to, "{line}"))
}

/// Writes the lines before the tables.
fn head(to: &mut dyn Write, report: &Report, extent: Extent) -> io::Result<()> {
    writeln!(to, "{} of {}", report.tool, report.program)?;
    let lines = [Unseen::line, Unseen::share];
    for line in lines
        .iter()
        .filter_map(|line| report.unseen.as_ref().and_then(line))
    {
        for line in tables::wrapped(&line, extent.width.of_prose()) {
            writeln!(to, "{line}")?;
        }
    }
    if let Some(names) = analysis_rt::replaced() {
        let line = format!("{} changes the program: it replaces {names}", report.tool);
        for line in tables::wrapped(&line, extent.width.of_prose()) {
            writeln!(to, "{line}")?;
        }
    }
    if let Some(estimate) = &report.estimate {
        for line in tables::wrapped(&estimate.line(), extent.width.of_prose()) {
            writeln!(to, "{line}")?;
        }
    }
    if analysis_rt::counts_are_inherited() {
        writeln!(
            to,
            "a forked process, whose counts contain its parent's until the fork"
        )?;
    }
    let name_width = report
        .facts
        .iter()
        .map(|(fact, _)| columns(fact.name))
        .max();
    let values: Vec<_> = report.facts.iter().map(|(_, value)| show(value)).collect();
    let is_number = |cell: &Cell| !matches!(cell, Cell::Text(_));
    let numbers = report.facts.iter().zip(&values);
    let numbers = numbers.filter(|((_, cell), _)| is_number(cell));
    let value_width = numbers.map(|(_, value)| columns(value)).max();
    let (names, values_wide) = (name_width.unwrap_or(0), value_width.unwrap_or(0));
    for ((fact, cell), value) in report.facts.iter().zip(&values) {
        let name = fact.name;
        match cell {
            Cell::Text(_) => writeln!(to, "  {name:names$}  {value}")?,
            _ => writeln!(to, "  {name:names$}  {value:>values_wide$}")?,
        }
    }
    Ok(())
}

/// Spaces in front of a table.
const INDENT: usize = 2;

fn write_table(to: &mut dyn Write, table: &Table, extent: Extent) -> io::Result<()> {
    writeln!(to, "\n{}", table.title)?;
    let number = match extent.rows {
        0 => table.rows.len(),
        rows => rows.min(table.rows.len()),
    };
    let shown = table.columns.iter().enumerate();
    let shown = shown.map(|(i, described)| column(table, i, described.name, number));
    tables::write_columns(to, shown.collect(), INDENT, extent.width)?;
    let left = table.rows.len() - number + table.left_out;
    if left > 0 {
        writeln!(
            to,
            "  ... and {} more; --top 0 shows all",
            grouped(left as u64)
        )?;
    }
    Ok(())
}

/// A column of a table's first rows, with its texts in full.
fn column<'t>(table: &'t Table, at: usize, head: &'t str, rows: usize) -> Column<'t> {
    let cells = || {
        let rows = table.rows[..rows].iter();
        rows.map(move |row| row.get(at).unwrap_or(&Cell::Empty))
    };
    let kind = |cell: &Cell| match cell {
        Cell::Text(_) => Some(Kind::Name),
        Cell::Place { .. } => Some(Kind::Place),
        // Addresses of libraries begin with a name.
        Cell::Address(at) => Address(*at).object().map(|_| Kind::Label),
        _ => None,
    };
    let texts = cells().map(|cell| match cell {
        Cell::Text(text) => text.clone(),
        other => Cow::Owned(show(other).into_owned()),
    });
    Column {
        head,
        cells: texts.collect(),
        kind: cells().find_map(kind).unwrap_or(Kind::Number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &Report, rows: usize, width: usize) -> String {
        let mut bytes = Vec::new();
        let width = match width {
            0 => Width::Full,
            width => Width::Columns(width),
        };
        write(&mut bytes, report, Extent { rows, width }).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn columns_are_aligned_sorted_and_cut() {
        let mut report = Report::new("count", "sort");
        report.fact("total", 1_234_567).fact("unit", "calls");
        report
            .table("procedures", ["calls", "%", "procedure"])
            .row([7.into(), Cell::percent(7, 100), "größe".into()])
            .row([1000.into(), Cell::percent(1, 8), "main".into()])
            .row([8.into(), Cell::Empty, "f".into()])
            .sort(0);
        assert_eq!(
            text(&report, 2, 80),
            "count of sort\n  total  1,234,567\n  unit   calls\n\nprocedures\n  calls      %  procedure\n  1,000  12.50  main\n      8         f\n  ... and 1 more; --top 0 shows all\n"
        );
        assert!(text(&report, 0, 80).ends_with("\n      7   7.00  größe\n"));
    }

    #[test]
    fn names_are_shortened_to_the_width() {
        let mut report = Report::new("count", "sort");
        let name =
            |t: &str| format!("std::vector<{t}, std::allocator<{t}> >::push_back({t} const&)");
        let place = "/usr/include/c++/14/bits/stl_vector.h:1234";
        report
            .table("procedures", ["calls", "line", "procedure"])
            .row([7.into(), place.into(), name("std::pair<int, int>").into()])
            .row([
                6.into(),
                "x.cc:1".into(),
                name("std::pair<int, char>").into(),
            ])
            .row([5.into(), Cell::Empty, "main".into()]);
        let short = text(&report, 0, 72);
        assert_eq!(
            short,
            "count of sort\n\nprocedures\n  \
             calls  line                 procedure\n      \
             7  …/stl_vector.h:1234  std::vector<pair<int, int>>::push_back(…)\n      \
             6  x.cc:1               std::vector<pair<int, char>>::push_back(…)\n      \
             5                       main\n"
        );
        let full = text(&report, 0, 0);
        assert!(
            full.contains(&name("std::pair<int, char>")) && full.contains(place),
            "{full}"
        );
    }
}
