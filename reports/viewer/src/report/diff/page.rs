//! The comparison as a page for a browser.

use std::path::Path;

use atom_core::Result;
use atom_core::emit::Sink;
use output::file::{AsWrite, PendingFile};
use page::{GRID, Page};
use profile::{Profile, Role, Type};
use serde_json::{Value, json};

use super::Section;
use crate::report::grid::{Cell, Grid};

const BODY: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the page. `head` is what is compared, in lines.
pub fn write(out: &Path, after: &Profile, head: &str, sections: &[Section]) -> Result<()> {
    let mut lines = head.lines();
    let title = lines.next().unwrap_or_default();
    let data = json!({
        "title": title,
        "notes": lines.collect::<Vec<_>>(),
        "tables": sections.iter().map(|section| table(after, section)).collect::<Vec<_>>(),
    });
    let page = Page {
        title,
        styles: &[STYLE],
        body: BODY,
        data: &[("data", data.to_string())],
        scripts: &[GRID, SCRIPT],
    };
    let page = |to: &mut dyn Sink| page.write(&mut AsWrite(to));
    PendingFile::write(out, page, 0o644)?.commit()
}

fn table(after: &Profile, section: &Section) -> Value {
    let Grid { name, heads, rows } = &section.grid;
    // Names are looked for first, what identifies rows last.
    let mut order: Vec<usize> = (0..heads.len()).collect();
    order.sort_by_key(|i| match (heads[*i].role, heads[*i].kind) {
        (Role::Measure, _) => 0,
        (Role::Label, Type::Text) => 1,
        (Role::Label, _) => 2,
        _ => 3,
    });
    let columns = order.iter().map(|i| &heads[*i]).map(|head| {
        json!({
            "name": head.name,
            "text": head.is_name(),
            "mono": head.kind == Type::Text,
        })
    });
    let cell = |cell: &Cell| match cell {
        Cell::Number(_) => cell.number().map_or(Value::Null, Value::from),
        _ => cell.shown(after).into(),
    };
    let row = |row: &Vec<Cell>| Value::Array(order.iter().map(|i| cell(&row[*i])).collect());
    json!({
        "name": name,
        "columns": columns.collect::<Vec<_>>(),
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
        "unmatched": section.unmatched,
    })
}
