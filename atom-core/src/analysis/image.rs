//! The analysis image: a tool's shared object, laid out and relocated, and questions about it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::tool::ToolFacts;
use crate::unwind::{self, Memory, UnwindInput, UnwindTable};
use crate::{Error, Result};

/// What errors say was being done.
pub(super) const DOING: &str = "reading the tool";

/// The template of thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Address of the initial contents.
    pub address: u64,
    /// Size of the initial contents in bytes.
    pub file_size: u64,
    /// Size of a thread's block in bytes.
    pub mem_size: u64,
    /// Alignment of a thread's block in bytes.
    pub align: u64,
}

/// A symbol of the tool, for symbol tables and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name as in the file, not demangled.
    pub name: String,
    /// Address in the tool's file.
    pub address: u64,
    /// Size in bytes, possibly 0.
    pub size: u64,
    /// True for a function, false for data.
    pub is_function: bool,
}

/// The value that a relocated slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The load address plus this number.
    Relative(u64),
    /// This number, whatever the load address is.
    Constant(u64),
}

/// A tool's shared object, laid out and relocated.
#[derive(Debug)]
pub struct AnalysisImage {
    /// Path of the file that it was read from.
    pub file: PathBuf,
    /// Bytes that are never written, from address 0: headers, constants, code.
    pub text: Vec<u8>,
    /// Executable ranges of `text`, as addresses.
    pub code: Vec<Range<u64>>,
    /// Address, aligned to a page, of the bytes that are written, be it only by relocation.
    pub data_start: u64,
    /// Initial contents of the writable part, relocated.
    pub data: Vec<u8>,
    /// Number of zero bytes that follow `data`.
    pub zero_size: u64,
    /// Addresses of slots of 8 bytes in `data` to which the load address must be added; ascending.
    pub relocations: Vec<u32>,
    /// Thread-local storage, if the tool has any.
    pub tls: Option<Tls>,
    /// Address of the table of initialisers; its entries are among the relocated slots.
    pub init_array: u64,
    /// Addresses of the initialisers.
    pub init_functions: Vec<u64>,
    /// The tool's symbols in order of addresses.
    pub symbols: Vec<Symbol>,
    /// Addresses of its `.eh_frame` in `text`; empty if it has none.
    pub eh_frame: Range<u64>,
    /// Contents of the tool's header.
    pub facts: ToolFacts,
    /// All relocated slots, by address.
    pub(super) slots: BTreeMap<u64, Value>,
    /// Addresses of slots that no store changes after relocation.
    pub(super) constant_slots: Range<u64>,
    /// Slots of strong imports that the runtime lacks, with their names.
    pub(super) missing: BTreeMap<u64, String>,
    /// Ranges of known functions, in order of addresses; disjoint.
    pub(super) functions: Vec<Range<u64>>,
}

impl AnalysisImage {
    /// Makes an empty image, for outputs without a tool.
    pub(super) fn empty(file: &Path) -> Self {
        Self {
            file: file.to_path_buf(),
            text: Vec::new(),
            code: Vec::new(),
            data_start: 0,
            data: Vec::new(),
            zero_size: 0,
            relocations: Vec::new(),
            tls: None,
            init_array: 0,
            init_functions: Vec::new(),
            symbols: Vec::new(),
            eh_frame: 0..0,
            facts: ToolFacts::default(),
            slots: BTreeMap::new(),
            constant_slots: 0..0,
            missing: BTreeMap::new(),
            functions: Vec::new(),
        }
    }

    /// End address of the image.
    pub fn end(&self) -> u64 {
        self.data_start + self.data.len() as u64 + self.zero_size
    }

    /// Bytes of the unwind tables of its code, with the addresses of the tool's file.
    pub fn unwind_table(&self) -> Option<UnwindTable<'_>> {
        let range = self.eh_frame.start as usize..self.eh_frame.end as usize;
        let bytes = self.text.get(range).filter(|b| !b.is_empty())?;
        let memory = Memory::new([(0, &self.text[..])]);
        let input = UnwindInput::from_section(bytes, self.eh_frame.start, memory);
        unwind::parse(&input).ok()
    }

    /// Names of imports that the runtime lacks. They are bound to a function that ends the program.
    pub fn missing_imports(&self) -> impl Iterator<Item = &str> {
        self.missing.values().map(String::as_str)
    }

    /// `len` bytes at an address of the image, if all of them belong to it.
    pub fn bytes_at(&self, address: u64, len: usize) -> Option<&[u8]> {
        let (part, start) = if address >= self.data_start {
            (&self.data, self.data_start)
        } else {
            (&self.text, 0)
        };
        let from = usize::try_from(address - start).ok()?;
        part.get(from..from.checked_add(len)?)
    }

    /// True if an address is in executable code.
    pub fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|r| r.contains(&address))
    }

    /// The demangled name of the function that contains `address`, or its address.
    pub fn name_at(&self, address: u64) -> String {
        if let Some((name, _)) = self.facts.routines.iter().find(|r| r.1 == address) {
            return name.clone();
        }
        let after = self.symbols.partition_point(|s| s.address <= address);
        let found = self.symbols[..after]
            .iter()
            .rev()
            .take_while(|s| s.address + s.size.max(1) > address);
        match found.filter(|s| s.is_function).last().or_else(|| {
            self.symbols[..after]
                .last()
                .filter(|s| s.address + s.size.max(1) > address)
        }) {
            Some(s) => format!("{:#}", rustc_demangle::demangle(&s.name)),
            None => format!("code at {address:#x}"),
        }
    }

    /// The function that starts at or contains `address`, if it is known.
    pub(super) fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let after = self.functions.partition_point(|f| f.start <= address);
        self.functions[..after]
            .last()
            .filter(|f| f.contains(&address))
            .cloned()
    }

    /// The value of a slot that never changes once relocated; `None` for other slots.
    pub(super) fn constant_slot(&self, slot: u64) -> Option<Value> {
        let value = *self.slots.get(&slot)?;
        self.constant_slots.contains(&slot).then_some(value)
    }

    /// Addresses of the functions that the tool's header names.
    pub fn header_functions(&self) -> [u64; 5] {
        let facts = &self.facts;
        [
            facts.start,
            facts.finish,
            facts.thread_enter,
            facts.thread_started,
            facts.thread_block,
        ]
    }

    pub(super) fn check_facts(&self) -> Result<()> {
        let facts = &self.facts;
        let roots = [
            ("start", facts.start),
            ("finish", facts.finish),
            ("thread_enter", facts.thread_enter),
            ("thread_started", facts.thread_started),
            ("thread_block", facts.thread_block),
        ];
        let named = facts.routines.iter().map(|(n, a)| (n.as_str(), *a));
        for (name, address) in roots.into_iter().chain(named) {
            if !self.is_code(address) {
                let reason = "the routine's address is not in the tool's code";
                return Err(Error::new(DOING, reason)
                    .file(&self.file)
                    .symbol(name)
                    .address(address)
                    .advice("define analysis routines in the tool's own crate, not in another shared library"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
impl AnalysisImage {
    /// An image of plain functions and zeroed data, without relocations.
    pub(crate) fn for_test(
        text: Vec<u8>,
        functions: Vec<Range<u64>>,
        data_start: u64,
        data_size: usize,
    ) -> Self {
        Self {
            text,
            code: functions.clone(),
            data_start,
            data: vec![0; data_size],
            functions,
            ..Self::empty(Path::new("test"))
        }
    }
}
