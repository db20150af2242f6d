//! Procedure linkage tables: the small pieces of code through which a dynamic
//! program calls functions of libraries.
//!
//! Linkers agree on the names of the sections and on entries of 16 bytes (8 bytes
//! for functions bound at start). They do not agree on the first entry, which asks
//! the loader to bind a function: the linker mold makes it 32 bytes long. A table whose code does
//! not fall into entries (by the linker lld with retpolines) is taken for ordinary code.

use crate::image::Image;
use crate::image::imports::Imports;
use crate::x86::plt;

/// A procedure linkage table.
pub(super) struct Plt {
    start: u64,
    end: u64,
    /// Size in bytes of the first entry if it asks the loader to bind a function; else 0.
    header: u64,
    /// Size in bytes of the other entries.
    entry_size: u64,
}

/// An entry of a procedure linkage table.
pub(super) struct Entry {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Its name, if the function that it calls has one.
    pub name: Option<String>,
}

/// The tables of a program.
pub(super) fn tables(image: &Image) -> Vec<Plt> {
    image
        .sections
        .iter()
        .filter(|s| {
            matches!(
                s.name.as_str(),
                ".plt" | ".plt.sec" | ".plt.got" | ".plt.bnd" | ".iplt"
            )
        })
        .filter(|s| s.has_code() && s.size > 0)
        .filter_map(|s| {
            let bytes = image.bytes_at(s.address, s.size as usize)?;
            Plt::of(bytes, s.address)
        })
        .collect()
}

impl Plt {
    fn of(bytes: &[u8], start: u64) -> Option<Self> {
        let end = start + bytes.len() as u64;
        let short = plt::has_short_entries(bytes);
        let plt = Self {
            start,
            end,
            header: if short {
                0
            } else {
                plt::header_size(bytes, start)
            },
            entry_size: if short { plt::SHORT_ENTRY } else { plt::ENTRY },
        };
        let whole = plt.entries().all(|(from, to)| {
            let entry = &bytes[(from - start) as usize..(to - start) as usize];
            plt::is_whole(entry, from)
        });
        whole.then_some(plt)
    }

    /// True if the address is in the table.
    pub(super) fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Start and end address of each entry.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let first = (self.header != 0).then(|| (self.start, self.start + self.header));
        let rest = (self.start + self.header..self.end).step_by(self.entry_size as usize);
        first
            .into_iter()
            .chain(rest.map(|from| (from, from + self.entry_size)))
            .map(|(from, to)| (from, to.min(self.end)))
    }

    /// The entries, named by the relocations of the slots that they jump through.
    pub(super) fn named_entries(
        &self,
        image: &Image,
        imports: &Imports<'_>,
    ) -> impl Iterator<Item = Entry> {
        self.entries().map(|(start, end)| {
            let name = slot(image, start, end).and_then(|slot| imports.name(slot));
            Entry {
                start,
                end,
                name: name.map(|n| format!("{n}@plt")),
            }
        })
    }
}

/// The slot that the entry from `entry` to `end` jumps through.
fn slot(image: &Image, entry: u64, end: u64) -> Option<u64> {
    plt::slot(image.bytes_at(entry, (end - entry) as usize)?, entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of each entry of a table at 0x1000.
    fn starts(code: &[&[u8]]) -> Option<Vec<u64>> {
        let table = Plt::of(&code.concat(), 0x1000)?;
        Some(table.entries().map(|e| e.0 - 0x1000).collect())
    }

    const PUSH: &[u8] = &[0xff, 0x35, 1, 0, 0, 0];
    const JUMP: &[u8] = &[0xff, 0x25, 1, 0, 0, 0];
    const TRAPS: &[u8] = &[0xcc; 16];

    #[test]
    fn header_of_gnu_ld() {
        let header = [PUSH, JUMP, &[0x0f, 0x1f, 0x40, 0]].concat();
        let entry = [JUMP, &[0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]].concat();
        assert_eq!(starts(&[&header, &entry, &entry]), Some(vec![0, 16, 32]));
    }

    #[test]
    fn header_of_mold_is_long() {
        let endbr: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        let header = [endbr, &[0x41, 0x53], PUSH, JUMP, &TRAPS[..14]].concat();
        let entry = [endbr, &[0x41, 0xbb, 0, 0, 0, 0], JUMP].concat();
        assert_eq!(starts(&[&header, &entry, &entry]), Some(vec![0, 32, 48]));
    }

    #[test]
    fn short_entries() {
        let entry = [JUMP, &[0x66, 0x90]].concat();
        assert_eq!(starts(&[&entry, &entry]), Some(vec![0, 8]));
    }

    #[test]
    fn retpolines_are_ordinary_code() {
        // push; mov slot, %r11; call 1f; 2: pause; lfence; jmp 2b; 1: mov %r11, (%rsp); ret
        let load: &[u8] = &[0x4c, 0x8b, 0x1d, 1, 0, 0, 0];
        let loops: &[u8] = &[0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9];
        let call: &[u8] = &[0xe8, 14, 0, 0, 0];
        let header = [PUSH, load, call, loops, TRAPS, &TRAPS[..7]].concat();
        assert_eq!(starts(&[&header]), None);
    }

    #[test]
    fn an_entry_cut_short_is_none() {
        assert_eq!(starts(&[&[0xff, 0x25, 1, 0]]), None);
        assert_eq!(starts(&[]), Some(vec![]));
    }
}
