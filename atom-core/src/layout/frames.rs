//! Facts about inserted code for the unwind tables: where it moves the stack pointer, and to which
//! original address code belongs that is apart from its block.

use std::ops::Range;

use crate::cfg::{Cfg, ProcKind};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::is_free_below;
use crate::plan::{Frame, Insertion, Plan, Position, Version};
use crate::unwind::write::{
    AddressMap, Inserted, MovedEntry, MovedRange, OutOfLine, Own, Rows, StackAdjustment,
};
use crate::unwind::{CFA_AT_ENTRY, UnwindTable};

use super::procedure::{snippet_size, take_at};
use super::{Layout, guards};

/// The layout as unwind tables see it.
pub struct Frames<'a> {
    /// The program's file.
    pub image: &'a Image,
    /// The program.
    pub cfg: &'a Cfg,
    /// The inserted code.
    pub plan: &'a Plan,
    /// The addresses of everything.
    pub layout: &'a Layout,
    /// The program's frame descriptions.
    pub unwind: &'a UnwindTable<'a>,
}

impl AddressMap for Frames<'_> {
    fn new_address(&self, old: u64) -> Option<u64> {
        self.layout.new_address(self.cfg, old)
    }

    fn row_address(&self, old: u64) -> Option<u64> {
        let proc = self.layout.moved_proc_at(self.cfg, old)?;
        self.layout.row_address(self.cfg, self.plan, proc, old)
    }

    fn keeps_below(&self, old: u64) -> bool {
        let proc = self.layout.moved_proc_at(self.cfg, old);
        proc.is_some_and(|proc| !is_free_below(self.image, self.cfg, proc))
    }

    fn inserted(&self, range: &MovedRange) -> Inserted {
        let mut found = Inserted::default();
        let Some(proc) = self.layout.moved_proc_at(self.cfg, range.old_start) else {
            return found;
        };
        let mut insts = self.insts(proc, range);
        // What is inserted after the instruction in front of the range is in it.
        if self.cfg.proc_insts(proc).start < insts.start {
            insts.start -= 1;
        }
        self.in_line(proc, &insts, &mut found.adjustments);
        if !self.is_divided(proc) {
            self.apart(proc, range, &mut found);
            self.cold_parts(proc, range, &mut found);
        }
        let inside = |at: u64| range.new_start < at && at <= range.new_end;
        found.adjustments.retain(|l| inside(l.at));
        found.out_of_line.retain(|s| inside(s.new));
        found
    }
}

impl Frames<'_> {
    /// Frames of the shared snippets and of guards at the starts of procedures.
    pub fn own(&self) -> Vec<Own> {
        let plan = self.plan;
        let mut own = Vec::with_capacity(plan.shared.len() + 1);
        for (snippet, offset) in plan.shared.iter().zip(&self.layout.shared) {
            let start = self.layout.start + u64::from(*offset);
            let mut rows = Rows::new(start);
            for change in plan.frame_changes_of(snippet) {
                rows.frame(
                    start + u64::from(change.at - snippet.code.start),
                    change.frame,
                );
            }
            let end = start + u64::from(snippet.code.end - snippet.code.start);
            own.push(Own { start, end, rows });
        }
        // Neighbouring guards share a description.
        let mut last: Option<Own> = None;
        for place in &self.layout.guards {
            if !self.is_entry(place.block) {
                own.extend(last.take());
                continue;
            }
            let open = last.get_or_insert_with(|| Own {
                start: place.address,
                end: 0,
                rows: Rows::new(place.address),
            });
            for (at, depth) in guards::depths(place.guard) {
                let frame = Frame::Below(*depth);
                open.rows.frame(place.address + u64::from(*at), frame);
            }
            open.end = place.address + guards::size(place.guard);
        }
        own.extend(last);
        own
    }

    /// The moved ranges, without the code that [`Frames::entries`] describes.
    pub fn ranges(&self) -> Vec<MovedRange> {
        let mut ranges = self.layout.moved_ranges(self.cfg);
        for range in &mut ranges {
            let proc = self.layout.moved_proc_at(self.cfg, range.old_start);
            let Some(proc) = proc.filter(|proc| self.is_divided(*proc)) else {
                continue;
            };
            if let Some(first) = self.all_apart(proc, range).out_of_line.first() {
                range.new_end = first.new;
            }
        }
        ranges
    }

    /// True if several frame descriptions cover a procedure, as in assembly (`clone`, `setcontext`), or one covers a part
    /// of it. The code that is apart then gets descriptions of its own.
    fn is_divided(&self, proc: ProcId) -> bool {
        let (proc, fdes) = (self.cfg.proc(proc), &self.unwind.fdes);
        let next = fdes.partition_point(|f| f.start <= proc.start);
        match self.unwind.find(proc.start) {
            Some(first) => fdes[first].end() < proc.end,
            None => fdes.get(next).is_some_and(|f| f.start < proc.end),
        }
    }

    /// All code of a procedure that is apart.
    fn all_apart(&self, proc: ProcId, range: &MovedRange) -> Inserted {
        let mut found = Inserted::default();
        self.apart(proc, range, &mut found);
        self.cold_parts(proc, range, &mut found);
        found
    }

    /// The code apart of a procedure that several descriptions cover: a piece for each run of code that one of them
    /// describes.
    fn runs_apart(&self, range: &MovedRange) -> Vec<(u64, MovedEntry)> {
        let proc = self.layout.moved_proc_at(self.cfg, range.old_start);
        let Some(proc) = proc.filter(|proc| self.is_divided(*proc)) else {
            return Vec::new();
        };
        let found = self.all_apart(proc, range);
        let fde = |code: &OutOfLine| self.unwind.find(code.old);
        let runs: Vec<&[OutOfLine]> = (found.out_of_line)
            .chunk_by(|a, b| fde(a).is_some() && fde(a) == fde(b))
            .collect();
        let ends = runs.iter().skip(1).map(|run| run[0].new);
        let ends = ends.chain([range.new_end]);
        let piece = |(run, end): (&&[OutOfLine], u64)| {
            let start = run[0].new;
            let adjustments = found.adjustments.iter();
            let adjustments = adjustments.filter(|l| (start..end).contains(&l.at));
            let entry = MovedEntry {
                start,
                end,
                inserted: Inserted {
                    adjustments: adjustments.copied().collect(),
                    out_of_line: run.to_vec(),
                },
                keeps_below: !is_free_below(self.image, self.cfg, proc),
            };
            (run[0].old, entry)
        };
        runs.iter().zip(ends).map(piece).collect()
    }

    /// Guards in the middle of procedures, and code apart of procedures that several descriptions cover, each with an
    /// original address that has its frame.
    pub fn entries(&self) -> Vec<(u64, MovedEntry)> {
        let ranges = self.layout.moved_ranges(self.cfg);
        let apart = ranges.iter().flat_map(|range| self.runs_apart(range));
        // All versions have the same guards.
        let has_guards = self.layout.version == Version::Full;
        let guards = self.layout.guards.iter().filter(|_| has_guards);
        let guards = guards
            .filter(|place| !self.is_entry(place.block))
            .map(|place| {
                let adjustments = guards::depths(place.guard)
                    .iter()
                    .map(|(at, depth)| (place.address + u64::from(*at), Frame::Below(*depth)))
                    .map(|(at, frame)| StackAdjustment::new(at, frame));
                let entry = MovedEntry {
                    start: place.address,
                    end: place.address + guards::size(place.guard),
                    inserted: Inserted {
                        adjustments: adjustments.collect(),
                        out_of_line: Vec::new(),
                    },
                    keeps_below: true,
                };
                (self.cfg.block_pc(place.block), entry)
            });
        guards.chain(apart).collect()
    }

    /// True where a call enters a procedure. The program may describe another frame there: the compiler's cold parts
    /// have no names in a stripped program, and look like procedures.
    fn is_entry(&self, block: BlockId) -> bool {
        let proc = self.cfg.proc(self.cfg.block(block).proc);
        let is_part = matches!(proc.kind, ProcKind::Fragment(_));
        let pc = self.cfg.block_pc(block);
        let fde = self.unwind.find(pc).map(|i| &self.unwind.fdes[i]);
        let is_called = fde.is_none_or(|f| f.start == pc && f.cfa_at_start == CFA_AT_ENTRY);
        pc == proc.start && !is_part && proc.kind != ProcKind::Plt && is_called
    }

    /// The instructions of a procedure that are in a range.
    fn insts(&self, proc: ProcId, range: &MovedRange) -> Range<usize> {
        let insts = self.cfg.proc_insts(proc);
        let first = |old: u64| {
            insts.start
                + self.cfg.insts[insts.clone()]
                    .partition_point(|i| self.cfg.base + u64::from(i.offset) < old)
        };
        first(range.old_start)..first(range.old_end)
    }

    fn in_line(&self, proc: ProcId, insts: &Range<usize>, out: &mut Vec<StackAdjustment>) {
        let all = self.layout.insertions(self.plan, proc);
        if !self.lowers(all) {
            return self.pushed_returns(proc, insts, out);
        }
        let index = |inst: usize| all.partition_point(|i| i.inst.index() < inst);
        let mut rest = &all[index(insts.start)..index(insts.end)];
        while let Some(first) = rest.first() {
            let inst = first.inst;
            let label = self.layout.label(proc, inst);
            let entry = take_at(&mut rest, inst, Position::Entry);
            if self.cfg.inst_pc(inst) == self.cfg.proc(proc).start {
                self.snippets(entry, label - self.size(entry), out);
            }
            let before = take_at(&mut rest, inst, Position::Before);
            self.snippets(before, label, out);
            let after = take_at(&mut rest, inst, Position::After);
            if !after.is_empty() {
                let size = self.layout.form_size(self.cfg, proc, inst);
                self.snippets(after, label + self.size(before) + u64::from(size), out);
            }
            take_at(&mut rest, inst, Position::Taken);
        }
        self.pushed_returns(proc, insts, out);
    }

    /// Whether any of the snippets, which are one after the other, moves the stack pointer or makes a call.
    fn lowers(&self, insertions: &[Insertion]) -> bool {
        let snippet = |i: &Insertion| &self.plan.snippets[i.snippet as usize];
        let (Some(first), Some(last)) = (insertions.first(), insertions.last()) else {
            return false;
        };
        debug_assert!(insertions.is_sorted_by_key(|i| snippet(i).code.start));
        let (first, last) = (snippet(first), snippet(last));
        let fixups = first.fixups.start..last.fixups.end;
        self.plan
            .frame_changes_between(first.code.start, last.code.end)
            != 0
            || self.plan.calls(&fixups)
    }

    /// Calls of which code pushes the return address.
    fn pushed_returns(&self, proc: ProcId, insts: &Range<usize>, out: &mut Vec<StackAdjustment>) {
        if self.layout.pushes_returns(proc) {
            for inst in insts.clone().map(InstId::from_index) {
                let depths = self.layout.pushed_return(self.cfg, self.plan, proc, inst);
                let adjustments = depths.into_iter().flatten();
                out.extend(
                    adjustments.map(|(at, depth)| StackAdjustment::new(at, Frame::Below(depth))),
                );
            }
            out.sort_by_key(|l| l.at);
        }
    }

    /// Stubs of entries in the middle, and code on the way to branches' targets.
    fn apart(&self, proc: ProcId, range: &MovedRange, found: &mut Inserted) {
        let layout = &self.layout.procs[proc.index()];
        let start = self.layout.starts[proc.index()];
        let stubs = layout
            .stubs
            .iter()
            .map(|(block, at)| (self.cfg.block(*block).first, Position::Entry, *at));
        let taken = layout
            .taken
            .iter()
            .map(|(inst, at)| (*inst, Position::Taken, *at));
        for (inst, position, at) in stubs.chain(taken) {
            let (new, old) = (start + u64::from(at), self.cfg.inst_pc(inst));
            if range.old_start <= old && old < range.old_end {
                found.out_of_line.push(OutOfLine { new, old });
            }
            let here = self.layout.insertions_at(self.plan, proc, inst);
            let from = here.partition_point(|i| i.position < position);
            let to = here.partition_point(|i| i.position <= position);
            self.snippets(&here[from..to], new, &mut found.adjustments);
        }
    }

    /// Cold parts of inserted code. The frame is the point's frame, in which inserted code may have
    /// moved the stack pointer.
    fn cold_parts(&self, proc: ProcId, range: &MovedRange, found: &mut Inserted) {
        let start = self.layout.starts[proc.index()];
        let mut new = start + u64::from(self.layout.procs[proc.index()].cold_parts);
        for insertion in self.layout.insertions(self.plan, proc) {
            let snippet = &self.plan.snippets[insertion.snippet as usize];
            if snippet.cold_part == 0 {
                continue;
            }
            let old = match insertion.position {
                Position::After => self.cfg.inst_end(insertion.inst),
                _ => self.cfg.inst_pc(insertion.inst),
            };
            let pc = self.cfg.inst_pc(insertion.inst);
            if range.old_start <= pc && pc < range.old_end {
                found.out_of_line.push(OutOfLine { new, old });
                let frame_changes = self.plan.frame_changes_of(snippet);
                let frame_changes =
                    &frame_changes[frame_changes.len() - snippet.cold_frame_changes as usize..];
                let first = snippet.code.start + snippet.main_size();
                if frame_changes.first().is_none_or(|s| s.at != first) {
                    found
                        .adjustments
                        .push(StackAdjustment::new(new, Frame::Below(0)));
                }
                for change in frame_changes {
                    let at = new + u64::from(change.at - first);
                    found
                        .adjustments
                        .push(StackAdjustment::new(at, change.frame));
                }
            }
            new += u64::from(snippet.cold_part);
        }
    }

    fn size(&self, insertions: &[Insertion]) -> u64 {
        let sizes = insertions.iter().map(|i| snippet_size(self.plan, i));
        u64::from(sizes.sum::<u32>())
    }

    fn snippets(&self, insertions: &[Insertion], mut at: u64, out: &mut Vec<StackAdjustment>) {
        for insertion in insertions {
            let snippet = &self.plan.snippets[insertion.snippet as usize];
            if self.plan.calls(&snippet.fixups) {
                // The first instruction is the first that may write, and the row of the place begins in front of it.
                out.push(StackAdjustment {
                    at: at + 1,
                    frame: Frame::Below(0),
                    writes: true,
                });
            }
            let frame_changes = self.plan.frame_changes_of(snippet);
            for change in
                &frame_changes[..frame_changes.len() - snippet.cold_frame_changes as usize]
            {
                let at = at + u64::from(change.at - snippet.code.start);
                out.push(StackAdjustment::new(at, change.frame));
            }
            at += u64::from(snippet_size(self.plan, insertion));
        }
    }
}
