//! The file of the area that the objects of a process share; see [`crate::layout::Area`].
//!
//! Its addresses are fixed, so everything in it is relocated here, but for the two functions that make
//! the calls at the program's start and end: these are in the program interpreter, whose start-up code
//! adds its own load bias to their addresses.

use std::mem::offset_of;

use atom_abi::{ProcessInfo, StartInfo};

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::layout::{Area, Placed};
use crate::plan::Plan;

use super::facts::Facts;
use super::output::Output;
use super::start_info::StartWords;

/// The contents of the area's file. `biases` and `identities` are the offsets in the data of what the runtime notes of the
/// objects, see [`crate::plan::Whole::biases`]. `starter` is the program
/// interpreter. [`super::area_sections::append`] adds what debuggers read.
pub fn write<'a>(
    area: &Area,
    analysis: &'a AnalysisImage,
    shared: &'a Plan,
    (biases, identities): (u32, u32),
    starter: &Placed<'_>,
    facts: &'a Facts,
) -> Output<'a> {
    let mut out = Output::default();
    out.put(0, &analysis.text[..]);
    let rw_offset = file_offset(area);
    let at = |address: u64| rw_offset + (address - area.rw);
    let mut slots: Vec<(u64, u64)> = Vec::new();
    out.put(at(area.rw), &analysis.data[..]);
    for slot in &analysis.relocations {
        let slot = u64::from(*slot);
        let from = (slot - analysis.data_start) as usize;
        let addend = analysis.data[from..from + 8].try_into();
        let addend = u64::from_le_bytes(addend.expect("eight bytes"));
        slots.push((area.start + slot, area.start + addend));
    }
    for (offset, bytes) in shared.data.pieces() {
        out.put(at(area.data) + offset as u64, bytes);
    }
    for slot in &shared.data_relocs {
        let offset = u64::from_le_bytes(shared.data.read(*slot as usize));
        slots.push((area.data + u64::from(*slot), area.data + offset));
    }
    let routines = area.routines.iter().zip((area.slots..).step_by(8));
    slots.extend(routines.map(|(routine, slot)| (slot, area.start + routine)));
    // Addresses in the interpreter's file.
    let function = |snippet: Option<u32>| match snippet {
        Some(i) => starter.layout.start + u64::from(starter.layout.shared[i as usize]),
        None => 0,
    };
    let words = StartWords {
        analysis,
        base: area.start,
        data: area.data,
        before: function(starter.plan.program_before),
        after: function(starter.plan.program_after),
        threads: shared.thread_info,
        cells: shared.cell_info,
        counts: shared.counts,
        run: shared.run_info,
        address: area.info,
        totals: shared.totals,
        returns: None,
        text: None,
        control: shared.control,
        boundaries: None,
        image: 0,
    };
    let places = (area.info..).step_by(8);
    slots.extend(places.zip(words.words()).map(|(at, word)| (at, word.0)));
    let process = area.info + offset_of!(StartInfo, process) as u64;
    slots.push((process, area.facts));
    out.put(at(area.facts), &facts.bytes[..]);
    for slot in &facts.relocs {
        let from = *slot as usize;
        let value = facts.number(from);
        slots.push((area.facts + u64::from(*slot), area.facts + value));
    }
    let notes = [
        (offset_of!(ProcessInfo, biases), biases),
        (offset_of!(ProcessInfo, identities), identities),
    ];
    slots.extend(
        notes.map(|(field, offset)| (area.facts + field as u64, area.data + u64::from(offset))),
    );
    for (slot, value) in slots {
        out.change(at(slot), &value.to_le_bytes());
    }
    out.grow(at(area.end));
    out
}

/// Offset in the area's file of what is written.
pub(crate) fn file_offset(area: &Area) -> u64 {
    (area.rw - area.start).next_multiple_of(PAGE)
}
