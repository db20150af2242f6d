//! Reading the tools' output files and comparing them with the stepper's counts.

use std::collections::BTreeMap;
use std::path::Path;

use object::{Object, ObjectSymbol};

use crate::error::{Error, Result};
use crate::stepper::{BranchCount, Process};

fn lines(path: &Path) -> Result<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::new("reading the tool's output", e).file(path))?;
    Ok(text
        .lines()
        .map(|l| l.split('\t').map(|f| f.trim().to_string()).collect())
        .collect())
}

fn number(path: &Path, field: Option<&String>) -> Result<u64> {
    let field = field.map(String::as_str).unwrap_or_default();
    let parsed = match field.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => field.parse(),
    };
    parsed.map_err(|_| {
        Error::new(
            "reading the tool's output",
            format!("\"{field}\" is no number"),
        )
        .file(path)
    })
}

/// Reads the output of `icount --per instruction`; zero counts are left out.
pub fn read_icount(path: &Path) -> Result<BTreeMap<u64, u64>> {
    let mut counts = BTreeMap::new();
    for line in lines(path)? {
        let n = number(path, line.get(1))?;
        if n != 0 {
            counts.insert(number(path, line.first())?, n);
        }
    }
    Ok(counts)
}

/// Reads the output of `branch`; branches that never ran are left out.
pub fn read_branch(path: &Path) -> Result<BTreeMap<u64, BranchCount>> {
    let mut counts = BTreeMap::new();
    for line in lines(path)?.iter().skip(1) {
        let count = BranchCount {
            taken: number(path, line.get(1))?,
            not_taken: number(path, line.get(2))?,
        };
        if count != BranchCount::default() {
            counts.insert(number(path, line.first())?, count);
        }
    }
    Ok(counts)
}

/// The names of a program's procedures, for messages and expectations.
pub struct Symbols(Vec<(u64, u64, String)>);

impl Symbols {
    /// Reads the symbol table; empty where there is none.
    pub fn read(program: &Path) -> Symbols {
        let Ok(data) = std::fs::read(program) else {
            return Symbols(Vec::new());
        };
        let Ok(file) = object::File::parse(&*data) else {
            return Symbols(Vec::new());
        };
        let mut list: Vec<_> = file
            .symbols()
            .filter(|s| {
                !s.is_undefined()
                    && s.section_index().is_some()
                    && s.kind() != object::SymbolKind::Data
            })
            .filter_map(|s| Some((s.address(), s.size(), s.name().ok()?.to_string())))
            .collect();
        list.sort();
        Symbols(list)
    }

    /// Address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|s| s.2 == name).map(|s| s.0)
    }

    /// `name+offset` for an address.
    pub fn describe(&self, address: u64) -> String {
        let at = self.0.partition_point(|s| s.0 <= address);
        match self.0[..at]
            .iter()
            .rev()
            .find(|s| address < s.0 + s.1.max(1))
        {
            Some((start, _, name)) => format!("{address:#x} ({name}+{:#x})", address - start),
            None => format!("{address:#x}"),
        }
    }
}

/// Differences between the truth and a tool's figures: up to six, and their number.
fn differences<T: PartialEq + std::fmt::Debug + Copy>(
    truth: &BTreeMap<u64, T>,
    tool: &BTreeMap<u64, T>,
    symbols: &Symbols,
) -> Option<String> {
    let mut all: Vec<u64> = truth.keys().chain(tool.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    let wrong: Vec<u64> = all
        .iter()
        .copied()
        .filter(|a| truth.get(a) != tool.get(a))
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let mut text = format!("{} of {} addresses differ", wrong.len(), all.len());
    for address in wrong.iter().take(6) {
        let show = |v: Option<&T>| v.map_or("never ran".to_string(), |v| format!("{v:?}"));
        let (expected, got) = (show(truth.get(address)), show(tool.get(address)));
        text += &format!(
            "\n    {}: stepper {expected}, tool {got}",
            symbols.describe(*address)
        );
    }
    Some(text)
}

/// Compares `icount`'s figures with the truth; an empty truth is a failure too.
pub fn compare_icount(
    truth: &Process,
    tool: &BTreeMap<u64, u64>,
    symbols: &Symbols,
) -> Option<String> {
    if truth.counts.is_empty() {
        return Some("the stepper counted nothing".into());
    }
    differences(&truth.counts, tool, symbols)
}

/// Compares `branch`'s figures with the truth.
pub fn compare_branch(
    truth: &Process,
    tool: &BTreeMap<u64, BranchCount>,
    symbols: &Symbols,
) -> Option<String> {
    differences(&truth.branches, tool, symbols)
}
