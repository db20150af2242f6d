//! The table of instructions that inserted code executes in the place of a routine and that may fault; the runtime finds
//! there whose fault it was. [`atom_abi::boundaries`] has the format.

use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::parallel::AT_ONCE;
use crate::plan::{Access, Insertion, Plan, Position, Snippet};

use super::procedure::{ProcLayout, snippets_size, take_at};
use super::text::Layout;

use rayon::prelude::*;

/// Accesses with offsets from the start of the new text, in ascending order.
type Found = Vec<Access>;

/// What the table is made of.
pub(super) struct Moved<'a> {
    pub cfg: &'a Cfg,
    pub plan: &'a Plan,
    /// The versions in the order of their addresses.
    pub versions: &'a [&'a Layout],
    /// First word of the table.
    pub mark: u32,
}

/// The bytes of the table.
pub(super) fn table(moved: &Moved<'_>) -> Vec<u8> {
    let plan = moved.plan;
    if plan.accesses.is_empty() {
        return Vec::new();
    }
    let mut found = Found::new();
    let first = moved.versions[0];
    for (snippet, offset) in plan.shared.iter().zip(&first.shared) {
        put(
            plan,
            snippet,
            0..snippet.code.end - snippet.code.start,
            *offset,
            &mut found,
        );
    }
    for layout in moved.versions {
        let all: Vec<Found> = (0..layout.procs.len())
            .into_par_iter()
            .with_max_len(AT_ONCE)
            .map(ProcId::from_index)
            .map(|p| match layout.entry(p) {
                None => Found::new(),
                Some(start) => of_proc(moved, layout, p, (start - first.start) as u32),
            })
            .collect();
        found.extend(all.into_iter().flatten());
    }
    encode(&found)
}

/// Writes accesses as [`atom_abi::boundaries`] says.
fn encode(found: &[Access]) -> Vec<u8> {
    let mut routines: Vec<u32> = found.iter().map(|a| a.routine).collect();
    routines.sort_unstable();
    routines.dedup();
    let mut entries = Vec::new();
    let (mut at, mut last) = (0, None);
    for access in found {
        let is_same = last == Some(access.routine);
        leb128::push(
            &mut entries,
            u64::from(access.at - at) << 1 | u64::from(!is_same),
        );
        if !is_same {
            let number = routines.partition_point(|r| *r < access.routine);
            leb128::push(&mut entries, number as u64);
        }
        (at, last) = (access.at, Some(access.routine));
    }
    let head = [routines.len() as u32, entries.len() as u32];
    let words = head.iter().chain(&routines);
    let mut bytes: Vec<u8> = words.flat_map(|w| w.to_le_bytes()).collect();
    bytes.extend(entries);
    bytes
}

/// Adds the accesses in a part of a snippet that is at an offset of the new text.
fn put(plan: &Plan, snippet: &Snippet, part: std::ops::Range<u32>, at: u32, found: &mut Found) {
    for access in plan.accesses_of(snippet) {
        let offset = access.at - snippet.code.start;
        if part.contains(&offset) {
            found.push(Access {
                at: at + (offset - part.start),
                ..*access
            });
        }
    }
}

/// Adds the accesses of snippets that are one after the other; returns the offset after them.
fn put_all(plan: &Plan, insertions: &[Insertion], mut at: u32, found: &mut Found) -> u32 {
    for insertion in insertions {
        let snippet = &plan.snippets[insertion.snippet as usize];
        put(plan, snippet, 0..snippet.main_size(), at, found);
        at += snippet.main_size();
    }
    at
}

/// The accesses of a procedure that moves; `start` is its offset in the new text.
fn of_proc(moved: &Moved<'_>, text: &Layout, proc: ProcId, start: u32) -> Found {
    let (cfg, plan, layout) = (moved.cfg, moved.plan, &text.procs[proc.index()]);
    let own = text.insertions(plan, proc);
    let mut found = Found::new();
    let Some((first, last)) = own.first().zip(own.last()) else {
        return found;
    };
    let code = |i: &Insertion| plan.snippets[i.snippet as usize].code.clone();
    let reach = code(first).start..code(last).end;
    let next = plan.accesses.partition_point(|a| a.at < reach.start);
    if plan.accesses.get(next).is_none_or(|a| a.at >= reach.end) {
        return found;
    }
    in_line(cfg, plan, (proc, layout), own, start, &mut found);
    let mut at = start + layout.cold_parts;
    for insertion in own {
        let snippet = &plan.snippets[insertion.snippet as usize];
        let size = snippet.code.end - snippet.code.start;
        put(plan, snippet, snippet.main_size()..size, at, &mut found);
        at += snippet.cold_part;
    }
    found.sort_unstable_by_key(|a| a.at);
    found
}

/// The accesses in front of instructions, after them, and on the way to other places.
fn in_line(
    cfg: &Cfg,
    plan: &Plan,
    (proc, layout): (ProcId, &ProcLayout),
    own: &[Insertion],
    start: u32,
    found: &mut Found,
) {
    let first = cfg.proc_insts(proc).start;
    let mut rest = own;
    while let Some(inst) = rest.first().map(|i| i.inst) {
        let number = inst.index() - first;
        let label = start + layout.labels[number];
        let entry = take_at(&mut rest, inst, Position::Entry);
        let is_stub = |s: &&(crate::ids::BlockId, u32)| cfg.block(s.0).first == inst;
        let at = match layout.stubs.iter().find(is_stub) {
            Some(stub) => start + stub.1,
            None => label - snippets_size(plan, entry),
        };
        put_all(plan, entry, at, found);
        let behind = put_all(
            plan,
            take_at(&mut rest, inst, Position::Before),
            label,
            found,
        );
        let size = layout.forms[number].size(cfg.inst(inst));
        put_all(
            plan,
            take_at(&mut rest, inst, Position::After),
            behind + size,
            found,
        );
        let taken = take_at(&mut rest, inst, Position::Taken);
        if let Some(at) = layout.taken_offset(inst) {
            put_all(plan, taken, start + at, found);
        }
    }
}
