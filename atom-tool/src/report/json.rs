//! A report for programs: one JSON object.
//!
//! `tool` and `program`, the libraries that are `not_instrumented` and the number of
//! `opaque_procedures`, the size of all `code_bytes` and of the part that a tool can instrument
//! (`understood_code_bytes`), each fact under its name, each table under its title as
//! an array of objects whose keys are the columns' names. Of a fact and a table with the same name the fact gets `total_`
//! before it. In keys, spaces become `_` and `%` becomes `percent`. Addresses are strings in hexadecimal, as many programs read
//! JSON's numbers as doubles. A value that is not known is `null`.

use std::io::{self, Write};

use super::{Cell, Readers, Report, Table, shown};

/// Writes the report.
pub(super) fn write(to: &mut dyn Write, report: &Report) -> io::Result<()> {
    write!(to, "{{\n  \"tool\": ")?;
    string(to, report.tool)?;
    write!(to, ",\n  \"program\": ")?;
    string(to, &report.program)?;
    if let Some(unseen) = &report.unseen {
        write!(to, ",\n  \"not_instrumented\": [")?;
        for (i, name) in unseen.libraries.iter().enumerate() {
            write!(to, "{}", if i == 0 { "" } else { ", " })?;
            string(to, name)?;
        }
        write!(to, "],\n  \"opaque_procedures\": {}", unseen.opaque)?;
        if let Some([all, understood]) = unseen.code {
            write!(
                to,
                ",\n  \"code_bytes\": {all},\n  \"understood_code_bytes\": {understood}"
            )?;
        }
        if !unseen.in_place.is_empty() {
            write!(to, ",\n  \"ran_in_place\": {{")?;
            for (i, (object, count)) in unseen.in_place.iter().enumerate() {
                write!(to, "{}", if i == 0 { "" } else { ", " })?;
                key(to, object)?;
                write!(to, "{count}")?;
            }
            write!(to, "}}")?;
        }
    }
    let tables = || (report.tables.iter()).filter(|table| table.readers != Readers::People);
    for (fact, value) in &report.facts {
        write!(to, ",\n  ")?;
        if tables().any(|table| member(&table.title) == member(fact.name)) {
            key(to, &format!("total {}", fact.name))?;
        } else {
            key(to, fact.name)?;
        }
        cell(to, value)?;
    }
    for table in tables() {
        rows(to, table)?;
    }
    writeln!(to, "\n}}")
}

fn rows(to: &mut dyn Write, table: &Table) -> io::Result<()> {
    write!(to, ",\n  ")?;
    key(to, &table.title)?;
    write!(to, "[")?;
    for (i, row) in table.rows.iter().enumerate() {
        write!(to, "{}\n    {{", if i == 0 { "" } else { "," })?;
        for (i, (column, value)) in table.columns.iter().zip(row).enumerate() {
            if i != 0 {
                write!(to, ", ")?;
            }
            key(to, column.name)?;
            cell(to, value)?;
        }
        write!(to, "}}")?;
    }
    write!(to, "\n  ]")
}

fn key(to: &mut dyn Write, name: &str) -> io::Result<()> {
    string(to, &member(name))?;
    write!(to, ": ")
}

/// The key of a name.
fn member(name: &str) -> String {
    name.replace('%', "percent").replace(' ', "_")
}

fn cell(to: &mut dyn Write, cell: &Cell) -> io::Result<()> {
    match cell {
        Cell::Text(text) => string(to, text),
        Cell::Number(n) => write!(to, "{n}"),
        Cell::Ratio(r) if r.is_finite() => write!(to, "{r:.4}"),
        Cell::Ratio(_) | Cell::Empty => write!(to, "null"),
        Cell::Address(_) | Cell::Place { .. } => string(to, &shown(cell)),
    }
}

fn string(to: &mut dyn Write, text: &str) -> io::Result<()> {
    write!(to, "\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(to, "\\{c}")?,
            c if c < ' ' => write!(to, "\\u{:04x}", c as u32)?,
            c => write!(to, "{c}")?,
        }
    }
    write!(to, "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_rows_and_escapes() {
        let mut report = Report::new("count", "a\"b\\c\n");
        report
            .fact("miss %", Cell::percent(1, 3))
            .fact("no", Cell::percent(1, 0))
            .fact("by line", Cell::Number(2))
            .fact("hidden", Cell::Number(0));
        report
            .table("by line", ["pc", "name"])
            .row([Cell::Address(4096), "ü".into()])
            .row([Cell::Address(1), Cell::Empty]);
        report.table("hidden", []).readers(Readers::People);
        let mut bytes = Vec::new();
        write(&mut bytes, &report).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "{\n  \"tool\": \"count\",\n  \"program\": \"a\\\"b\\\\c\\u000a\",\n  \"miss_percent\": 33.3333,\n  \"no\": null,\n  \"total_by_line\": 2,\n  \"hidden\": 0,\n  \"by_line\": [\n    {\"pc\": \"0x1000\", \"name\": \"ü\"},\n    {\"pc\": \"0x1\", \"name\": null}\n  ]\n}\n"
        );
    }
}
