//! Measures by object, procedure, file, line or instruction, from the finest table that has what is needed.
//!
//! Blocks become instructions and lines with the object's own file: its instructions are decoded, and its
//! debug information gives their lines. So the file must be the one that ran.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use atom_core::image::debug::DebugLines;
use atom_core::image::{Image, LineSource};
use atom_core::unwind::go::GoTable;
use atom_core::{Error, Result};
use clap::ValueEnum;
use iced_x86::{Decoder, DecoderOptions};
use profile::{By, Profile, Role, Sum, Table, Type, Value};

use super::grid::{Cell, Grid, Head};

/// What rows stand for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Unit {
    Object,
    Procedure,
    File,
    Line,
    Instruction,
}

/// A part of the code with its values, one for each measure.
#[derive(Clone)]
pub struct Spot {
    pub object: usize,
    pub at: u64,
    pub procedure: String,
    pub file: String,
    pub line: u64,
    pub values: Vec<Value>,
}

/// Measures and their values at places of the code, and what could not be found out.
pub struct Spots {
    pub heads: Vec<Head>,
    pub all: Vec<Spot>,
    pub notes: Vec<String>,
}

/// Regroups a profile's measures. `name` chooses the table.
pub fn by(profile: &Profile, unit: Unit, name: Option<&str>) -> Result<(Grid, Vec<String>)> {
    let spots = spots(profile, unit, name)?;
    let mut groups: BTreeMap<Vec<u64>, Spot> = BTreeMap::new();
    let mut files: HashMap<String, u64> = HashMap::new();
    let mut number = |text: &str| {
        let next = files.len() as u64;
        *files.entry(text.to_owned()).or_insert(next)
    };
    for spot in spots.all {
        let object = spot.object as u64;
        let key = match unit {
            Unit::Object => vec![object],
            Unit::Procedure => vec![object, number(&spot.procedure)],
            Unit::File => vec![object, number(&spot.file)],
            Unit::Line => vec![object, number(&spot.file), spot.line],
            Unit::Instruction => vec![object, spot.at],
        };
        match groups.get_mut(&key) {
            None => {
                groups.insert(key, spot);
            }
            Some(known) => {
                for ((sum, value), head) in
                    known.values.iter_mut().zip(spot.values).zip(&spots.heads)
                {
                    *sum = profile::added(head.sum, *sum, value);
                }
                known.at = known.at.min(spot.at);
            }
        }
    }
    let keys = match unit {
        Unit::Object => vec![Head::key("object", Type::Text)],
        Unit::Procedure => vec![
            Head::key("object", Type::Text),
            Head::key("procedure", Type::Text),
        ],
        Unit::File => vec![
            Head::key("object", Type::Text),
            Head::key("file", Type::Text),
        ],
        Unit::Line => vec![
            Head::key("line", Type::Place),
            Head::key("procedure", Type::Text),
        ],
        Unit::Instruction => vec![
            Head::key("pc", Type::Address),
            Head::key("procedure", Type::Text),
        ],
    };
    let object = |n: usize| profile.objects.get(n).map_or("", |o| &*o.name).to_owned();
    let unknown = |text: String| {
        if text.is_empty() {
            "(unknown)".to_owned()
        } else {
            text
        }
    };
    let mut rows: Vec<Vec<Cell>> = Vec::with_capacity(groups.len());
    for spot in groups.into_values() {
        let mut cells: Vec<Cell> = spot.values.iter().copied().map(Cell::Number).collect();
        let n = spot.object;
        cells.extend(match unit {
            Unit::Object => vec![Cell::Text(object(n))],
            Unit::Procedure => vec![Cell::Text(object(n)), Cell::Text(unknown(spot.procedure))],
            Unit::File => vec![Cell::Text(object(n)), Cell::Text(unknown(spot.file))],
            Unit::Line => match spot.line {
                0 => vec![
                    Cell::Text(format!("(no line) {}", object(n))),
                    Cell::Text(String::new()),
                ],
                line => vec![Cell::Place(spot.file, line, n), Cell::Text(spot.procedure)],
            },
            Unit::Instruction => vec![Cell::Address(n, spot.at), Cell::Text(spot.procedure)],
        });
        rows.push(cells);
    }
    let heads = spots.heads.into_iter().chain(keys).collect();
    let mut grid = Grid {
        name: format!("by {}", format!("{unit:?}").to_lowercase()),
        heads,
        rows,
    };
    add_share(&mut grid);
    Ok((grid, spots.notes))
}

/// Adds the share of the first measure after it.
fn add_share(grid: &mut Grid) {
    let Some(first) = grid.measure() else { return };
    let sum: f64 = grid.rows.iter().filter_map(|row| row[first].number()).sum();
    let mut head = grid.heads[first].clone();
    head.quotient = Some((head.name, None));
    (head.name, head.kind, head.role) = ("%".into(), Type::Percent, Role::Derived);
    grid.heads.insert(first + 1, head);
    for row in &mut grid.rows {
        let part: Value = row[first].number().into();
        let share = profile::fraction(Type::Percent, part, Value::Float(sum));
        row.insert(first + 1, Cell::Number(share));
    }
}

/// The finest table by code that has measures, and what its rows stand for.
fn finest<'p>(profile: &'p Profile, unit: Unit, name: Option<&str>) -> Option<&'p Table> {
    // Rows of other kinds, such as pairs of a caller and a callee, may be about places of the code.
    let has_place = |t: &Table| t.first(Type::Address).or(t.first(Type::Place)).is_some();
    let has_rows =
        |t: &&Table| t.measures().any(|c| c.sum == Sum::Add) && (t.by != By::Other || has_place(t));
    let order: &[By] = match unit {
        Unit::Procedure => &[
            By::Procedure,
            By::Block,
            By::Branch,
            By::Instruction,
            By::Line,
            By::Other,
        ],
        Unit::Line | Unit::File => &[By::Line, By::Instruction, By::Block, By::Branch, By::Other],
        Unit::Instruction => &[By::Instruction, By::Block, By::Branch, By::Other],
        Unit::Object => &[
            By::Procedure,
            By::Block,
            By::Instruction,
            By::Branch,
            By::Line,
            By::Other,
        ],
    };
    let tables = || profile.tables.iter().filter(has_rows);
    if let Some(name) = name {
        return tables().find(|t| t.name == name);
    }
    order.iter().find_map(|by| tables().find(|t| t.by == *by))
}

/// The measures of the finest table at places of the code.
pub fn spots(profile: &Profile, unit: Unit, name: Option<&str>) -> Result<Spots> {
    let needs = format!("{} measures nothing by {unit:?}", profile.tool).to_lowercase();
    let Some(table) = finest(profile, unit, name) else {
        return Err(
            Error::new("regrouping", needs).advice("leave --by out to see the tables there are")
        );
    };
    let is_fine = matches!(unit, Unit::File | Unit::Line | Unit::Instruction);
    let is_block = table.by == By::Block && is_fine;
    let address = table
        .columns
        .iter()
        .find(|c| c.kind == Type::Address && c.role == Role::Key);
    let place = table.first(Type::Place);
    let text = |name: &str| table.column(name).filter(|c| c.kind == Type::Text);
    let procedure = (text("procedure").or(text("caller"))).or_else(|| table.first(Type::Text));
    // Of a block only what counts each of its instructions can be told apart.
    let insts = table.column("insts").filter(|_| is_block);
    let columns: Vec<_> = (table.measures())
        .filter(|c| c.sum == Sum::Add)
        .filter(|c| insts.is_none() || c.unit.as_deref() == Some("instructions"))
        .collect();
    if address.is_none() && place.is_none() || columns.is_empty() {
        return Err(Error::new("regrouping", needs));
    }
    let grid = Grid::of(profile, table);
    let heads: Vec<Head> = columns
        .iter()
        .filter_map(|c| Some(grid.heads[grid.find(&c.name)?].clone()))
        .collect();
    let mut all = Vec::with_capacity(table.rows);
    let mut blocks = Vec::new();
    for row in 0..table.rows {
        let text = |c: &profile::Column| profile.text(c.values[row]).unwrap_or_default().to_owned();
        let object = address.or(place).map_or(0, |c| c.object(row));
        let mut spot = Spot {
            object,
            at: address.and_then(|c| c.values[row].integer()).unwrap_or(0),
            procedure: procedure.map(text).unwrap_or_default(),
            file: String::new(),
            line: 0,
            values: columns.iter().map(|c| c.values[row]).collect(),
        };
        if let Some(place) = place.filter(|_| table.by != By::Procedure) {
            let file = place.file(row).and_then(|f| profile.strings.get(f));
            spot.file = file.cloned().unwrap_or_default();
            spot.line = place.values[row].integer().unwrap_or(0);
        }
        blocks.push(insts.and_then(|c| c.values[row].integer()).unwrap_or(1));
        all.push(spot);
    }
    let mut spots = Spots {
        heads,
        all,
        notes: Vec::new(),
    };
    let has_lines = place.is_some() && table.by != By::Procedure;
    if is_fine && (is_block || !has_lines && unit != Unit::Instruction) {
        refine(profile, &mut spots, &blocks, unit);
    }
    Ok(spots)
}

/// Makes instructions of blocks, and finds lines, by the files of the objects.
fn refine(profile: &Profile, spots: &mut Spots, blocks: &[u64], unit: Unit) {
    let mut by_object: BTreeMap<usize, Vec<(Spot, u64)>> = BTreeMap::new();
    for (spot, insts) in std::mem::take(&mut spots.all).into_iter().zip(blocks) {
        by_object
            .entry(spot.object)
            .or_default()
            .push((spot, *insts));
    }
    for (number, list) in by_object {
        let Some(object) = profile.objects.get(number) else {
            continue;
        };
        let image = match open(object) {
            Ok(image) => image,
            Err(reason) => {
                spots.notes.push(reason);
                spots.all.extend(list.into_iter().map(|(spot, _)| spot));
                continue;
            }
        };
        let go = GoTable::read(&image).ok().flatten();
        let lines = DebugLines::or(&image, go.as_ref().map(|go| go as &dyn LineSource));
        let needs_lines = unit != Unit::Instruction;
        if needs_lines && lines.is_empty() {
            spots.notes.push(format!(
                "{} has no debug information: its code has no lines",
                object.name
            ));
        }
        for (spot, insts) in list {
            let code = image.rest_at(spot.at).unwrap_or_default();
            let mut decoder = Decoder::with_ip(64, code, spot.at, DecoderOptions::NONE);
            let share = |value: &Value| match value {
                Value::Integer(n) => Value::Integer(n / insts.max(1)),
                other => *other,
            };
            let values: Vec<Value> = spot.values.iter().map(share).collect();
            for _ in 0..insts.max(1) {
                let at = decoder.ip();
                let mut one = Spot {
                    at,
                    values: values.clone(),
                    ..spot.clone()
                };
                if needs_lines && let Some((file, line)) = lines.line_of(at) {
                    (one.file, one.line) = (file.to_owned(), line.into());
                }
                spots.all.push(one);
                if !decoder.can_decode() {
                    break;
                }
                let _ = decoder.decode();
            }
        }
    }
}

/// The file of an object, if it is the one that ran.
pub fn open(object: &profile::Object) -> std::result::Result<Image, String> {
    let path = Path::new(&object.path);
    let image = Image::read(path).map_err(|e| e.to_string())?;
    let found = image.build_id().map(hexadecimal);
    match (&object.build_id, found) {
        (Some(wanted), Some(found)) if *wanted != found => Err(format!(
            "{}: the file is another one than the one that ran: its build-id differs",
            path.display()
        )),
        _ => Ok(image),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
