//! The measures of a profile at places of the code, from the finest table that has what is needed.
//!
//! Blocks become instructions and lines with the object's own file: its instructions are decoded, and its
//! debug information gives their lines. So the file must be the one that ran.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use atom_core::image::debug::DebugLines;
use atom_core::image::{Image, LineSource};
use atom_core::tool::demangle;
use atom_core::unwind::go::GoTable;
use atom_core::{Error, Result};
use clap::ValueEnum;
use iced_x86::{Decoder, DecoderOptions};
use profile::{By, Profile, Readers, Role, Sum, Table, Type, Value};

use super::grid::{Grid, Head};

/// What rows stand for.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Unit {
    Object,
    Procedure,
    Function,
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
    /// The function whose source the line is: one that was inlined, or the procedure. Empty if it was not asked for.
    pub function: String,
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

/// The tables by code that have measures, the finest first.
fn finest<'p>(profile: &'p Profile, unit: Unit, name: Option<&str>) -> Vec<&'p Table> {
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
        // Instructions are in one procedure each, lines are not.
        Unit::Function | Unit::Line | Unit::File => {
            &[By::Instruction, By::Line, By::Block, By::Branch, By::Other]
        }
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
        return tables().filter(|t| t.name == name).take(1).collect();
    }
    let first = |by: &By| tables().find(|t| t.by == *by);
    order.iter().filter_map(first).collect()
}

/// The measures of the finest table at places of the code.
pub fn spots(profile: &Profile, unit: Unit, name: Option<&str>) -> Result<Spots> {
    let needs = format!("{} measures nothing by {unit:?}", profile.tool).to_lowercase();
    let tables = finest(profile, unit, name);
    let Some(first) = tables.first() else {
        return Err(
            Error::new("regrouping", needs).advice("leave --by out to see the tables there are")
        );
    };
    let found = of_table(profile, first, unit, &needs)?;
    // The tool's own lines, where the objects are not on this machine.
    match tables.iter().find(|table| table.by == By::Line) {
        Some(lines) if first.by == By::Instruction && !found.notes.is_empty() => {
            of_table(profile, lines, unit, &needs)
        }
        _ => Ok(found),
    }
}

/// The measures of a table.
fn of_table(profile: &Profile, table: &Table, unit: Unit, needs: &str) -> Result<Spots> {
    let is_fine = !matches!(unit, Unit::Object | Unit::Procedure);
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
    // The first measure of what people read is first here.
    let main = profile
        .tables
        .iter()
        .find(|t| t.by == By::Procedure && t.readers == Readers::All);
    let place_of = |name: &str| {
        let places = main.and_then(|t| t.columns.iter().position(|c| c.name == name));
        places.unwrap_or(usize::MAX)
    };
    let mut columns: Vec<_> = (table.measures())
        .filter(|c| c.sum == Sum::Add)
        .filter(|c| insts.is_none() || c.unit.as_deref() == Some("instructions"))
        .collect();
    columns.sort_by_key(|c| place_of(&c.name));
    if address.is_none() && place.is_none() || columns.is_empty() {
        return Err(Error::new("regrouping", needs));
    }
    let grid = Grid::of(profile, table);
    let heads: Vec<Head> = columns
        .iter()
        .filter_map(|c| Some(grid.heads[grid.find(&c.name)?].clone()))
        .collect();
    let names = procedure.is_none().then(|| Names::of(profile));
    let mut all = Vec::with_capacity(table.rows);
    let mut blocks = Vec::new();
    for row in 0..table.rows {
        let text = |c: &profile::Column| profile.text(c.values[row]).unwrap_or_default().to_owned();
        let object = address.or(place).map_or(0, |c| c.object(row));
        let at = address.and_then(|c| c.values[row].integer()).unwrap_or(0);
        let name = || names.as_ref().and_then(|names| names.at(object, at));
        let mut spot = Spot {
            object,
            at,
            procedure: procedure.map(text).or_else(name).unwrap_or_default(),
            function: String::new(),
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

/// Names of procedures by the object and the address where they start.
struct Names<'p>(BTreeMap<(usize, u64), &'p str>);

impl<'p> Names<'p> {
    /// The procedures of a profile's tables.
    fn of(profile: &'p Profile) -> Self {
        let mut names = BTreeMap::new();
        for table in profile.tables.iter().filter(|t| t.by == By::Procedure) {
            let (Some(pc), Some(name)) = (table.first(Type::Address), table.column("procedure"))
            else {
                continue;
            };
            for row in 0..table.rows {
                if let (Some(at), Some(name)) =
                    (pc.values[row].integer(), profile.text(name.values[row]))
                {
                    names.insert((pc.object(row), at), name);
                }
            }
        }
        Self(names)
    }

    /// The procedure of an instruction that was measured: the last that starts at or before it.
    fn at(&self, object: usize, at: u64) -> Option<String> {
        let (_, name) = self.0.range((object, 0)..=(object, at)).next_back()?;
        Some((*name).to_owned())
    }
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
        let mut functions: HashMap<(String, String, u32), String> = HashMap::new();
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
                if needs_lines {
                    one.function.clone_from(&spot.procedure);
                }
                if needs_lines && let Some((file, line)) = lines.line_of(at) {
                    let key = (spot.procedure.clone(), file.to_owned(), line);
                    let function = functions.entry(key).or_insert_with(|| {
                        let frames = lines.functions_at(at);
                        let name = frames.first().map(|frame| demangle(&frame.function));
                        let name = name.filter(|name| !name.is_empty());
                        name.unwrap_or_else(|| spot.procedure.clone())
                    });
                    (one.function, one.file) = (function.clone(), file.to_owned());
                    one.line = line.into();
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
