//! What callers expect of functions that they do not know.
//!
//! A function that is called through a pointer or by another object usually keeps to the System V ABI, but not always:
//! `mcount`, `__fentry__` and functions with `preserve_most` keep registers that the ABI lets them change, coroutines
//! return values in rdi and rsi, Zig keeps r9 over all calls. No convention is declared anywhere; the code shows it, on
//! both sides:
//!
//! - A register that code after a call reads before setting it is kept or set by the callee. (That an unknown function
//!   further on might read it is no evidence.)
//!   It is live at the returns of every procedure that may be this callee: those that the object exports by the name of
//!   the call, or, if the call has no name, all that may be called through pointers, in each object of the process.
//! - A register that a procedure does not write, callees included, may be kept for an unknown caller.
//! - What a procedure sets in front of its return without reading it is for its caller: a result, or a restored value.
//! - What a caller sets in front of a call without reading it is for the callee.
//!
//! The first two rules are needed together: callers may be in objects that are not known, and a procedure that calls another
//! through a pointer counts as writing all that the ABI lets a callee change.
//!
//! Flags need evidence by a caller or by an instruction that does nothing but set them.

use std::collections::BTreeMap;

use object::elf;
use rustc_hash::FxHashMap;

use super::RegSet;
use crate::cfg::graph::is_never;
use crate::cfg::stored::{Reader, Writer};
use crate::cfg::{Cfg, Proc, ProcKind};
use crate::grouped::Grouped;
use crate::ids::ProcId;
use crate::image::Image;

/// What follows the name of the function in the name of an entry of the PLT.
const PLT: &str = "@plt";

/// The number of a function's name in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NameId(u32);

impl NameId {
    /// Functions without a name: called through pointers.
    pub const POINTER: Self = Self(0);

    /// Its index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Registers that are live after calls of functions and that the ABI does not keep or return, by the functions' names.
/// The empty name stands for calls through pointers.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Expectations(BTreeMap<String, RegSet>);

impl Expectations {
    /// What any of several objects expects.
    pub fn sum<'e>(all: impl Iterator<Item = &'e Self>) -> Self {
        let mut sum = Self::default();
        for (name, live) in all.flat_map(|e| &e.0) {
            sum.add(name, *live);
        }
        sum
    }

    /// The part that concerns an object. What is expected of a function whose address a resolver finds concerns all
    /// that may be called through pointers. Callers, too, have to know which functions have a convention of their own.
    pub fn of_object(&self, image: &Image) -> Self {
        let mut part = Self::default();
        if self.0.is_empty() {
            return part;
        }
        if let Some(live) = self.0.get("") {
            part.add("", *live);
        }
        for symbol in &image.dynamic_symbols {
            if let Some(live) = self.0.get(symbol.name.as_str()) {
                part.add(if symbol.is_ifunc { "" } else { &symbol.name }, *live);
            }
        }
        part
    }

    /// True if nothing in `other` is missing.
    pub fn contains(&self, other: &Self) -> bool {
        let has = |name: &String| self.0.get(name).copied().unwrap_or_default();
        other.0.iter().all(|(name, live)| has(name).contains(*live))
    }

    /// True if nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends all to bytes that are stored.
    pub fn store(&self, to: &mut Writer) {
        to.count(self.0.len());
        for (name, live) in &self.0 {
            to.text(name);
            to.word(live.0);
        }
    }

    /// Reads what [`Expectations::store`] wrote.
    pub fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let all = from.list(|from| Some((from.text()?, RegSet(from.word()?))))?;
        Some(Self(all.into_iter().collect()))
    }

    fn add(&mut self, name: &str, live: RegSet) {
        match self.0.get_mut(name) {
            Some(known) => *known |= live,
            None => _ = self.0.insert(name.to_string(), live),
        }
    }
}

/// The names by which an object calls functions of others, and others call its functions.
pub struct Names {
    names: Vec<String>,
    never: Vec<bool>,
    by_name: FxHashMap<String, NameId>,
    by_slot: FxHashMap<u64, NameId>,
    /// By name: the procedures that may be called by it here, entries of the PLT included.
    procs: Grouped<ProcId>,
    outside: Vec<(NameId, RegSet)>,
}

impl Names {
    /// The names of the functions that an object imports, and of those of which others expect something.
    pub fn new(image: &Image, cfg: &Cfg, outside: &Expectations) -> Self {
        let mut names = Self {
            names: Vec::new(),
            never: Vec::new(),
            by_name: FxHashMap::default(),
            by_slot: FxHashMap::default(),
            procs: Grouped::new(0, std::iter::empty),
            outside: Vec::new(),
        };
        names.add("");
        for reloc in &image.relocs {
            if !matches!(reloc.kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
                continue;
            }
            let symbol = image.dynamic_symbols.get(reloc.symbol as usize);
            if let Some(symbol) = symbol.filter(|s| !s.name.is_empty() && !s.is_object) {
                let id = names.add(&symbol.name);
                names.by_slot.insert(reloc.address, id);
            }
        }
        for (name, live) in &outside.0 {
            let id = names.add(name);
            names.outside.push((id, *live));
        }
        let mut called: Vec<(NameId, ProcId)> = Vec::new();
        for symbol in image.dynamic_symbols.iter().filter(|s| s.is_exported) {
            if let Some(id) = names.by_name.get(symbol.name.as_str())
                && let Some(proc) = cfg.proc_at(symbol.address)
            {
                called.push((*id, proc));
            }
        }
        for (p, proc) in cfg.procs.iter().enumerate() {
            if proc.kind == ProcKind::Plt {
                called.push((names.of_plt(proc), ProcId::from_index(p)));
            }
        }
        names.procs = Grouped::new(names.names.len(), || {
            called.iter().map(|(name, proc)| (name.0, *proc))
        });
        names
    }

    fn add(&mut self, name: &str) -> NameId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let id = NameId(self.names.len() as u32);
        self.never.push(is_never(name));
        self.names.push(name.to_string());
        self.by_name.insert(name.to_string(), id);
        id
    }

    /// Number of names.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// What other objects expect.
    pub fn outside(&self) -> &[(NameId, RegSet)] {
        &self.outside
    }

    /// The procedures that may be called by a name.
    pub fn procs(&self, name: NameId) -> &[ProcId] {
        self.procs.of(name.index())
    }

    /// True if a function by this name never returns.
    pub fn never_returns(&self, name: NameId) -> bool {
        self.never[name.index()]
    }

    /// The function whose address the dynamic loader writes to a slot.
    pub fn of_slot(&self, slot: u64) -> Option<NameId> {
        self.by_slot.get(&slot).copied()
    }

    /// The function to which an entry of the PLT leads.
    pub fn of_plt(&self, entry: &Proc) -> NameId {
        let name = entry.name.as_deref().unwrap_or_default();
        let name = name.strip_suffix(PLT).unwrap_or(name);
        self.by_name.get(name).copied().unwrap_or(NameId::POINTER)
    }

    /// What is expected, from the registers by name.
    pub fn expectations(&self, by_name: impl Iterator<Item = RegSet>) -> Expectations {
        let all = self.names.iter().zip(by_name);
        let some = all.filter(|(_, live)| !live.is_empty());
        Expectations(some.map(|(name, live)| (name.clone(), live)).collect())
    }
}
