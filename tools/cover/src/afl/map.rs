//! The fuzzer's shared memory in the place of the table of cells.
//!
//! The environment variable `__AFL_SHM_ID` has the number of a System V shared memory segment, or the name of one of
//! POSIX (`/NAME`). The segment may be larger than the table. So it is attached anywhere, and the pages that are needed
//! are moved over the table's.

use std::env;
use std::ffi::{CStr, c_long, c_void};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::ptr;

use atom_tool::Marks;

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

    /// Attaches the shared memory that the environment names. Returns false if there is none.
    pub fn attach(self) -> Result<bool, String> {
        let Some(name) = env::var_os(VARIABLE) else {
            return Ok(false);
        };
        let name = name.to_string_lossy();
        let name = name.as_ref();
        let done = match name.parse() {
            Ok(number) => self.attach_system_v(number),
            Err(_) => self.attach_posix(name),
        };
        match done {
            Some(()) => Ok(true),
            None => Err(format!("cannot attach shared memory {VARIABLE}={name}")),
        }
    }

    fn attach_system_v(self, number: c_long) -> Option<()> {
        const IPC_STAT: c_long = libc::IPC_STAT as c_long;
        /// Bytes of the kernel's description of a segment, at most.
        const DESCRIPTION: usize = 128;
        /// Place of the size in it, in words: it follows the permissions.
        const SIZE_AT: usize = 48 / 8;
        const MAY_MOVE_TO_FIXED: c_long = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as c_long;
        let mut description = [0usize; DESCRIPTION / 8];
        // SAFETY: the kernel writes the description, which is smaller than that. The new mapping's addresses are the
        // kernel's choice. The pages that are replaced belong to the table alone: `SPARE` leaves a page on both sides.
        unsafe {
            if syscall(libc::SYS_shmctl, number, IPC_STAT, description.as_mut_ptr()) != 0 {
                return None;
            }
            let size = description[SIZE_AT].next_multiple_of(PAGE);
            let at = syscall(libc::SYS_shmat, number, ptr::null::<c_void>(), 0);
            if at == -1 {
                return None;
            }
            let used = size.min(self.mapped_size());
            let to = self.start;
            if syscall(libc::SYS_mremap, at, used, used, MAY_MOVE_TO_FIXED, to) == -1 {
                syscall(libc::SYS_shmdt, at);
                return None;
            }
            if used < size {
                syscall(libc::SYS_munmap, at as usize + used, size - used);
            }
        }
        Some(())
    }

    fn attach_posix(self, name: &str) -> Option<()> {
        const READ_WRITE: c_long = (libc::PROT_READ | libc::PROT_WRITE) as c_long;
        const SHARED_FIXED: c_long = (libc::MAP_SHARED | libc::MAP_FIXED) as c_long;
        let path = format!("/dev/shm/{}", name.trim_start_matches('/'));
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let size = file.metadata().ok()?.len() as usize;
        let used = size.next_multiple_of(PAGE).min(self.mapped_size());
        // SAFETY: as above.
        let at = unsafe {
            let descriptor = file.as_raw_fd();
            syscall(
                libc::SYS_mmap,
                self.start,
                used,
                READ_WRITE,
                SHARED_FIXED,
                descriptor,
                0,
            )
        };
        (at != -1).then_some(())
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
