//! Tables and their columns.

use serde::{Deserialize, Serialize};
use tables::schema::{By, Follows, Role, Sum, Type};

use crate::named;
use crate::value::Value;

/// The readers for whom a table was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Readers {
    /// Programs only; the tool's report for people does not have the table.
    Programs,
    /// People and programs.
    #[default]
    #[serde(other)]
    All,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its name, which is its title, too; different for each table.
    pub name: String,
    /// What a row stands for.
    #[serde(default, with = "named")]
    pub by: By,
    /// Number of rows.
    pub rows: usize,
    /// The readers for whom it was made.
    #[serde(default)]
    pub readers: Readers,
    /// Its columns.
    pub columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, different for each column of the table.
    pub name: String,
    /// The type of its values.
    #[serde(rename = "type", default, with = "named")]
    pub kind: Type,
    /// The unit of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// What it is for.
    #[serde(default, with = "named")]
    pub role: Role,
    /// Of a measure: how the values of several runs are added up.
    #[serde(default, skip_serializing_if = "is_default", with = "named")]
    pub sum: Sum,
    /// Of a measure that follows from another table: what it is computed from in a sum of profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
    /// Of a derived column: the column that is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Of a derived column: the column by which the part is divided. If neither it nor
    /// [`whole_fact`](Self::whole_fact) is there, the part is divided by the part's sum over all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// Of a derived column: the fact by which the part is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_fact: Option<String>,
    /// Of addresses and places: for each row the index of its object. Empty if it is 0 in all rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<u32>,
    /// Of places: for each row the string of the source file, or -1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<i64>,
    /// For each row its value: a number, an offset in the object's original file, a line (0 if it is not known), or the
    /// index of a text ([`Value::Unknown`] for none, which the file has as -1). Empty if the column is derived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Value>,
}

/// The table that a number follows from. The size of a set, such as the executed lines, cannot be added up: the set of
/// several runs is the union of theirs. So it is counted in the sum of the table that has the members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Name of the table.
    pub table: String,
    /// The column that is added up, or that is not 0 in the rows that are counted; without it all rows are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Whether rows are counted or added up.
    #[serde(with = "named")]
    pub by: Follows,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Table {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The first column of this type.
    pub fn first(&self, kind: Type) -> Option<&Column> {
        self.columns.iter().find(|column| column.kind == kind)
    }

    /// The measures.
    pub fn measures(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|c| c.role == Role::Measure)
    }
}

impl Column {
    /// The index of a row's object.
    pub fn object(&self, row: usize) -> usize {
        self.objects.get(row).map_or(0, |object| *object as usize)
    }

    /// The index of the string of a row's source file; `None` if it is not known.
    pub fn file(&self, row: usize) -> Option<usize> {
        usize::try_from(*self.files.get(row)?).ok()
    }

    /// The sum of its integers, if all known values are integers and the sum fits.
    pub fn total(&self) -> Option<u64> {
        let known = |value: &&Value| **value != Value::Unknown;
        let mut values = self.values.iter().filter(known);
        values.try_fold(0u64, |sum, value| sum.checked_add(value.integer()?))
    }
}
