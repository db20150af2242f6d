//! Facts about inserted code for the unwind tables: where it moves the stack pointer, and to which
//! original address code belongs that stands apart from its block.

use std::ops::Range;

use crate::cfg::{Cfg, ProcKind};
use crate::ids::{BlockId, InstId, ProcId};
use crate::plan::{Frame, Insertion, Plan, Position};
use crate::unwind::write::{
    AddressMap, Inserted, Lowered, MovedEntry, MovedRange, Own, Rows, Stray,
};

use super::text::{snippet_size, take_at};
use super::{Layout, guards};

/// The layout as unwind tables see it.
pub struct Frames<'a> {
    /// The program.
    pub cfg: &'a Cfg,
    /// The inserted code.
    pub plan: &'a Plan,
    /// The addresses of everything.
    pub layout: &'a Layout,
}

impl AddressMap for Frames<'_> {
    fn new_address(&self, old: u64) -> Option<u64> {
        self.layout.new_address(self.cfg, old)
    }

    fn row_address(&self, old: u64) -> Option<u64> {
        let proc = self.layout.moved_proc_at(self.cfg, old)?;
        self.layout.row_address(self.cfg, self.plan, proc, old)
    }

    fn inserted(&self, range: &MovedRange) -> Inserted {
        let mut found = Inserted::default();
        let Some(proc) = self.layout.moved_proc_at(self.cfg, range.old_start) else {
            return found;
        };
        let insts = self.insts(proc, range);
        self.in_line(proc, &insts, &mut found.lowered);
        self.apart(proc, range, &mut found);
        self.tails(proc, range, &mut found);
        let inside = |at: u64| range.new_start < at && at <= range.new_end;
        found.lowered.retain(|l| inside(l.at));
        found.strays.retain(|s| inside(s.new));
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
            for shift in plan.shifts_of(snippet) {
                rows.frame(
                    start + u64::from(shift.at - snippet.code.start),
                    shift.frame,
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

    /// Guards in the middle of procedures, with the original addresses that they lead to.
    pub fn entries(&self) -> Vec<(u64, MovedEntry)> {
        let guards = self.layout.guards.iter();
        guards
            .filter(|place| !self.is_entry(place.block))
            .map(|place| {
                let lowered = guards::depths(place.guard)
                    .iter()
                    .map(|(at, depth)| Lowered {
                        at: place.address + u64::from(*at),
                        depth: *depth,
                    });
                let entry = MovedEntry {
                    start: place.address,
                    end: place.address + guards::size(place.guard),
                    lowered: lowered.collect(),
                };
                (self.cfg.block_pc(place.block), entry)
            })
            .collect()
    }

    /// True where a call enters a procedure.
    fn is_entry(&self, block: BlockId) -> bool {
        let proc = self.cfg.proc(self.cfg.block(block).proc);
        let is_part = matches!(proc.kind, ProcKind::Fragment(_));
        self.cfg.block_pc(block) == proc.start && !is_part && proc.kind != ProcKind::Plt
    }

    /// The instructions of a procedure that lie in a range.
    fn insts(&self, proc: ProcId, range: &MovedRange) -> Range<usize> {
        let insts = self.cfg.proc_insts(proc);
        let first = |old: u64| {
            insts.start
                + self.cfg.insts[insts.clone()]
                    .partition_point(|i| self.cfg.base + u64::from(i.offset) < old)
        };
        first(range.old_start)..first(range.old_end)
    }

    fn in_line(&self, proc: ProcId, insts: &Range<usize>, out: &mut Vec<Lowered>) {
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

    /// Whether any of the snippets, which lie one behind the other, moves the stack pointer.
    fn lowers(&self, insertions: &[Insertion]) -> bool {
        let code = |i: &Insertion| self.plan.snippets[i.snippet as usize].code.clone();
        let (Some(first), Some(last)) = (insertions.first(), insertions.last()) else {
            return false;
        };
        debug_assert!(insertions.is_sorted_by_key(|i| code(i).start));
        self.plan.shifts_between(code(first).start, code(last).end) != 0
    }

    /// Calls of the next instruction, which push an address to which they do not return.
    fn pushed_returns(&self, proc: ProcId, insts: &Range<usize>, out: &mut Vec<Lowered>) {
        if self.layout.pushes_returns(proc) {
            for inst in insts.clone().map(InstId::from_index) {
                if let Some(end) = self.layout.pushed_return(self.cfg, self.plan, proc, inst) {
                    // The first byte is a push, and the last instruction leaves one word.
                    out.push(Lowered {
                        at: end.start + 1,
                        depth: 8,
                    });
                    out.push(Lowered {
                        at: end.end,
                        depth: 0,
                    });
                }
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
                found.strays.push(Stray { new, old });
            }
            let here = self.layout.insertions_at(self.plan, proc, inst);
            let from = here.partition_point(|i| i.position < position);
            let to = here.partition_point(|i| i.position <= position);
            self.snippets(&here[from..to], new, &mut found.lowered);
        }
    }

    /// Tails of inserted code. The frame is the point's frame, in which inserted code may have
    /// moved the stack pointer.
    fn tails(&self, proc: ProcId, range: &MovedRange, found: &mut Inserted) {
        let start = self.layout.starts[proc.index()];
        let mut new = start + u64::from(self.layout.procs[proc.index()].tails);
        for insertion in self.layout.insertions(self.plan, proc) {
            let snippet = &self.plan.snippets[insertion.snippet as usize];
            if snippet.tail == 0 {
                continue;
            }
            let old = match insertion.position {
                Position::After => self.cfg.inst_end(insertion.inst),
                _ => self.cfg.inst_pc(insertion.inst),
            };
            let pc = self.cfg.inst_pc(insertion.inst);
            if range.old_start <= pc && pc < range.old_end {
                found.strays.push(Stray { new, old });
                let shifts = self.plan.shifts_of(snippet);
                let shifts = &shifts[shifts.len() - snippet.tail_shifts as usize..];
                let first = snippet.code.start + snippet.main_size();
                if shifts.first().is_none_or(|s| s.at != first) {
                    let (at, depth) = (new, 0);
                    found.lowered.push(Lowered { at, depth });
                }
                for shift in shifts {
                    if let Frame::Below(depth) = shift.frame {
                        let at = new + u64::from(shift.at - first);
                        found.lowered.push(Lowered { at, depth });
                    }
                }
            }
            new += u64::from(snippet.tail);
        }
    }

    fn size(&self, insertions: &[Insertion]) -> u64 {
        let sizes = insertions.iter().map(|i| snippet_size(self.plan, i));
        u64::from(sizes.sum::<u32>())
    }

    fn snippets(&self, insertions: &[Insertion], mut at: u64, out: &mut Vec<Lowered>) {
        for insertion in insertions {
            let snippet = &self.plan.snippets[insertion.snippet as usize];
            let shifts = self.plan.shifts_of(snippet);
            for shift in &shifts[..shifts.len() - snippet.tail_shifts as usize] {
                // Only shared snippets have frames of their own.
                if let Frame::Below(depth) = shift.frame {
                    let at = at + u64::from(shift.at - snippet.code.start);
                    out.push(Lowered { at, depth });
                }
            }
            at += u64::from(snippet_size(self.plan, insertion));
        }
    }
}
