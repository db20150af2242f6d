//! The markers of `ato.h`.
//!
//! Format of a note in `.note.ato`, all words of four bytes: length of the owner
//! with its null (4), length of the description, type; the owner `ato`; the
//! description: the address of the marker's `nop` (8 bytes), the line, the
//! section's name and the source file, each ended by a null. Each part is padded
//! to four bytes. A marker that was inlined or unrolled has a note for each copy.

use std::collections::BTreeMap;

use atom_tool::Program;

use super::region::{Border, Point};
use super::{Found, How, MeasuredKind, Section, Unplaced};

/// Name of the section with the notes.
const SECTION: &str = ".note.ato";
const OWNER: &[u8] = b"ato\0";

/// The contents of a note.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Note {
    kind: u32,
    address: u64,
    line: u32,
    name: String,
    file: String,
}

const KERNEL: u32 = 1;
const PROFILE: u32 = 2;
const KERNEL_END: u32 = 3;
const PROFILE_END: u32 = 4;
const SCOPE_END: u32 = 5;
const KERNEL_FROM: u32 = 6;
const PROFILE_FROM: u32 = 7;

/// Finds the sections that are marked by notes.
pub fn find<'a>(program: &Program<'a>, found: &mut Found<'a>) {
    let mut sections: BTreeMap<(MeasuredKind, String, String), Section<'a>> = BTreeMap::new();
    for note in notes(program.section(SECTION)) {
        // The note of code that the linker dropped.
        if note.address == 0 {
            continue;
        }
        let kind = match note.kind {
            KERNEL | KERNEL_END | KERNEL_FROM => MeasuredKind::Kernel,
            PROFILE | PROFILE_END | PROFILE_FROM => MeasuredKind::Profiled,
            SCOPE_END => {
                match program.inst_at(note.address) {
                    Some(inst) => found.scope_ends.push(Point::Before(inst)),
                    None => found.unplaced.push(unplaced(MeasuredKind::Profiled, &note)),
                }
                continue;
            }
            _ => continue,
        };
        let Some(inst) = program.inst_at(note.address) else {
            found.unplaced.push(unplaced(kind, &note));
            continue;
        };
        let key = (kind, note.name.clone(), note.file.clone());
        let section = sections.entry(key).or_insert_with(|| Section {
            kind,
            how: How::Marker,
            name: note.name.clone(),
            function: inst.proc().name().to_owned(),
            file: Some(note.file.clone()),
            lines: Some((note.line, note.line)),
            regions: Vec::new(),
            border: Border::default(),
            outside: Vec::new(),
        });
        if let Some((first, last)) = &mut section.lines {
            *first = note.line.min(*first);
            *last = note.line.max(*last);
        }
        let point = Point::Before(inst);
        match note.kind {
            KERNEL | PROFILE => section.border.enters.push(point),
            KERNEL_FROM | PROFILE_FROM => {
                section.border.enters.push(point.clone());
                found.with_start.push(point);
            }
            _ => section.border.leaves.push(point),
        }
    }
    for section in sections.into_values() {
        // A section without an end lasts until its procedure or the program ends.
        let without = |what: &str| Unplaced {
            kind: section.kind,
            name: section.name.clone(),
            file: section.file.clone(),
            line: section.lines.map(|l| l.0),
            function: Some(section.function.clone()),
            reason: format!("there is no {what} for it in the code"),
        };
        if section.border.enters.is_empty() {
            found.unplaced.push(without("begin"));
        } else {
            found.sections.push(section);
        }
    }
}

fn unplaced(kind: MeasuredKind, note: &Note) -> Unplaced {
    Unplaced {
        kind,
        name: note.name.clone(),
        file: Some(note.file.clone()),
        line: Some(note.line),
        function: None,
        reason: format!(
            "its marker at {:#x} lies in code that is not understood; `atom show APP` tells why",
            note.address
        ),
    }
}

/// The notes that are complete.
fn notes(bytes: &[u8]) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut at = 0usize;
    while let Some(header) = bytes.get(at..).filter(|b| b.len() >= 12) {
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| header[i * 4 + k]));
        let (owner, description, kind) = (word(0) as usize, word(1) as usize, word(2));
        let from = at + 12;
        let middle = from.saturating_add(owner).next_multiple_of(4);
        let Some(end) = middle.checked_add(description) else {
            break;
        };
        if bytes.get(from..).is_some_and(|b| b.starts_with(OWNER))
            && owner == OWNER.len()
            && let Some(note) = bytes.get(middle..end).and_then(|d| note(kind, d))
        {
            notes.push(note);
        }
        match end.checked_next_multiple_of(4) {
            Some(next) => at = next,
            None => break,
        }
    }
    notes
}

fn note(kind: u32, description: &[u8]) -> Option<Note> {
    let (address, rest) = description.split_first_chunk::<8>()?;
    let (line, rest) = rest.split_first_chunk::<4>()?;
    let mut texts = rest.split(|b| *b == 0);
    let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
    Some(Note {
        kind,
        address: u64::from_le_bytes(*address),
        line: u32::from_le_bytes(*line),
        name: text()?,
        file: text()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kind: u32, name: &str) -> Vec<u8> {
        let mut description = 0x1234u64.to_le_bytes().to_vec();
        description.extend(7u32.to_le_bytes());
        description.extend(format!("{name}\0a.c\0").bytes());
        let mut bytes = Vec::new();
        for word in [4, description.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(OWNER);
        bytes.extend(description);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn notes_are_read_one_after_the_other() {
        let mut all = bytes(1, "one");
        all.extend(bytes(3, "three_"));
        let found = notes(&all);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].name, "one");
        assert_eq!((found[1].kind, found[1].address), (3, 0x1234));
        assert_eq!((found[1].line, &found[1].file[..]), (7, "a.c"));
        for len in 0..all.len() {
            assert!(notes(&all[..len]).len() < 2 || len >= all.len() - 3);
        }
        assert!(notes(&[0xff; 64]).is_empty());
    }
}
