//! Reading: plain or compressed, with a clear error for everything else.

use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::Deserialize;
use tables::schema::{Role, Type};

use crate::column::{Column, Table};
use crate::error::{Error, Result};
use crate::value::Value;
use crate::{FORMAT, FactValue, Profile, VERSION};

/// The first bytes of a compressed file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The keys that tell what a file is.
#[derive(Deserialize)]
struct Head {
    #[serde(default)]
    format: String,
    #[serde(default)]
    version: u64,
    #[serde(default)]
    atom: String,
}

impl Profile {
    /// Reads a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|error| Error::File {
            path: path.into(),
            error,
        })?;
        Self::parse(&bytes).map_err(|error| Error::In {
            path: path.into(),
            error: error.into(),
        })
    }

    /// Reads a profile from bytes, plain or compressed.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(&GZIP) {
            return parse_json(bytes);
        }
        let mut json = Vec::new();
        match MultiGzDecoder::new(bytes).read_to_end(&mut json) {
            Ok(_) => parse_json(&json),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                if begins_like_one(&json) {
                    Err(Error::Truncated)
                } else {
                    Err(Error::NotAProfile)
                }
            }
            Err(e) => Err(Error::Damaged(format!("it cannot be decompressed: {e}"))),
        }
    }
}

fn parse_json(json: &[u8]) -> Result<Profile> {
    let error = match serde_json::from_slice::<Profile>(json) {
        Ok(profile) if profile.format != FORMAT => return Err(Error::NotAProfile),
        Ok(profile) if profile.version > VERSION => {
            let (version, atom) = (profile.version, profile.atom);
            return Err(Error::Newer { version, atom });
        }
        Ok(profile) => return checked(profile),
        Err(error) => error,
    };
    if error.is_eof() {
        return Err(if begins_like_one(json) {
            Error::Truncated
        } else {
            Error::NotAProfile
        });
    }
    match serde_json::from_slice::<Head>(json) {
        Ok(head) if head.format != FORMAT => Err(Error::NotAProfile),
        Ok(head) if head.version > VERSION => Err(Error::Newer {
            version: head.version,
            atom: head.atom,
        }),
        Err(_) if !begins_like_one(json) => Err(Error::NotAProfile),
        _ => Err(Error::Damaged(error.to_string())),
    }
}

/// True if the bytes begin as the writers of profiles begin them, as far as there are any.
fn begins_like_one(json: &[u8]) -> bool {
    const START: &[u8] = b"{\"format\":\"atom-profile\"";
    let bytes = json.iter().filter(|b| !b.is_ascii_whitespace());
    bytes.zip(START).all(|(a, b)| a == b)
}

/// Leaves out columns of unknown types, and checks that all rows are there and all indices lead somewhere.
fn checked(mut profile: Profile) -> Result<Profile> {
    let (objects, strings) = (profile.objects.len(), profile.strings.len());
    for fact in &mut profile.facts {
        // A large integer is a string in the file.
        if fact.kind != Type::Text
            && let FactValue::Text(text) = &fact.value
        {
            fact.value = FactValue::Number(Value::of_text(text));
        }
    }
    for table in &mut profile.tables {
        let known = |c: &Column| c.kind != Type::Other && c.role != Role::Other;
        table.columns.retain(known);
        let rows = table.rows;
        for column in &mut table.columns {
            let is_derived = column.role == Role::Derived;
            let index = |n: u64, limit: usize| n < limit as u64;
            if column.kind == Type::Text {
                let none = |value: &mut Value| match value {
                    Value::Integer(_) => {}
                    other => *other = Value::Unknown,
                };
                column.values.iter_mut().for_each(none);
            }
            let is_text = column.kind == Type::Text;
            let mut texts = column.values.iter().filter_map(|v| v.integer());
            let wrong = if !is_derived && column.values.len() != rows {
                Some("another number of values than rows")
            } else if ![0, rows].contains(&column.objects.len())
                || !column.objects.iter().all(|n| index((*n).into(), objects))
            {
                Some("objects that do not exist")
            } else if ![0, rows].contains(&column.files.len())
                || column.files.iter().any(|n| *n >= strings as i64)
                || is_text && !texts.all(|n| index(n, strings))
            {
                Some("strings that do not exist")
            } else {
                None
            };
            if let Some(wrong) = wrong {
                return Err(damaged(&table.name, &column.name, wrong));
            }
        }
        check_names(table)?;
    }
    Ok(profile)
}

fn check_names(table: &Table) -> Result<()> {
    for (i, column) in table.columns.iter().enumerate() {
        if table.columns[..i].iter().any(|c| c.name == column.name) {
            return Err(damaged(
                &table.name,
                &column.name,
                "the name of another column",
            ));
        }
    }
    Ok(())
}

fn damaged(table: &str, column: &str, what: &str) -> Error {
    Error::Damaged(format!("column `{column}` of table `{table}` has {what}"))
}
