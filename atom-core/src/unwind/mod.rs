//! Exception tables of the program: `.eh_frame` and the tables to which it refers.
//!
//! They serve two ends. For discovery they are the best list of procedures and landing pads that a
//! stripped program has. For rewriting they must be translated, since return addresses will be in
//! new text and the unwinder has to find its way there.
//!
//! The rule of `.eh_frame` in short: records with a 32-bit length; a second
//! word of zero makes one a CIE (what many procedures share), else an FDE whose
//! second word is the distance back to its CIE. The CIE's augmentation string
//! says which pointers follow and how they are encoded: `z` (a length comes
//! first, so unknown data can be skipped), `R` (encoding of code addresses), `P`
//! (personality routine), `L` (encoding of the LSDA pointer), `S` (a signal
//! frame).
//!
//! Input is not trusted: a record that makes no sense is left out and listed
//! in [`UnwindTable::skipped`].

mod cfi;
mod cursor;
pub mod go;
mod lsda;
mod records;
pub mod write;

use std::ops::Range;

use object::elf;

use crate::image::debug::DebugLines;
use crate::image::{Image, LineSource};
use crate::{Error, Result};
pub use cfi::{CFA_AT_ENTRY, CfaRule};
pub(crate) use cfi::{CfiKind, CfiReader};
pub(crate) use cursor::{Cursor, INDIRECT, OMIT, PCREL_SDATA4, Read};
pub use lsda::{CallSite, Lsda, TypeEntry, TypeTable};

const DOING: &str = "reading exception tables";

impl Image {
    /// The loaded bytes of the file.
    fn loaded(&self) -> Memory<'_> {
        let segments = self.segments.iter();
        Memory::new(
            segments
                .filter_map(|s| Some((s.address, self.bytes_at(s.address, s.file_size as usize)?))),
        )
    }

    /// The exception tables; empty if the program has none.
    pub fn unwind_table(&self) -> Result<UnwindTable<'_>> {
        let memory = self.loaded();
        let header = self
            .program_headers
            .iter()
            .find(|p| p.kind == elf::PT_GNU_EH_FRAME && p.mem_size > 0);
        let input = match (self.section(".eh_frame"), header) {
            (Some(section), _) if section.size > 0 => {
                let bytes = self.bytes_at(section.address, section.size as usize);
                UnwindInput::from_section(bytes.unwrap_or_default(), section.address, memory)
            }
            (_, Some(header)) => UnwindInput::from_header(header.address, memory)?,
            _ => UnwindInput::from_section(&[], 0, memory),
        };
        let mut table = parse(&input)?;
        table.go = go::GoTable::read(self)?;
        Ok(table)
    }
}

/// The loaded bytes of the file by virtual address.
#[derive(Clone, Default, Debug)]
pub struct Memory<'a> {
    segments: Vec<(u64, &'a [u8])>,
}

impl<'a> Memory<'a> {
    /// From the file-backed part of each loaded segment.
    pub fn new(segments: impl IntoIterator<Item = (u64, &'a [u8])>) -> Self {
        let mut segments: Vec<_> = segments.into_iter().collect();
        segments.sort_by_key(|s| s.0);
        Self { segments }
    }

    /// The bytes from `vaddr` to the end of its segment.
    pub fn at(&self, vaddr: u64) -> Option<&'a [u8]> {
        let i = self
            .segments
            .partition_point(|s| s.0 <= vaddr)
            .checked_sub(1)?;
        let (start, bytes) = self.segments[i];
        let offset = usize::try_from(vaddr - start).ok()?;
        bytes.get(offset..).filter(|rest| !rest.is_empty())
    }

    fn size(&self) -> usize {
        self.segments.iter().map(|s| s.1.len()).sum()
    }
}

/// Where `.eh_frame` is, and the memory that it points into.
#[derive(Clone, Debug)]
pub struct UnwindInput<'a> {
    /// The bytes of `.eh_frame`; other bytes may follow.
    pub eh_frame: &'a [u8],
    /// Address of the first byte.
    pub vaddr: u64,
    /// True if the end is not known. A record of length zero then ends the table.
    pub ends_at_zero: bool,
    /// The loaded segments.
    pub memory: Memory<'a>,
}

impl<'a> UnwindInput<'a> {
    /// The section `.eh_frame` of a program that has section headers.
    pub fn from_section(eh_frame: &'a [u8], vaddr: u64, memory: Memory<'a>) -> Self {
        Self {
            eh_frame,
            vaddr,
            ends_at_zero: false,
            memory,
        }
    }

    /// Through the program header `PT_GNU_EH_FRAME`, which gives the address of
    /// `.eh_frame_hdr`; its second field points to `.eh_frame`.
    pub fn from_header(header: u64, memory: Memory<'a>) -> Result<Self> {
        let fail = |reason: &str| Error::new(DOING, reason).address(header);
        let bytes = memory
            .at(header)
            .ok_or_else(|| fail("the header is not loaded"))?;
        let mut c = Cursor::new(bytes, 0, header);
        let mut read = || -> Read<u64> {
            if c.u8()? != 1 {
                return Err("the header's version is not 1");
            }
            let encoding = c.u8()?;
            c.u16()?;
            if encoding == OMIT || encoding & INDIRECT != 0 {
                return Err("the header does not say where the table is");
            }
            Ok(c.encoded(encoding)?.value)
        };
        let vaddr = read().map_err(fail)?;
        let eh_frame = memory
            .at(vaddr)
            .ok_or_else(|| fail("the table is not loaded"))?;
        Ok(Self {
            eh_frame,
            vaddr,
            ends_at_zero: true,
            memory,
        })
    }
}

/// The routine that decides what an exception does to a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Personality {
    /// Address of the routine, or of the slot that holds its address.
    pub vaddr: u64,
    /// True if the routine's address is stored at `vaddr`.
    pub indirect: bool,
}

/// A common information entry.
#[derive(Clone, Debug)]
pub struct Cie {
    /// Offset of the record in `.eh_frame`.
    pub offset: u32,
    /// 1 or 3.
    pub version: u8,
    /// Factor of advances.
    pub code_align: u64,
    /// Factor of the offsets of saved registers.
    pub data_align: i64,
    /// DWARF number of the return address column.
    pub return_register: u64,
    /// Encoding of code addresses.
    pub pointer_encoding: u8,
    /// FDEs have a length and data in front of their instructions (`z`).
    pub has_data: bool,
    /// Encoding of LSDA pointers, if FDEs have them.
    pub lsda_encoding: Option<u8>,
    /// The personality routine, if any.
    pub personality: Option<Personality>,
    /// Frames are those of signal handlers: the address is not after a call.
    pub signal_frame: bool,
    /// Initial instructions, as offsets in `.eh_frame`.
    pub instructions: Range<u32>,
    /// The CFA after the initial instructions.
    pub initial_cfa: CfaRule,
}

/// A frame description entry: how to unwind from one range of code.
#[derive(Clone, Debug)]
pub struct Fde {
    /// First address.
    pub start: u64,
    /// Size of the range; not zero.
    pub size: u64,
    /// Index in [`UnwindTable::cies`].
    pub cie: u32,
    /// Offset of the record in `.eh_frame`.
    pub offset: u32,
    /// Address of the language-specific data, if any.
    pub lsda: Option<u64>,
    /// Its instructions, as offsets in `.eh_frame`.
    pub instructions: Range<u32>,
    /// The CFA at `start`. Other than [`CFA_AT_ENTRY`]: not entered by a call,
    /// such as the cold part that a compiler split off.
    pub cfa_at_start: CfaRule,
}

impl Fde {
    /// The address after its range.
    pub fn end(&self) -> u64 {
        self.start + self.size
    }
}

/// A record that was not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skipped {
    /// Address of the record.
    pub vaddr: u64,
    /// Why.
    pub reason: &'static str,
}

/// The contents of `.eh_frame`.
#[derive(Clone, Debug)]
pub struct UnwindTable<'a> {
    /// The CIEs in file order.
    pub cies: Vec<Cie>,
    /// The FDEs by start address.
    pub fdes: Vec<Fde>,
    /// Records left out.
    pub skipped: Vec<Skipped>,
    /// Go's own tables, in a program of Go.
    pub go: Option<go::GoTable<'a>>,
    pub(crate) eh_frame: &'a [u8],
    pub(crate) vaddr: u64,
    memory: Memory<'a>,
}

/// The system call `rt_sigreturn` in the forms that libraries use: a move of the number into rax or
/// eax, then `syscall`.
const SIGRETURN: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];

/// Parses `.eh_frame`.
///
/// Fails only if the table is too large to be real. Damaged records are left out.
pub fn parse<'a>(input: &UnwindInput<'a>) -> Result<UnwindTable<'a>> {
    let bytes = input.eh_frame;
    if !input.ends_at_zero && u32::try_from(bytes.len()).is_err() {
        return Err(Error::new(DOING, "the table exceeds 4 GiB").address(input.vaddr));
    }
    let bytes = &bytes[..bytes.len().min(u32::MAX as usize)];
    let mut table = UnwindTable {
        cies: Vec::new(),
        fdes: Vec::new(),
        skipped: Vec::new(),
        go: None,
        eh_frame: bytes,
        vaddr: input.vaddr,
        memory: input.memory.clone(),
    };
    let mut pos = 0;
    while let Some(word) = bytes.get(pos..pos + 4) {
        let length = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize;
        if length == 0 && input.ends_at_zero {
            break;
        }
        let end = pos + 4 + length;
        if length == u32::MAX as usize || end > bytes.len() {
            table.skip(pos, "the record runs past the end");
            break;
        }
        if length != 0
            && let Err(reason) = table.record(pos, end)
        {
            table.skip(pos, reason);
        }
        pos = end;
    }
    table.fdes.sort_by_key(|f| f.start);
    Ok(table)
}

impl<'a> UnwindTable<'a> {
    /// The source lines of a program: from its debug information, or else from Go's tables.
    pub fn lines<'s>(&'s self, image: &'s Image) -> DebugLines<'s> {
        DebugLines::or(image, self.go.as_ref().map(|go| go as &dyn LineSource))
    }

    /// The FDE that covers an address.
    pub fn find(&self, address: u64) -> Option<usize> {
        let i = self
            .fdes
            .partition_point(|f| f.start <= address)
            .checked_sub(1)?;
        (address < self.fdes[i].end()).then_some(i)
    }

    /// Start of the code of an FDE. The FDE of code to which signal handlers return starts one byte
    /// early, since unwinders look up the byte before a return address.
    pub fn code_start(&self, fde: &Fde) -> u64 {
        let early = self.cie(fde).signal_frame
            && fde.size > 1
            && self.memory.at(fde.start + 1).is_some_and(|code| {
                SIGRETURN
                    .iter()
                    .any(|trampoline| code.starts_with(trampoline))
            });
        fde.start + u64::from(early)
    }

    /// The CIE of an FDE.
    pub fn cie(&self, fde: &Fde) -> &Cie {
        &self.cies[fde.cie as usize]
    }

    /// The language-specific data of an FDE.
    pub fn lsda(&self, fde: &Fde) -> Result<Option<Lsda<'a>>> {
        let Some(vaddr) = fde.lsda else {
            return Ok(None);
        };
        let bytes = self.memory.at(vaddr).ok_or("it is not loaded");
        match bytes.and_then(|bytes| Lsda::parse(bytes, vaddr, fde.start)) {
            Ok(lsda) => Ok(Some(lsda)),
            Err(reason) => {
                Err(Error::new("reading a language-specific data area", reason).address(vaddr))
            }
        }
    }

    /// Landing pads, each with the index of its FDE. A landing pad of several call sites comes
    /// several times. LSDAs that make no sense end early.
    pub fn landing_pads(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.call_sites()
            .filter_map(|(i, site)| Some((i, site.landing_pad?)))
    }

    /// Ranges of code (start, end) in which an exception leads to a landing pad.
    pub fn try_ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.call_sites()
            .filter_map(|(_, site)| Some((site.start, site.start + site.size, site.landing_pad?)))
    }

    /// All call sites, each with the index of its FDE.
    fn call_sites(&self) -> impl Iterator<Item = (usize, CallSite)> + '_ {
        // Tables of different FDEs do not overlap, so together they cannot be
        // longer than the program; hostile ones are cut off there.
        let mut budget = self.memory.size();
        self.fdes
            .iter()
            .enumerate()
            .filter_map(|(i, f)| Some((i, f, f.lsda?)))
            .flat_map(move |(i, fde, lsda)| {
                let sites = self.memory.at(lsda).and_then(|bytes| {
                    let sites = lsda::CallSites::new(bytes, lsda, fde.start).ok()?;
                    budget = budget.checked_sub(sites.remaining())?;
                    Some(sites)
                });
                sites
                    .into_iter()
                    .flat_map(|mut s| std::iter::from_fn(move || s.next().ok().flatten()))
                    .map(move |site| (i, site))
            })
    }

    /// Total size of the loaded segments: no honest set of tables exceeds it.
    pub(crate) fn memory_size(&self) -> usize {
        self.memory.size()
    }

    /// Steps through the initial instructions of a CIE.
    pub(crate) fn cie_instructions(&self, cie: &Cie) -> CfiReader<'a> {
        self.instructions(cie, &cie.instructions)
    }

    /// Steps through the instructions of an FDE.
    pub(crate) fn fde_instructions(&self, fde: &Fde) -> CfiReader<'a> {
        self.instructions(self.cie(fde), &fde.instructions)
    }

    fn instructions(&self, cie: &Cie, range: &Range<u32>) -> CfiReader<'a> {
        let bytes = &self.eh_frame[..range.end as usize];
        let cursor = Cursor::new(bytes, range.start as usize, self.vaddr);
        CfiReader::new(cursor, cie.code_align, cie.data_align, cie.pointer_encoding)
    }
}
