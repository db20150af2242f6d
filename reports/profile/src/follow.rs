//! Numbers that follow from another table: the sizes of sets, in the sum of several profiles.

use std::collections::{BTreeMap, HashMap};

use tables::schema::{Follows, Role, Type};

use crate::column::{Column, Source, Table};
use crate::value::Value;
use crate::{FactValue, Profile};

/// What a row of the other table belongs to: an object and an address in it, or a source file.
enum Groups<'p> {
    /// For the objects and addresses where rows start, the row.
    Starts(BTreeMap<(usize, u64), usize>),
    Files(HashMap<&'p str, usize>),
}

impl Profile {
    /// Computes all facts and measures that follow from tables.
    pub(crate) fn follow(&mut self) {
        for table in 0..self.tables.len() {
            for column in 0..self.tables[table].columns.len() {
                let values = match &self.tables[table].columns[column].from {
                    Some(source) => self.of_rows(&self.tables[table], source),
                    None => continue,
                };
                self.tables[table].columns[column].values = values;
            }
        }
        // Facts may follow from columns that follow.
        for i in 0..self.facts.len() {
            if let Some(source) = &self.facts[i].from {
                self.facts[i].value = FactValue::Number(self.of_all(source));
            }
        }
    }

    /// What follows from all rows.
    fn of_all(&self, source: &Source) -> Value {
        match self.members(source) {
            Some(members) => Value::Integer(members.map(|(_, n)| n).sum()),
            None => Value::Unknown,
        }
    }

    /// What follows for each row of a table from the rows that belong to it.
    fn of_rows(&self, table: &Table, source: &Source) -> Vec<Value> {
        let unknown = || vec![Value::Unknown; table.rows];
        let (Some(groups), Some(members)) = (self.groups(table), self.members(source)) else {
            return unknown();
        };
        let Some(members_of) = self.table(&source.table) else {
            return unknown();
        };
        let place = match groups {
            Groups::Starts(_) => members_of.first(Type::Address),
            Groups::Files(_) => members_of.first(Type::Place),
        };
        let Some(place) = place else {
            return unknown();
        };
        let mut sums = vec![0; table.rows];
        for (member, n) in members {
            let row = match &groups {
                Groups::Starts(starts) => place.values[member].integer().and_then(|at| {
                    let object = place.object(member);
                    let before = starts.range((object, 0)..=(object, at)).next_back();
                    before.map(|(_, row)| *row)
                }),
                Groups::Files(files) => {
                    let file = place.file(member).and_then(|file| self.strings.get(file));
                    file.and_then(|file| files.get(file.as_str()).copied())
                }
            };
            if let Some(row) = row {
                sums[row] += n;
            }
        }
        sums.into_iter().map(Value::Integer).collect()
    }

    /// The rows of a source that count, each with its number. `None` if the profile does not have the source.
    fn members<'p>(
        &'p self,
        source: &'p Source,
    ) -> Option<impl Iterator<Item = (usize, u64)> + 'p> {
        let table = self.table(&source.table)?;
        let column = match &source.column {
            Some(name) => Some(table.column(name)?),
            None => None,
        };
        if source.by == Follows::Other || source.by == Follows::Total && column.is_none() {
            return None;
        }
        let number = move |row: usize| {
            let value = column.map_or(1, |c| c.values[row].integer().unwrap_or(0));
            match source.by {
                Follows::Total => value,
                _ => u64::from(value != 0),
            }
        };
        let all = (0..table.rows).map(move |row| (row, number(row)));
        Some(all.filter(|(_, n)| *n != 0))
    }

    /// How members find their rows.
    fn groups(&self, table: &Table) -> Option<Groups<'_>> {
        let is_key = |c: &&Column| c.role == Role::Key;
        let key = table.columns.iter().find(is_key)?;
        let rows = 0..table.rows;
        match key.kind {
            Type::Address => {
                let start = |row: usize| Some(((key.object(row), key.values[row].integer()?), row));
                Some(Groups::Starts(rows.filter_map(start).collect()))
            }
            Type::Text => {
                let file = |row: usize| Some((self.text(key.values[row])?, row));
                Some(Groups::Files(rows.filter_map(file).collect()))
            }
            _ => None,
        }
    }
}
