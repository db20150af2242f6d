//! A report for people: aligned columns, digits in groups of three.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::unseen::Unseen;
use super::{Cell, Readers, Report, Table};
use crate::address::Address;

/// Writes the report. If `top` is not 0, tables end after `top` rows.
pub(super) fn write(to: &mut dyn Write, report: &Report, top: usize) -> io::Result<()> {
    writeln!(to, "{} of {}", report.tool, report.program)?;
    if let Some(line) = report.unseen.as_ref().and_then(Unseen::line) {
        writeln!(to, "{line}")?;
    }
    let name_width = report.facts.iter().map(|(name, _)| width(name)).max();
    let values: Vec<String> = report.facts.iter().map(|(_, value)| show(value)).collect();
    let value_width = values.iter().map(|value| width(value)).max();
    let (names, values_wide) = (name_width.unwrap_or(0), value_width.unwrap_or(0));
    for ((name, cell), value) in report.facts.iter().zip(&values) {
        match cell {
            Cell::Text(_) => writeln!(to, "  {name:names$}  {value}")?,
            _ => writeln!(to, "  {name:names$}  {value:>values_wide$}")?,
        }
    }
    for table in &report.tables {
        if table.readers != Readers::Programs {
            write_table(to, table, top)?;
        }
    }
    Ok(())
}

fn write_table(to: &mut dyn Write, table: &Table, top: usize) -> io::Result<()> {
    writeln!(to, "\n{}", table.title)?;
    let shown = match top {
        0 => table.rows.len(),
        top => top.min(table.rows.len()),
    };
    let rows = &table.rows[..shown];
    let is_text = |column: usize| {
        rows.iter().any(|row| match row.get(column) {
            Some(Cell::Text(_)) => true,
            // Addresses of libraries begin with a name.
            Some(Cell::Address(at)) => Address(*at).object().is_some(),
            _ => false,
        })
    };
    let columns: Vec<(usize, bool)> = (0..table.columns.len())
        .map(|i| {
            let cells = rows
                .iter()
                .map(|row| row.get(i).map_or(0, |cell| width(&show(cell))));
            let widest = cells.max().unwrap_or(0).max(width(table.columns[i]));
            (widest, is_text(i))
        })
        .collect();
    let mut line = |cells: &mut dyn Iterator<Item = String>| {
        let mut text = String::new();
        for (cell, (wide, left)) in cells.zip(&columns) {
            // Writing to a string cannot fail.
            let _ = if *left {
                write!(text, "  {cell:<wide$}")
            } else {
                write!(text, "  {cell:>wide$}")
            };
        }
        writeln!(to, "{}", text.trim_end())
    };
    line(&mut table.columns.iter().map(|title| (*title).to_owned()))?;
    for row in rows {
        line(&mut row.iter().map(show))?;
    }
    let left = table.rows.len() - shown;
    if left > 0 {
        writeln!(
            to,
            "  ... and {} more; --top 0 shows all",
            digits(left as u64)
        )?;
    }
    Ok(())
}

/// Width of a text in characters, which is right for nearly all names.
fn width(text: &str) -> usize {
    text.chars().count()
}

fn show(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone().into_owned(),
        Cell::Number(n) => digits(*n),
        Cell::Ratio(r) => format!("{r:.2}"),
        Cell::Address(a) => Address(*a).to_string(),
        Cell::Empty => String::new(),
    }
}

/// `1234567` as `1,234,567`.
fn digits(n: u64) -> String {
    let plain = n.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (i, digit) in plain.chars().enumerate() {
        if i != 0 && (plain.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(report: &Report, top: usize) -> String {
        let mut bytes = Vec::new();
        write(&mut bytes, report, top).unwrap();
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
            text(&report, 2),
            "count of sort\n  total  1,234,567\n  unit   calls\n\nprocedures\n  calls      %  procedure\n  1,000  12.50  main\n      8         f\n  ... and 1 more; --top 0 shows all\n"
        );
        assert!(text(&report, 0).ends_with("\n      7   7.00  größe\n"));
    }

    #[test]
    fn digits_in_groups() {
        assert_eq!(
            [0, 999, 1000, u64::MAX].map(digits),
            ["0", "999", "1,000", "18,446,744,073,709,551,615"]
        );
    }
}
