//! `atom report diff A B`: what changed between two profiles.
//!
//! Rows are matched by their keys. An object whose build-id differs has other addresses, so its rows are put
//! together by procedure, or by procedure and source line, and matched by these names ([`partners`]).

mod growth;
mod page;
mod partners;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use atom_core::{Error, Result};
use clap::{Args, ValueEnum};
use profile::{By, Profile, Readers, Role, Sum, Type, Value};

use super::export::CALL_PATHS;
use super::grid::{Cell, Grid, Head};
use super::spots::Unit;
use super::{group, print};
use growth::Growth;
use output::message::note;
use output::width::Width;
use partners::Names;

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
    /// Put the measures together by this, and compare the sums
    #[arg(long, value_enum, value_name = "UNIT")]
    by: Option<Grouping>,
    /// Exit with code 1 if a fact or a row grew by more than this
    #[arg(long, value_name = "PERCENT")]
    fail_above: Option<f64>,
    /// With --fail-above: rows that grew by less than this share of the whole are too small to fail for
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 0.1,
        requires = "fail_above"
    )]
    floor: f64,
    /// Write comma-separated values
    #[arg(long)]
    csv: bool,
    /// Write a page for a browser to FILE, with all rows, in place of the text
    #[arg(long, value_name = "FILE", conflicts_with = "csv")]
    html: Option<PathBuf>,
    #[command(flatten)]
    width: Width,
}

/// What rows are put together by.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
enum Grouping {
    Object,
    Procedure,
    Function,
    File,
    Line,
    Instruction,
    /// Whole stacks of calls, which *calltree* has.
    Path,
}

impl Grouping {
    /// The unit of places of the code; `None` for paths.
    fn unit(self) -> Option<Unit> {
        Some(match self {
            Self::Object => Unit::Object,
            Self::Procedure => Unit::Procedure,
            Self::Function => Unit::Function,
            Self::File => Unit::File,
            Self::Line => Unit::Line,
            Self::Instruction => Unit::Instruction,
            Self::Path => return None,
        })
    }
}

/// The name of the table of facts.
const FACTS: &str = "facts";

/// What differs in a table.
struct Section {
    grid: Grid,
    /// Number of rows that are only in the profile before, and only in the one after.
    unmatched: [usize; 2],
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
    let mut growth = args.fail_above.map(|above| Growth::new(above, args.floor));
    compare(args, &before, &after, &mut growth, &mut text)?;
    match std::io::stdout().lock().write_all(&text) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            return Err(Error::new("comparing", e));
        }
        _ => {}
    }
    match growth {
        Some(growth) if growth.is_found() => {
            growth.tell();
            Ok(ExitCode::FAILURE)
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes the comparison, and notes what grew more than the user wants.
fn compare(
    args: &Diff,
    before: &Profile,
    after: &Profile,
    growth: &mut Option<Growth>,
    to: &mut dyn Write,
) -> Result<()> {
    let fail = |e: std::io::Error| Error::new("comparing", e);
    let names = partners::partners(before, after);
    let facts = facts(before, after);
    if let Some(growth) = growth {
        growth.note_facts(after, &facts);
    }
    let mut sections = Vec::new();
    if args.table.is_none() && !args.csv {
        sections.push(Section {
            grid: facts,
            unmatched: [0, 0],
        });
    }
    for pair in pairs(args, [before, after])? {
        let [Some(a), Some(b)] =
            [0, 1].map(|i| rows([before, after][i], &pair[i], &names[i], args))
        else {
            continue;
        };
        let is_cost = !a.measure.is_of_set;
        let (grid, unmatched, whole) = matched(&pair[0].grid.name, a, b);
        if let Some(growth) = growth.as_mut().filter(|_| is_cost) {
            growth.note_rows(&grid, whole);
        }
        sections.push(Section { grid, unmatched });
    }
    if args.csv {
        let mut tables = sections.iter();
        return tables.try_for_each(|s| print::csv(to, after, &s.grid, 0).map_err(fail));
    }
    sections.retain(|section| !section.grid.rows.is_empty());
    let mut heading = Vec::new();
    head(args, [before, after], &names[0], &mut heading).map_err(fail)?;
    if let Some(file) = &args.html {
        return page::write(file, after, &String::from_utf8_lossy(&heading), &sections);
    }
    to.write_all(&heading).map_err(fail)?;
    for section in &sections {
        write(args, after, section, to).map_err(fail)?;
    }
    if sections.is_empty() {
        writeln!(to, "no differences").map_err(fail)?;
    }
    Ok(())
}

/// Writes what differs in a table as text. All facts are shown.
fn write(
    args: &Diff,
    after: &Profile,
    section: &Section,
    to: &mut dyn Write,
) -> std::io::Result<()> {
    let top = if section.grid.name == FACTS {
        0
    } else {
        args.top
    };
    print::grid(to, after, &section.grid, top, args.width.of_tables())?;
    let [a, b] = section.unmatched;
    if [a, b] != [0, 0] {
        writeln!(
            to,
            "  not matched: {a} rows only before, {b} rows only after"
        )?;
    }
    Ok(())
}

/// Writes what is compared.
fn head(
    args: &Diff,
    [before, after]: [&Profile; 2],
    names: &Names,
    to: &mut dyn Write,
) -> std::io::Result<()> {
    let paths = [&before.program.path, &after.program.path];
    let program = if paths[0] == paths[1] {
        paths[1].clone()
    } else {
        format!("{} -> {}", paths[0], paths[1])
    };
    let files = [&args.before, &args.after].map(|file| file.display());
    writeln!(
        to,
        "{} of {program}: {} -> {}",
        after.tool, files[0], files[1]
    )?;
    for name in names.other_builds() {
        writeln!(
            to,
            "{name}: other builds, matched by procedure, and by line in the procedure"
        )?;
    }
    Ok(())
}

/// A table of a profile that is compared.
struct Compared {
    grid: Grid,
    by: By,
}

/// The tables that both profiles have, or the measures that are put together as the user wants.
fn pairs(args: &Diff, both: [&Profile; 2]) -> Result<Vec<[Compared; 2]>> {
    if let Some(grouping) = args.by {
        let [a, b] = both.map(|profile| {
            let Some(unit) = grouping.unit() else {
                return paths(profile);
            };
            let (grid, notes) = group::by(profile, unit, args.table.as_deref(), None)?;
            notes.iter().for_each(|text| note(text));
            Ok(Compared {
                grid,
                by: By::Other,
            })
        });
        return Ok(vec![[a?, b?]]);
    }
    let is_wanted = |table: &&profile::Table| match &args.table {
        Some(name) => table.name == *name,
        None => table.readers == Readers::All,
    };
    let of = |profile: &Profile, table: &profile::Table| Compared {
        grid: Grid::of(profile, table),
        by: table.by,
    };
    let partner = |table: &profile::Table| {
        let is_partner = |t: &&profile::Table| t.name == table.name && t.by == table.by;
        let other = both[1].tables.iter().find(is_partner)?;
        Some([of(both[0], table), of(both[1], other)])
    };
    let wanted = both[0].tables.iter().filter(is_wanted);
    Ok(wanted.filter_map(partner).collect())
}

/// The stacks of calls of a profile.
fn paths(profile: &Profile) -> Result<Compared> {
    let Some(table) = profile.table(CALL_PATHS) else {
        let reason = format!("{} has no call paths", profile.tool);
        return Err(Error::new("comparing", reason).advice("calltree has them"));
    };
    Ok(Compared {
        grid: Grid::of(profile, table),
        by: table.by,
    })
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
        name: FACTS.into(),
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
    measure: Head,
    keys: Vec<Head>,
    /// For each identity the value and the cells that are shown.
    rows: BTreeMap<Vec<String>, (f64, Vec<Cell>)>,
}

/// The rows of a table. Rows of objects that are other builds are put together by their names.
fn rows(profile: &Profile, table: &Compared, names: &Names, args: &Diff) -> Option<Rows> {
    let grid = &table.grid;
    let measure = match &args.measure {
        Some(name) => grid.find(name)?,
        None => grid.measure()?,
    };
    let is_shown = |h: &Head| h.role == Role::Key || h.is_name() && h.role == Role::Label;
    let shown: Vec<usize> = (0..grid.heads.len())
        .filter(|i| is_shown(&grid.heads[*i]))
        .collect();
    // There a label says how many functions or procedures a row has.
    let is_named_by_labels = !matches!(args.by, Some(Grouping::Function | Grouping::Line));
    let firsts = first_lines(grid, &shown);
    let is_path = grid.name == CALL_PATHS;
    let mut rows: BTreeMap<Vec<String>, (f64, Vec<Cell>)> = BTreeMap::new();
    for row in &grid.rows {
        let object = shown.iter().find_map(|i| match &row[*i] {
            Cell::Address(n, _) | Cell::Place(_, _, n) => names.object(*n),
            Cell::Text(text) => names.of_name(object_in(text)),
            Cell::Number(_) => None,
        });
        let (name, is_other) = object.map_or(("", false), |(name, other)| (&**name, *other));
        let mut key = vec![name.to_owned()];
        for &i in &shown {
            let (head, cell) = (&grid.heads[i], &row[i]);
            let is_text = matches!(cell, Cell::Text(_));
            match (cell, head.role == Role::Key) {
                // A procedure that moved in its source file is the same one.
                (Cell::Place(file, line, _), is_key) if is_other || is_key => {
                    let function = label(grid, &shown, row);
                    let first = firsts.get(&(file.as_str(), function));
                    let first = first.filter(|_| is_other && *line != 0);
                    key.push(match first {
                        _ if is_other && table.by == By::Procedure => String::new(),
                        Some(first) => {
                            let function = partners::procedure(function);
                            format!("{}:{function}+{}", names.file(file), line - first)
                        }
                        None => format!("{}:{line}", names.file(file)),
                    });
                }
                (Cell::Address(_, at), true) if !is_other => key.push(format!("{at:#x}")),
                (Cell::Address(..), _) => {}
                (cell, is_key) if is_key || is_other && is_text && is_named_by_labels => {
                    key.push(if is_path {
                        common_path(&cell.plain(profile), names)
                    } else {
                        common(cell, profile, names, is_other)
                    });
                }
                _ => {}
            }
        }
        let cells = || {
            let shown = shown.iter().map(|i| match &row[*i] {
                // Addresses of other builds mean nothing beside each other.
                Cell::Address(..) if is_other => Cell::Text(name.to_owned()),
                // The other profile may have other numbers of objects.
                cell @ Cell::Address(..) => Cell::Text(cell.plain(profile)),
                Cell::Place(file, line, n) => Cell::Place(names.file(file).to_owned(), *line, *n),
                cell @ Cell::Text(_) => Cell::Text(common(cell, profile, names, is_other)),
                cell => cell.clone(),
            });
            shown.collect()
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
        measure: grid.heads[measure].clone(),
        keys: shown.iter().map(text).collect(),
        rows,
    })
}

/// The first label of a row: the function or procedure of a line.
fn label<'r>(grid: &Grid, shown: &[usize], row: &'r [Cell]) -> &'r str {
    let labels = shown.iter().filter(|i| grid.heads[**i].role == Role::Label);
    let mut texts = labels.filter_map(|i| match &row[*i] {
        Cell::Text(text) if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.next().unwrap_or("")
}

/// The first line of each function in each source file, by the rows of a table of lines. Another build may have the
/// function at other lines.
fn first_lines<'g>(grid: &'g Grid, shown: &[usize]) -> BTreeMap<(&'g str, &'g str), u64> {
    let mut firsts = BTreeMap::new();
    for row in &grid.rows {
        let places = shown.iter().filter_map(|i| match &row[*i] {
            Cell::Place(file, line @ 1.., _) => Some((file.as_str(), *line)),
            _ => None,
        });
        for (file, line) in places {
            let first = firsts
                .entry((file, label(grid, shown, row)))
                .or_insert(line);
            *first = line.min(*first);
        }
    }
    firsts
}

/// The name of an object, if a text is one or says that its code has no line.
fn object_in(text: &str) -> &str {
    text.strip_prefix(group::NO_LINE).unwrap_or(text)
}

/// A cell as both profiles have it: objects by their common names, and procedures of other builds without the
/// numbers of the compiler's copies.
fn common(cell: &Cell, profile: &Profile, names: &Names, is_other: bool) -> String {
    let text = cell.plain(profile);
    let object = object_in(&text);
    match names.of_name(object) {
        Some((name, _)) => text.replace(object, name),
        None if is_other => partners::procedure(&text).to_owned(),
        None => text,
    }
}

/// A stack of calls as both profiles have it: each of its procedures as [`common`] has it.
fn common_path(path: &str, names: &Names) -> String {
    let frame = |frame: &str| {
        let (object, procedure) = frame.split_once(':').unwrap_or(("", frame));
        let (object, procedure) = match (names.of_name(object), names.object(0)) {
            (Some(object), _) => (object, procedure),
            // Procedures of the program have no object in front.
            (None, Some(program)) => (program, frame),
            (None, None) => return frame.to_owned(),
        };
        let (name, is_other) = object;
        let procedure = if *is_other {
            partners::procedure(procedure)
        } else {
            procedure
        };
        format!("{name}:{procedure}")
    };
    path.split(';').map(frame).collect::<Vec<_>>().join(";")
}

/// The rows that differ, with the largest change first; the numbers of rows without a partner; the sum of the values
/// before.
fn matched(name: &str, before: Rows, mut after: Rows) -> (Grid, [usize; 2], f64) {
    let mut unmatched = [0, 0];
    let whole = before.rows.values().map(|(value, _)| value).sum();
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for (key, (a, names)) in before.rows {
        let (b, names) = match after.rows.remove(&key) {
            Some((b, names)) => (Some(b), names),
            None => (None, names),
        };
        unmatched[0] += usize::from(b.is_none());
        if b.unwrap_or(0.0) != a {
            rows.push(cells([Some(a), b], names));
        }
    }
    unmatched[1] = after.rows.len();
    let new = after.rows.into_values().filter(|(b, _)| *b != 0.0);
    rows.extend(new.map(|(b, names)| cells([None, Some(b)], names)));
    let change = |row: &Vec<Cell>| row[2].number().map_or(0.0, f64::abs);
    rows.sort_by(|a, b| change(b).total_cmp(&change(a)));
    let grid = Grid {
        name: format!("{name}: {}", before.measure.name),
        heads: heads(before.keys),
        rows,
    };
    (grid, unmatched, whole)
}
