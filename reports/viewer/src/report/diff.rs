//! `atom report diff A B`: what changed between two profiles.
//!
//! Rows are matched by their keys. An object whose build-id differs has other addresses, so its rows are put
//! together by procedure, or by procedure and source line, and matched by these names.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use atom_core::{Error, Result};
use clap::Args;
use profile::{By, Profile, Readers, Role, Sum, Type, Value};

use super::grid::{Cell, Grid, Head};
use super::print;
use output::width::Width;

/// Arguments of `atom report diff`.
#[derive(Args)]
pub struct Diff {
    /// The profile to compare with
    before: PathBuf,
    /// The profile that is compared
    after: PathBuf,
    /// Compare only this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Compare this measure [default: the first of each table]
    #[arg(long, value_name = "COLUMN")]
    measure: Option<String>,
    /// Show only the first N rows of each table; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 30)]
    top: usize,
    /// Exit with code 1 if a fact or a row grew by more than this
    #[arg(long, value_name = "PERCENT")]
    fail_above: Option<f64>,
    /// Write comma-separated values
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    width: Width,
}

/// Values before and after; `None` where there is no row.
type Pair = [Option<f64>; 2];

/// Runs the command.
pub fn run(args: &Diff) -> Result<ExitCode> {
    let before = super::read(&args.before)?;
    let after = super::read(&args.after)?;
    if before.tool != after.tool {
        let reason = format!(
            "profiles of different tools: {} and {}",
            before.tool, after.tool
        );
        return Err(Error::new("comparing", reason));
    }
    let mut text = Vec::new();
    let grown =
        compare(args, &before, &after, &mut text).map_err(|e| Error::new("comparing", e))?;
    match std::io::stdout().lock().write_all(&text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Error::new("comparing", e));
        }
        _ => {}
    }
    for line in grown.iter().take(5) {
        eprintln!(
            "grew more than {} %: {line}",
            args.fail_above.unwrap_or(0.0)
        );
    }
    if let more @ 1.. = grown.len().saturating_sub(5) {
        eprintln!("and {more} more");
    }
    if grown.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// Writes the comparison. Returns what grew more than the user wants.
fn compare(
    args: &Diff,
    before: &Profile,
    after: &Profile,
    to: &mut dyn Write,
) -> std::io::Result<Vec<String>> {
    let mut grown = Vec::new();
    let facts = facts(before, after);
    let mut is_empty = true;
    if !args.csv {
        writeln!(
            to,
            "{} of {}: {} -> {}",
            after.tool,
            after.program.path,
            args.before.display(),
            args.after.display()
        )?;
        for name in other_objects(before, after) {
            writeln!(
                to,
                "{name}: other builds, matched by procedure and source line"
            )?;
        }
    }
    note_growth(args, &facts, &mut grown);
    if !facts.rows.is_empty() && !args.csv && args.table.is_none() {
        is_empty = false;
        print::grid(to, after, &facts, 0, args.width.columns())?;
    }
    for table in &before.tables {
        let is_wanted = match &args.table {
            Some(name) => table.name == *name,
            None => table.readers == Readers::All,
        };
        let other = after
            .tables
            .iter()
            .find(|t| t.name == table.name && t.by == table.by);
        let (Some(other), true) = (other, is_wanted) else {
            continue;
        };
        let measures =
            [(before, table), (after, other)].map(|(p, t)| rows(p, t, [before, after], args));
        let [Some(a), Some(b)] = measures else {
            continue;
        };
        let (grid, unmatched) = matched(&table.name, a, b);
        note_growth(args, &grid, &mut grown);
        if args.csv {
            print::csv(to, after, &grid, 0)?;
            continue;
        }
        if !grid.rows.is_empty() {
            is_empty = false;
            print::grid(to, after, &grid, args.top, args.width.columns())?;
            if unmatched != [0, 0] {
                let [a, b] = unmatched;
                writeln!(
                    to,
                    "  not matched: {a} rows only before, {b} rows only after"
                )?;
            }
        }
    }
    if is_empty && !args.csv {
        writeln!(to, "no differences")?;
    }
    Ok(grown)
}

/// Names of objects that both have with other build-ids.
fn other_objects(before: &Profile, after: &Profile) -> Vec<String> {
    let differs = |o: &&profile::Object| is_other_build(o, after);
    let objects = before.objects.iter().filter(differs);
    objects.map(|o| o.name.clone()).collect()
}

fn is_other_build(object: &profile::Object, other: &Profile) -> bool {
    let same = other.objects.iter().find(|o| o.name == object.name);
    same.is_some_and(|o| o.build_id != object.build_id)
}

fn heads(keys: Vec<Head>) -> Vec<Head> {
    let number = |name: &str, kind| Head {
        role: Role::Measure,
        sum: Sum::Add,
        ..Head::key(name, kind)
    };
    let numbers = [
        number("before", Type::Count),
        number("after", Type::Count),
        number("change", Type::Count),
        number("change %", Type::Percent),
    ];
    numbers.into_iter().chain(keys).collect()
}

fn facts(before: &Profile, after: &Profile) -> Grid {
    let mut rows = Vec::new();
    for fact in &before.facts {
        let value = |f: &profile::Fact| f.number().float();
        let pair = [value(fact), after.fact(&fact.name).and_then(value)];
        if pair[0] != pair[1] && pair != [None, None] {
            rows.push(cells(pair, vec![Cell::Text(fact.name.clone())]));
        }
    }
    let heads = heads(vec![Head::key("fact", Type::Text)]);
    Grid {
        name: "facts".into(),
        heads,
        rows,
    }
}

/// The cells of a row; a missing row counts as 0.
fn cells(pair: Pair, keys: Vec<Cell>) -> Vec<Cell> {
    let [a, b] = pair.map(|x| x.unwrap_or(0.0));
    let exact = |x: f64| {
        if x >= 0.0 && x.fract() == 0.0 && x < 9e15 {
            Cell::Number(Value::Integer(x as u64))
        } else {
            Cell::Number(Value::Float(x))
        }
    };
    let change = b - a;
    let relative = if a == 0.0 {
        Value::Unknown
    } else {
        Value::Float(change * 100.0 / a)
    };
    let shown = |x: Option<f64>| x.map_or(Cell::Number(Value::Unknown), exact);
    let mut cells = vec![
        shown(pair[0]),
        shown(pair[1]),
        exact(change),
        Cell::Number(relative),
    ];
    cells.extend(keys);
    cells
}

/// Rows of a table by what identifies them, with one measure.
struct Rows {
    measure: String,
    keys: Vec<Head>,
    /// For each identity the value and the cells that are shown.
    rows: BTreeMap<Vec<String>, (f64, Vec<Cell>)>,
}

/// The rows of a table. Rows of objects that are other builds are put together by their names.
fn rows(
    profile: &Profile,
    table: &profile::Table,
    both: [&Profile; 2],
    args: &Diff,
) -> Option<Rows> {
    let grid = Grid::of(profile, table);
    let measure = match &args.measure {
        Some(name) => grid.find(name)?,
        None => grid.measure()?,
    };
    let is_key = |h: &Head| matches!(h.role, Role::Key) || h.is_name() && h.role == Role::Label;
    let shown: Vec<usize> = (0..grid.heads.len())
        .filter(|i| is_key(&grid.heads[*i]))
        .collect();
    let others: Vec<bool> = (profile.objects.iter())
        .map(|o| both.iter().any(|p| is_other_build(o, p)))
        .collect();
    let object = |n: usize| profile.objects.get(n).map_or("", |o| &*o.name).to_owned();
    let mut rows: BTreeMap<Vec<String>, (f64, Vec<Cell>)> = BTreeMap::new();
    for row in &grid.rows {
        let at = row.iter().find_map(|cell| match cell {
            Cell::Address(n, _) | Cell::Place(_, _, n) => Some(*n),
            _ => None,
        });
        let is_other = at.is_some_and(|n| others.get(n).copied().unwrap_or(false));
        let mut key = vec![at.map_or(String::new(), object)];
        for &i in &shown {
            let (head, cell) = (&grid.heads[i], &row[i]);
            let identifies = match (is_other, cell) {
                (false, _) => head.role == Role::Key,
                // A procedure that moved in its source file is the same one.
                (true, Cell::Place(..)) => table.by != By::Procedure,
                (true, cell) => matches!(cell, Cell::Text(_)),
            };
            if identifies {
                key.push(cell.plain(profile));
            }
        }
        let cells = || {
            let name = |i: &usize| match (&row[*i], is_other) {
                // Addresses of other builds mean nothing beside each other.
                (Cell::Address(n, _), true) => Cell::Text(object(*n)),
                // The other profile may have other numbers of objects.
                (cell @ Cell::Address(..), false) => Cell::Text(cell.plain(profile)),
                (cell, _) => cell.clone(),
            };
            shown.iter().map(name).collect()
        };
        let value = row[measure].number().unwrap_or(0.0);
        rows.entry(key).or_insert_with(|| (0.0, cells())).0 += value;
    }
    let text = |i: &usize| Head {
        kind: match grid.heads[*i].kind {
            Type::Address => Type::Text,
            kind => kind,
        },
        ..grid.heads[*i].clone()
    };
    Some(Rows {
        measure: grid.heads[measure].name.clone(),
        keys: shown.iter().map(text).collect(),
        rows,
    })
}

/// The rows that differ, with the largest change first, and the numbers of rows without a partner.
fn matched(name: &str, before: Rows, mut after: Rows) -> (Grid, [usize; 2]) {
    let mut unmatched = [0, 0];
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (key, (a, names)) in before.rows {
        let b = after.rows.remove(&key).map(|(b, _)| b);
        unmatched[0] += usize::from(b.is_none());
        if b != Some(a) {
            rows.push(cells([Some(a), b], names));
        }
    }
    unmatched[1] = after.rows.len();
    let new = after.rows.into_values();
    rows.extend(new.map(|(b, names)| cells([None, Some(b)], names)));
    let change = |row: &Vec<Cell>| row[2].number().map_or(0.0, f64::abs);
    rows.sort_by(|a, b| change(b).total_cmp(&change(a)));
    let grid = Grid {
        name: format!("{name}: {}", before.measure),
        heads: heads(before.keys),
        rows,
    };
    (grid, unmatched)
}

/// Notes rows that grew more than the user wants.
fn note_growth(args: &Diff, grid: &Grid, grown: &mut Vec<String>) {
    let Some(limit) = args.fail_above else { return };
    for row in &grid.rows {
        let grew = match (row[0].number(), row[2].number(), row[3].number()) {
            (_, _, Some(percent)) => percent > limit,
            // What was not there before.
            (_, Some(change), None) => change > 0.0,
            _ => false,
        };
        if grew {
            let names = row[4..].iter().map(|cell| match cell {
                Cell::Text(text) => text.clone(),
                Cell::Place(file, line, _) => format!("{file}:{line}"),
                _ => String::new(),
            });
            let names: Vec<String> = names.filter(|n| !n.is_empty()).collect();
            grown.push(format!("{}: {}", grid.name, names.join(" ")));
        }
    }
}
