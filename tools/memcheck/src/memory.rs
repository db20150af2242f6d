//! The process's memory as the search for leaks reads it: what is mapped, and words that can be read without a fault.
//!
//! Reading may fault: a file may be shorter than its mapping, and the program may have forbidden pages of a block. Only
//! anonymous memory with the right to read is read directly; other memory is read by the kernel.

use std::cell::{Cell, RefCell};
use std::ptr::with_exposed_provenance;

use atom_tool::read_memory;

use crate::slots;

/// Bytes that the kernel reads at once, and the size of a page.
const CHUNK: u64 = 1 << 16;
const PAGE: u64 = 4096;

/// One line of `/proc/self/maps`.
struct Mapping {
    start: u64,
    end: u64,
    is_readable: bool,
    /// True if a read cannot fault.
    is_anonymous: bool,
    /// True if its words are roots.
    has_roots: bool,
}

/// What is mapped at one moment.
pub struct Memory {
    mappings: Vec<Mapping>,
    /// The mapping that was looked at last: mostly it is the next one, too.
    last: Cell<usize>,
    buffer: RefCell<Vec<u8>>,
}

impl Memory {
    /// Reads what is mapped; `None` if the process may not ask for it.
    pub fn of_process() -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let mut area_end = 0;
        let mut mappings: Vec<Mapping> = Vec::new();
        // File of the last mapping, if its object may have protected the mapping after its relocations.
        let mut protected = "";
        for line in maps.lines() {
            let Some((range, rights, path)) = fields(line) else {
                continue;
            };
            let [start, end] = range;
            // The tool's data is in the file of the area, and right after it.
            let is_tools = path.ends_with("/area") || (path.is_empty() && start == area_end);
            if is_tools {
                area_end = end;
            }
            let is_device = path.starts_with("/dev/") && path != "/dev/zero";
            let is_own = is_tools || is_device || is_own(start);
            let has_roots = rights.starts_with("rw") && !is_own;
            if let Some(last) = mappings.last_mut().filter(|last| last.end == start) {
                last.has_roots |= has_roots && !path.is_empty() && path == protected;
            }
            protected = if rights == "r--p" { path } else { "" };
            mappings.push(Mapping {
                start,
                end,
                is_readable: rights.starts_with('r'),
                is_anonymous: path.is_empty() || path.starts_with('['),
                has_roots,
            });
        }
        Some(Self {
            mappings,
            last: Cell::new(0),
            buffer: RefCell::new(vec![0; CHUNK as usize]),
        })
    }

    /// Memory that has roots: start and end. Below `sp` the stack that `sp` is in has none.
    pub fn roots(&self, sp: u64) -> Vec<[u64; 2]> {
        let mappings = self.mappings.iter().filter(|mapping| mapping.has_roots);
        let ranges = mappings.map(|m| {
            if (m.start..m.end).contains(&sp) {
                [sp, m.end]
            } else {
                [m.start, m.end]
            }
        });
        ranges.collect()
    }

    /// Gives the aligned words between two addresses to `found`. Words that cannot be read are left out.
    pub fn words(&self, [start, end]: [u64; 2], mut found: impl FnMut(u64)) {
        let mut at = start.next_multiple_of(8);
        while at + 8 <= end {
            let i = self.index_of(at);
            let Some(mapping) = self.mappings.get(i) else {
                return;
            };
            let stop = mapping.end.min(end & !7);
            if at < mapping.start {
                at = mapping.start;
                continue;
            }
            if mapping.is_readable && mapping.is_anonymous {
                (at..stop).step_by(8).for_each(|at| found(load(at)));
            } else if mapping.is_readable {
                self.words_by_kernel(at, stop, &mut found);
            }
            at = stop;
        }
    }

    /// The word at an address; 0 if it cannot be read.
    pub fn word(&self, at: u64) -> u64 {
        let mut word = 0;
        self.words([at, at + 8], |found| word = found);
        word
    }

    /// Number of the first mapping that ends above an address.
    fn index_of(&self, at: u64) -> usize {
        let last = self.last.get();
        let fits = |mapping: &Mapping| (mapping.start..mapping.end).contains(&at);
        if self.mappings.get(last).is_some_and(fits) {
            return last;
        }
        let i = self.mappings.partition_point(|mapping| mapping.end <= at);
        self.last.set(i);
        i
    }

    /// As [`Self::words`], where a read may fault.
    fn words_by_kernel(&self, start: u64, end: u64, found: &mut impl FnMut(u64)) {
        let mut buffer = self.buffer.borrow_mut();
        let mut at = start;
        while at < end {
            let wanted = (end - at).min(CHUNK) as usize;
            let read = read_memory(at, &mut buffer[..wanted]) & !7;
            let words = buffer[..read].chunks_exact(8);
            words.for_each(|word| found(u64::from_ne_bytes(word.try_into().unwrap_or_default())));
            at = if read == 0 {
                (at | (PAGE - 1)) + 1
            } else {
                at + read as u64
            };
        }
    }
}

/// Addresses, rights and path of a line of `/proc/self/maps`.
fn fields(line: &str) -> Option<([u64; 2], &str, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let (start, end) = range.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let path = words.nth(3).unwrap_or_default();
    Some(([number(start)?, number(end)?], rights, path))
}

/// True for memory of the tool's at fixed addresses, and of the runtime's.
fn is_own(start: u64) -> bool {
    slots::is_own(start)
        || (0x7fff_8000..0x1000_7fff_8000).contains(&start)
        || (0x5500_0000_0000..0x5555_0000_0000).contains(&start)
        || (0x5660_0000_0000..0x5680_0000_0000).contains(&start)
}

/// A word of anonymous memory that can be read.
fn load(at: u64) -> u64 {
    // SAFETY: it is mapped, with the right to read. The process ends, so nobody unmaps it but another thread of the program
    // that still runs.
    unsafe { with_exposed_provenance::<u64>(at as usize).read_volatile() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_beyond_the_end_of_a_file_are_left_out() {
        use std::ffi::{c_int, c_long, c_void};
        use std::fs::File;
        use std::os::fd::AsRawFd;
        unsafe extern "C" {
            fn mmap(
                at: *mut c_void,
                len: usize,
                prot: c_int,
                how: c_int,
                fd: c_int,
                from: c_long,
            ) -> isize;
        }
        let path = std::env::temp_dir().join(format!("memcheck-words-{}", std::process::id()));
        std::fs::write(&path, 7u64.to_ne_bytes().repeat(512)).unwrap();
        let file = File::open(&path).unwrap();
        // SAFETY: a new private mapping of two pages, of which the file has one.
        let at = unsafe { mmap(std::ptr::null_mut(), 8192, 3, 2, file.as_raw_fd(), 0) } as u64;
        let memory = Memory::of_process().unwrap();
        let mut words = Vec::new();
        memory.words([at, at + 8192], |word| words.push(word));
        assert_eq!(words, [7; 512]);
        assert_eq!([memory.word(at + 4088), memory.word(at + 4096)], [7, 0]);
        assert_eq!(memory.word(8), 0);
        std::fs::remove_file(path).unwrap();
    }
}
