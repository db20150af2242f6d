//! Profiles: the results of tools in one form that programs read.
//!
//! A tool writes a profile beside its report for people. The form is the same for all tools: what ran, facts about
//! the whole run, and tables whose columns tell their type, unit and role. So one reader shows, adds up,
//! compares and exports the results of any tool. `docs/profile-format.md` describes the file.
//!
//! ```
//! # let text = r#"{"format":"atom-profile","version":1,"tool":"icount","program":{"path":"/bin/true"},
//! #   "strings":["main"],"tables":[{"name":"procedures","by":"procedure","rows":1,"columns":[
//! #   {"name":"count","type":"count","role":"measure","sum":"add","values":[7]},
//! #   {"name":"procedure","type":"text","role":"label","values":[0]}]}]}"#;
//! let profile = profile::Profile::parse(text.as_bytes())?;
//! let table = profile.table("procedures").unwrap();
//! assert_eq!(table.column("count").unwrap().values[0].integer(), Some(7));
//! assert_eq!(profile.text(table.column("procedure").unwrap().values[0]), Some("main"));
//! # Ok::<(), profile::Error>(())
//! ```
#![deny(missing_docs)]

mod add;
mod column;
mod derived;
mod error;
mod follow;
mod head;
mod named;
mod read;
mod value;
mod write;

use serde::{Deserialize, Serialize};

pub use add::{Adder, LEFT_OUT, added, join};
pub use column::{Column, Readers, Source, Table};
pub use derived::fraction;
pub use error::{Error, Result};
pub use head::{Host, Object, ObjectKind, Process, Program, Scope, Time};
pub use tables::schema::{By, Follows, Role, Sum, Type};
pub use value::Value;

/// Value of the key `format` in each profile.
pub const FORMAT: &str = "atom-profile";

/// The version that this crate writes, and the newest that it reads.
pub const VERSION: u64 = 1;

/// The results of one run of a tool, or the sum of several runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: String,
    /// Version of the format.
    pub version: u64,
    /// Version of `atom`.
    #[serde(default)]
    pub atom: String,
    /// Name of the tool.
    pub tool: String,
    /// The tool's options, as the user gave them.
    #[serde(default)]
    pub options: Vec<String>,
    /// The code that the tool could see.
    #[serde(default)]
    pub scope: Scope,
    /// The program.
    pub program: Program,
    /// The process.
    #[serde(default)]
    pub process: Process,
    /// The machine.
    #[serde(default)]
    pub host: Host,
    /// The time of the run.
    #[serde(default)]
    pub time: Time,
    /// The objects of the process; the program is the first.
    #[serde(default)]
    pub objects: Vec<Object>,
    /// All texts of the tables; cells have indices into this list.
    #[serde(default)]
    pub strings: Vec<String>,
    /// Facts about the whole run.
    #[serde(default)]
    pub facts: Vec<Fact>,
    /// The tables.
    #[serde(default)]
    pub tables: Vec<Table>,
}

/// A fact about the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// The type of its value.
    #[serde(rename = "type", default, with = "named")]
    pub kind: Type,
    /// The unit of its value, such as `instructions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How the facts of several runs are added up.
    #[serde(default, with = "named")]
    pub sum: Sum,
    /// Of a fact that follows from a table: what it is computed from in a sum of profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Source>,
    /// Of a derived fact: the fact that is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Of a derived fact: the fact by which the part is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
    /// The value. A fact of type text has the text itself.
    pub value: FactValue,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FactValue {
    /// A text.
    Text(String),
    /// A number, or not known.
    Number(Value),
}

impl Fact {
    /// The number; [`Value::Unknown`] if the fact is a text.
    pub fn number(&self) -> Value {
        match &self.value {
            FactValue::Number(value) => *value,
            FactValue::Text(_) => Value::Unknown,
        }
    }
}

impl Profile {
    /// The table of this name.
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The fact of this name.
    pub fn fact(&self, name: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.name == name)
    }

    /// The text of a cell that has an index into [`Profile::strings`]; `None` if it has none.
    pub fn text(&self, value: Value) -> Option<&str> {
        let index = usize::try_from(value.integer()?).ok()?;
        self.strings.get(index).map(String::as_str)
    }

    /// The object of a row of a column of addresses or places.
    pub fn object(&self, column: &Column, row: usize) -> Option<&Object> {
        self.objects.get(column.object(row))
    }
}
