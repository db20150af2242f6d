//! The new text as Go's tables describe it: where the program's instructions are, and where
//! inserted code.

use crate::ids::InstId;
use crate::plan::Position;
use crate::unwind::go::write::{MovedProcedure, NewText, Segment};
use crate::unwind::write::{AddressMap, MovedRange, OutOfLine};

use super::Frames;
use super::procedure::{snippets_size, take_at};

impl Frames<'_> {
    /// The moved procedures by new address.
    pub fn moved_procedures(&self) -> Vec<MovedProcedure> {
        let ranges = self.layout.moved_ranges(self.cfg);
        let mut moved: Vec<MovedProcedure> = ranges
            .iter()
            .map(|range| MovedProcedure {
                old: range.old_start,
                old_end: range.old_end,
                new: range.new_start,
                end: range.new_end,
            })
            .collect();
        moved.sort_unstable_by_key(|procedure| procedure.new);
        moved
    }

    /// The pieces of a procedure that are in the order of its instructions.
    fn pieces_in_line(&self, procedure: &MovedProcedure, out: &mut Vec<Segment>) {
        let (cfg, plan, layout) = (self.cfg, self.plan, self.layout);
        let Some(proc) = layout.moved_proc_at(cfg, procedure.old) else {
            return;
        };
        let insts = cfg.proc_insts(proc);
        let mut rest = layout.insertions(plan, proc);
        let mut bridges = layout.procs[proc.index()].bridges.iter().peekable();
        let mut add = |new: u64, old: u64, is_inside: bool| {
            out.push(Segment {
                new,
                old,
                is_inside,
                depth: 0,
            });
        };
        add(procedure.new, procedure.old, true);
        for inst in insts.map(InstId::from_index) {
            let (old, old_end) = (cfg.inst_pc(inst), cfg.inst_end(inst));
            let label = layout.label(proc, inst);
            let (mut before, mut behind) = (&[][..], &[][..]);
            if rest.first().is_some_and(|i| i.inst == inst) {
                take_at(&mut rest, inst, Position::Entry);
                before = take_at(&mut rest, inst, Position::Before);
                behind = take_at(&mut rest, inst, Position::After);
                take_at(&mut rest, inst, Position::Taken);
            }
            // Signals wait until a boundary, which is in front of inserted code. There the state is the program's, and the
            // thread may be stopped.
            add(label, old, false);
            let new = label + u64::from(snippets_size(plan, before));
            if new != label {
                add(label + 1, old, true);
                add(new, old, false);
            }
            let end = new + u64::from(layout.form_size(cfg, proc, inst));
            // What holds after an instruction holds in front of the next one.
            let next = if old_end < procedure.old_end {
                old_end
            } else {
                old
            };
            let after = snippets_size(plan, behind);
            if after != 0 {
                add(end, next, false);
                add(end + 1, next, true);
            }
            if let Some((_, target)) = bridges.next_if(|bridge| bridge.0 == inst) {
                let inside = procedure.old <= *target && *target < procedure.old_end;
                let old = if inside { *target } else { old };
                add(end + u64::from(after), old, false);
            }
        }
    }

    /// Pieces of code that is apart from its block.
    fn pieces_apart(out_of_line: &[OutOfLine], out: &mut Vec<Segment>) {
        out.extend(out_of_line.iter().map(|code| Segment {
            new: code.new,
            old: code.old,
            is_inside: true,
            depth: 0,
        }));
    }
}

impl NewText for Frames<'_> {
    fn segments(&self, procedure: &MovedProcedure) -> Vec<Segment> {
        let range = MovedRange {
            old_start: procedure.old,
            old_end: procedure.old_end,
            new_start: procedure.new,
            new_end: procedure.end,
        };
        let mut segments = Vec::new();
        self.pieces_in_line(procedure, &mut segments);
        let inserted = self.inserted(&range);
        Self::pieces_apart(&inserted.out_of_line, &mut segments);
        segments.sort_by_key(|segment| segment.new);
        if inserted.adjustments.is_empty() {
            return segments;
        }
        // Each change of the stack pointer starts a segment.
        let mut split = Vec::with_capacity(segments.len() + inserted.adjustments.len());
        let mut changes = inserted.adjustments.iter().peekable();
        let mut depth = 0;
        let ends = segments.iter().skip(1).map(|s| s.new);
        for (segment, end) in segments.iter().zip(ends.chain([u64::MAX])) {
            while let Some(change) = changes.next_if(|c| c.at <= segment.new) {
                depth = change.depth();
            }
            split.push(Segment { depth, ..*segment });
            while let Some(change) = changes.next_if(|c| c.at < end) {
                depth = change.depth();
                split.push(Segment {
                    new: change.at,
                    depth,
                    ..*segment
                });
            }
        }
        split
    }

    fn address(&self, procedure: &MovedProcedure, old: u64) -> Option<u64> {
        let proc = self.layout.moved_proc_at(self.cfg, procedure.old)?;
        self.layout.at_or_after(self.cfg, self.plan, proc, old)
    }
}
