//! Measures put together by object, procedure, function, file, line or instruction.
//!
//! One line may have code in many procedures, into which its function is inlined. So a line has the name of the function
//! whose source it is, and the number of its procedures if there are several. A filter chooses code before it is put
//! together: filtered by a procedure, a line has what it costs in that procedure, and a procedure that is filtered by a
//! line has what the line costs in it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use atom_core::Result;
use profile::{Profile, Role, Type, Value};

use super::grid::{Cell, Grid, Head, covers};
use super::spots::{Spot, Spots, Unit, spots};

/// Before the name of an object in the row of its code without lines.
pub const NO_LINE: &str = "(no line) ";

/// Code that is one row.
struct Group {
    spot: Spot,
    /// Names of the functions whose source it is, and of the procedures that contain it.
    functions: BTreeSet<String>,
    procedures: BTreeSet<String>,
}

impl Group {
    fn new(spot: Spot) -> Self {
        let mut group = Self {
            spot,
            functions: BTreeSet::new(),
            procedures: BTreeSet::new(),
        };
        let (function, procedure) = (&group.spot.function, &group.spot.procedure);
        group.functions.extend([function.clone()]);
        group.procedures.extend([procedure.clone()]);
        group
    }

    fn add(&mut self, spot: Spot, heads: &[Head]) {
        let known = &mut self.spot;
        for ((sum, value), head) in known.values.iter_mut().zip(spot.values).zip(heads) {
            *sum = profile::added(head.sum, *sum, value);
        }
        known.at = known.at.min(spot.at);
        if !self.functions.contains(&spot.function) {
            self.functions.insert(spot.function);
        }
        if !self.procedures.contains(&spot.procedure) {
            self.procedures.insert(spot.procedure);
        }
    }
}

/// One name, or how many there are.
fn one_or_number(mut names: BTreeSet<String>, what: &str) -> String {
    match names.len() {
        0 | 1 => names.pop_first().unwrap_or_default(),
        n => format!("{n} {what}s"),
    }
}

/// Regroups a profile's measures. `name` chooses the table; only code that `filter` covers is in it. Shares are those
/// of all code.
pub fn by(
    profile: &Profile,
    unit: Unit,
    name: Option<&str>,
    filter: Option<&str>,
) -> Result<(Grid, Vec<String>)> {
    let mut spots = spots(profile, unit, name)?;
    let mut whole = whole(&spots);
    if let Some(pattern) = filter {
        // A table of procedures has no lines.
        let is_coarse = matches!(unit, Unit::Object | Unit::Procedure);
        if is_coarse && !spots.all.iter().any(|s| is_covered(profile, s, pattern)) {
            spots = self::spots(profile, Unit::Line, name)?;
            whole = self::whole(&spots);
        }
        let is_of_function = !spots.all.iter().any(|s| is_covered(profile, s, pattern));
        spots.all.retain(|spot| {
            if is_of_function {
                covers(pattern, &spot.function)
            } else {
                is_covered(profile, spot, pattern)
            }
        });
    }
    let mut groups: BTreeMap<Vec<u64>, Group> = BTreeMap::new();
    let mut files: HashMap<String, u64> = HashMap::new();
    let mut number = |text: &str| {
        let next = files.len() as u64;
        *files.entry(text.to_owned()).or_insert(next)
    };
    for spot in std::mem::take(&mut spots.all) {
        let object = spot.object as u64;
        let key = match unit {
            Unit::Object => vec![object],
            Unit::Procedure => vec![object, number(&spot.procedure)],
            Unit::Function => vec![object, number(&spot.function)],
            Unit::File => vec![object, number(&spot.file)],
            Unit::Line => vec![object, number(&spot.file), spot.line],
            Unit::Instruction => vec![object, spot.at],
        };
        match groups.get_mut(&key) {
            None => {
                groups.insert(key, Group::new(spot));
            }
            Some(known) => known.add(spot, &spots.heads),
        }
    }
    Ok((
        grid(profile, unit, groups, &spots.heads, whole),
        spots.notes,
    ))
}

/// The sum of the first measure.
fn whole(spots: &Spots) -> f64 {
    let first = |spot: &Spot| spot.values.first().and_then(|value| value.float());
    spots.all.iter().filter_map(first).sum()
}

/// True if the pattern covers the object, procedure, file, line or address.
fn is_covered(profile: &Profile, spot: &Spot, pattern: &str) -> bool {
    let object = profile.objects.get(spot.object);
    object.is_some_and(|object| covers(pattern, &object.name))
        || covers(pattern, &spot.procedure)
        || covers(pattern, &spot.file)
        || spot.line != 0 && is_line(pattern, &spot.file, spot.line)
        || spot.at != 0 && covers(pattern, &Cell::Address(spot.object, spot.at).plain(profile))
}

/// True if a pattern is a file's name, perhaps without its folder, and a line of it: `app.c:12`.
fn is_line(pattern: &str, file: &str, line: u64) -> bool {
    let Some((name, number)) = pattern.rsplit_once(':') else {
        return false;
    };
    if number.parse() != Ok(line) {
        return false;
    }
    let last = file.rsplit('/').next().unwrap_or(file);
    file == name || last == name || name.contains(['*', '?', '/']) && covers(name, file)
}

/// The rows as a grid.
fn grid(
    profile: &Profile,
    unit: Unit,
    groups: BTreeMap<Vec<u64>, Group>,
    heads: &[Head],
    whole: f64,
) -> Grid {
    let keys = match unit {
        Unit::Object => vec![Head::key("object", Type::Text)],
        Unit::Procedure => vec![
            Head::key("object", Type::Text),
            Head::key("procedure", Type::Text),
        ],
        Unit::Function => vec![
            Head::key("object", Type::Text),
            Head::key("function", Type::Text),
            Head::label("procedure"),
        ],
        Unit::File => vec![
            Head::key("object", Type::Text),
            Head::key("file", Type::Text),
        ],
        Unit::Line => vec![
            Head::key("line", Type::Place),
            Head::label("function"),
            Head::label("procedure"),
        ],
        Unit::Instruction => vec![Head::key("pc", Type::Address), Head::label("procedure")],
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
    for group in groups.into_values() {
        let spot = group.spot;
        let mut cells: Vec<Cell> = spot.values.iter().copied().map(Cell::Number).collect();
        let n = spot.object;
        let procedures = || Cell::Text(one_or_number(group.procedures, "procedure"));
        cells.extend(match unit {
            Unit::Object => vec![Cell::Text(object(n))],
            Unit::Procedure => vec![Cell::Text(object(n)), Cell::Text(unknown(spot.procedure))],
            Unit::Function => {
                let function = Cell::Text(unknown(spot.function));
                vec![Cell::Text(object(n)), function, procedures()]
            }
            Unit::File => vec![Cell::Text(object(n)), Cell::Text(unknown(spot.file))],
            Unit::Line => {
                let function = Cell::Text(one_or_number(group.functions, "function"));
                let place = match spot.line {
                    0 => Cell::Text(format!("{NO_LINE}{}", object(n))),
                    line => Cell::Place(spot.file, line, n),
                };
                vec![place, function, procedures()]
            }
            Unit::Instruction => vec![Cell::Address(n, spot.at), Cell::Text(spot.procedure)],
        });
        rows.push(cells);
    }
    let mut grid = Grid {
        name: format!("by {}", format!("{unit:?}").to_lowercase()),
        heads: heads.iter().cloned().chain(keys).collect(),
        rows,
    };
    add_share(&mut grid, whole);
    grid
}

/// Adds the share of the first measure after it, in a whole.
fn add_share(grid: &mut Grid, whole: f64) {
    let Some(first) = grid.measure() else { return };
    let mut head = grid.heads[first].clone();
    head.quotient = Some((head.name, None));
    (head.name, head.kind, head.role) = ("%".into(), Type::Percent, Role::Derived);
    grid.heads.insert(first + 1, head);
    for row in &mut grid.rows {
        let part: Value = row[first].number().into();
        let share = profile::fraction(Type::Percent, part, Value::Float(whole));
        row.insert(first + 1, Cell::Number(share));
    }
}
