//! The area that all objects of an instrumented process share.
//!
//! It holds the tool's code and data and the data of the calls, once, at fixed addresses below 2 GiB: so
//! inserted code of any object, wherever the object is mapped, names what is there by 32-bit addresses,
//! and needs no relocation. Nothing else has addresses there: the kernel maps position-independent
//! objects far above, so for these the area ends where the first 2 GiB end. A program at fixed addresses
//! usually begins at 4 MiB, with its heap and then its new text after it: the area ends where the new text
//! begins, as far from the heap as possible.
//!
//! In its file the area has two parts, each mapped as a whole: what is only read and executed (the tool's
//! code and constants), and what is written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use atom_abi::StartInfo;

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::error::{Error, ErrorKind, Result};
use crate::image::Image;
use crate::plan;

use super::Region;

/// The end of the area's addresses: a signed 32-bit displacement reaches all below it, and the shadow
/// memory of AddressSanitizer begins above it.
const END: u64 = 0x7fff_0000;

/// Lowest start of an area for position-independent objects, out of the way of small addresses.
const LOWEST: u64 = 0x1000_0000;

/// Bytes after a program at fixed addresses in which the kernel chooses the heap's start.
const HEAP_STARTS: u64 = 0x4000_0000;

/// Bytes of addresses for added libraries' files in a process that has most of the first 2 GiB for the area, if the area
/// leaves them. The area ends below 0x5000_0000 then, where SBCL has its own.
const ADDED: u64 = 768 << 20;
/// Part of the addresses of the area that they get in other processes.
const ADDED_PART: u64 = 4;

/// Addresses for an area and for the files of libraries that are added later.
pub struct Spaces {
    /// Addresses for both.
    pub all: Range<u64>,
    /// Bytes at the end that the area leaves to the libraries if it can.
    pub added: u64,
}

/// The addresses that an area may have in a process of this program.
fn space(program: &Image) -> Range<u64> {
    if program.kind.is_position_independent() {
        LOWEST..END
    } else {
        program.end + HEAP_STARTS..Region::of(program).start.min(END)
    }
}

impl Spaces {
    /// Most bytes that an area may have.
    fn most(&self) -> u64 {
        self.all.end.saturating_sub(self.all.start) & !(PAGE - 1)
    }

    /// The start of an area of this size: before the space of libraries, or of what is left of that.
    fn start(&self, size: u64) -> Option<u64> {
        let left = self.most().checked_sub(size)?;
        Some((self.all.end - size - self.added.min(left)) & !(PAGE - 1))
    }
}

/// The addresses for the area of a process of this program. `grows`: libraries may be added.
pub fn spaces(program: &Image, grows: bool) -> Spaces {
    let all = space(program);
    let most = all.end.saturating_sub(all.start);
    let added = match (grows, program.kind.is_position_independent()) {
        (false, _) => 0,
        (true, true) => ADDED,
        (true, false) => ADDED.min(most / ADDED_PART),
    };
    Spaces { all, added }
}

/// Sizes of what an area holds beside the tool.
pub struct AreaSizes {
    /// The calls' data, in bytes.
    pub data: u64,
    /// The facts of the process, in bytes.
    pub facts: u64,
}

/// The functions of the tool that inserted code calls by their addresses: the routines of `used`, and those
/// that the core calls itself; ascending.
fn called(analysis: &AnalysisImage, used: &[u64]) -> Vec<u64> {
    let exports = plan::CALLED
        .iter()
        .filter_map(|name| analysis.facts.export(name));
    let of_header = analysis.header_functions();
    let all = used.iter().copied().chain(of_header).chain(exports);
    all.collect::<BTreeSet<u64>>().into_iter().collect()
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
    /// Start of what is only read and executed: the address at which the tool's address 0 is.
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
    /// What the runtime is told of the process, after the `StartInfo`.
    pub facts: u64,
    /// End of the area.
    pub end: u64,
}

impl Area {
    /// Places everything. `used` are the routines of the tool that are called;
    /// `file` and `loader` are the paths of the area's file and of the rewritten program interpreter;
    /// `spaces` are the addresses that it may have.
    pub fn new(
        analysis: &AnalysisImage,
        used: &[u64],
        sizes: &AreaSizes,
        file: &Path,
        loader: &Path,
        spaces: Spaces,
    ) -> Result<Self> {
        let routines = called(analysis, used);
        let table_size = 8 * routines.len() as u64;
        let place = |start: u64| {
            let mut at = start + analysis.end();
            let mut take = |align: u64, size: u64| {
                let own = at.next_multiple_of(align);
                at = own + size;
                own
            };
            let data = take(PAGE, sizes.data);
            let slots = take(8, table_size);
            let info = take(64, size_of::<StartInfo>() as u64);
            let facts = take(64, sizes.facts);
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
        let Some(start) = spaces.start(size) else {
            let reason = format!("the tool's code and data take {} MB", size >> 20);
            let error = Error::new("placing the tool's data", reason).advice(format!(
                "this process has space for {} MB; instrument the program alone, or less of it",
                spaces.most() >> 20
            ));
            return Err(Error {
                kind: ErrorKind::TooLarge,
                ..error
            });
        };
        Ok(Self {
            routines,
            file: file.to_path_buf(),
            loader: loader.to_path_buf(),
            ..place(start)
        })
    }

    /// The area as a library sees it that is added to the running process: everything is where it was, but the
    /// library has a table of routines and facts of its own. `start` is the address at which the library's data
    /// begins. `sizes` counts the data of all calls in bytes: of those that the process had, and of the library's.
    pub fn with_library(
        &self,
        analysis: &AnalysisImage,
        used: &[u64],
        sizes: &AreaSizes,
        start: u64,
    ) -> Self {
        let routines = called(analysis, used);
        let slots = (self.data + sizes.data).next_multiple_of(8);
        let facts = (slots + 8 * routines.len() as u64).next_multiple_of(64);
        Self {
            rw: start,
            slots,
            routines,
            facts,
            end: facts + sizes.facts,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_leaves_the_room_of_libraries_if_it_can() {
        let spaces = Spaces {
            all: LOWEST..END,
            added: ADDED,
        };
        let end = |size: u64| spaces.start(size).map(|start| start + size);
        assert_eq!(end(300 << 20), Some(END - ADDED));
        // A larger one takes what it needs of that, and begins with the first address.
        assert_eq!(spaces.start(1280 << 20), Some(LOWEST));
        assert_eq!(spaces.start(END - LOWEST), Some(LOWEST));
        assert_eq!(spaces.start(END - LOWEST + PAGE), None);
    }
}
