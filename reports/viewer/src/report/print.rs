//! Facts and grids as text for people, as comma-separated values and as JSON.

use std::borrow::Cow;
use std::io::{Result, Write};

use profile::{FactValue, Profile, Type};
use serde_json::{Map, Value as Json, json};
use tables::{Kind, Width};

use super::grid::{Cell, Grid};

/// Spaces in front of a table.
const INDENT: usize = 2;

/// Writes what ran and the facts, in lines of at most `width` columns.
pub fn head(to: &mut dyn Write, profile: &Profile, files: usize, width: Width) -> Result<()> {
    let program = &profile.program;
    let command = match program.arguments.get(1..) {
        Some(rest @ [_, ..]) => format!("{} {}", program.path, rest.join(" ")),
        _ => program.path.clone(),
    };
    let options = match profile.options.join(" ") {
        options if options.is_empty() => String::new(),
        options => format!(" {options}"),
    };
    writeln!(
        to,
        "{}{options} of {}",
        profile.tool,
        tables::shorten(&command, 100)
    )?;
    let when = &profile.time;
    match files {
        1 if !when.start.is_empty() => writeln!(
            to,
            "{} on {}, {:.3} s",
            when.start, profile.host.name, when.seconds
        )?,
        1 => {}
        n => writeln!(to, "sum of {n} profiles, {:.3} s", when.seconds)?,
    }
    let not: Vec<&str> = (profile.objects.iter())
        .filter(|o| !o.instrumented)
        .map(|o| &*o.name)
        .collect();
    if !not.is_empty() {
        let text = format!("not instrumented: {}", not.join(", "));
        for line in tables::wrapped(&text, width.of_prose()) {
            writeln!(to, "{line}")?;
        }
    }
    let shown = |fact: &profile::Fact| match &fact.value {
        FactValue::Number(value) => Cell::Number(*value).shown_as(profile, fact.kind),
        FactValue::Text(text) => text.clone(),
    };
    let values: Vec<String> = profile.facts.iter().map(shown).collect();
    let names = profile.facts.iter().map(|f| tables::columns(&f.name));
    let wide = names.max().unwrap_or(0);
    let is_number = |f: &profile::Fact| matches!(f.value, FactValue::Number(_));
    let numbers = profile
        .facts
        .iter()
        .zip(&values)
        .filter(|(f, _)| is_number(f));
    let digits = numbers.map(|(_, v)| tables::columns(v)).max().unwrap_or(0);
    for (fact, value) in profile.facts.iter().zip(&values) {
        let name = &fact.name;
        if is_number(fact) {
            writeln!(to, "  {name:wide$}  {value:>digits$}")?
        } else {
            writeln!(to, "  {name:wide$}  {value}")?
        }
    }
    Ok(())
}

/// Writes a grid, the first `top` rows of it if that is not 0, in at most `width` columns.
pub fn grid(
    to: &mut dyn Write,
    profile: &Profile,
    grid: &Grid,
    top: usize,
    width: Width,
) -> Result<()> {
    writeln!(to, "\n{}", grid.name)?;
    let number = match top {
        0 => grid.rows.len(),
        top => top.min(grid.rows.len()),
    };
    let rows = &grid.rows[..number];
    let columns = grid.heads.iter().enumerate().map(|(i, head)| {
        let cells = rows.iter().map(|row| row[i].shown_as(profile, head.kind));
        tables::Column {
            head: &head.name,
            cells: cells.map(Cow::Owned).collect(),
            kind: match head.kind {
                Type::Text => Kind::Name,
                Type::Place => Kind::Place,
                Type::Address => Kind::Label,
                _ => Kind::Number,
            },
        }
    });
    tables::write_columns(to, columns.collect(), INDENT, width)?;
    let left = grid.rows.len() - number;
    if left > 0 {
        let left = tables::grouped(left as u64);
        writeln!(to, "  ... and {left} more; --top 0 shows all")?;
    }
    Ok(())
}

/// Writes a grid as comma-separated values.
pub fn csv(to: &mut dyn Write, profile: &Profile, grid: &Grid, top: usize) -> Result<()> {
    let names: Vec<_> = grid
        .heads
        .iter()
        .map(|h| tables::csv_field(&h.name))
        .collect();
    writeln!(to, "{}", names.join(","))?;
    for row in grid
        .rows
        .iter()
        .take(if top == 0 { usize::MAX } else { top })
    {
        let cells: Vec<String> = row.iter().map(|c| c.plain(profile)).collect();
        let fields: Vec<_> = cells.iter().map(|c| tables::csv_field(c)).collect();
        writeln!(to, "{}", fields.join(","))?;
    }
    Ok(())
}

/// Writes facts and grids as one JSON object.
pub fn json(
    to: &mut dyn Write,
    profile: &Profile,
    files: usize,
    grids: &[Grid],
    top: usize,
) -> Result<()> {
    let value = |cell: &Cell| match cell {
        Cell::Number(value) => serde_json::to_value(value).unwrap_or(Json::Null),
        other => match other.plain(profile) {
            text if text.is_empty() => Json::Null,
            text => Json::String(text),
        },
    };
    let row = |grid: &Grid, row: &Vec<Cell>| -> Json {
        let heads = grid.heads.iter().map(|h| h.name.clone());
        Json::Object(heads.zip(row.iter().map(value)).collect())
    };
    let tables: Map<String, Json> = (grids.iter())
        .map(|grid| {
            let rows = grid
                .rows
                .iter()
                .take(if top == 0 { usize::MAX } else { top });
            (grid.name.clone(), rows.map(|r| row(grid, r)).collect())
        })
        .collect();
    let facts: Map<String, Json> = (profile.facts.iter())
        .map(|f| {
            (
                f.name.clone(),
                serde_json::to_value(&f.value).unwrap_or(Json::Null),
            )
        })
        .collect();
    let all = json!({
        "tool": profile.tool, "options": profile.options, "program": profile.program, "profiles": files,
        "objects": profile.objects, "facts": facts, "tables": tables,
    });
    serde_json::to_writer_pretty(&mut *to, &all)?;
    writeln!(to)
}
