//! The fuzzer's shared memory in the place of the table of cells.
//!
//! The memory may be larger than the table. So it is attached anywhere, and the pages that are needed are moved over the
//! table's.

use std::ffi::{CStr, c_long};
use std::ptr;

use atom_tool::Marks;

use super::shared::Shared;
use super::sys::syscall;

const PAGE: usize = 4096;

/// Number of marks in front of the first cell.
pub const MARGIN: usize = PAGE;

/// Number of marks of the table that are no cells.
pub const SPARE: usize = MARGIN + 2 * PAGE;

/// The variable that names the shared memory.
const VARIABLE: &str = "__AFL_SHM_ID";

/// What fuzzers look for in a program's file: the variable's name.
pub const SIGNATURE: &CStr = c"__AFL_SHM_ID";

/// The pages of the table that shared memory replaces.
#[derive(Clone, Copy)]
pub struct Map {
    /// Address of the first page.
    start: usize,
    /// Number of bytes up to the last cell.
    pub size: usize,
}

impl Map {
    /// The map that contains a number of cells of the table.
    pub fn of(marks: Marks, cells: u32) -> Self {
        let first = marks.address();
        let start = first.next_multiple_of(PAGE);
        let end = first + MARGIN + cells as usize;
        Self {
            start,
            size: end - start,
        }
    }

    fn mapped_size(self) -> usize {
        self.size.next_multiple_of(PAGE)
    }

    /// Puts the shared memory that the environment names in the place of the pages. Returns false if there is none.
    pub fn attach(self) -> Result<bool, String> {
        const MAY_MOVE_TO_FIXED: c_long = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as c_long;
        let Some(Shared { at, size }) = Shared::attach(VARIABLE)? else {
            return Ok(false);
        };
        let size = size.next_multiple_of(PAGE);
        let used = size.min(self.mapped_size());
        let to = self.start;
        // SAFETY: the pages that are replaced belong to the table alone: `SPARE` leaves a page on both sides. The rest
        // of the shared memory is named nowhere.
        unsafe {
            if syscall(libc::SYS_mremap, at, used, used, MAY_MOVE_TO_FIXED, to) == -1 {
                return Err(format!("cannot move the shared memory of {VARIABLE}"));
            }
            if used < size {
                syscall(libc::SYS_munmap, at + used, size - used);
            }
        }
        Ok(true)
    }

    /// Sets all cells to 0.
    pub fn clear(self) {
        // SAFETY: the bytes belong to the table, and are read and written as bytes alone.
        unsafe {
            ptr::write_bytes(
                ptr::with_exposed_provenance_mut::<u8>(self.start),
                0,
                self.size,
            )
        };
    }
}
