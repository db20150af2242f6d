//! The places in the code to which the rows of a profile's table belong.

use profile::{Column, Profile, Role, Table, Type};
use rustc_hash::FxHashMap;

use crate::cells::{NO_INTEGER, NO_TEXT, Names, integer};
use crate::schema::{INTEGERS, TEXTS};

/// Columns of texts in the order of [`COLUMNS`](crate::schema::COLUMNS).
const OBJECT: usize = 0;
const BUILD_ID: usize = 1;
const PROCEDURE: usize = 2;
const FILE: usize = 3;
const CALLEE_OBJECT: usize = 4;
const CALLEE: usize = 5;
const DETAIL: usize = 6;

/// Columns of integers in the same order.
const ADDRESS: usize = 0;
const LINE: usize = 1;
const CALLEE_ADDRESS: usize = 2;

/// Places of the rows of one table, by column.
pub struct Places<'p> {
    profile: &'p Profile,
    /// Numbers of the profile's strings, where they are known already.
    strings: Vec<Option<u32>>,
    /// Numbers of name and build-id for each object of the profile, once they are known.
    objects: Vec<(u32, u32)>,
    /// Numbers of details by the numbers of their parts.
    details: FxHashMap<Vec<u32>, u32>,
    pub texts: [Vec<u32>; TEXTS],
    /// The columns of integers but for the value, which comes last.
    pub integers: [Vec<i64>; INTEGERS - 1],
}

/// The columns of a table that say which place a row is about.
struct Parts<'t> {
    address: Option<&'t Column>,
    place: Option<&'t Column>,
    procedure: Option<&'t Column>,
    callee_address: Option<&'t Column>,
    callee: Option<&'t Column>,
    details: Vec<&'t Column>,
}

impl<'t> Parts<'t> {
    fn of(table: &'t Table) -> Self {
        let is_stored = |c: &&Column| c.values.len() == table.rows;
        let of_kind = |kind: Type| {
            let columns = table.columns.iter().filter(is_stored);
            columns.filter(move |c| c.kind == kind)
        };
        let mut addresses = of_kind(Type::Address).filter(|c| c.role == Role::Key);
        let named = |names: &[&str]| of_kind(Type::Text).find(|c| names.contains(&&*c.name));
        let procedure = named(&["procedure", "caller"]);
        let callee = named(&["callee"]);
        let is_other = |c: &&Column| {
            let known = [procedure, callee];
            !known.iter().flatten().any(|k| k.name == c.name)
        };
        Self {
            address: addresses.next(),
            callee_address: addresses.next(),
            place: of_kind(Type::Place).next(),
            procedure,
            callee,
            details: of_kind(Type::Text).filter(is_other).collect(),
        }
    }
}

impl<'p> Places<'p> {
    /// Places of the tables of a profile.
    pub fn new(profile: &'p Profile) -> Self {
        Self {
            profile,
            strings: vec![None; profile.strings.len()],
            objects: Vec::new(),
            details: FxHashMap::default(),
            texts: Default::default(),
            integers: Default::default(),
        }
    }

    /// Finds the places of a table's rows, in the order that it returns: by object and address, or by source file and line.
    /// Neighbours in the code are alike, so their columns become small.
    pub fn of_table(&mut self, table: &Table, names: &mut Names) -> Vec<u32> {
        let parts = Parts::of(table);
        let mut order: Vec<u32> = (0..table.rows as u32).collect();
        let at = |column: Option<&Column>, row: usize| {
            let value = |c: &Column| (c.object(row), c.values[row].integer());
            column.map(value)
        };
        order.sort_by_cached_key(|row| {
            let row = *row as usize;
            let file = parts.place.and_then(|c| c.file(row));
            let callee = at(parts.callee_address, row);
            (
                at(parts.address, row),
                file,
                at(parts.place, row),
                callee,
                row,
            )
        });
        self.texts.iter_mut().for_each(Vec::clear);
        self.integers.iter_mut().for_each(Vec::clear);
        // Another table has other columns of details.
        self.details.clear();
        if self.objects.is_empty() {
            self.objects = (self.profile.objects.iter())
                .map(|o| (names.number(&o.name), names.maybe(o.build_id.as_deref())))
                .collect();
        }
        for row in &order {
            self.row(&parts, *row as usize, names);
        }
        order
    }

    fn row(&mut self, parts: &Parts, row: usize, names: &mut Names) {
        let number = |column: Option<&Column>| {
            let value = column.and_then(|c| c.values[row].integer());
            value.map_or(NO_INTEGER, integer)
        };
        let line = match number(parts.place) {
            0 => NO_INTEGER,
            line => line,
        };
        let (object, build_id) = self.object(parts.address.or(parts.place), row);
        let (callee_object, _) = self.object(parts.callee_address, row);
        let file = parts.place.and_then(|c| c.file(row));
        let file = self.string(file, names);
        let procedure = self.text(parts.procedure, row, names);
        let callee = self.text(parts.callee, row, names);
        let detail = self.detail(&parts.details, row, names);
        self.texts[OBJECT].push(object);
        self.texts[BUILD_ID].push(build_id);
        self.texts[PROCEDURE].push(procedure);
        self.texts[FILE].push(file);
        self.texts[CALLEE_OBJECT].push(callee_object);
        self.texts[CALLEE].push(callee);
        self.texts[DETAIL].push(detail);
        self.integers[ADDRESS].push(number(parts.address));
        self.integers[LINE].push(line);
        self.integers[CALLEE_ADDRESS].push(number(parts.callee_address));
    }

    /// The numbers of the name and of the build-id of a row's object.
    fn object(&self, column: Option<&Column>, row: usize) -> (u32, u32) {
        let index = column.map(|c| c.object(row));
        let known = index.and_then(|i| self.objects.get(i));
        known.copied().unwrap_or((NO_TEXT, NO_TEXT))
    }

    /// The number of a string of the profile.
    fn string(&mut self, index: Option<usize>, names: &mut Names) -> u32 {
        let Some(number) = index.and_then(|i| self.strings.get_mut(i)) else {
            return NO_TEXT;
        };
        let index = index.unwrap_or_default();
        *number.get_or_insert_with(|| names.maybe(Some(&self.profile.strings[index])))
    }

    /// The number of the text in a cell.
    fn text(&mut self, column: Option<&Column>, row: usize, names: &mut Names) -> u32 {
        let index = column.and_then(|c| c.values[row].integer());
        self.string(index.and_then(|i| usize::try_from(i).ok()), names)
    }

    /// The number of `NAME=TEXT; NAME=TEXT`, for all columns of texts that have no column in the file.
    fn detail(&mut self, columns: &[&Column], row: usize, names: &mut Names) -> u32 {
        if columns.is_empty() {
            return NO_TEXT;
        }
        let numbers: Vec<u32> = (columns.iter())
            .map(|column| self.text(Some(column), row, names))
            .collect();
        if let Some(known) = self.details.get(&numbers) {
            return *known;
        }
        let shown = |column: &&Column| {
            let text = self.profile.text(column.values[row])?;
            (!text.is_empty()).then(|| format!("{}={text}", column.name))
        };
        let parts: Vec<String> = columns.iter().filter_map(shown).collect();
        let number = names.maybe(Some(&parts.join("; ")));
        self.details.insert(numbers, number);
        number
    }
}
