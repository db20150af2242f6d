//! Writing.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tables::schema::Type;

use crate::Profile;
use crate::error::{Error, Result};
use crate::value::Value;

/// Size of the JSON in bytes above which files are compressed.
const PLAIN: usize = 256 << 10;

impl Profile {
    /// The profile as one line of JSON.
    pub fn to_json(&self) -> String {
        let mut copy = self.clone();
        let texts = copy.tables.iter_mut().flat_map(|t| &mut t.columns);
        for column in texts.filter(|c| c.kind == Type::Text) {
            for value in &mut column.values {
                if *value == Value::Unknown {
                    // The file has -1 for no text; `Value` has no negative integers.
                    *value = Value::Float(-1.0);
                }
            }
        }
        let mut json = serde_json::to_string(&copy).expect("keys are strings and numbers finite");
        json.push('\n');
        json
    }

    /// The contents of a file: JSON, compressed if it is larger than 256 KiB.
    pub fn to_bytes(&self) -> Vec<u8> {
        let json = self.to_json().into_bytes();
        if json.len() <= PLAIN {
            return json;
        }
        // The command's user waits for it.
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        let done = packed.write_all(&json).and_then(|()| packed.finish());
        done.expect("writing to memory does not fail")
    }

    /// Writes a file. An existing one is replaced.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        std::fs::write(path, self.to_bytes()).map_err(|error| Error::File {
            path: path.into(),
            error,
        })
    }
}
