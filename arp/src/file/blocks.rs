//! Framing of the binary format: a heading, then blocks. Each block can be checked and read without the others.
//!
//! The heading has the two text lines with which the ASCII format begins, too (with 1 for *binary*), then
//! [`MAGIC`] and the version. A block has a head of [`HEAD`] bytes, little-endian, and contents:
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | [`MARK`] |
//! | 1 | kind, see [`BlockKind`]; blocks of unknown kinds are skipped |
//! | 1 | 0: plain contents, 1: compressed in the LZ4 block format |
//! | 2 | 0 |
//! | 4 | thread |
//! | 4 | number of records |
//! | 4 | size of the contents before compression |
//! | 4 | size of the contents in the file |
//! | 4 | CRC-32 of the 24 bytes before and of the contents in the file |
use std::io::{self, Read};

use crate::error::{Error, FilePosition, Result};
use crate::file::{Heading, bytes};
use crate::types::{Section, SectionKind, Sid, Tid};

/// Follows the two text lines of a binary file.
pub(crate) const MAGIC: &[u8; 7] = b"ARPBIN\0";
/// Version of the binary format.
pub(crate) const VERSION: u8 = 1;
const MARK: &[u8; 4] = b"ARPb";
const HEAD: usize = 28;
/// Limit of a block's uncompressed size in bytes; a larger size is an error.
const MAX_CONTENTS: usize = 16 << 20;
/// Contents of up to this many bytes are not compressed.
const SMALL: usize = 64;
/// Number of section descriptions in a block.
const SECTIONS: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum BlockKind {
    /// Pairs of texts: notes, and `set.N`, the names of the sets of values.
    Info = 1,
    /// Descriptions of sections.
    Sections = 2,
    /// Records of mode `RecordAll`.
    Samples = 3,
    /// Records of mode `RecordAverage`.
    Stats = 4,
    /// Records of mode `RecordHistogram`.
    Histograms = 5,
    /// The file is complete; contains the number of records.
    End = 6,
}

/// Makes the bytes of a block in the file.
fn frame(kind: BlockKind, tid: Tid, records: u32, contents: &[u8]) -> Vec<u8> {
    let mut out = vec![0; HEAD];
    let mut codec = 0;
    if contents.len() > SMALL {
        out.resize(
            HEAD + lz4_flex::block::get_maximum_output_size(contents.len()),
            0,
        );
        match lz4_flex::block::compress_into(contents, &mut out[HEAD..]) {
            Ok(size) if size < contents.len() => {
                out.truncate(HEAD + size);
                codec = 1;
            }
            _ => out.truncate(HEAD),
        }
    }
    if codec == 0 {
        out.extend_from_slice(contents);
    }
    let stored = (out.len() - HEAD) as u32;
    out[..4].copy_from_slice(MARK);
    out[4] = kind as u8;
    out[5] = codec;
    out[8..12].copy_from_slice(&tid.0.to_le_bytes());
    out[12..16].copy_from_slice(&records.to_le_bytes());
    out[16..20].copy_from_slice(&(contents.len() as u32).to_le_bytes());
    out[20..24].copy_from_slice(&stored.to_le_bytes());
    let sum = checksum(&out[..24], &out[HEAD..]);
    out[24..28].copy_from_slice(&sum.to_le_bytes());
    out
}

fn checksum(head: &[u8], contents: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(contents);
    hasher.finalize()
}

/// A block of samples; `payload` comes from [`Encoder::take`](crate::encoder::Encoder::take).
pub(crate) fn samples(tid: Tid, records: u32, payload: &[u8]) -> Vec<u8> {
    frame(BlockKind::Samples, tid, records, payload)
}

/// A block of sums; see [`sums`](crate::file::sums).
pub(crate) fn sums(kind: BlockKind, tid: Tid, records: u32, payload: &[u8]) -> Vec<u8> {
    frame(kind, tid, records, payload)
}

/// Blocks with descriptions of sections.
pub(crate) fn sections(sections: &[Section]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in sections.chunks(SECTIONS) {
        let mut contents = Vec::new();
        for section in chunk {
            leb128::push(&mut contents, u64::from(section.sid.0));
            leb128::push(&mut contents, section.kind as u64);
            leb128::push(&mut contents, u64::from(section.line));
            leb128::push(&mut contents, u64::from(section.end_line));
            bytes::put_text(&mut contents, &section.name);
            bytes::put_text(&mut contents, &section.file);
        }
        out.extend(frame(
            BlockKind::Sections,
            Tid(0),
            chunk.len() as u32,
            &contents,
        ));
    }
    out
}

/// The last block.
pub(crate) fn end(records: u64) -> Vec<u8> {
    let mut contents = Vec::new();
    leb128::push(&mut contents, records);
    frame(BlockKind::End, Tid(0), 0, &contents)
}

/// A block of notes; empty if there are none.
pub(crate) fn notes(pairs: &[(String, String)]) -> Vec<u8> {
    if pairs.is_empty() {
        return Vec::new();
    }
    let mut contents = Vec::new();
    for (key, value) in pairs {
        bytes::put_text(&mut contents, key);
        bytes::put_text(&mut contents, value);
    }
    frame(BlockKind::Info, Tid(0), pairs.len() as u32, &contents)
}

/// Everything in front of the records: heading, notes, descriptions.
pub(crate) fn head(heading: &Heading) -> Vec<u8> {
    let mut out = heading.lines(1).into_bytes();
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    let names = heading
        .sets
        .iter()
        .enumerate()
        .filter(|(_, s)| !s.name.is_empty());
    let names = names.map(|(i, s)| (format!("set.{i}"), s.name.clone()));
    let pairs: Vec<_> = heading.info.iter().cloned().chain(names).collect();
    out.extend(notes(&pairs));
    out.extend(sections(&heading.sections));
    out
}

/// A block that was read.
#[derive(Debug)]
pub(crate) struct Block {
    pub kind: u8,
    pub tid: Tid,
    pub records: u32,
    pub contents: Vec<u8>,
    /// Offset in the file at which it starts.
    pub offset: u64,
}

impl Block {
    /// The error of contents that violate the format although the checksum is right.
    pub fn bad(&self, reason: &str) -> Error {
        Error::syntax(
            FilePosition::Offset(self.offset),
            format!("the block there {reason}"),
        )
    }

    /// Adds the contents of an `Info` or `Sections` block to the heading.
    pub fn describe(&self, heading: &mut Heading) -> Result<()> {
        let mut cursor = bytes::Cursor::new(&self.contents);
        let bad = || self.bad("is no description");
        for _ in 0..self.records {
            if self.kind == BlockKind::Info as u8 {
                let key = cursor.text().ok_or_else(bad)?;
                let value = cursor.text().ok_or_else(bad)?;
                let set = key
                    .strip_prefix("set.")
                    .and_then(|n| n.parse::<usize>().ok());
                match set.and_then(|n| heading.sets.get_mut(n)) {
                    Some(set) => set.name = value,
                    None => heading.info.push((key, value)),
                }
                continue;
            }
            let mut section = || {
                Some(Section {
                    sid: Sid(cursor.number32()?),
                    kind: SectionKind::from_number(cursor.number()?)?,
                    line: cursor.number32()?,
                    end_line: cursor.number32()?,
                    name: cursor.text()?,
                    file: cursor.text()?,
                })
            };
            heading.add_section(section().ok_or_else(bad)?);
        }
        Ok(())
    }
}

/// Reads until `buffer` is full or the source ends. Returns the number of bytes read.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match source.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Reads a block that starts at `offset`. `None` at the end of the source.
pub(crate) fn read(source: &mut impl Read, offset: u64) -> Result<Option<(Block, u64)>> {
    let position = FilePosition::Offset(offset);
    let failed = |e: io::Error| Error::reading(position, &e);
    let mut head = [0; HEAD];
    match fill(source, &mut head).map_err(failed)? {
        0 => return Ok(None),
        HEAD => {}
        _ => return Err(Error::truncated(position, "the file ends within a block")),
    }
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let (raw, stored) = (word(16) as usize, word(20) as usize);
    if head[..4] != *MARK || head[5] > 1 || raw > MAX_CONTENTS || stored > MAX_CONTENTS {
        return Err(Error::syntax(position, "there is no block"));
    }
    // A wrong size must not cost memory.
    let mut data = Vec::new();
    let read = source
        .take(stored as u64)
        .read_to_end(&mut data)
        .map_err(failed)?;
    if read < stored {
        return Err(Error::truncated(position, "the file ends within a block"));
    }
    if checksum(&head[..24], &data) != word(24) {
        return Err(Error::syntax(position, "the block's checksum is wrong"));
    }
    let next = offset + (HEAD + stored) as u64;
    let contents = match head[5] {
        0 if raw == stored => data,
        // LZ4 compresses by a factor of at most 255.
        1 if raw / 256 <= stored => {
            let contents = lz4_flex::block::decompress(&data, raw);
            let contents = contents.ok().filter(|c| c.len() == raw);
            contents.ok_or_else(|| Error::syntax(position, "the block cannot be decompressed"))?
        }
        _ => return Err(Error::syntax(position, "the block's sizes are wrong")),
    };
    let block = Block {
        kind: head[4],
        tid: Tid(word(8)),
        records: word(12),
        contents,
        offset,
    };
    Ok(Some((block, next)))
}
