//! Compares the values that a tool was passed with the processor's.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::stepper::values::{Record, Values, kind};

/// Reads the output of the tool `trace`.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let bytes = std::fs::read(path).map_err(|e| Error::new("reading the values", e).file(path))?;
    let word = |c: &[u8], n: usize| {
        u64::from_le_bytes(c[8 * n..8 * n + 8].try_into().expect("eight bytes"))
    };
    Ok(bytes
        .chunks_exact(32)
        .map(|c| Record {
            kind: word(c, 0),
            pc: word(c, 1),
            first: word(c, 2),
            second: word(c, 3),
            unknown: 0,
        })
        .collect())
}

/// Reads the addresses of the instrumented instructions.
pub fn points(path: &Path) -> Result<HashSet<u64>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new("reading the points", e).file(path))?;
    Ok(text.lines().filter_map(|l| l.parse().ok()).collect())
}

/// True if the tool may lack the record, because not every value is available
/// at every point.
fn is_optional(record: &Record) -> bool {
    matches!(
        record.kind & 0xff,
        kind::LOADED | kind::STORED | kind::LOADED_AFTER | kind::STORED_AFTER | kind::VECTOR
    )
}

/// The first difference in words; none if all records agree, in order, and
/// every value of an access that certainly happens was passed at least once.
pub fn compare(truth: &Values, seen: &[Record]) -> Option<String> {
    let mut passed = HashSet::new();
    let mut rest = truth.records.iter().peekable();
    for (n, record) in seen.iter().enumerate() {
        loop {
            let Some(expected) = rest.next() else {
                return Some(format!(
                    "record {n} {} is one too many",
                    words(truth, record)
                ));
            };
            if expected.agrees(record) {
                break;
            }
            let same = (expected.kind, expected.pc) == (record.kind, record.pc);
            if same || !is_optional(expected) {
                return Some(format!(
                    "record {n} is {}, expected {}",
                    words(truth, record),
                    words(truth, expected)
                ));
            }
        }
        let operand = record.kind >> 8;
        match record.kind & 0xff {
            kind::LOADED | kind::LOADED_AFTER => {
                passed.insert((record.second, operand, false));
            }
            kind::STORED | kind::STORED_AFTER => {
                passed.insert((record.second, operand, true));
            }
            _ => {}
        }
    }
    if let Some(missing) = rest.find(|r| !is_optional(r)) {
        return Some(format!("{} is missing", words(truth, missing)));
    }
    let mut unknown: Vec<_> = truth.definite.difference(&passed).collect();
    unknown.sort();
    let list: Vec<_> = unknown
        .iter()
        .map(|(pc, n, store)| {
            let what = if *store { "stores" } else { "loads" };
            format!("{pc:#x} {what} to operand {n}")
        })
        .collect();
    (!list.is_empty()).then(|| format!("no value was passed of: {}", list.join(", ")))
}

fn words(truth: &Values, record: &Record) -> String {
    let name = [
        "?",
        "address",
        "size",
        "loaded",
        "stored",
        "loaded, after",
        "stored, after",
        "target",
        "next",
        "register",
        "vector",
        "taken",
        "returned",
    ];
    let pc = record.pc.wrapping_sub(truth.bias);
    let kind = name.get((record.kind & 0xff) as usize).unwrap_or(&"?");
    let number = record.kind >> 8;
    format!(
        "{kind} {number} at {pc:#x}: {:#x} {:#x}",
        record.first, record.second
    )
}
