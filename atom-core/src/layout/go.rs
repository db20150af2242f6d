//! The new text as Go's tables describe it: where the program's instructions are, and where
//! inserted code.

use crate::ids::InstId;
use crate::plan::{Insertion, Position};
use crate::unwind::go::write::{MovedProcedure, NewText, Segment};
use crate::unwind::write::{AddressMap, MovedRange, OutOfLine};
use crate::x86::{Instruction, InstructionInfoFactory, OpAccess, Run};

use super::Frames;
use super::procedure::{snippet_size, snippets_size, take_at};

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
            self.pieces_inserted(before, label, &mut |new, is_inside| {
                add(new, old, is_inside)
            });
            let new = label + u64::from(snippets_size(plan, before));
            add(new, old, false);
            let end = new + u64::from(layout.form_size(cfg, proc, inst));
            // What holds after an instruction holds in front of the next one.
            let next = if old_end < procedure.old_end {
                old_end
            } else {
                old
            };
            self.pieces_inserted(behind, end, &mut |new, is_inside| add(new, next, is_inside));
            let after = snippets_size(plan, behind);
            if let Some((_, target)) = bridges.next_if(|bridge| bridge.0 == inst) {
                let inside = procedure.old <= *target && *target < procedure.old_end;
                let old = if inside { *target } else { old };
                add(end + u64::from(after), old, false);
            }
        }
    }

    /// The pieces of insertions that follow each other from an address on. Before the first instruction of each that writes
    /// registers, the thread has the program's values, and may be stopped. The processor interrupts a short loop nearly always
    /// after the same instruction, the addition of a counter: if the thread could not be stopped there, the runtime of Go would
    /// try for minutes.
    fn pieces_inserted(
        &self,
        insertions: &[Insertion],
        start: u64,
        add: &mut impl FnMut(u64, bool),
    ) {
        let mut at = start;
        for insertion in insertions {
            add(at, false);
            if let Some(inside) = self.inside(insertion) {
                add(at + inside, true);
            }
            at += u64::from(snippet_size(self.plan, insertion));
        }
    }

    /// Distance in bytes from the start of an insertion's code at which a thread may have other values than the program's: the end
    /// of the first instruction that writes a register, if there are more instructions. The code keeps flags that are live in a
    /// register, so they do not differ before.
    fn inside(&self, insertion: &Insertion) -> Option<u64> {
        let snippet = &self.plan.snippets[insertion.snippet as usize];
        let start = snippet.code.start as usize;
        let code = &self.plan.code[start..start + snippet.main_size() as usize];
        let (mut run, mut info) = (Run::new(code, 0), InstructionInfoFactory::new());
        let mut instruction = Instruction::default();
        let mut size = 0;
        while size < code.len() && run.next_into(&mut instruction) {
            size += instruction.len();
            let used = info.info(&instruction).used_registers();
            let reads = |access| matches!(access, OpAccess::Read | OpAccess::CondRead);
            if !used.iter().all(|register| reads(register.access())) {
                break;
            }
        }
        (size < code.len()).then_some(size as u64)
    }

    /// Pieces of code that is apart from its block.
    fn pieces_apart(
        &self,
        procedure: &MovedProcedure,
        out_of_line: &[OutOfLine],
        out: &mut Vec<Segment>,
    ) {
        let (plan, layout) = (self.plan, self.layout);
        let Some(proc) = layout.moved_proc_at(self.cfg, procedure.old) else {
            return;
        };
        let taken = &layout.procs[proc.index()].taken;
        let is_plain = |code: &OutOfLine| {
            let offset = (code.new - procedure.new) as u32;
            let at = taken.binary_search_by_key(&offset, |t| t.1);
            at.is_ok_and(|i| {
                let here = layout.insertions_at(plan, proc, taken[i].0).iter();
                let mut here = here.filter(|i| i.position == Position::Taken);
                !here.any(|i| self.inside(i).is_some())
            })
        };
        out.extend(out_of_line.iter().map(|code| Segment {
            new: code.new,
            old: code.old,
            is_inside: !is_plain(code),
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
        self.pieces_apart(procedure, &inserted.out_of_line, &mut segments);
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
