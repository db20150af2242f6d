//! The program header table of the output: what the kernel maps, and what a
//! dynamic loader gets to see. A static program's libc sees another one
//! (`libc_view`).

use object::elf;

use crate::error::{Error, Result};
use crate::image::{Image, ProgramHeader};

/// A program header table of the output.
#[derive(Debug)]
pub struct Table {
    /// The entries.
    pub entries: Vec<ProgramHeader>,
    /// True if the table has to move.
    pub moves: bool,
}

/// Entries that a running program can do without, least needed first. The
/// property note only says that the program could run under CET; the moved
/// text keeps `endbr64` and the balance of calls and returns, but the new
/// segments make no such promise.
pub fn spare_rank(image: &Image, p: &ProgramHeader) -> Option<u32> {
    let property = image
        .program_headers
        .iter()
        .find(|q| q.kind == elf::PT_GNU_PROPERTY);
    match p.kind {
        elf::PT_NULL => Some(0),
        elf::PT_GNU_PROPERTY => Some(1),
        elf::PT_NOTE if property.is_some_and(|q| q.address == p.address) => Some(2),
        elf::PT_NOTE => Some(3),
        _ => None,
    }
}

/// The original's entries and `new` loadable ones; `eh_frame_hdr` replaces or
/// becomes the entry of the exception tables.
pub fn build(
    image: &Image,
    new: &[ProgramHeader],
    eh_frame_hdr: Option<ProgramHeader>,
) -> Result<Table> {
    let mut entries = image.program_headers.clone();
    let capacity = entries.len();
    let mut added = new.to_vec();
    if let Some(header) = eh_frame_hdr {
        match entries.iter_mut().find(|p| p.kind == elf::PT_GNU_EH_FRAME) {
            Some(old) => *old = header,
            None => added.push(header),
        }
    }
    let mut spare: Vec<(u32, usize)> = entries
        .iter()
        .enumerate()
        .filter_map(|(i, p)| Some((spare_rank(image, p)?, i)))
        .collect();
    spare.sort_unstable();
    let moves = spare.len() < added.len();
    if !moves {
        let mut dropped: Vec<usize> = spare[..added.len()].iter().map(|s| s.1).collect();
        dropped.sort_unstable();
        for i in dropped.into_iter().rev() {
            entries.remove(i);
        }
    }
    entries.extend(added);
    // PT_PHDR and PT_INTERP precede the loadable ones, which ascend.
    entries.sort_by_key(sort_key);
    if !moves && entries.len() != capacity {
        return Err(Error::new(
            "writing the program headers",
            "their number changed (a defect of atom)",
        ));
    }
    Ok(Table { entries, moves })
}

/// Gives the loadable segment at an address another size.
pub fn extend(entries: &mut [ProgramHeader], extended: Option<(u64, u64)>) {
    let Some((address, size)) = extended else {
        return;
    };
    let mut loads = entries.iter_mut().filter(|p| p.kind == elf::PT_LOAD);
    if let Some(p) = loads.find(|p| p.address == address) {
        (p.file_size, p.mem_size) = (size, size);
    }
}

/// Adds `shift` to every address of an entry that has one.
pub fn shift(entries: &mut [ProgramHeader], shift: u64) {
    for p in entries.iter_mut().filter(|p| p.mem_size > 0) {
        p.address = p.address.wrapping_add(shift);
    }
    // Addresses that wrapped around come first now.
    entries.sort_by_key(sort_key);
}

fn sort_key(p: &ProgramHeader) -> (u32, u64) {
    match p.kind {
        elf::PT_PHDR => (0, 0),
        elf::PT_INTERP => (1, 0),
        elf::PT_LOAD => (2, p.address),
        _ => (3, 0),
    }
}

/// The entries as bytes.
pub fn to_bytes(entries: &[ProgramHeader]) -> Vec<u8> {
    let mut out = Vec::with_capacity(entries.len() * 56);
    for p in entries {
        out.extend(p.kind.0.to_le_bytes());
        out.extend(p.flags.0.to_le_bytes());
        for field in [
            p.offset,
            p.address,
            p.address,
            p.file_size,
            p.mem_size,
            p.align,
        ] {
            out.extend(field.to_le_bytes());
        }
    }
    out
}
