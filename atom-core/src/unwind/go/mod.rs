//! Go's tables of program counters: what `.eh_frame` is for other languages.
//!
//! Go's runtime looks each return address up, to unwind (stack traces, panics, growth of stacks), to find
//! pointers (garbage collection), and to decide whether a thread may be stopped where it is. The linker
//! writes what it needs as `runtime.pclntab` and enters it into `runtime.firstmoduledata`:
//!
//! - *pcHeader*: a magic, the number of functions, and where the parts are;
//! - *ftab*: for each function the offset of its entry from `text`, and of its record in *pclntable*; at the
//!   end one more with the offset of the text's end;
//! - *findfunctab*: an index into *ftab* by address;
//! - *pclntable*: a record for each function (`_func`): name, and offsets of tables by program counter
//!   ([`pc_values`]) in *pctab* and of data (`funcdata`) after `gofunc`;
//! - *funcnametab*, *cutab*, *filetab*: names of functions and of source files.
//!
//! The new text is above the old one, so the rewritten program has tables for both: old
//! functions as they are (functions may stay, and pointers to functions keep their original values), then an
//! entry for the gap, then a new entry for each function that moved ([`write`]). Only the slices in the
//! module data change.
//!
//! The first 24 words of the module data are the same from Go 1.18 to 1.27. Versions differ by the
//! place of `gofunc` and by the form of records, which [`Form`] tells.
//!
//! Input is not trusted: each table is checked before it is used, and a program with a table that makes no sense
//! is refused as a whole, since guesses would break it.

mod find;
mod lines;
pub mod pc_values;
mod version;
pub mod write;

use super::Memory;
use crate::Result;
use crate::image::Image;
use pc_values::Run;
pub use version::Version;

const DOING: &str = "reading Go's tables";

/// Oldest and newest version that is understood, as the number after `1.`.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 19..=27;

/// Words of the module data (`runtime.moduledata`) that all versions have at the same place.
pub mod word {
    /// Address of the pcHeader.
    pub const HEADER: usize = 0;
    /// The slice `funcnametab`: address, length, capacity.
    pub const NAMES: usize = 1;
    /// The slice `cutab`.
    pub const UNITS: usize = 4;
    /// The slice `filetab`.
    pub const FILES: usize = 7;
    /// The slice `pctab`.
    pub const PCTAB: usize = 10;
    /// The slice `pclntable`.
    pub const PCLNTABLE: usize = 13;
    /// The slice `ftab`.
    pub const FTAB: usize = 16;
    /// Address of `findfunctab`.
    pub const FIND: usize = 19;
    /// Address of the first function.
    pub const MIN_PC: usize = 20;
    /// The address after the last function.
    pub const MAX_PC: usize = 21;
    /// Address of the text, from which offsets count.
    pub const TEXT: usize = 22;
    /// The address after the text.
    pub const TEXT_END: usize = 23;
}

/// What differs between versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Magic of the pcHeader.
    pub magic: u32,
    /// Word of the module data that has the address `gofunc`, from which offsets of `funcdata` count.
    pub gofunc: usize,
    /// Word of the module data with the slice `textsectmap`.
    pub text_sections: usize,
    /// Records and inlined calls state the first line of the function. Else an inlined call has 20 bytes, with the number of its parent.
    pub has_start_line: bool,
}

impl Form {
    fn of(minor: u32) -> Option<Self> {
        let (magic, gofunc, text_sections) = match minor {
            19 => (0xffff_fff0, 38, 39),
            20..=25 => (0xffff_fff1, 40, 41),
            26 => (0xffff_fff1, 40, 42),
            27 => (0xffff_fff1, 43, 45),
            _ => return None,
        };
        Some(Self {
            magic,
            gofunc,
            text_sections,
            has_start_line: minor >= 20,
        })
    }

    /// Size in bytes of a record without its lists.
    pub fn record_size(self) -> usize {
        if self.has_start_line { 44 } else { 40 }
    }

    /// Size in bytes of an inlined call.
    pub fn inlined_call_size(self) -> usize {
        if self.has_start_line { 16 } else { 20 }
    }

    /// Offset in an inlined call of the place of the call, as distance from the function's start.
    pub fn parent_pc(self) -> usize {
        if self.has_start_line { 8 } else { 16 }
    }
}

/// Offsets in a record of the fields that all versions have at the same place.
pub mod field {
    /// Distance of the entry from the text's start.
    pub const ENTRY: usize = 0;
    /// Offset of the name in `funcnametab`.
    pub const NAME: usize = 4;
    /// Distance from the entry to the call of `deferreturn`, 0 if there is none.
    pub const DEFER_RETURN: usize = 12;
    /// Offsets in `pctab`: distance of the stack pointer from the frame's end, source file, source line.
    pub const TABLES: [usize; 3] = [16, 20, 24];
    /// Number of further tables by program counter.
    pub const PCDATA_COUNT: usize = 28;
    /// Number in `cutab` of the first source file of the function's unit.
    pub const UNIT: usize = 32;
    /// Place of the flags, in bytes before the end of the part that all records have.
    pub const FLAGS_FROM_END: usize = 3;
}

/// Flags of functions (`FuncFlag*`).
pub mod flag {
    /// Unwinding ends at this function.
    pub const TOP_FRAME: u8 = 1;
    /// The function was written in assembly.
    pub const ASSEMBLY: u8 = 4;
}

/// Numbers of tables by program counter (`PCDATA_*`).
pub mod pcdata {
    /// Whether a thread may be stopped.
    pub const UNSAFE_POINT: usize = 0;
    /// Number of the innermost inlined call.
    pub const INLINED: usize = 2;
}

/// Number of the `funcdata` with the inlined calls.
pub const INLINED_CALLS: usize = 3;

/// A function of Go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// The next function's first address.
    pub end: u64,
    /// Offset of the record in `pclntable`.
    pub record: u32,
}

/// The language of a function.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Origin {
    /// Go.
    Go,
    /// The assembly of Go's tool chain.
    Assembly,
    /// Another one, such as C. Go's linker lists such functions, but knows no source lines of them.
    #[default]
    Other,
}

/// The tables of a program.
#[derive(Clone, Debug)]
pub struct GoTable<'a> {
    /// The version that linked the program.
    pub version: Version,
    /// Form of the tables.
    pub form: Form,
    /// Address of the module data.
    pub module: u64,
    /// Address of the text, from which offsets count.
    pub text: u64,
    /// The address after the text.
    pub text_end: u64,
    /// Address from which offsets of `funcdata` count.
    pub gofunc: u64,
    /// The functions by address.
    pub functions: Vec<Function>,
    names: &'a [u8],
    /// For each source file of each unit its offset in `files`, in 32 bits.
    units: &'a [u8],
    files: &'a [u8],
    pctab: &'a [u8],
    pclntable: &'a [u8],
    memory: Memory<'a>,
}

/// A record of a function.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    form: Form,
    bytes: &'a [u8],
}

/// The 32-bit number at an offset.
fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

/// The text at an offset, up to the zero byte after it.
fn text_at(bytes: &[u8], at: u32) -> Option<&str> {
    let rest = bytes.get(at as usize..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

impl<'a> Record<'a> {
    fn word(&self, at: usize) -> u32 {
        word_at(self.bytes, at).unwrap_or(0)
    }

    fn pcdata_count(&self) -> usize {
        self.word(field::PCDATA_COUNT) as usize
    }

    fn funcdata_count(&self) -> usize {
        usize::from(self.bytes[self.form.record_size() - 1])
    }

    /// Offset in `pctab` of a table by program counter; 0 if there is none.
    pub fn pcdata(&self, number: usize) -> u32 {
        if number < self.pcdata_count() {
            self.word(self.form.record_size() + 4 * number)
        } else {
            0
        }
    }

    /// Distance of a `funcdata` from `gofunc`.
    pub fn funcdata(&self, number: usize) -> Option<u32> {
        let at = self.form.record_size() + 4 * (self.pcdata_count() + number);
        (number < self.funcdata_count())
            .then(|| self.word(at))
            .filter(|offset| *offset != u32::MAX)
    }

    /// Size in bytes with its lists.
    fn size(&self) -> usize {
        self.form.record_size() + 4 * (self.pcdata_count() + self.funcdata_count())
    }

    /// The bytes, with the lists.
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[..self.size()]
    }

    /// The language that the function was written in.
    pub fn origin(&self) -> Origin {
        let flags = self.bytes[self.form.record_size() - field::FLAGS_FROM_END];
        let [_, files, lines] = field::TABLES.map(|at| self.word(at));
        if files == 0 && lines == 0 {
            return Origin::Other;
        }
        match flags & flag::ASSEMBLY {
            0 => Origin::Go,
            _ => Origin::Assembly,
        }
    }

    /// Distance from the entry to the call of `deferreturn`, if there is one.
    pub fn defer_return(&self) -> Option<u32> {
        Some(self.word(field::DEFER_RETURN)).filter(|distance| *distance != 0)
    }
}

impl<'a> GoTable<'a> {
    /// The tables of a program of Go's tool chain; `None` for other programs. Fails if the version is
    /// not known or a table makes no sense.
    pub fn read(image: &'a Image) -> Result<Option<Self>> {
        if image.is_go() {
            find::tables(image).map(Some)
        } else {
            Ok(None)
        }
    }

    /// The function that contains an address.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        let i = self.functions.partition_point(|f| f.start <= address);
        let function = &self.functions[i.checked_sub(1)?];
        (address < function.end).then_some(function)
    }

    /// The record of a function.
    pub fn record(&self, function: &Function) -> Record<'a> {
        Record {
            form: self.form,
            bytes: &self.pclntable[function.record as usize..],
        }
    }

    /// Name of a function, with its package's path.
    pub fn name(&self, function: &Function) -> &'a str {
        let at = self.record(function).word(field::NAME);
        text_at(self.names, at).unwrap_or_default()
    }

    /// The table by program counter at an offset of `pctab`; empty for offset 0, which means none.
    pub fn values(&self, offset: u32) -> Vec<Run> {
        // Checked when the tables were read.
        let bytes = self.pctab.get(offset as usize..).filter(|_| offset != 0);
        bytes.and_then(pc_values::read).unwrap_or_default()
    }

    /// Bytes at a distance from `gofunc`, to the end of the segment.
    fn funcdata_at(&self, offset: u32) -> Option<&'a [u8]> {
        self.memory.at(self.gofunc.checked_add(offset.into())?)
    }

    /// Largest distance in bytes of the stack pointer from the end of the function's frame.
    pub fn frame_size(&self, function: &Function) -> u32 {
        let values = self.values(self.record(function).word(field::TABLES[0]));
        let largest = values.iter().map(|run| run.value).max();
        largest.unwrap_or(0).max(0) as u32
    }

    /// Where control continues in a function after a recovered panic: at its call of `deferreturn`.
    pub fn defer_return(&self, function: &Function) -> Option<u64> {
        let distance = self.record(function).defer_return()?;
        Some(function.start + u64::from(distance)).filter(|a| *a < function.end)
    }
}
