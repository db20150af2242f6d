//! The table of instruction boundaries: which address of the new text stands for which original one.
//!
//! A signal handler is to see original addresses, and may ask to continue at any of them. The runtime looks
//! addresses up in this table, which nothing else reads; so its pages are not loaded unless a signal comes.
//! [`atom_abi::boundaries`] has the format. Most instructions are copied with their sizes, so a record covers
//! all instructions up to the next inserted code or the next resized branch.

use atom_abi::boundaries::{BEFORE, BEHIND, ENTRY, HEAD, IS_OPEN, LONG_RUN, RUN_SHIFT, SKIPPED};
use rayon::prelude::*;

use crate::cfg::Cfg;
use crate::ids::{InstId, ProcId};
use crate::parallel::AT_ONCE;
use crate::plan::{Insertion, Plan, Position};

use super::accesses::{self, Moved};
use super::procedure::{ProcLayout, snippets_size, take_at};

/// The records of a procedure that moves. `insertions` are its own.
fn records(
    cfg: &Cfg,
    plan: &Plan,
    id: ProcId,
    layout: &ProcLayout,
    insertions: &[Insertion],
) -> Vec<u8> {
    let mut out = Vec::new();
    let insts = cfg.proc_insts(id);
    let mut rest = insertions;
    let mut bridges = layout.bridges.iter().peekable();
    let mut record = Record {
        is_open: true,
        ..Record::default()
    };
    // Offsets of what comes next: in the new procedure, and from the image's base.
    let (mut new, mut old) = (0, (cfg.proc(id).start - cfg.base) as u32);
    for (i, index) in insts.enumerate() {
        let inst = &cfg.insts[index];
        let at = InstId::from_index(index);
        let label = layout.labels[i];
        let mut before = 0;
        if rest.first().is_some_and(|x| x.inst == at) {
            take_at(&mut rest, at, Position::Entry);
            before = snippets_size(plan, take_at(&mut rest, at, Position::Before));
            take_at(&mut rest, at, Position::After);
            take_at(&mut rest, at, Position::Taken);
        }
        if record.is_ended || before != 0 || label != new || inst.offset != old {
            record.put(&mut out);
            record = Record {
                behind: label - new,
                skipped: inst.offset - old,
                before,
                is_open: record.run == 0 || record.flows && inst.offset == old,
                ..Record::default()
            };
        }
        let size = layout.forms[i].size(inst);
        let is_same = size == u32::from(inst.len);
        record.run += if is_same { size } else { 1 };
        new = label + before + if is_same { size } else { 1 };
        old = inst.offset + if is_same { size } else { 1 };
        let has_bridge = bridges.next_if(|b| b.0 == at).is_some();
        record.is_ended = !is_same || has_bridge;
        record.flows = !record.is_ended;
    }
    record.put(&mut out);
    out
}

/// See [`atom_abi::boundaries`]. The last two fields are of the instruction at the run's end.
#[derive(Default)]
struct Record {
    behind: u32,
    skipped: u32,
    before: u32,
    run: u32,
    is_open: bool,
    /// Something else than the next instruction follows.
    is_ended: bool,
    /// The state after it is the original's.
    flows: bool,
}

impl Record {
    fn put(&self, out: &mut Vec<u8>) {
        if self.run == 0 {
            return;
        }
        let fields = [
            (self.behind, BEHIND),
            (self.skipped, SKIPPED),
            (self.before, BEFORE),
        ];
        let used = fields.iter().filter(|f| f.0 != 0);
        let mut head = used.clone().fold(0, |head, f| head | f.1);
        if self.is_open {
            head |= IS_OPEN;
        }
        out.push(head | (self.run.min(LONG_RUN.into()) as u8) << RUN_SHIFT);
        if self.run >= LONG_RUN.into() {
            leb128::push(out, u64::from(self.run - u32::from(LONG_RUN)));
        }
        used.for_each(|f| leb128::push(out, u64::from(f.0)));
    }
}

/// The bytes of the table, which will be at `address`, after the new text.
pub(super) fn table(moved: &Moved<'_>, address: u64) -> Vec<u8> {
    let (cfg, plan) = (moved.cfg, moved.plan);
    let start = moved.versions[0].start;
    let mut entries = Vec::new();
    let mut records_of_all: Vec<Vec<u8>> = Vec::new();
    // The version to which pads lead is the last.
    let mut front = 0;
    for layout in moved.versions {
        front = entries.len();
        let all: Vec<Vec<u8>> = (0..layout.procs.len())
            .into_par_iter()
            .with_max_len(AT_ONCE)
            .map(ProcId::from_index)
            .map(|p| {
                if !layout.moved.contains(p) {
                    return Vec::new();
                }
                let own = layout.insertions(plan, p);
                records(cfg, plan, p, &layout.procs[p.index()], own)
            })
            .collect();
        for (p, records) in all.into_iter().enumerate().filter(|(_, r)| !r.is_empty()) {
            let old = cfg.proc(ProcId::from_index(p)).start - cfg.base;
            entries.push([(layout.starts[p] - start) as u32, old as u32]);
            records_of_all.push(records);
        }
    }
    let size = records_of_all.iter().map(Vec::len).sum::<usize>();
    let accesses = accesses::table(moved);
    let end = HEAD + ENTRY * (entries.len() + 1) + size;
    let accesses_at = end.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(accesses_at + accesses.len());
    let mut put = |words: &[u32]| words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
    put(&[
        moved.mark,
        entries.len() as u32,
        address.wrapping_sub(start) as u32,
        if accesses.is_empty() {
            0
        } else {
            accesses_at as u32
        },
        front as u32,
    ]);
    let mut at = 0;
    for ([new, old], records) in entries.iter().zip(&records_of_all) {
        put(&[*new, *old, at]);
        at += records.len() as u32;
    }
    put(&[u32::MAX, u32::MAX, at]);
    records_of_all.iter().for_each(|r| bytes.extend(r));
    if !accesses.is_empty() {
        bytes.resize(accesses_at, 0);
        bytes.extend(accesses);
    }
    bytes
}
