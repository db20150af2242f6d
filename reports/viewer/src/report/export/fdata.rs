//! The format of llvm-bolt: how often each edge of the control flow was taken.
//!
//! A line is an edge: where the jump or call is, where it leads, mispredictions, and the number of executions. A
//! place is a symbol and the distance from it. Symbols are found in the object's own file, as llvm-bolt finds them:
//! global ones have their names, and local ones a number after it, which counts the local symbols of that name in the
//! order of their addresses.

use std::collections::HashMap;

use atom_core::image::Image;
use atom_core::{Error, Result};
use iced_x86::{Decoder, DecoderOptions};
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSymbol, SymbolKind};
use profile::{By, Profile, Table};

use super::super::spots;
use super::Made;

const DOING: &str = "exporting for llvm-bolt";

/// An edge of the control flow: two addresses and the number of executions.
type Edge = (u64, u64, u64);

/// A procedure's symbol.
struct Symbol {
    start: u64,
    end: u64,
    name: String,
}

/// The symbols of procedures, in the order of their addresses.
struct Symbols(Vec<Symbol>);

impl Symbols {
    fn read(image: &Image) -> Result<Self> {
        let fail = |reason: String| Error::new(DOING, reason).file(image.path());
        let file = ElfFile64::<object::LittleEndian>::parse(&**image.file)
            .map_err(|e| fail(e.to_string()))?;
        let mut all: Vec<_> = (file.symbols())
            .filter(|s| !s.is_undefined() && s.kind() != SymbolKind::File)
            .filter(|s| s.kind() != SymbolKind::Section && s.address() != 0)
            .collect();
        if all.is_empty() {
            return Err(fail(
                "the file has no symbols, by which llvm-bolt finds procedures".into(),
            )
            .advice("use a program that is not stripped"));
        }
        all.sort_by_key(|s| s.address());
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut found: Vec<Symbol> = Vec::new();
        for symbol in all {
            let Ok(name) = symbol.name() else { continue };
            let name = if symbol.is_local() {
                let number = numbers.entry(name.to_owned()).or_default();
                *number += 1;
                format!("{name}/{number}")
            } else {
                name.to_owned()
            };
            if symbol.kind() != SymbolKind::Text || name.contains(char::is_whitespace) {
                continue;
            }
            let (start, size) = (symbol.address(), symbol.size());
            match found.last() {
                Some(last) if last.start == start => {}
                _ => found.push(Symbol {
                    start,
                    end: start + size.max(1),
                    name,
                }),
            }
        }
        Ok(Self(found))
    }

    fn at(&self, address: u64) -> Option<(&str, u64)> {
        let behind = self.0.partition_point(|s| s.start <= address);
        let symbol = &self.0[behind.checked_sub(1)?];
        (address < symbol.end).then(|| (&*symbol.name, address - symbol.start))
    }
}

/// The edges that the table `edges` of the tool `branch` has for one object.
fn counted(table: &Table, number: usize) -> Vec<Edge> {
    let (Some(from), Some(to), Some(count)) = (
        table.column("from"),
        table.column("to"),
        table.column("count"),
    ) else {
        return Vec::new();
    };
    let is_inside = |row: &usize| from.object(*row) == number && to.object(*row) == number;
    let edge = |row: usize| {
        let value = |c: &profile::Column| c.values.get(row)?.integer();
        Some((value(from)?, value(to)?, value(count)?))
    };
    (0..table.rows).filter(is_inside).filter_map(edge).collect()
}

/// The edges of conditional branches, whose targets the object's file tells.
fn of_branches(table: &Table, image: &Image, number: usize) -> Vec<Edge> {
    let (Some(pc), Some(taken), Some(not_taken)) = (
        table.column("pc"),
        table.column("taken"),
        table.column("not taken"),
    ) else {
        return Vec::new();
    };
    let mut edges = Vec::new();
    for row in (0..table.rows).filter(|row| pc.object(*row) == number) {
        let value = |c: &profile::Column| c.values.get(row).and_then(|v| v.integer());
        let Some(at) = value(pc) else { continue };
        let Some(code) = image.rest_at(at) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
        let branch = decoder.decode();
        let sides = [
            (branch.near_branch_target(), taken),
            (branch.next_ip(), not_taken),
        ];
        for (to, column) in sides {
            edges.push((at, to, value(column).unwrap_or(0)));
        }
    }
    edges
}

/// The file for llvm-bolt. `object` is the name of the object that will be optimised, the program by default.
pub fn fdata(profile: &Profile, object: Option<&str>) -> Made {
    let number = match object {
        None => 0,
        Some(name) => {
            let is = |o: &profile::Object| o.name == name || o.path == name;
            profile.objects.iter().position(is).ok_or_else(|| {
                let names: Vec<&str> = profile.objects.iter().map(|o| &*o.name).collect();
                Error::new(DOING, format!("the process had no object `{name}`"))
                    .advice(format!("it had {}", names.join(", ")))
            })?
        }
    };
    let mut notes = Vec::new();
    let edges = profile
        .table("edges")
        .filter(|t| t.column("from").is_some());
    let branches = profile.tables.iter().find(|t| t.by == By::Branch);
    if edges.or(branches).is_none() {
        let reason = format!("the profile of {} has no counts of branches", profile.tool);
        return Err(Error::new(DOING, reason)
            .advice("`atom run branch --edges -- PROGRAM` counts all that llvm-bolt needs"));
    }
    let Some(object) = profile.objects.get(number) else {
        return Err(Error::new(DOING, "the profile does not name the program"));
    };
    let image = spots::open(object).map_err(|reason| Error::new(DOING, reason))?;
    let symbols = Symbols::read(&image)?;
    let edges = match (edges, branches) {
        (Some(table), _) => counted(table, number),
        (None, table) => {
            notes.push(
                "the profile has conditional branches only: `branch --edges` counts calls and other jumps, too"
                    .into(),
            );
            table.map_or_else(Vec::new, |t| of_branches(t, &image, number))
        }
    };
    let mut lost = 0u64;
    let mut lines: Vec<String> = Vec::new();
    for (from, to, count) in edges.into_iter().filter(|(_, _, count)| *count != 0) {
        let (Some((source, start)), Some((target, end))) = (symbols.at(from), symbols.at(to))
        else {
            lost = lost.saturating_add(count);
            continue;
        };
        lines.push(format!("1 {source} {start:x} 1 {target} {end:x} 0 {count}"));
    }
    if lost != 0 {
        let count = tables::grouped(lost);
        notes.push(format!("{count} jumps and calls are left out: no symbol has their addresses (stubs, code without symbols)"));
    }
    lines.sort();
    lines.push(String::new());
    Ok((lines.join("\n").into_bytes(), notes))
}
