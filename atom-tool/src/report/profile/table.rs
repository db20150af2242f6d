//! Facts and tables in the profile, column by column.

use std::borrow::Cow;

use super::fixed::{FixedColumn, in_object};
use super::json::{Fragment, Json};
use super::strings::Texts;
use crate::report::column::{By, Column, Role, Sum, Type, Whole};
use crate::report::{Cell, ColumnTable, Readers, Table, Values};

/// Writes a fact.
pub fn fact(json: &mut Json, column: &Column, cell: &Cell) {
    let kind = match (column.kind, cell) {
        (_, Cell::Place { .. }) => Type::Text,
        (None, Cell::Empty) => Type::Ratio,
        (given, cell) => kind_of(given, std::iter::once(cell)),
    };
    json.open('{');
    json.key("name").text(column.name);
    json.key("type").text(kind.name());
    if !column.unit.is_empty() {
        json.key("unit").text(column.unit);
    }
    if let Some((part, Whole::Column(whole))) = column.quotient {
        json.key("part").text(part);
        json.key("whole").text(whole);
    } else if is_number(kind) {
        json.key("sum").text(sum_of(column, kind).name());
        source(json, column);
    }
    json.key("value");
    match cell {
        Cell::Text(text) => json.text(text),
        Cell::Place { .. } => json.text(&super::super::shown(cell)),
        cell => number(json, cell),
    }
    json.close('}');
}

/// Writes a table that is made of rows. `objects` is the number of the process's objects.
pub fn rows<'a>(json: &mut Json, texts: &mut Texts<'a>, table: &'a Table, objects: usize) {
    head(json, &table.title, table.by(), table.rows.len());
    let readers = match table.readers {
        Readers::Programs => "programs",
        _ => "all",
    };
    json.key("readers").text(readers);
    json.key("columns").open('[');
    let cells = |i: usize| table.rows.iter().map(move |row| row.get(i));
    let kinds: Vec<Type> = (table.columns.iter().enumerate())
        .map(|(i, column)| kind_of(column.kind, cells(i).flatten()))
        .collect();
    for (i, (column, kind)) in table.columns.iter().zip(&kinds).enumerate() {
        let role = column.role.unwrap_or_else(|| role_of(*kind, &kinds));
        column_head(json, column, *kind, role);
        if role != Role::Derived {
            let needs_objects = !kinds.contains(&Type::Address);
            let cells = cells(i).map(|cell| cell.unwrap_or(&Cell::Empty));
            match kind {
                Type::Text => {
                    json.key("values").open('[');
                    cells.for_each(|cell| match cell {
                        Cell::Text(Cow::Borrowed(text)) => json.index(Some(texts.index(text))),
                        Cell::Text(Cow::Owned(text)) => json.index(Some(texts.index(text))),
                        _ => json.index(None),
                    });
                    json.close(']');
                }
                Type::Place => places(json, texts, None, cells, needs_objects),
                Type::Address => {
                    let address = |cell: &Cell| match cell {
                        Cell::Address(address) => Some(*address),
                        _ => None,
                    };
                    addresses(json, None, cells.map(address), objects);
                }
                _ => {
                    json.key("values").open('[');
                    cells.for_each(|cell| number(json, cell));
                    json.close(']');
                }
            }
        }
        json.close('}');
    }
    json.close(']');
    json.close('}');
}

/// Writes a table that is made of columns.
pub fn columns<'a>(json: &mut Json, texts: &mut Texts<'a>, table: &'a ColumnTable, objects: usize) {
    head(json, table.title, table.by, table.rows());
    let readers = match table.readers {
        Readers::All => "all",
        _ => "programs",
    };
    json.key("readers").text(readers);
    json.key("columns").open('[');
    let is_address = |(column, _): &(Column, Values)| column.kind == Some(Type::Address);
    let has_addresses = table.columns.iter().any(is_address);
    for (column, values) in &table.columns {
        let (fixed, values) = match values {
            Values::Fixed(fixed, more) => (Some(fixed), &**more),
            values => (None, values),
        };
        let kind = match (column.kind, values) {
            (Some(kind), _) => kind,
            (None, Values::Texts(_)) => Type::Text,
            (None, Values::Places(_)) => Type::Place,
            (None, _) => Type::Count,
        };
        let role = column.role.unwrap_or_else(|| role_of(kind, &[kind]));
        column_head(json, column, kind, role);
        match values {
            _ if role == Role::Derived => {}
            Values::Numbers(all) if kind == Type::Address => {
                addresses(json, fixed, all.iter().copied().map(Some), objects);
            }
            Values::Numbers(all) => {
                open(json, "values", fixed.map(FixedColumn::values));
                all.iter().for_each(|n| json.number(*n));
                json.close(']');
            }
            Values::Texts(all) => {
                open(json, "values", fixed.map(FixedColumn::values));
                all.iter()
                    .for_each(|text| json.index(Some(texts.index(text))));
                json.close(']');
            }
            Values::Places(all) => places(json, texts, fixed, all.iter(), !has_addresses),
            // Columns that were made before have no others in front of them.
            Values::Fixed(..) => {}
        }
        json.close('}');
    }
    json.close(']');
    json.close('}');
}

/// Opens an array under a key, with the values that were compressed before.
fn open(json: &mut Json, key: &str, fixed: Option<Fragment>) {
    json.key(key).open('[');
    if let Some(fragment) = fixed.filter(|fragment| fragment.len != 0) {
        json.fragment(fragment);
    }
}

fn head(json: &mut Json, title: &str, by: By, rows: usize) {
    json.open('{');
    json.key("name").text(title);
    json.key("by").text(by.name());
    json.key("rows").number(rows as u64);
}

/// Opens a column and writes all but its values.
fn column_head(json: &mut Json, column: &Column, kind: Type, role: Role) {
    json.open('{');
    json.key("name").text(column.name);
    json.key("type").text(kind.name());
    if !column.unit.is_empty() {
        json.key("unit").text(column.unit);
    }
    json.key("role").text(role.name());
    if role == Role::Measure {
        json.key("sum").text(sum_of(column, kind).name());
        source(json, column);
    }
    if let Some((part, whole)) = column.quotient {
        json.key("part").text(part);
        match whole {
            Whole::All => json.key("whole").null(),
            Whole::Column(name) => json.key("whole").text(name),
            Whole::Fact(name) => json.key("whole_fact").text(name),
        }
    }
}

/// Writes what a number follows from.
fn source(json: &mut Json, column: &Column) {
    let Some(source) = column.from else { return };
    json.key("from").open('{');
    json.key("table").text(source.table);
    if let Some(column) = source.column {
        json.key("column").text(column);
    }
    json.key("by").text(source.by.name());
    json.close('}');
}

/// The type of a column: the given one, or the one of its first cell that is not empty.
fn kind_of<'a>(given: Option<Type>, mut cells: impl Iterator<Item = &'a Cell>) -> Type {
    let of_cell = |cell: &Cell| match cell {
        Cell::Text(_) => Some(Type::Text),
        Cell::Number(_) => Some(Type::Count),
        Cell::Ratio(_) => Some(Type::Ratio),
        Cell::Address(_) => Some(Type::Address),
        Cell::Place { .. } => Some(Type::Place),
        Cell::Empty => None,
    };
    given.unwrap_or_else(|| cells.find_map(of_cell).unwrap_or(Type::Count))
}

/// The role of a column whose tool has given none. `all` has the types of the table's columns.
fn role_of(kind: Type, all: &[Type]) -> Role {
    let has = |kind: Type| all.contains(&kind);
    match kind {
        Type::Address => Role::Key,
        Type::Place if has(Type::Address) => Role::Label,
        Type::Text if has(Type::Address) || has(Type::Place) => Role::Label,
        Type::Place | Type::Text => Role::Key,
        _ => Role::Measure,
    }
}

fn is_number(kind: Type) -> bool {
    !matches!(kind, Type::Address | Type::Place | Type::Text)
}

fn sum_of(column: &Column, kind: Type) -> Sum {
    column.sum.unwrap_or(match kind {
        Type::Count | Type::Bytes | Type::Seconds => Sum::Add,
        _ => Sum::None,
    })
}

fn number(json: &mut Json, cell: &Cell) {
    match cell {
        Cell::Number(n) => json.number(*n),
        Cell::Ratio(x) => json.float(*x),
        Cell::Address(address) => json.address(*address),
        Cell::Text(_) | Cell::Place { .. } | Cell::Empty => json.null(),
    }
}

/// Writes the objects and the values of a column of addresses; `fixed` has the first rows.
fn addresses(
    json: &mut Json,
    fixed: Option<&FixedColumn>,
    all: impl Iterator<Item = Option<u64>> + Clone,
    objects: usize,
) {
    let object = |address: Option<u64>| address.map_or(0, |address| in_object(address, objects).0);
    let is_elsewhere = |address: Option<u64>| object(address) != 0;
    if fixed.is_some() && objects > 1 || all.clone().any(is_elsewhere) {
        open(json, "objects", fixed.map(FixedColumn::objects));
        all.clone().for_each(|address| json.number(object(address)));
        json.close(']');
    }
    open(json, "values", fixed.map(FixedColumn::values));
    all.for_each(|address| match address {
        Some(address) => json.address(in_object(address, objects).1),
        None => json.null(),
    });
    json.close(']');
}

/// Writes the files and the lines of a column of places, and the objects if `needs_objects`; `fixed` has the first rows.
fn places<'a>(
    json: &mut Json,
    texts: &mut Texts<'a>,
    fixed: Option<&FixedColumn>,
    cells: impl Iterator<Item = &'a Cell> + Clone,
    needs_objects: bool,
) {
    let object = |cell: &Cell| match cell {
        Cell::Place { object, .. } => *object,
        _ => 0,
    };
    if needs_objects && (fixed.is_some() || cells.clone().any(|cell| object(cell) != 0)) {
        open(json, "objects", fixed.map(FixedColumn::objects));
        let numbers = cells.clone().map(object);
        numbers.for_each(|number| json.number(number.into()));
        json.close(']');
    }
    open(json, "files", fixed.map(FixedColumn::files));
    cells.clone().for_each(|cell| match cell {
        Cell::Place { file, .. } => json.index(Some(texts.index(file))),
        _ => json.index(None),
    });
    json.close(']');
    open(json, "values", fixed.map(FixedColumn::values));
    cells.for_each(|cell| match cell {
        Cell::Place { line, .. } => json.number((*line).into()),
        _ => json.number(0),
    });
    json.close(']');
}
