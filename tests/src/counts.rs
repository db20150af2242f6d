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

/// A number that stands for an address as tools print it: `0x1234`, or `libc.so.6+0x1234` in another
/// object than the program. The numbers of two objects differ.
pub fn key(text: &str) -> Option<u64> {
    let (object, address) = match text.rsplit_once('+') {
        Some((object, address)) => {
            let name = object
                .bytes()
                .fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(b.into()));
            ((name | 1) << 32, address)
        }
        None => (0, text),
    };
    let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
    Some(object | address)
}

fn number(path: &Path, field: Option<&String>) -> Result<u64> {
    let field = field.map(String::as_str).unwrap_or_default();
    if field.contains('+')
        && let Some(key) = key(field)
    {
        return Ok(key);
    }
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

/// Reads the output of `flowjudge`: number of cells that are not 0. A difference is an error.
pub fn read_flow(path: &Path) -> Result<u64> {
    let lines = lines(path)?;
    let last = lines.last().filter(|l| l[0] == "cells");
    let last =
        last.ok_or_else(|| Error::new("reading the tool's output", "it is cut short").file(path))?;
    if number(path, last.get(3))? != 0 {
        let reason = format!(
            "derived from control flow and counted: {}",
            lines[0].join(" ")
        );
        return Err(Error::new("comparing counts", reason).file(path));
    }
    number(path, last.get(2))
}

/// What `textreads` saw.
#[derive(Clone, Debug)]
pub struct TextReads {
    /// Number of loads.
    pub loads: u64,
    /// Number of loads from the text of an object.
    pub from_text: u64,
    /// The loads of changed text: address of the instruction, and of the byte.
    pub changed: Vec<[String; 2]>,
}

/// Reads the output of `textreads` without a judgement.
pub fn text_reads(path: &Path) -> Result<TextReads> {
    let mut lines = lines(path)?;
    let last = lines.pop().filter(|l| l[0] == "loads");
    let last =
        last.ok_or_else(|| Error::new("reading the tool's output", "it is cut short").file(path))?;
    let pair = |line: Vec<String>| <[String; 2]>::try_from(line).unwrap_or_default();
    Ok(TextReads {
        loads: number(path, last.get(1))?,
        from_text: number(path, last.get(2))?,
        changed: lines.into_iter().map(pair).collect(),
    })
}

/// Reads the output of `textreads`. A load of changed text is an error.
pub fn read_text_reads(path: &Path) -> Result<TextReads> {
    let reads = text_reads(path)?;
    match reads.changed.first() {
        None => Ok(reads),
        Some([pc, address]) => {
            let reason = format!(
                "{} loads read text that has been overwritten: the one at {pc} reads {address}",
                reads.changed.len()
            );
            Err(Error::new("looking at loads", reason).file(path))
        }
    }
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
#[derive(Default)]
pub struct Symbols {
    /// Address, size and name, in order.
    list: Vec<(u64, u64, String)>,
    /// What the names of procedures begin with whose counts are compared.
    counted: String,
}

impl Symbols {
    /// Reads the symbol table; empty where there is none.
    pub fn read(program: &Path) -> Symbols {
        let Ok(data) = std::fs::read(program) else {
            return Symbols::default();
        };
        let Ok(file) = object::File::parse(&*data) else {
            return Symbols::default();
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
        Symbols {
            list,
            ..Symbols::default()
        }
    }

    /// Limits comparisons to procedures whose names begin with this.
    pub fn counted_in(mut self, prefix: Option<&str>) -> Symbols {
        self.counted = prefix.unwrap_or_default().to_string();
        self
    }

    /// Whether counts at an address are compared.
    pub fn counts(&self, address: u64) -> bool {
        let has = |name: &str| name.starts_with(&self.counted);
        self.counted.is_empty() || self.name(address).is_some_and(has)
    }

    /// Whether there are no names, as in a stripped program.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.list.iter().find(|s| s.2 == name).map(|s| s.0)
    }

    /// The procedure that an address is in, with its start.
    fn around(&self, address: u64) -> Option<(u64, &str)> {
        let at = self.list.partition_point(|s| s.0 <= address);
        let found = self.list[..at]
            .iter()
            .rev()
            .take(64)
            .find(|s| address < s.0 + s.1.max(1));
        found.map(|(start, _, name)| (*start, name.as_str()))
    }

    /// The name of the procedure that an address is in.
    pub fn name(&self, address: u64) -> Option<&str> {
        self.around(address).map(|(_, name)| name)
    }

    /// `address (name+offset)`.
    pub fn describe(&self, address: u64) -> String {
        match self.around(address) {
            Some((start, name)) => format!("{address:#x} ({name}+{:#x})", address - start),
            None => format!("{address:#x}"),
        }
    }
}

/// Procedures that `atom` reported as not understood, or only in part. Counts there may be too
/// small, never too large.
#[derive(Clone, Debug, Default)]
pub struct Missed(pub Vec<Gap>);

/// A procedure that is not instrumented, or only in part.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Its name in the report.
    pub name: String,
    /// Its first address.
    pub start: u64,
    /// Address after its last byte.
    pub end: u64,
    /// Reason that the report gives.
    pub reason: String,
}

impl Missed {
    /// Reads the gaps from the report of `atom --report`.
    pub fn from_report(report: &serde_json::Value) -> Missed {
        Self::listed(&report["procedures"]["list"])
    }

    /// Reads the gaps from what `atom show` says of a program.
    pub fn of(program: &Path) -> Result<Missed> {
        let mut command = std::process::Command::new(crate::atom::command()?);
        let output = command.args(["show", "--json"]).arg(program).output();
        let fail = |reason: String| Error::new("asking for procedures", reason).file(program);
        let output = output.map_err(|e| fail(e.to_string()))?;
        let shown: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|e| fail(e.to_string()))?;
        Ok(Self::listed(&shown["procedures"]))
    }

    fn listed(list: &serde_json::Value) -> Missed {
        let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_string();
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let gaps = list
            .iter()
            .filter(|p| p["status"] != "full")
            .filter_map(|p| {
                let start =
                    u64::from_str_radix(p["address"].as_str()?.strip_prefix("0x")?, 16).ok()?;
                let end = start + p["size"].as_u64()?;
                Some(Gap {
                    name: text(&p["name"]),
                    start,
                    end,
                    reason: text(&p["reason"]),
                })
            });
        Missed(gaps.collect())
    }

    /// The gap that an address is in.
    pub fn around(&self, address: u64) -> Option<&Gap> {
        self.0.iter().find(|g| (g.start..g.end).contains(&address))
    }
}

/// Procedures of a static libc that loop over the program's own headers. A
/// rewritten program has more headers, so these procedures make more rounds.
const READS_PROGRAM_HEADERS: [&str; 2] = ["_dl_find_object_from_map", "_dlfo_sort_mappings.part.0"];

/// Whether a count can be too small.
trait Count: Copy + PartialEq + std::fmt::Debug + Default {
    fn at_most(self, other: Self) -> bool;
}

impl Count for u64 {
    fn at_most(self, other: u64) -> bool {
        self <= other
    }
}

impl Count for BranchCount {
    fn at_most(self, other: BranchCount) -> bool {
        self.taken <= other.taken && self.not_taken <= other.not_taken
    }
}

/// Differences between the truth and a tool's figures: their number, and one of each procedure.
fn differences<T: Count>(
    truth: &BTreeMap<u64, T>,
    tool: &BTreeMap<u64, T>,
    symbols: &Symbols,
    missed: &Missed,
) -> Option<String> {
    let mut all: Vec<u64> = truth.keys().chain(tool.keys()).copied().collect();
    all.retain(|address| symbols.counts(*address));
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        return Some("nothing was counted".into());
    }
    let wrong = |address: &u64| {
        let value = |of: &BTreeMap<u64, T>| of.get(address).copied().unwrap_or_default();
        let (expected, got) = (value(truth), value(tool));
        let excused = missed.around(*address).is_some() && got.at_most(expected)
            || symbols
                .name(*address)
                .is_some_and(|n| READS_PROGRAM_HEADERS.contains(&n));
        expected != got && !excused
    };
    let wrong: Vec<u64> = all.iter().copied().filter(wrong).collect();
    if wrong.is_empty() {
        return None;
    }
    let mut text = format!("{} of {} addresses differ", wrong.len(), all.len());
    let mut seen = Vec::new();
    for address in &wrong {
        // The first difference of each procedure is the most useful one.
        let name = symbols.name(*address);
        if name.is_some() && seen.contains(&name) || seen.len() > 7 {
            continue;
        }
        seen.push(name);
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
    missed: &Missed,
) -> Option<String> {
    if truth.counts.is_empty() {
        return Some("the stepper counted nothing".into());
    }
    differences(&truth.counts, tool, symbols, missed)
}

/// Compares `branch`'s figures with the truth.
pub fn compare_branch(
    truth: &Process,
    tool: &BTreeMap<u64, BranchCount>,
    symbols: &Symbols,
    missed: &Missed,
) -> Option<String> {
    differences(&truth.branches, tool, symbols, missed)
}
