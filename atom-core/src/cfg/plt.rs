//! Procedure linkage tables: the small pieces of code through which a dynamic
//! program calls functions of libraries.
//!
//! Linkers agree on the names of the sections and on entries of 16 bytes (8 bytes
//! for functions bound at start). They do not agree on the first entry, which asks
//! the loader to bind a function: the linker mold makes it 32 bytes long. A table whose code does
//! not fall into entries (by the linker lld with retpolines) is taken for ordinary code.

use rustc_hash::FxHashMap;

use super::ProcKind;
use super::seeds::Seed;
use crate::image::Image;
use crate::x86::{decode_at, is_rip_relative};

/// A procedure linkage table.
pub(super) struct Plt {
    start: u64,
    end: u64,
    /// Size in bytes of the first entry if it asks the loader to bind a function; else 0.
    header: u64,
    /// Size in bytes of the other entries.
    entry_size: u64,
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
        .filter(|s| s.flags & 4 != 0 && s.size > 0)
        .filter_map(|s| {
            let bytes = image.bytes_at(s.address, s.size as usize)?;
            Plt::of(bytes, s.address)
        })
        .collect()
}

impl Plt {
    fn of(bytes: &[u8], start: u64) -> Option<Self> {
        let end = start + bytes.len() as u64;
        // Without lazy binding an entry is only `jmp [slot]; xchg ax, ax`.
        let short = bytes.starts_with(&[0xff, 0x25]) && bytes.get(6..8) == Some(&[0x66, 0x90]);
        let plt = Self {
            start,
            end,
            header: if short { 0 } else { header_size(bytes, start) },
            entry_size: if short { 8 } else { 16 },
        };
        let whole = plt.entries().all(|(from, to)| {
            let entry = &bytes[(from - start) as usize..(to - start) as usize];
            is_whole(entry, from)
        });
        whole.then_some(plt)
    }

    /// True if the address lies in the table.
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
    pub(super) fn seeds(
        &self,
        image: &Image,
        imports: &FxHashMap<u64, &str>,
    ) -> impl Iterator<Item = Seed> {
        self.entries().map(|(from, to)| {
            let name = slot(image, from, to).and_then(|slot| imports.get(&slot));
            let mut seed = Seed::bare(from);
            seed.end = Some(to);
            seed.kind = ProcKind::Plt;
            seed.name = name.map(|n| format!("{n}@plt"));
            seed
        })
    }
}

/// Size in bytes of the first entry if it asks the loader to bind a function, which it does by pushing a word
/// of memory before its jump; else 0.
fn header_size(bytes: &[u8], start: u64) -> u64 {
    let mut at = 0;
    let mut pushes = false;
    while let Some(instruction) = decode_at(&bytes[at..], start + at as u64) {
        at += instruction.len();
        pushes |= instruction.code() == crate::x86::Code::Push_rm64;
        if instruction.is_jmp_near_indirect() {
            return if pushes {
                (at as u64).next_multiple_of(16)
            } else {
                0
            };
        }
        if instruction.flow_control() != crate::x86::FlowControl::Next || at >= bytes.len() {
            break;
        }
    }
    0
}

/// True if the last instruction of an entry ends where the entry ends. The bytes
/// behind an entry's jump are padding and may be anything.
fn is_whole(entry: &[u8], start: u64) -> bool {
    let mut at = 0;
    while at < entry.len() {
        let Some(instruction) = decode_at(&entry[at..], start + at as u64) else {
            return false;
        };
        at += instruction.len();
        if matches!(
            instruction.flow_control(),
            crate::x86::FlowControl::IndirectBranch | crate::x86::FlowControl::UnconditionalBranch
        ) {
            return true;
        }
    }
    // A table's last entry may be padding only.
    entry.iter().all(|b| *b == entry[0])
}

fn slot(image: &Image, entry: u64, end: u64) -> Option<u64> {
    let mut pc = entry;
    while pc < end {
        let instruction = decode_at(image.bytes_at(pc, (end - pc) as usize)?, pc)?;
        if instruction.is_jmp_near_indirect() {
            return is_rip_relative(&instruction).then(|| instruction.memory_displacement64());
        }
        pc = instruction.next_ip();
    }
    None
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
