//! Symbols of procedures whose names are written in another way, for files of suppressions, and paths of objects.

use std::sync::OnceLock;

use atom_tool::prelude::*;
use atom_tool::{Site, plain_data};

plain_data! {
    /// The symbol of a procedure or the path of an object: its address, and the key of the string.
    pub struct Row {
        address: u64,
        key: u64,
    }
}

/// Instrument side: the symbols of the procedures of a program that differ from their names, and before those of an object its
/// path.
#[derive(Default)]
pub struct Symbols {
    pub rows: Vec<Row>,
    pub strings: StringList,
}

impl Symbols {
    pub fn of(program: &Program<'_>) -> Self {
        let mut symbols = Self::default();
        let mut last = None;
        for proc in program.procs().filter(|proc| !proc.is_stub()) {
            let object = proc.object();
            if last.replace(object.index()) != Some(object.index()) {
                let path = std::fs::canonicalize(object.path());
                let path = path.map_or(object.path().into(), |path| path.display().to_string());
                symbols.push(address_of(object.index()), &path);
            }
            let symbol = proc.symbol();
            if symbol.starts_with("_Z") || symbol.starts_with("_R") {
                symbols.push(proc.pc(), symbol);
            }
        }
        symbols
    }

    fn push(&mut self, address: u64, text: &str) {
        let key = self.strings.push(text).into();
        self.rows.push(Row { address, key });
    }
}

/// The address that stands for an object, where no procedure is.
fn address_of(object: usize) -> u64 {
    (object as u64) << 32
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

fn find(address: u64) -> Option<&'static str> {
    let Table(rows, strings) = TABLE.get()?;
    let rows = rows.as_slice();
    let at = rows.binary_search_by_key(&address, |row| row.address);
    Some(strings.get(rows[at.ok()?].key as u32))
}

/// The symbol of a site's procedure.
pub fn of(site: &Site) -> &'static str {
    find(site.proc_pc).unwrap_or(site.proc)
}

/// The path of an object.
pub fn path_of(object: usize) -> Option<&'static str> {
    find(address_of(object))
}
