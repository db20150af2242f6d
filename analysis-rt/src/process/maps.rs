//! What the kernel tells of the process's mappings in `/proc/self/maps`.

use crate::sys::call::{is_error, syscall};
use crate::sys::{memory, sandbox};

/// Largest size in bytes of the text that is read.
const MOST: usize = 8 << 20;

/// The text.
#[derive(Clone, Copy, Default)]
pub(crate) struct Maps {
    /// The lines.
    pub text: &'static [u8],
}

/// One line.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    /// First address.
    pub start: u64,
    /// Address after the last.
    pub end: u64,
    /// True if the process may write there.
    pub is_writable: bool,
    /// Offset in the file of the first address.
    pub offset: u64,
    /// Path of the file; empty if there is none.
    pub path: &'static [u8],
}

impl Line {
    /// Reads a line; `None` if it is none.
    fn new(line: &'static [u8]) -> Option<Self> {
        let mut rest = line;
        let mut number = |skipped: usize| {
            rest = rest.get(skipped..)?;
            let digits = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
            let text = core::str::from_utf8(&rest[..digits]).ok()?;
            rest = rest.get(digits..)?;
            u64::from_str_radix(text, 16).ok()
        };
        // A dash; then the access rights between spaces.
        let (start, end, offset) = (number(0)?, number(1)?, number(" r-xp ".len())?);
        let rights = line.split(|b| *b == b' ').nth(1)?;
        let path = line.iter().position(|b| *b == b'/');
        Some(Self {
            start,
            end,
            is_writable: rights.contains(&b'w'),
            offset,
            path: path.map_or(&[], |at| &line[at..]),
        })
    }
}

impl Maps {
    /// Asks the kernel; `None` if the process may not ask. The text is not given back.
    pub(crate) fn read() -> Option<Self> {
        let needed = [libc::SYS_openat, libc::SYS_read, libc::SYS_mmap];
        if !needed.iter().all(|n| sandbox::is_allowed(*n)) {
            return None;
        }
        let (path, flags) = (c"/proc/self/maps", libc::O_RDONLY | libc::O_CLOEXEC);
        // SAFETY: the kernel reads the path.
        let file = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        if is_error(file) {
            return None;
        }
        let room = memory::map(MOST);
        let mut len = 0;
        while !room.is_null() {
            // SAFETY: the kernel writes to the room.
            let read = unsafe { syscall!(libc::SYS_read, file, room.add(len), MOST - len) };
            if read <= 0 {
                break;
            }
            len += read as usize;
        }
        // SAFETY: the file was opened above; the room is this function's, and is not given back.
        unsafe {
            syscall!(libc::SYS_close, file);
            (!room.is_null()).then(|| Self {
                text: core::slice::from_raw_parts(room, len),
            })
        }
    }

    /// The lines.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line> + use<> {
        let lines: &'static [u8] = self.text;
        lines.split(|b| *b == b'\n').filter_map(Line::new)
    }
}
