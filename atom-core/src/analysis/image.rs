//! The analysis image as a value, and questions about it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::load::{DOING, Reader};
use crate::tool::ToolFacts;
use crate::unwind::{self, Memory, UnwindInput, UnwindTable};
use crate::{Error, Result, memory};

/// The template of thread-local storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Where the initial contents lie.
    pub address: u64,
    /// Bytes of initial contents.
    pub file_size: u64,
    /// Bytes of a block.
    pub mem_size: u64,
    /// Alignment of a block.
    pub align: u64,
}

/// A symbol of the tool, for symbol tables and messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// As in the file, not demangled.
    pub name: String,
    /// Address in the tool's file.
    pub address: u64,
    /// Size in bytes, possibly 0.
    pub size: u64,
    /// A function rather than data.
    pub is_function: bool,
}

/// What a relocated slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The load address plus this.
    Relative(u64),
    /// This, whatever the load address.
    Constant(u64),
}

/// A tool's shared object, laid out and relocated.
#[derive(Debug)]
pub struct AnalysisImage {
    /// The file it came from.
    pub file: PathBuf,
    /// Everything that is never written, from address 0: headers, constants, code.
    pub text: Vec<u8>,
    /// Executable parts of `text`.
    pub code: Vec<Range<u64>>,
    /// Page-aligned start of everything that is written (or was, by relocation).
    pub data_start: u64,
    /// Its initial bytes, relocated.
    pub data: Vec<u8>,
    /// Zero bytes that follow `data`.
    pub zero_size: u64,
    /// Slots, each of 8 bytes in `data`, to which the load address must be added; ascending.
    pub relocations: Vec<u32>,
    /// Thread-local storage, if the tool has any.
    pub tls: Option<Tls>,
    /// Where the table of initialisers lies; its entries are among the relocated slots.
    pub init_array: u64,
    /// The initialisers.
    pub init_functions: Vec<u64>,
    /// The tool's symbols by address.
    pub symbols: Vec<Symbol>,
    /// Where its `.eh_frame` lies in `text`; empty if it has none.
    pub eh_frame: Range<u64>,
    /// What the tool's header says.
    pub facts: ToolFacts,
    /// All relocated slots.
    pub(super) slots: BTreeMap<u64, Value>,
    /// Slots that no store changes after relocation.
    pub(super) constant_slots: Range<u64>,
    /// Slots of strong imports that the runtime lacks.
    pub(super) missing: BTreeMap<u64, String>,
    /// Known functions, by start; disjoint.
    pub(super) functions: Vec<Range<u64>>,
}

impl AnalysisImage {
    /// Reads and prepares the tool in `file`.
    pub fn read(file: &Path, facts: ToolFacts) -> Result<Self> {
        let bytes =
            memory::Contents::of(file).map_err(|e| Error::new(DOING, e.to_string()).file(file))?;
        Self::parse(file, &bytes, facts)
    }

    /// An image of nothing.
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

    /// Prepares the tool whose file holds `bytes`; `file` is for messages.
    pub fn parse(file: &Path, bytes: &[u8], facts: ToolFacts) -> Result<Self> {
        let mut image = Reader::new(file, bytes, &facts).lay_out()?;
        image.facts = facts;
        image.check_facts()?;
        Ok(image)
    }

    /// End of the image: no address of it is at or beyond this.
    pub fn end(&self) -> u64 {
        self.data_start + self.data.len() as u64 + self.zero_size
    }

    /// The unwind tables of its code, at the addresses of the tool's file.
    pub fn unwind_table(&self) -> Option<UnwindTable<'_>> {
        let range = self.eh_frame.start as usize..self.eh_frame.end as usize;
        let bytes = self.text.get(range).filter(|b| !b.is_empty())?;
        let memory = Memory::new([(0, &self.text[..])]);
        let input = UnwindInput::from_section(bytes, self.eh_frame.start, memory);
        unwind::parse(&input).ok()
    }

    /// Imports that the runtime lacks, bound to a function that ends the program.
    pub fn missing_imports(&self) -> impl Iterator<Item = &str> {
        self.missing.values().map(String::as_str)
    }

    /// Bytes at an address of the image, if it has so many.
    pub fn bytes_at(&self, address: u64, len: usize) -> Option<&[u8]> {
        let (part, start) = if address >= self.data_start {
            (&self.data, self.data_start)
        } else {
            (&self.text, 0)
        };
        let from = usize::try_from(address - start).ok()?;
        part.get(from..from.checked_add(len)?)
    }

    /// Whether an address lies in executable code.
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

    /// What a load from a slot yields that never changes once relocated.
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

    fn check_facts(&self) -> Result<()> {
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
