//! Symbols of procedures whose names are written in another way, for files of suppressions.

use std::sync::OnceLock;

use atom_tool::prelude::*;
use atom_tool::{Site, plain_data};

plain_data! {
    /// The symbol of a procedure: its address, and the key of the string.
    pub struct Row {
        proc: u64,
        key: u64,
    }
}

/// Instrument side: the symbols of the procedures of a program that differ from their names.
#[derive(Default)]
pub struct Symbols {
    pub rows: Vec<Row>,
    pub strings: StringList,
}

impl Symbols {
    pub fn of(program: &Program<'_>) -> Self {
        let mut symbols = Self::default();
        for proc in program.procs().filter(|proc| !proc.is_stub()) {
            let symbol = proc.symbol();
            if symbol.starts_with("_Z") || symbol.starts_with("_R") {
                let key = symbols.strings.push(symbol).into();
                symbols.rows.push(Row {
                    proc: proc.pc(),
                    key,
                });
            }
        }
        symbols
    }
}

/// The rows in the order of addresses, and the strings.
struct Table(Array<Row>, Strings);
// SAFETY: tables that never change, or are replaced as a whole.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

static TABLE: OnceLock<Table> = OnceLock::new();

pub fn begin(rows: Array<Row>, strings: Strings) {
    let _ = TABLE.set(Table(rows, strings));
}

/// The symbol of a site's procedure.
pub fn of(site: &Site) -> &'static str {
    let found = TABLE.get().and_then(|Table(rows, strings)| {
        let rows = rows.as_slice();
        let at = rows.binary_search_by_key(&site.proc_pc, |row| row.proc);
        Some(strings.get(rows[at.ok()?].key as u32))
    });
    found.unwrap_or(site.proc)
}
