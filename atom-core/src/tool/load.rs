//! Loading a tool: a shared object with the header that the tool interface exports.
//!
//! The file is checked before it is loaded, because loading runs its
//! initialisers: a file that is no tool of this interface version is refused before any of its code runs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::{Path, PathBuf};

use atom_abi::{INTERFACE_VERSION, TOOL_HEADER_SYMBOL, TOOL_MAGIC, ToolHeader};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use object::elf::{EM_X86_64, ET_DYN, FileHeader64, PF_X, PT_LOAD, STT_FUNC};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol, SymbolFlags};

use super::facts::ToolFacts;
use crate::error::Reason;
use crate::{Error, Result, memory};

const DOING: &str = "loading the tool";
const PREFIX: &str = "atom_analysis_";

/// A loaded tool.
pub struct Tool {
    path: PathBuf,
    /// Never unloaded, because threads or destructors that its initialisers left could
    /// run code that is gone.
    _library: ManuallyDrop<Library>,
    header: *const ToolHeader,
    /// Load bias in bytes: address in this process minus address in the file.
    bias: u64,
    /// Executable segments, as addresses in the file.
    text: Vec<Range<u64>>,
    /// Exported symbols by name, as addresses in the file.
    exported: HashMap<String, u64>,
    /// Analysis routines by name, without prefix, as addresses in the file.
    routines: Vec<(String, u64)>,
}

impl Tool {
    /// Loads the tool in the file at `path`.
    pub fn load(path: &Path) -> Result<Self> {
        let fail = |reason: Reason| Error::new(DOING, reason).file(path);
        let bytes = memory::Contents::of(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => fail("there is no such file".into()).advice(
                "a tool of your own is a path to its .so file; --tool NAME takes a shipped one",
            ),
            std::io::ErrorKind::IsADirectory => fail("it is a directory".into()),
            _ => fail(e.into()),
        })?;
        let mut tool = Self::inspect(path, &bytes)?;

        // For a name without a slash the loader would search its own directories.
        let full = path.canonicalize().map_err(|e| fail(e.into()))?;
        // SAFETY: loading runs the initialisers of the tool's Rust standard
        // library, and code that the user asked to run.
        let library = unsafe { Library::open(Some(OsStr::new(&full)), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|e| fail(format!("it cannot be loaded: {e}").into()))?;
        // SAFETY: the symbol is data; only its address is taken here.
        let header = unsafe { library.get::<*const ToolHeader>(TOOL_HEADER_SYMBOL.as_bytes()) }
            .map_err(|e| fail(e.to_string().into()))?
            .into_raw()
            .cast::<ToolHeader>()
            .cast_const();
        tool.bias = (header as u64).wrapping_sub(tool.exported[TOOL_HEADER_SYMBOL]);
        tool.header = header;
        tool._library = ManuallyDrop::new(library);
        Ok(tool)
    }

    /// Reads the tool's file without loading it, and refuses a file that is no tool.
    fn inspect(path: &Path, bytes: &[u8]) -> Result<Self> {
        let fail = |reason: &str| Error::new(DOING, reason).file(path);
        let no_tool = |reason: &str| {
            fail(reason).advice("a tool is a crate of type cdylib that depends on atom-tool and has atom_tool::tool!(...)")
        };
        if !bytes.starts_with(b"\x7fELF") {
            return Err(no_tool("it is not a shared object"));
        }
        let damaged = |e: object::Error| fail(&format!("it is damaged: {e}"));
        if bytes.get(4) != Some(&2) {
            return Err(no_tool("it is not a 64-bit file"));
        }
        let raw = FileHeader64::<LittleEndian>::parse(bytes).map_err(damaged)?;
        let endian = raw.endian().map_err(damaged)?;
        if raw.e_machine(endian) != EM_X86_64 {
            return Err(no_tool("it is not for x86-64"));
        }
        if raw.e_type(endian) != ET_DYN {
            return Err(no_tool("it is not a shared object"));
        }
        let file = ElfFile64::<LittleEndian>::parse(bytes).map_err(damaged)?;

        let text = raw
            .program_headers(endian, bytes)
            .map_err(damaged)?
            .iter()
            .filter(|p| p.p_type(endian) == PT_LOAD && p.p_flags(endian).contains(PF_X))
            .map(|p| {
                let start = p.p_vaddr(endian);
                start..start.saturating_add(p.p_memsz(endian))
            })
            .collect();
        let is_function = |flags: SymbolFlags<_, _>| match flags {
            SymbolFlags::Elf { st_info, .. } => st_info.st_type() == STT_FUNC,
            _ => false,
        };
        let mut exported = HashMap::new();
        let mut routines = Vec::new();
        for symbol in file.dynamic_symbols().filter(|s| s.is_definition()) {
            let Ok(name) = symbol.name() else { continue };
            exported.insert(name.to_owned(), symbol.address());
            if is_function(symbol.flags()) {
                let name = name.strip_prefix(PREFIX).unwrap_or(name);
                routines.push((name.to_owned(), symbol.address()));
            }
        }
        routines.sort();

        let Some(&address) = exported.get(TOOL_HEADER_SYMBOL) else {
            return Err(no_tool("it is a shared object, but not a tool"));
        };
        // Magic, version and size come first in every version and need no relocation.
        let headers = raw.program_headers(endian, bytes).map_err(damaged)?;
        let Some(start) = first_16(headers, bytes, address) else {
            return Err(no_tool("its header lies outside the file"));
        };
        let word = |at: usize| {
            u32::from_le_bytes([start[at], start[at + 1], start[at + 2], start[at + 3]])
        };
        if !start.starts_with(&TOOL_MAGIC.to_le_bytes()) {
            return Err(no_tool("its header is not that of a tool"));
        }
        let (version, size) = (word(8), word(12));
        if version != INTERFACE_VERSION || size as usize != size_of::<ToolHeader>() {
            return Err(fail(&format!(
                "it was built for version {version} of the tool interface (a header of {size} bytes); this atom has version {INTERFACE_VERSION} ({} bytes)",
                size_of::<ToolHeader>()
            ))
            .advice("build the tool again with the atom-tool crate that belongs to this atom"));
        }
        Ok(Self {
            path: path.to_owned(),
            _library: ManuallyDrop::new(Library::this()),
            header: std::ptr::null(),
            bias: 0,
            text,
            exported,
            routines,
        })
    }

    /// The tool's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tool's name: its file's name without `lib` and `.so`.
    pub fn name(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        stem.strip_prefix("lib").unwrap_or(&stem).to_owned()
    }

    pub(super) fn header(&self) -> &ToolHeader {
        // SAFETY: the static of a library that stays loaded; its magic, version
        // and size were checked.
        unsafe { &*self.header }
    }

    /// The facts that later stages need, with addresses in the tool's file.
    pub fn facts(&self) -> ToolFacts {
        let header = self.header();
        let in_file = |address: u64| address.wrapping_sub(self.bias);
        // SAFETY: by the interface, `export_count` entries with static names.
        let exports = unsafe { std::slice::from_raw_parts(header.exports, header.export_count) };
        ToolFacts {
            exports: exports
                .iter()
                // SAFETY: as above.
                .map(|e| {
                    (
                        unsafe { e.name.as_str() }.to_owned(),
                        in_file(e.address as u64),
                    )
                })
                .collect(),
            start: in_file(header.start as usize as u64),
            finish: in_file(header.finish as usize as u64),
            thread_enter: in_file(header.thread_enter as usize as u64),
            thread_started: in_file(header.thread_started as usize as u64),
            thread_block: in_file(header.thread_block as usize as u64),
            routines: self.routines.clone(),
        }
    }

    /// Address in the file of code at an address of this process.
    pub(super) fn code_in_file(&self, address: *const ()) -> Option<u64> {
        let address = (address as u64).wrapping_sub(self.bias);
        self.text
            .iter()
            .any(|t| t.contains(&address))
            .then_some(address)
    }

    /// Address in the file of an exported item at an address of this
    /// process, and true if the item is code.
    pub(super) fn exported_in_file(&self, address: *const ()) -> Option<(u64, bool)> {
        let in_file = (address as u64).wrapping_sub(self.bias);
        let known = self.exported.values().any(|a| *a == in_file);
        known.then(|| (in_file, self.code_in_file(address).is_some()))
    }

    /// Address in this process of an exported symbol, with or without prefix.
    pub(super) fn named(&self, name: &str) -> Option<*const ()> {
        let address = self
            .exported
            .get(&format!("{PREFIX}{name}"))
            .or_else(|| self.exported.get(name))?;
        Some(address.wrapping_add(self.bias) as *const ())
    }

    /// Name of the analysis routine at an address in the file.
    pub(super) fn routine_name(&self, address: u64) -> String {
        match self.routines.iter().find(|r| r.1 == address) {
            Some((name, _)) => name.clone(),
            None => format!("the routine at {address:#x} of the tool"),
        }
    }
}

/// The 16 bytes at a virtual address of a file with these program headers.
fn first_16<'b>(
    headers: &[object::elf::ProgramHeader64<LittleEndian>],
    bytes: &'b [u8],
    address: u64,
) -> Option<&'b [u8; 16]> {
    let offset = headers.iter().find_map(|p| {
        let skip = address.checked_sub(p.p_vaddr(LittleEndian))?;
        let end = skip.checked_add(16)?;
        let is_inside = p.p_type(LittleEndian) == PT_LOAD && end <= p.p_filesz(LittleEndian);
        is_inside.then(|| p.p_offset(LittleEndian).checked_add(skip))?
    })?;
    bytes.get(usize::try_from(offset).ok()?..)?.first_chunk()
}
