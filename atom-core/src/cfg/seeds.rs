//! Starts of procedures, from everything that the file tells about them.
//!
//! Sources, strongest first: function symbols, `.eh_frame` ranges, the entries
//! of procedure linkage tables, the entry point, initialisers and finalisers.
//! A stripped program, which is the normal case, has all of these but symbols.

use rustc_hash::FxHashMap;

use object::elf;

use super::type_hash::is_type_hash;
use super::{ProcKind, plt, start_code};
use rayon::prelude::*;
use std::ops::RangeInclusive;

use crate::image::imports::Imports;
use crate::image::{Image, Symbol};
use crate::unwind::go::{GoTable, Origin};
use crate::unwind::{CFA_AT_ENTRY, CfaRule, UnwindTable};

/// A range of `.eh_frame`, as far as discovery needs it.
#[derive(Clone, Debug)]
pub struct FrameRange {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// True if the frame at `start` is the frame of a procedure just called
    /// (CFA = rsp + 8); false if the range is a part of another procedure.
    pub is_entry: bool,
    /// True if the code at `start` states where its frame is, and that something is above the
    /// return address there (rsp + 16, rbp + 16): such code is jumped to, never called.
    pub is_in_frame: bool,
    /// Reason why unwind entries of this range cannot be written for another address, if there is one.
    pub obstacle: Option<String>,
}

/// What the exception tables tell about code.
#[derive(Clone, Debug, Default)]
pub struct FrameFacts {
    /// Ranges, sorted by start.
    pub ranges: Vec<FrameRange>,
    /// Landing pads: index of the range whose exceptions they catch, and address.
    pub landing_pads: Vec<(usize, u64)>,
    /// Functions that Go's tables list, by address.
    pub go: Vec<GoFunction>,
    /// The addresses after Go's last function, up to where the module data says that the text ends. No code is there.
    pub go_end: Option<RangeInclusive<u64>>,
}

/// A function that Go's tables list. Go's runtime looks all return addresses up in these tables, which are written again
/// for the new text, so code that reads its return address may move.
#[derive(Clone, Debug)]
pub struct GoFunction {
    /// First address.
    pub start: u64,
    /// The next function's first address.
    pub end: u64,
    /// Name, with the package's path.
    pub name: String,
    /// Where control continues after a recovered panic.
    pub resumed: Option<u64>,
    /// Largest size of its frame in bytes, without the return address.
    pub frame: u32,
    /// The language that it was written in.
    pub origin: Origin,
}

/// Name of the function to which the first function of a goroutine returns.
const GOEXIT: &str = "runtime.goexit";

impl GoFunction {
    /// Addresses of the function that are in data: its first one, and for `goexit` the next one as well,
    /// which the runtime puts on each new stack as return address.
    pub fn pointers(&self) -> impl Iterator<Item = u64> {
        let is_goexit = self.name == GOEXIT || self.name == "runtime.goexit.abi0";
        let second = is_goexit.then_some(self.start + 1);
        [Some(self.start), second].into_iter().flatten()
    }
}

impl FrameFacts {
    /// Reads the facts from `table`.
    pub fn new(table: &UnwindTable<'_>) -> Self {
        Self {
            ranges: table
                .fdes
                .par_iter()
                .map(|f| FrameRange {
                    start: table.code_start(f),
                    end: f.end(),
                    is_entry: f.cfa_at_start == CFA_AT_ENTRY,
                    is_in_frame: f.cfa_at_start != CFA_AT_ENTRY
                        && matches!(f.cfa_at_start, CfaRule::Register { .. }),
                    obstacle: crate::unwind::write::check(table, f)
                        .err()
                        .map(|e| e.reason),
                })
                .collect(),
            landing_pads: table.landing_pads().collect(),
            go: table.go.iter().flat_map(go_functions).collect(),
            go_end: table.go.as_ref().and_then(|go| {
                let last = go.functions.last()?;
                Some(last.end..=go.text_end)
            }),
        }
    }

    /// True if Go's tables say what is at a symbol: a function or a part of one, or the end of Go's text.
    fn names_go(&self, symbol: &Symbol) -> bool {
        let range = self.go.first().zip(self.go.last());
        range.is_some_and(|(first, last)| {
            let ends = self.go_end.as_ref();
            let is_end = symbol.size == 0 && ends.is_some_and(|end| end.contains(&symbol.address));
            is_end || (first.start..last.end).contains(&symbol.address)
        })
    }
}

/// The functions of Go's tables that have code.
fn go_functions<'a>(table: &'a GoTable<'_>) -> impl Iterator<Item = GoFunction> + 'a {
    let functions = table.functions.iter().filter(|f| f.end > f.start);
    functions.map(|f| GoFunction {
        start: f.start,
        end: f.end,
        name: table.name(f).to_string(),
        resumed: table.defer_return(f),
        frame: table.frame_size(f),
        origin: table.record(f).origin(),
    })
}

/// A procedure's start, before its code is examined.
#[derive(Clone, Debug, Default)]
pub struct Seed {
    /// First address.
    pub start: u64,
    /// One past the last address, if a symbol or an unwind entry states it.
    pub end: Option<u64>,
    /// Symbol name.
    pub name: Option<String>,
    /// Kind, as far as it is known now.
    pub kind: ProcKind,
    /// True if the frame at `start` or the name shows that this is a part of another procedure.
    pub looks_like_fragment: bool,
    /// True if other objects can call it.
    pub is_exported: bool,
    /// True for a function that Go's tables list.
    pub is_go: bool,
    /// The language of such a function.
    pub go_origin: Origin,
    /// True if nothing proves that there is code.
    pub is_doubtful: bool,
    /// True if a frame description starts there.
    pub is_described: bool,
}

impl Seed {
    /// A seed of which only the start is known.
    pub fn bare(start: u64) -> Self {
        Self {
            start,
            ..Self::default()
        }
    }
}

/// All seeds, in address order, one for each start.
pub fn collect(image: &Image, frames: &FrameFacts) -> Vec<Seed> {
    let plts = plt::tables(image);
    let in_plt = |a: u64| plts.iter().any(|p| p.contains(a));
    // There is about one seed for each range: without symbols there are few others.
    let mut seeds: FxHashMap<u64, Seed> = FxHashMap::default();
    seeds.reserve(frames.ranges.len());
    for range in &frames.ranges {
        if in_plt(range.start) || !image.is_code(range.start) || range.end <= range.start {
            continue;
        }
        let seed = seeds
            .entry(range.start)
            .or_insert_with(|| Seed::bare(range.start));
        seed.end = Some(range.end);
        seed.looks_like_fragment = !range.is_entry;
        seed.is_described = true;
    }
    for function in &frames.go {
        if image.is_code(function.start) {
            let seed = seeds
                .entry(function.start)
                .or_insert_with(|| Seed::bare(function.start));
            seed.end = Some(function.end);
            seed.name = Some(function.name.clone());
            seed.is_go = true;
            seed.go_origin = function.origin;
        }
    }
    for symbol in image.symbols.iter().chain(&image.dynamic_symbols) {
        if symbol.is_undefined
            || !symbol.is_func
            || !image.is_code(symbol.address)
            || in_plt(symbol.address)
            || frames.names_go(symbol)
            || is_type_hash(image, symbol)
        {
            continue;
        }
        let seed = seeds
            .entry(symbol.address)
            .or_insert_with(|| Seed::bare(symbol.address));
        if symbol.size > 0 {
            // Hand-written code may have several frame descriptions in one function.
            seed.end = seed.end.max(symbol.address.checked_add(symbol.size));
        }
        seed.is_exported |= symbol.is_exported;
        if better_name(seed.name.as_deref(), &symbol.name) {
            seed.looks_like_fragment |= symbol.name.contains(".cold");
            seed.name = Some(symbol.name.clone());
        }
    }
    let mut bare = |address: u64, name: &str| {
        if image.is_code(address) && !in_plt(address) {
            let seed = seeds.entry(address).or_insert_with(|| Seed::bare(address));
            seed.is_exported = true;
            seed.looks_like_fragment = false;
            if seed.name.is_none() && !name.is_empty() {
                seed.name = Some(name.to_string());
            }
        }
    };
    if let Some(entry) = image.entry {
        bare(entry, "_start");
    }
    for (tag, name) in [(elf::DT_INIT, "_init"), (elf::DT_FINI, "_fini")] {
        if let Some(address) = image.dynamic_value(tag) {
            bare(address, name);
        }
    }
    for section in [".init", ".fini"] {
        if let Some(section) = image.section(section) {
            bare(section.address, &section.name.replace('.', "_"));
        }
    }
    for address in (initialisers(image).into_iter()).chain(start_code::functions(image)) {
        bare(address, "");
    }
    let imports = Imports::new(image);
    for entry in plts.iter().flat_map(|p| p.named_entries(image, &imports)) {
        let seed = Seed {
            end: Some(entry.end),
            kind: ProcKind::Plt,
            name: entry.name,
            ..Seed::bare(entry.start)
        };
        seeds.insert(seed.start, seed);
    }
    let mut seeds: Vec<_> = seeds.into_values().collect();
    seeds.sort_unstable_by_key(|s| s.start);
    // A frame description that starts inside of a named function does not start another one.
    let mut named_end = 0;
    seeds.retain(|s| {
        if s.name.is_some() {
            named_end = s.end.unwrap_or(0);
        }
        s.name.is_some() || s.is_exported || s.kind != ProcKind::Normal || s.start >= named_end
    });
    seeds
}

/// True if `new` is a better name than `old`: names without leading underscores are better, then shorter names.
fn better_name(old: Option<&str>, new: &str) -> bool {
    if new.is_empty() {
        return false;
    }
    let rank = |n: &str| {
        (
            n.starts_with("__"),
            n.starts_with('_') && !n.starts_with("_Z") && !n.starts_with("_R"),
            n.len(),
        )
    };
    old.is_none_or(|old| (rank(new), new) < (rank(old), old))
}

/// Addresses of functions in the arrays of initialisers and finalisers.
fn initialisers(image: &Image) -> Vec<u64> {
    let mut arrays = Vec::new();
    for (array, size) in [
        (elf::DT_INIT_ARRAY, elf::DT_INIT_ARRAYSZ),
        (elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ),
        (elf::DT_PREINIT_ARRAY, elf::DT_PREINIT_ARRAYSZ),
    ] {
        if let (Some(a), Some(s)) = (image.dynamic_value(array), image.dynamic_value(size)) {
            arrays.push((a, s));
        }
    }
    for name in [
        ".init_array",
        ".fini_array",
        ".preinit_array",
        ".ctors",
        ".dtors",
    ] {
        if let Some(section) = image.section(name) {
            arrays.push((section.address, section.size));
        }
    }
    let mut functions = Vec::new();
    for (address, size) in arrays {
        for chunk in image
            .bytes_at(address, size as usize)
            .unwrap_or_default()
            .chunks_exact(8)
        {
            functions.push(u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
        }
        let end = address.saturating_add(size);
        functions.extend(
            image
                .relocs
                .iter()
                .filter(|r| {
                    r.kind == elf::R_X86_64_RELATIVE && r.address >= address && r.address < end
                })
                .map(|r| r.addend as u64),
        );
    }
    functions
}
