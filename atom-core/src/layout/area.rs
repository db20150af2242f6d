//! The area that all objects of an instrumented process share.
//!
//! It holds the tool's code and data and the data of the calls, once, at fixed addresses below 2 GiB: so
//! inserted code of any object, wherever the object is mapped, names what lies there by 32-bit addresses,
//! and needs no relocation. Nothing else has addresses there: the kernel maps position-independent
//! objects far above, so for these the area ends where the first 2 GiB end. A program at fixed addresses
//! usually begins at 4 MiB, with its heap and then its new text behind it: the area ends where the new text
//! begins, as far from the heap as possible.
//!
//! In its file the area has two parts, each mapped as a whole: what is only read and executed (the tool's
//! code and constants), and what is written.

use std::ops::Range;
use std::path::{Path, PathBuf};

use atom_abi::StartInfo;

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;

use super::Region;

/// The end of the area's addresses: a signed 32-bit displacement reaches all below it, and the shadow
/// memory of AddressSanitizer begins above it.
const END: u64 = 0x7fff_0000;

/// Lowest start of an area for position-independent objects, out of the way of small addresses.
const LOWEST: u64 = 0x1000_0000;

/// Bytes behind a program at fixed addresses in which the kernel chooses the heap's start.
const HEAP_STARTS: u64 = 0x4000_0000;

/// The addresses that an area may have in a process of this program.
pub fn room(program: &Image) -> Range<u64> {
    match program.kind.is_position_independent() {
        true => LOWEST..END,
        false => program.end + HEAP_STARTS..Region::of(program).start.min(END),
    }
}

/// Addresses of the parts of the area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Area {
    /// The area's file.
    pub file: PathBuf,
    /// The rewritten program interpreter's file.
    pub loader: PathBuf,
    /// The runtime's `start`.
    pub runtime: u64,
    /// Start of what is only read and executed: the address at which the tool's address 0 lies.
    pub start: u64,
    /// Start of what is written.
    pub rw: u64,
    /// The data of the calls.
    pub data: u64,
    /// The table of addresses of routines that inserted code calls.
    pub slots: u64,
    /// The routines of the table, as addresses in the tool's file; ascending.
    pub routines: Vec<u64>,
    /// The `StartInfo`.
    pub info: u64,
    /// What the runtime is told of the process, behind the `StartInfo`.
    pub facts: u64,
    /// End of the area.
    pub end: u64,
}

impl Area {
    /// Places everything. `data_size` is the size of the calls' data in bytes, `facts_size` the size of
    /// the facts of the process; `routines` are the functions of the tool that are called;
    /// `files` are the paths of the area's file and of the rewritten program interpreter;
    /// `room` are the addresses that the area may have.
    pub fn new(
        analysis: &AnalysisImage,
        data_size: u64,
        facts_size: u64,
        mut routines: Vec<u64>,
        files: (&Path, &Path),
        room: Range<u64>,
    ) -> Result<Self> {
        routines.sort_unstable();
        routines.dedup();
        let table_size = 8 * routines.len() as u64;
        let place = |start: u64| {
            let mut at = start + analysis.end();
            let mut take = |align: u64, size: u64| {
                let own = at.next_multiple_of(align);
                at = own + size;
                own
            };
            let data = take(PAGE, data_size);
            let slots = take(8, table_size);
            let info = take(64, size_of::<StartInfo>() as u64);
            let facts = take(64, facts_size);
            Self {
                file: PathBuf::new(),
                loader: PathBuf::new(),
                runtime: start + analysis.facts.start,
                start,
                rw: start + analysis.data_start,
                data,
                slots,
                routines: Vec::new(),
                info,
                facts,
                end: at.next_multiple_of(PAGE),
            }
        };
        let size = place(0).end;
        let most = room.end.saturating_sub(room.start) & !(PAGE - 1);
        if size > most {
            let reason = format!("the tool's code and data take {} MB", size >> 20);
            let error = Error::new("placing the tool's data", reason).advice(format!(
                "this process has room for {} MB; instrument the program alone, or less of it",
                most >> 20
            ));
            return Err(Error {
                kind: ErrorKind::TooLarge,
                ..error
            });
        }
        Ok(Self {
            routines,
            file: files.0.to_path_buf(),
            loader: files.1.to_path_buf(),
            ..place((room.end - size) & !(PAGE - 1))
        })
    }

    /// The area as a library sees it that is added to the running process: everything is where it was, but the
    /// library has a table of routines and facts of its own. `start` is where the library's data begins, `data_end` the
    /// offset in the data of its end.
    pub fn with_library(
        &self,
        start: u64,
        data_end: u64,
        mut routines: Vec<u64>,
        facts_size: u64,
    ) -> Self {
        routines.sort_unstable();
        routines.dedup();
        let slots = (self.data + data_end).next_multiple_of(8);
        let facts = (slots + 8 * routines.len() as u64).next_multiple_of(64);
        Self {
            rw: start,
            slots,
            routines,
            facts,
            end: facts + facts_size,
            ..self.clone()
        }
    }

    /// The routine whose address a place holds, as an address in the tool's file.
    pub fn routine_of(&self, slot: u64) -> Option<u64> {
        let offset = slot.checked_sub(self.slots)?;
        let index = (offset.is_multiple_of(8)).then_some(offset / 8)?;
        self.routines.get(usize::try_from(index).ok()?).copied()
    }

    /// The place that holds the address of a routine.
    pub fn slot(&self, routine: u64) -> Option<u64> {
        let index = self.routines.binary_search(&routine).ok()?;
        Some(self.slots + 8 * index as u64)
    }
}
