//! The file of a library that is added to a running process: what the library's inserted code needs beside the
//! area that is there, and which words of the area change with it; see [`atom_abi::LateInfo`] and
//! [`crate::plan::kept`].

use std::mem::offset_of;

use atom_abi::{LATE_VERSION, LateInfo, ProcessInfo, RunInfo, StartInfo, ThreadInfo, Totals};

use crate::PAGE;
use crate::error::{Error, Result};
use crate::layout::Area;
use crate::plan::{Plan, kept::Replaced};

use super::facts::Facts;
use super::output::Output;

/// What is added.
pub struct Addition<'a> {
    /// The area as the process began with it.
    pub area: &'a Area,
    /// The area as the library sees it.
    pub own: &'a Area,
    /// The data of all calls; the part from `own.rw` on is new.
    pub shared: &'a Plan,
    /// What is replaced.
    pub replaced: &'a Replaced,
    /// What the runtime is told of the process now.
    pub facts: &'a Facts,
    /// Offset in the data of the process's `ThreadInfo`, if the tool has cells.
    pub thread_info: Option<u32>,
    /// Offset in the data of the process's `RunInfo`.
    pub run_info: u32,
    /// Numbers for that: opaque procedures, size of all code, size of the code that is understood.
    pub told: [u64; 3],
    /// Number of the library among the objects. Libraries that it needs may follow it.
    pub object: usize,
    /// End of the addresses that such files may have.
    pub end: u64,
}

/// Size in bytes of what is before the data.
pub const HEAD: u64 = size_of::<LateInfo>().next_multiple_of(64) as u64;

/// Writes the file. It is mapped at `own.rw`.
pub fn write(addition: &Addition<'_>) -> Result<Output<'static>> {
    let Addition {
        area,
        own,
        shared,
        facts,
        ..
    } = *addition;
    let start = own.rw;
    let mut bytes = vec![0; (own.end - start) as usize];
    let mut put = |address: u64, value: &[u8]| {
        let at = (address - start) as usize;
        bytes[at..at + value.len()].copy_from_slice(value);
    };
    let first = start - area.data;
    for (offset, piece) in shared.data.pieces() {
        let skip = first.saturating_sub(offset as u64).min(piece.len() as u64) as usize;
        if skip < piece.len() {
            put(area.data + (offset + skip) as u64, &piece[skip..]);
        }
    }
    for slot in shared
        .data_relocs
        .iter()
        .filter(|slot| u64::from(**slot) >= first)
    {
        let offset = u64::from_le_bytes(shared.data.read(*slot as usize));
        put(
            area.data + u64::from(*slot),
            &(area.data + offset).to_le_bytes(),
        );
    }
    for (routine, slot) in own.routines.iter().zip((own.slots..).step_by(8)) {
        put(slot, &(area.start + routine).to_le_bytes());
    }
    put(own.facts, &facts.bytes);
    for slot in &facts.relocs {
        let value = own.facts + facts.number(*slot as usize);
        put(own.facts + u64::from(*slot), &value.to_le_bytes());
    }
    let words = words(addition);
    let block_words: Vec<[u64; 2]> = (addition.replaced.block_words.iter())
        .map(|(offset, value)| [(*offset).into(), *value])
        .collect();
    let lists = own.end.next_multiple_of(16);
    let block_list = lists + 16 * words.len() as u64;
    let end = (block_list + 16 * block_words.len() as u64).next_multiple_of(PAGE);
    if end > addition.end {
        let reason = "the data of its calls does";
        return Err(Error::too_large(
            "adding a library to the running process",
            reason,
        ));
    }
    bytes.resize((end - start) as usize, 0);
    let mut put = |address: u64, value: u64| {
        let at = (address - start) as usize;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    for ([address, value], at) in words.iter().chain(&block_words).zip((lists..).step_by(16)) {
        put(at, *address);
        put(at + 8, *value);
    }
    for (field, value) in [
        (offset_of!(LateInfo, version), LATE_VERSION),
        (offset_of!(LateInfo, start), start),
        (offset_of!(LateInfo, size), end - start),
        (offset_of!(LateInfo, next), end),
        (offset_of!(LateInfo, words), lists),
        (offset_of!(LateInfo, word_count), words.len() as u64),
        (offset_of!(LateInfo, block_words), block_list),
        (
            offset_of!(LateInfo, block_word_count),
            block_words.len() as u64,
        ),
        (offset_of!(LateInfo, object), addition.object as u64),
    ] {
        put(start + field as u64, value);
    }
    let mut output = Output::default();
    output.put(0, bytes);
    Ok(output)
}

/// The words of the area that change, with their addresses, in the order in which they change: pointers to
/// longer tables before the numbers of their entries.
fn words(addition: &Addition<'_>) -> Vec<[u64; 2]> {
    let Addition {
        area,
        own,
        shared,
        replaced,
        facts,
        ..
    } = *addition;
    let data = |offset: u32| area.data + u64::from(offset);
    let mut words: Vec<[u64; 2]> = Vec::new();
    for (old, new) in &replaced.records {
        let pointer = u64::from_le_bytes(shared.data.read(*new as usize));
        let count = u64::from_le_bytes(shared.data.read(*new as usize + 8));
        // A routine that reads the record meanwhile finds the old contents, with the new number of elements after them
        // at most.
        words.push([data(*old) + 8, count]);
        words.push([data(*old), area.data + pointer]);
    }
    words.extend(
        replaced
            .words
            .iter()
            .map(|(offset, value)| [data(*offset), *value]),
    );
    let info = |field: usize| area.info + field as u64;
    if let (Some(old), Some(new)) = (addition.thread_info, shared.cell_info) {
        // A thread that begins now takes the table at `initial`, which is the same, with the contents of either time.
        for (field, is_address) in [
            (offset_of!(ThreadInfo, sums), true),
            (offset_of!(ThreadInfo, sum_count), false),
            (offset_of!(ThreadInfo, pieces), true),
            (offset_of!(ThreadInfo, piece_count), false),
            (offset_of!(ThreadInfo, contents), true),
        ] {
            let value = u64::from_le_bytes(shared.data.read(new as usize + field));
            let base = if is_address { area.data } else { 0 };
            words.push([data(old) + field as u64, base + value]);
        }
    }
    if let Some(totals) = &shared.totals {
        let base = offset_of!(StartInfo, totals);
        words.extend([
            [info(base + offset_of!(Totals, table)), data(totals.table)],
            [
                info(base + offset_of!(Totals, table_size)),
                totals.table_size.into(),
            ],
            [
                info(base + offset_of!(Totals, counters)),
                data(totals.counters),
            ],
            [
                info(base + offset_of!(Totals, scratch)),
                data(totals.scratch),
            ],
            [info(base + offset_of!(Totals, data)), area.data],
        ]);
    }
    words.push([info(offset_of!(StartInfo, counts)), data(shared.counts.0)]);
    words.push([
        info(offset_of!(StartInfo, count_ranges)),
        shared.counts.1 as u64,
    ]);
    let run = |field: usize| data(addition.run_info) + field as u64;
    let fields = [
        offset_of!(RunInfo, opaque),
        offset_of!(RunInfo, code),
        offset_of!(RunInfo, understood),
    ];
    words.extend(
        fields
            .iter()
            .zip(addition.told)
            .map(|(field, value)| [run(*field), value]),
    );
    for field in [
        offset_of!(ProcessInfo, returns),
        offset_of!(ProcessInfo, texts),
        offset_of!(ProcessInfo, boundaries),
        offset_of!(ProcessInfo, objects),
    ] {
        words.push([area.facts + field as u64, own.facts + facts.number(field)]);
    }
    let count = offset_of!(ProcessInfo, object_count);
    words.push([area.facts + count as u64, facts.number(count)]);
    words
}
