//! The writer, by what independent readers make of its tables.
//!
//! Code is moved in thought only: each FDE's range gets a new address, and
//! each byte of it a new place in the same order. Then for any original
//! address the new tables must say at its new address what the original
//! tables said at the original one.

use atom_core::unwind::UnwindTable;
use atom_core::unwind::write::{MovedRange, UnwindBlobs, build, check};
use gimli::UnwindSection;

use crate::corpus::{Program, Random, programs};
use crate::oracle::{Frames, Landing, direct, landing};

/// How the bytes of a program are moved.
#[derive(Clone, Copy)]
struct Movement {
    /// Each byte takes so many, and up to `jitter` more.
    stretch: u64,
    jitter: u64,
    /// Ranges per FDE.
    parts: u64,
    /// One in so many ranges stays where it is (0: none does).
    stay: u64,
}

/// New text: ranges, and for each original byte of them its new address.
struct NewText {
    ranges: Vec<MovedRange>,
    addresses: Vec<Vec<u64>>,
    end: u64,
}

impl NewText {
    fn lay_out(table: &UnwindTable, start: u64, how: Movement, random: &mut Random) -> Self {
        let mut old_ranges: Vec<(u64, u64)> = Vec::new();
        for fde in &table.fdes {
            let first = old_ranges.last().map_or(0, |r| r.1).max(fde.start);
            for part in 0..how.parts {
                let from = first.max(fde.start + fde.size * part / how.parts);
                let to = fde.start + fde.size * (part + 1) / how.parts;
                if from < to && (how.stay == 0 || random.below(how.stay) != 0) {
                    old_ranges.push((from, to));
                }
            }
        }
        // New text has another order than old text.
        let mut order: Vec<usize> = (0..old_ranges.len()).collect();
        order.sort_by_key(|i| (i % 3, *i));
        let mut ranges = vec![None; old_ranges.len()];
        let mut addresses = vec![Vec::new(); old_ranges.len()];
        let mut at = start;
        for i in order {
            let (old_start, old_end) = old_ranges[i];
            let new_start = at;
            for _ in old_start..old_end {
                addresses[i].push(at);
                at += how.stretch + random.below(how.jitter + 1);
            }
            ranges[i] = Some(MovedRange {
                old_start,
                old_end,
                new_start,
                new_end: at,
            });
            at = at.next_multiple_of(16);
        }
        let ranges = ranges.into_iter().map(|r| r.expect("all are placed"));
        NewText {
            ranges: ranges.collect(),
            addresses,
            end: at,
        }
    }

    fn new_address(&self, old: u64) -> Option<u64> {
        let i = self.ranges.partition_point(|r| r.old_start <= old);
        let i = i.checked_sub(1)?;
        let offset = (old - self.ranges[i].old_start) as usize;
        self.addresses[i].get(offset).copied()
    }
}

struct Case<'a> {
    program: &'a Program,
    table: UnwindTable<'a>,
    text: NewText,
    blobs: UnwindBlobs,
}

impl<'a> Case<'a> {
    fn new(program: &'a Program, how: Movement, random: &mut Random) -> Self {
        let table = program.table();
        let start = program.end.next_multiple_of(4096) + (1 << 30);
        let text = NewText::lay_out(&table, start, how, random);
        let map = |old| text.new_address(old);
        let blobs = build(&table, &text.ranges, &map, text.end + 3).expect("tables are built");
        assert_eq!(blobs.undescribed, [], "{}", program.path.display());
        Case {
            program,
            table,
            text,
            blobs,
        }
    }

    fn frames(&self) -> (Frames<'_>, Frames<'_>) {
        let header = &self.blobs.eh_frame_hdr;
        let new = &self.blobs.eh_frame;
        let header = Some((&header.bytes[..], header.address));
        (
            Frames::new(&self.program.eh_frame, self.program.vaddr, None),
            Frames::new(&new.bytes, new.address, header),
        )
    }

    /// What an exception finds by the original tables, with pads where they are now.
    fn expected_landing(&self, fde: usize, address: u64) -> Option<Landing> {
        let fde = &self.table.fdes[fde];
        let lsda = fde.lsda?;
        let bytes = self.program.memory().at(lsda).expect("it is loaded");
        let mut found = landing(bytes, lsda, fde.start, address)?;
        found.pad = found
            .pad
            .map(|pad| self.text.new_address(pad).unwrap_or(pad));
        Some(found)
    }

    fn found_landing(&self, region: u64, lsda: Option<u64>, address: u64) -> Option<Landing> {
        let lsda = lsda?;
        let table = &self.blobs.except_table;
        let bytes = &table.bytes[(lsda - table.address) as usize..];
        landing(bytes, lsda, region, address)
    }

    /// Compares everything at some addresses of some FDEs.
    /// Returns how many of them had a landing pad.
    fn compare(&self, random: &mut Random, samples: u64) -> usize {
        let mut pads = 0;
        let (old, new) = self.frames();
        let name = self.program.path.display();
        let calls: Vec<_> = self.table.landing_pads().map(|(fde, _)| fde).collect();
        for _ in 0..samples {
            let mut index = random.below(self.table.fdes.len() as u64) as usize;
            if random.below(2) == 0 && !calls.is_empty() {
                index = calls[random.below(calls.len() as u64) as usize];
            }
            let fde = &self.table.fdes[index];
            let address = fde.start + random.below(fde.size);
            // Where FDEs overlap (hand-written assembly), any of them may be found.
            if self
                .table
                .fdes
                .iter()
                .skip(index + 1)
                .take(4)
                .any(|f| f.start <= address)
                || index > 0 && self.table.fdes[index - 1].end() > address
            {
                continue;
            }
            let gimli_offset = gimli::EhFrameOffset(fde.offset as usize);
            let original = old
                .section
                .fde_from_offset(&old.bases, gimli_offset, gimli::EhFrame::cie_from_offset)
                .expect("gimli reads the original");
            let expected = old.row(&original, address, address);

            // The original code is described as before.
            let same = new.indexed(address);
            assert_eq!(same.initial_address(), fde.start, "{name}");
            assert_eq!(same.len(), fde.size, "{name}");
            assert_eq!(same.lsda().map(direct), fde.lsda, "{name}");
            assert_eq!(
                new.row(&same, address, address),
                expected,
                "{name}: {address:#x}"
            );

            // And so is its copy.
            let Some(moved) = self.text.new_address(address) else {
                continue;
            };
            let copy = new.indexed(moved);
            assert!(copy.contains(moved), "{name}: {address:#x}");
            assert_eq!(
                new.row(&copy, moved, address),
                expected,
                "{name}: {address:#x}"
            );
            assert_eq!(copy.lsda().is_some(), fde.lsda.is_some(), "{name}");
            let region = copy.initial_address();
            let expected = self.expected_landing(index, address);
            pads += usize::from(expected.as_ref().is_some_and(|l| l.pad.is_some()));
            assert_eq!(
                self.found_landing(region, copy.lsda().map(direct), moved),
                expected,
                "{name}: {address:#x}"
            );
        }
        pads
    }
}

fn compare_all(how: Movement, step: usize) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut total, mut pads) = (0, 0);
    for program in programs(step) {
        // Bounds the time that laying out takes, byte by byte.
        if program.eh_frame.len() > 2 << 20 && total > 0 {
            continue;
        }
        let case = Case::new(&program, how, &mut random);
        if !case.table.fdes.is_empty() {
            pads += case.compare(&mut random, 300);
            total += case.table.fdes.len();
        }
    }
    assert!(total > 1000, "only {total} FDEs");
    assert!(pads > 100, "only {pads} landing pads");
}

#[test]
fn moved_without_change() {
    let how = Movement {
        stretch: 1,
        jitter: 0,
        parts: 1,
        stay: 0,
    };
    compare_all(how, 13);
}

#[test]
fn stretched() {
    let how = Movement {
        stretch: 1,
        jitter: 9,
        parts: 1,
        stay: 0,
    };
    compare_all(how, 17);
}

/// Pieces of an FDE lie apart and in another order, some stay: landing pads
/// are on both sides of the code that leads to them, near and far.
#[test]
fn torn_apart() {
    let how = Movement {
        stretch: 2,
        jitter: 3,
        parts: 3,
        stay: 4,
    };
    compare_all(how, 19);
}

#[test]
fn index_is_sorted_and_complete() {
    let how = Movement {
        stretch: 3,
        jitter: 0,
        parts: 1,
        stay: 2,
    };
    let mut random = Random(1);
    let program = programs(1).next().unwrap();
    let case = Case::new(&program, how, &mut random);
    let index = &case.blobs.eh_frame_hdr.bytes;
    let word = |at: usize| i32::from_le_bytes(index[at..at + 4].try_into().unwrap());
    assert_eq!(index[..4], [1, 0x1b, 3, 0x3b]);
    let count = word(8) as usize;
    assert_eq!(index.len(), 12 + 8 * count);
    assert_eq!(count, case.table.fdes.len() + case.text.ranges.len());
    let starts: Vec<_> = (0..count).map(|i| word(12 + 8 * i)).collect();
    assert!(starts.is_sorted());
    let (_, new) = case.frames();
    assert_eq!(new.ranges().len(), count);
    for fde in &case.table.fdes {
        check(&case.table, fde).expect("it can be moved");
    }
}

#[test]
fn too_far_is_an_error() {
    let program = programs(1).next().unwrap();
    let table = program.table();
    let nowhere = |_| None;
    let error = build(&table, &[], &nowhere, 1 << 40).expect_err("too far");
    assert!(error.to_string().contains("2 GiB"), "{error}");
}

#[test]
fn disorder_is_an_error() {
    let program = programs(1).next().unwrap();
    let table = program.table();
    let range = |old_start| MovedRange {
        old_start,
        old_end: old_start + 1,
        new_start: 0,
        new_end: 1,
    };
    let moved = [range(8), range(4)];
    assert!(build(&table, &moved, &|_| None, program.end).is_err());
}
