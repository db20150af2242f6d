//! Sizes and addresses of the new text.

use rayon::prelude::*;

use crate::cfg::{Cfg, Succ};
use crate::decode::{Flow, Inst};
use crate::emit::unwind::MovedRange;
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::parallel::AT_ONCE;
use crate::plan::{Insertion, Plan, Position};

use super::pads::Sites;
use super::{MovedSet, Options, Region, guards, returns, tables};

/// How an instruction is written at its new place. It takes one byte, for there are millions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form(u8);

impl Form {
    /// The bytes as they are; a rip-relative displacement is adjusted.
    pub(super) const COPY: Self = Self(0x80);
    /// Two-byte branch inside the procedure.
    pub(super) const SHORT: Self = Self(0x81);
    /// Branch or call with a 32-bit displacement.
    pub(super) const LONG: Self = Self(0x82);
    /// `loop`, `jrcxz` and their like over a distance that they do not reach.
    pub(super) const LONG_COUNTED: Self = Self(0x83);
    /// `call next`: pushes the original return address.
    pub(super) const PUSH_RETURN: Self = Self(0x84);

    /// The load of a jump table's entry, from the table's copy; of this size.
    pub(super) const fn table_load(size: u8) -> Self {
        debug_assert!(size < 0x80);
        Self(size)
    }

    /// The size of such a load, if it is one.
    pub(super) fn load_size(self) -> Option<u8> {
        (self.0 < 0x80).then_some(self.0)
    }

    /// Size in bytes of the instruction in this form.
    pub(super) fn size(self, inst: &Inst) -> u32 {
        match self {
            Self::COPY => u32::from(inst.len),
            Self::SHORT => 2,
            Self::LONG if inst.flow == Flow::CondJump => 6,
            Self::LONG => 5,
            Self::LONG_COUNTED => 9,
            Self::PUSH_RETURN => 12,
            Self(size) => u32::from(size),
        }
    }
}

/// Where one procedure goes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcLayout {
    /// For each instruction, the offset of its label from the procedure's
    /// start; inserted code before the instruction lies behind the label.
    pub labels: Vec<u32>,
    /// For each instruction, its form.
    pub forms: Vec<Form>,
    /// Jumps to where a block falls through, if that does not follow: the
    /// instruction after which they stand, and their target.
    pub bridges: Vec<(InstId, u64)>,
    /// Code for entries in the middle: the block and the offset.
    pub stubs: Vec<(BlockId, u32)>,
    /// Code on the way to a branch's target: the branch and the offset.
    pub taken: Vec<(InstId, u32)>,
    /// Where the tails of inserted code start; they stand in the order of insertions.
    pub tails: u32,
    /// Total size.
    pub size: u32,
}

impl ProcLayout {
    fn taken_offset(&self, branch: InstId) -> Option<u32> {
        let at = self.taken.binary_search_by_key(&branch, |t| t.0).ok()?;
        Some(self.taken[at].1)
    }
}

/// Addresses of all moved code. The one map from old to new.
#[derive(Debug)]
pub struct Layout {
    /// First address of the new segments.
    pub start: u64,
    /// Where the new segments may lie.
    pub region: Region,
    /// Offsets from `start` of the shared snippets.
    pub shared: Vec<u32>,
    /// One past the last address of the new text.
    pub end: u64,
    /// The procedures that move.
    pub moved: MovedSet,
    /// The places of their pads.
    pub(super) sites: Sites,
    /// Guards of pads, by block.
    pub(super) guards: Vec<guards::Place>,
    pub(super) procs: Vec<ProcLayout>,
    /// New start address of each procedure; 0 if it stays.
    pub(super) starts: Vec<u64>,
    /// Copies of jump tables, by their loads.
    pub(super) clones: Vec<tables::Clone>,
    /// Table of return addresses, if the plan uses one.
    pub(super) return_map: Option<u64>,
    /// First instruction index of each procedure.
    pub(super) first_insts: Vec<usize>,
    /// For each procedure the number of its first insertion; one more at the end.
    first_insertions: Vec<u32>,
}

impl Layout {
    /// Lays out the new text: `head` bytes for the start-up code, the plan's
    /// shared snippets, then the procedures that move in their original order.
    /// `pads` are the places of pads if everything moves.
    pub fn new(
        image: &Image,
        cfg: &Cfg,
        plan: &Plan,
        pads: Sites,
        options: &Options,
        head: u64,
    ) -> Result<Self> {
        let region = options.region.unwrap_or_else(|| Region::of(image));
        let start = region.start;
        let first_insertions = first_insertions(cfg, plan);
        let (moved, sites) = MovedSet::choose(image, cfg, &first_insertions, pads, options);
        let mut clones = tables::select(image, cfg, plan, &moved);
        let procs: Vec<ProcLayout> = (0..cfg.procs.len())
            .into_par_iter()
            .with_max_len(AT_ONCE)
            .map(ProcId::from_index)
            .map(|p| match moved.contains(p) {
                true => {
                    let own = first_insertions[p.index()] as usize
                        ..first_insertions[p.index() + 1] as usize;
                    ProcBuilder::new(image, cfg, plan, &plan.insertions[own], &clones, p).build()
                }
                false => ProcLayout::default(),
            })
            .collect();
        let mut cursor = start + head;
        let mut shared = Vec::with_capacity(plan.shared.len());
        for snippet in &plan.shared {
            cursor = cursor.next_multiple_of(16);
            shared.push((cursor - start) as u32);
            cursor += u64::from(snippet.code.end - snippet.code.start);
        }
        let guards = guards::place(plan, sites.blocks(), &mut cursor);
        cursor = cursor.next_multiple_of(64);
        let mut starts = Vec::with_capacity(procs.len());
        for (i, (proc, layout)) in cfg.procs.iter().zip(&procs).enumerate() {
            if !moved.contains(ProcId::from_index(i)) {
                starts.push(0);
                continue;
            }
            // The same place in a cache line where that is cheap, in a fetch
            // block always: the compiler's alignment of loops is kept.
            let line = proc.start.wrapping_sub(cursor) & 63;
            cursor += if line < 16 { line } else { line & 15 };
            starts.push(cursor);
            cursor = cursor.wrapping_add(u64::from(layout.size));
        }
        for clone in &mut clones {
            clone.address = cursor.next_multiple_of(8);
            cursor = clone.address.wrapping_add(clone.size);
        }
        let mut return_map = None;
        if plan.original_return.is_some() {
            let map = cursor.next_multiple_of(8);
            return_map = Some(map);
            cursor = map.wrapping_add(returns::size(cfg, &moved));
        }
        if cursor.wrapping_sub(start) > region.size {
            return Err(Error::too_large("laying out the new text", "it does").file(&image.path));
        }
        Ok(Self {
            start,
            region,
            shared,
            guards,
            end: cursor,
            moved,
            sites,
            first_insts: (0..cfg.procs.len())
                .map(|p| cfg.proc_insts(ProcId::from_index(p)).start)
                .collect(),
            first_insertions,
            procs,
            starts,
            clones,
            return_map,
        })
    }

    /// New address of an instruction's label.
    pub fn label(&self, proc: ProcId, inst: InstId) -> u64 {
        let i = proc.index();
        self.starts[i] + u64::from(self.procs[i].labels[inst.index() - self.first_insts[i]])
    }

    /// New address of the instruction itself, behind what is inserted before it.
    pub fn copy_of(&self, plan: &Plan, proc: ProcId, inst: InstId) -> u64 {
        let here = self.insertions_at(plan, proc, inst);
        let before = here.iter().filter(|i| i.position == Position::Before);
        self.label(proc, inst) + u64::from(before.map(|i| snippet_size(plan, i)).sum::<u32>())
    }

    /// New address of the first instruction of a procedure that is not before
    /// an original address: at its start the procedure's entry, behind its last
    /// instruction its end. An address inside an instruction (debug information
    /// has those: just before a return address) keeps its distance to the
    /// instruction's end. `None` if the procedure stays.
    pub fn at_or_after(&self, cfg: &Cfg, plan: &Plan, proc: ProcId, old: u64) -> Option<u64> {
        let i = proc.index();
        let start = self.entry(proc)?;
        if old <= cfg.proc(proc).start {
            return Some(start);
        }
        let labels = &self.procs[i].labels;
        let first = self.first_insts[i];
        let offset = old.wrapping_sub(cfg.base);
        let at = cfg.insts[first..first + labels.len()]
            .partition_point(|i| u64::from(i.offset) < offset);
        if let Some(before) = at.checked_sub(1) {
            let inst = InstId::from_index(first + before);
            let old_end = cfg.inst_end(inst);
            if old < old_end {
                let end = self.end_of(cfg, plan, proc, inst)?;
                return Some((end - (old_end - old)).max(start + u64::from(labels[before])));
            }
        }
        let label = labels.get(at).copied().unwrap_or(self.procs[i].size);
        Some(start + u64::from(label))
    }

    /// Where the call of a moved procedure that returned to `old` returns to now.
    pub fn return_address(&self, cfg: &Cfg, plan: &Plan, proc: ProcId, old: u64) -> Option<u64> {
        let insts = cfg.proc_insts(proc);
        // Mostly that of the next instruction.
        let after = match cfg.inst_in(proc, old) {
            Some(next) => next.index(),
            None => {
                let offset = old.wrapping_sub(cfg.base);
                insts.start
                    + cfg.insts[insts.clone()].partition_point(|i| u64::from(i.offset) < offset)
            }
        };
        let before = after.checked_sub(1).filter(|i| insts.contains(i))?;
        let inst = InstId::from_index(before);
        if cfg.inst_end(inst) != old {
            return None;
        }
        self.end_of(cfg, plan, proc, inst)
    }

    /// Where what holds at an original address of a moved procedure, at which an instruction
    /// starts or the procedure ends, holds now: behind the instruction before it, if there is one.
    pub(super) fn row_address(
        &self,
        cfg: &Cfg,
        plan: &Plan,
        proc: ProcId,
        old: u64,
    ) -> Option<u64> {
        let insts = cfg.proc_insts(proc);
        let (label, after) = match cfg.inst_in(proc, old) {
            Some(inst) => (self.label(proc, inst), inst.index()),
            None => (self.address_in(cfg, proc, old)?, insts.end),
        };
        let before = after.checked_sub(1).filter(|i| insts.contains(i));
        let before = before.map(InstId::from_index);
        let before = before.filter(|i| cfg.inst_end(*i) == old);
        before.map_or(Some(label), |i| self.end_of(cfg, plan, proc, i))
    }

    /// New end of an instruction, before what is inserted behind it.
    pub(super) fn end_of(&self, cfg: &Cfg, plan: &Plan, proc: ProcId, inst: InstId) -> Option<u64> {
        let i = proc.index();
        let start = self.entry(proc)?;
        let at = inst.index() - self.first_insts[i];
        let mut rest = self.insertions_at(plan, proc, inst);
        take_at(&mut rest, inst, Position::Entry);
        let before = snippets_size(plan, take_at(&mut rest, inst, Position::Before));
        let layout = &self.procs[i];
        let size = layout.forms[at].size(cfg.inst(inst));
        Some(start + u64::from(layout.labels[at] + before + size))
    }

    /// New size of an instruction.
    pub(super) fn form_size(&self, cfg: &Cfg, proc: ProcId, inst: InstId) -> u32 {
        let at = inst.index() - self.first_insts[proc.index()];
        self.procs[proc.index()].forms[at].size(cfg.inst(inst))
    }

    /// The procedure at an original address, or that ends there, if it moves.
    pub(super) fn moved_proc_at(&self, cfg: &Cfg, old: u64) -> Option<ProcId> {
        let proc = cfg.last_proc_from(old)?;
        (self.moved.contains(proc) && old <= cfg.proc(proc).end).then_some(proc)
    }

    /// The insertions of a procedure.
    pub(super) fn insertions<'p>(&self, plan: &'p Plan, proc: ProcId) -> &'p [Insertion] {
        let [from, to] = [proc.index(), proc.index() + 1].map(|i| self.first_insertions[i]);
        &plan.insertions[from as usize..to as usize]
    }

    /// The insertions at an instruction of a procedure.
    pub(super) fn insertions_at<'p>(
        &self,
        plan: &'p Plan,
        proc: ProcId,
        inst: InstId,
    ) -> &'p [Insertion] {
        let all = self.insertions(plan, proc);
        let rest = &all[all.partition_point(|i| i.inst < inst)..];
        let count = rest.iter().take_while(|i| i.inst == inst).count();
        &rest[..count]
    }

    /// New address of what starts at an original address, or ends there with its procedure.
    pub(super) fn new_address(&self, cfg: &Cfg, old: u64) -> Option<u64> {
        self.address_in(cfg, self.moved_proc_at(cfg, old)?, old)
    }

    /// The same in a procedure that moves.
    pub(super) fn address_in(&self, cfg: &Cfg, proc: ProcId, old: u64) -> Option<u64> {
        let i = proc.index();
        match cfg.inst_in(proc, old) {
            Some(inst) => Some(self.label(proc, inst)),
            None if old == cfg.proc(proc).end => {
                Some(self.starts[i] + u64::from(self.procs[i].size))
            }
            None => None,
        }
    }

    /// True if the procedure has calls whose return address is taken as data.
    pub(super) fn pushes_returns(&self, proc: ProcId) -> bool {
        self.procs[proc.index()].forms.contains(&Form::PUSH_RETURN)
    }

    /// Where such a call lies, if this is one.
    pub(super) fn pushed_return(
        &self,
        cfg: &Cfg,
        plan: &Plan,
        proc: ProcId,
        inst: InstId,
    ) -> Option<std::ops::Range<u64>> {
        let at = inst.index() - self.first_insts[proc.index()];
        let form = self.procs[proc.index()].forms[at];
        let end = self.end_of(cfg, plan, proc, inst)?;
        let size = u64::from(form.size(cfg.inst(inst)));
        (form == Form::PUSH_RETURN).then_some(end - size..end)
    }

    /// New address for a call of, or jump to, a procedure from outside; `None` if it stays.
    pub fn entry(&self, proc: ProcId) -> Option<u64> {
        self.moved.contains(proc).then(|| self.starts[proc.index()])
    }

    /// The moved ranges, for the exception tables.
    pub fn moved_ranges(&self, cfg: &Cfg) -> Vec<MovedRange> {
        cfg.procs
            .iter()
            .zip(&self.starts)
            .zip(&self.procs)
            .enumerate()
            .filter(|(i, _)| self.moved.contains(ProcId::from_index(*i)))
            .map(|(_, ((proc, start), layout))| MovedRange {
                old_start: proc.start,
                old_end: proc.end,
                new_start: *start,
                new_end: *start + u64::from(layout.size),
            })
            .collect()
    }

    /// Offset of a mid-procedure entry's stub, if the block has one.
    pub(super) fn stub(&self, proc: ProcId, block: BlockId) -> Option<u64> {
        let i = proc.index();
        let stubs = &self.procs[i].stubs;
        let at = stubs.binary_search_by_key(&block, |s| s.0).ok()?;
        Some(self.starts[i] + u64::from(stubs[at].1))
    }

    /// Where a branch goes that has code on the way to its target.
    pub(super) fn taken(&self, proc: ProcId, branch: InstId) -> Option<u64> {
        let i = proc.index();
        let offset = self.procs[i].taken_offset(branch)?;
        Some(self.starts[i] + u64::from(offset))
    }

    /// Where a transfer from procedure `from` to an original address goes:
    /// `None` if the target stays where it is.
    pub(super) fn target(
        &self,
        cfg: &Cfg,
        from: ProcId,
        is_call: bool,
        address: u64,
    ) -> Option<u64> {
        let own = cfg.proc(from);
        let to = match own.start <= address && address < own.end {
            true => from,
            false => cfg.proc_at(address)?,
        };
        let proc = cfg.proc(to);
        if !self.moved.contains(to) {
            return None;
        }
        let inside = !is_call && cfg.whole(from) == cfg.whole(to);
        if address == proc.start && !inside {
            return self.entry(to);
        }
        let inst = cfg.inst_in(to, address)?;
        if !inside && let Some(stub) = self.stub(to, cfg.block_of(inst)) {
            return Some(stub);
        }
        Some(self.label(to, inst))
    }
}

/// For each procedure the number of its first insertion, and one more.
fn first_insertions(cfg: &Cfg, plan: &Plan) -> Vec<u32> {
    let mut next = 0;
    let firsts = (0..cfg.procs.len()).map(ProcId::from_index).map(|p| {
        let first = next;
        let insts = cfg.proc_insts(p);
        let mine = plan.insertions[next..].iter();
        next += mine.take_while(|i| i.inst.index() < insts.end).count();
        first as u32
    });
    let mut firsts: Vec<u32> = firsts.collect();
    firsts.push(plan.insertions.len() as u32);
    firsts
}

/// The slice of insertions that concern a range of instructions.
pub(super) fn insertions_of<'p>(plan: &'p Plan, insts: &std::ops::Range<usize>) -> &'p [Insertion] {
    let from = plan
        .insertions
        .partition_point(|i| i.inst.index() < insts.start);
    let to = plan
        .insertions
        .partition_point(|i| i.inst.index() < insts.end);
    &plan.insertions[from..to]
}

/// Total size of the snippets at one place.
pub(super) fn snippets_size(plan: &Plan, insertions: &[Insertion]) -> u32 {
    insertions.iter().map(|i| snippet_size(plan, i)).sum()
}

pub(super) fn snippet_size(plan: &Plan, insertion: &Insertion) -> u32 {
    plan.snippets[insertion.snippet as usize].main_size()
}

/// Splits off the insertions at `inst` with `position`.
pub(super) fn take_at<'p>(
    rest: &mut &'p [Insertion],
    inst: InstId,
    position: Position,
) -> &'p [Insertion] {
    let n = rest
        .iter()
        .take_while(|i| i.inst == inst && i.position == position)
        .count();
    let (here, after) = rest.split_at(n);
    *rest = after;
    here
}

/// A block with what is inserted there. Only the size of its last instruction may change.
struct Piece {
    /// Its distance from the procedure's start, if padding in front of it was dropped that
    /// had aligned it.
    aligned: Option<u32>,
    /// Size of what is inserted in front of its label.
    entry: u32,
    /// From its label to its last instruction.
    inner: u32,
    /// Size of what follows its last instruction.
    behind: u32,
    /// Its label's offset from the procedure's start.
    label: u32,
}

/// A branch that begins as a short one.
struct Short {
    /// Index of its block.
    block: u32,
    /// Index of the block that it leads to; `None`: only to code on the way to a target
    /// outside.
    target: Option<u32>,
}

struct ProcBuilder<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    plan: &'a Plan,
    /// Of this procedure.
    insertions: &'a [Insertion],
    clones: &'a [tables::Clone],
    id: ProcId,
    insts: std::ops::Range<usize>,
    pieces: Vec<Piece>,
    short: Vec<Short>,
    /// Sizes of what stands at the stubs, and on the way to branches' targets.
    apart: [Vec<u32>; 2],
}

impl<'a> ProcBuilder<'a> {
    fn new(
        image: &'a Image,
        cfg: &'a Cfg,
        plan: &'a Plan,
        insertions: &'a [Insertion],
        clones: &'a [tables::Clone],
        id: ProcId,
    ) -> Self {
        Self {
            image,
            cfg,
            plan,
            insertions,
            clones,
            id,
            insts: cfg.proc_insts(id),
            pieces: Vec::with_capacity(cfg.proc(id).block_count as usize),
            short: Vec::new(),
            apart: Default::default(),
        }
    }

    fn build(mut self) -> ProcLayout {
        let mut layout = ProcLayout {
            labels: Vec::with_capacity(self.insts.len()),
            forms: Vec::with_capacity(self.insts.len()),
            ..ProcLayout::default()
        };
        self.choose_forms(&mut layout);
        self.find_bridges(&mut layout);
        self.measure(&mut layout);
        // Forms only ever grow, so this ends.
        loop {
            self.assign(&mut layout);
            if !self.grow(&mut layout) {
                break;
            }
        }
        let mut rest = &mut layout.labels[..];
        for (piece, b) in self.pieces.iter().zip(self.cfg.proc(self.id).blocks()) {
            let (own, others) = rest.split_at_mut(self.cfg.block(b).count as usize);
            own.iter_mut().for_each(|label| *label += piece.label);
            rest = others;
        }
        let all = self.insertions.iter();
        let tails = all.map(|i| self.plan.snippets[i.snippet as usize].tail);
        layout.size = layout.tails + tails.sum::<u32>();
        layout
    }

    fn choose_forms(&mut self, layout: &mut ProcLayout) {
        let cfg = self.cfg;
        let mut taken = self
            .insertions
            .iter()
            .filter(|i| i.position == Position::Taken)
            .map(|i| i.inst.index())
            .peekable();
        // Few procedures have any.
        let clones = {
            let first = self
                .clones
                .partition_point(|c| c.load.index() < self.insts.start);
            let end = self
                .clones
                .partition_point(|c| c.load.index() < self.insts.end);
            &self.clones[first..end]
        };
        let plain = |id: InstId| match tables::at(clones, id) {
            Some(clone) => Form::table_load(clone.load_size),
            None => Form::COPY,
        };
        let first_block = cfg.proc(self.id).first_block;
        // Only the last instruction of a block moves control.
        for b in cfg.proc(self.id).blocks() {
            let block = cfg.block(b);
            let last = block.last();
            let inner = layout.forms.len() + block.count as usize - 1;
            match clones.is_empty() {
                true => layout.forms.resize(inner, Form::COPY),
                false => layout
                    .forms
                    .extend((block.first.0..last.0).map(|i| plain(InstId(i)))),
            }
            let inst = cfg.inst(last);
            layout.forms.push(match inst.flow {
                Flow::Call if inst.special => Form::PUSH_RETURN,
                Flow::Call => Form::LONG,
                Flow::Jump | Flow::CondJump => {
                    let target = self.target_inside(b);
                    while taken.next_if(|t| *t < last.index()).is_some() {}
                    let inside = target.is_some() || taken.peek() == Some(&last.index());
                    let (counted, is_short) = self.kind_of_branch(last);
                    if inside && is_short {
                        let block = b.0 - first_block.0;
                        self.short.push(Short { block, target });
                    }
                    match (inside && is_short, counted) {
                        (true, true) => Form::COPY,
                        (true, false) => Form::SHORT,
                        (false, true) => Form::LONG_COUNTED,
                        (false, false) => Form::LONG,
                    }
                }
                _ => plain(last),
            });
        }
    }

    /// The index of the block to which the direct branch at a block's end leads, if that is in
    /// the procedure.
    fn target_inside(&self, b: BlockId) -> Option<u32> {
        let cfg = self.cfg;
        let first = cfg.proc(self.id).first_block.0;
        // The branch comes first among the successors.
        if let Some(Succ::Branch(to)) = cfg.succs(b).first() {
            return Some(to.0 - first);
        }
        let target = cfg.direct_target(self.image, cfg.block(b).last())?;
        let to = cfg.block_at(target)?;
        (cfg.block(to).proc == self.id).then(|| to.0 - first)
    }

    /// Of a direct branch: whether it counts or looks at rcx (`loop`, `jrcxz`), and
    /// whether its displacement has one byte.
    fn kind_of_branch(&self, id: InstId) -> (bool, bool) {
        let inst = self.cfg.inst(id);
        let bytes = self
            .image
            .bytes_at(self.cfg.inst_pc(id), usize::from(inst.len));
        match bytes {
            Some([0x70..=0x7f | 0xeb, _]) => (false, true),
            Some([0xe0..=0xe3, _]) => (true, true),
            Some([0xe9, ..] | [0x0f, 0x80..=0x8f, ..]) => (false, false),
            _ => {
                let d = self.cfg.decode(self.image, id);
                let counted = d.is_jcx_short() || d.is_loop() || d.is_loopcc();
                let is_short = d.is_jcc_short() || d.is_jmp_short() || counted;
                (counted, is_short)
            }
        }
    }

    /// A block whose fall-through does not follow it needs a jump there.
    fn find_bridges(&self, layout: &mut ProcLayout) {
        let cfg = self.cfg;
        let last_block = cfg.proc(self.id).blocks().next_back();
        for b in cfg.proc(self.id).blocks() {
            let block = cfg.block(b);
            let last = block.last();
            let inst = cfg.inst(last);
            if inst.flow.ends_flow() {
                continue;
            }
            let next = cfg.inst_end(last);
            if Some(b) != last_block && cfg.block_pc(BlockId(b.0 + 1)) == next {
                continue;
            }
            // After a call that never returns there may be nothing to go on to.
            let goes_on = cfg.succs(b).iter().any(|s| match s {
                Succ::Fall(_) => true,
                Succ::Tail(t) => {
                    t.get() == next
                        && (cfg.inst_at(next).is_some()
                            || !matches!(inst.flow, Flow::Call | Flow::IndirectCall))
                }
                _ => false,
            });
            if goes_on {
                layout.bridges.push((last, next));
            }
        }
    }

    /// Sets all labels as if each block began at 0, and finds the sizes that stay.
    fn measure(&mut self, layout: &mut ProcLayout) {
        let (cfg, plan) = (self.cfg, self.plan);
        let mut rest = self.insertions;
        let mut bridges = &layout.bridges[..];
        let mut old_end = None;
        let start_pc = cfg.proc(self.id).start;
        for b in cfg.proc(self.id).blocks() {
            let block = cfg.block(b);
            let pc = cfg.block_pc(b);
            // Padding that control does not pass through was dropped; keep what it was for.
            let was_padded = old_end.is_some_and(|e| e < pc) && pc.is_multiple_of(16);
            let mut piece = Piece {
                aligned: was_padded.then_some((pc - start_pc) as u32),
                entry: 0,
                inner: 0,
                behind: 0,
                label: 0,
            };
            let mut next = 0;
            for inst in block.insts() {
                let size = layout.forms[layout.labels.len()].size(cfg.inst(inst));
                layout.labels.push(next);
                piece.inner = next;
                piece.behind = 0;
                next += size;
                if rest.first().is_none_or(|i| i.inst != inst) {
                    continue;
                }
                let entry = take_at(&mut rest, inst, Position::Entry);
                if !entry.is_empty() {
                    let size = snippets_size(plan, entry);
                    if pc == start_pc {
                        piece.entry += size;
                    } else {
                        layout.stubs.push((b, 0));
                        self.apart[0].push(size);
                    }
                }
                let before = snippets_size(plan, take_at(&mut rest, inst, Position::Before));
                let after = snippets_size(plan, take_at(&mut rest, inst, Position::After));
                piece.inner += before;
                piece.behind = after;
                next += before + after;
                let on_the_way = take_at(&mut rest, inst, Position::Taken);
                if !on_the_way.is_empty() {
                    layout.taken.push((inst, 0));
                    self.apart[1].push(snippets_size(plan, on_the_way));
                }
            }
            if let Some((at, others)) = bridges.split_first()
                && at.0 == block.last()
            {
                bridges = others;
                piece.behind += 5;
            }
            self.pieces.push(piece);
            old_end = Some(cfg.inst_end(block.last()));
        }
    }

    /// Places all blocks for the present forms.
    fn assign(&mut self, layout: &mut ProcLayout) {
        let cfg = self.cfg;
        let mut offset = 0u32;
        for (piece, b) in self.pieces.iter_mut().zip(cfg.proc(self.id).blocks()) {
            if let Some(distance) = piece.aligned {
                offset += distance.wrapping_sub(offset) & 15;
            }
            piece.label = offset + piece.entry;
            let last = cfg.block(b).last();
            let size = layout.forms[last.index() - self.insts.start].size(cfg.inst(last));
            offset = piece.label + piece.inner + size + piece.behind;
        }
        let stubs = layout.stubs.iter_mut().map(|s| &mut s.1);
        let taken = layout.taken.iter_mut().map(|t| &mut t.1);
        for (at, size) in stubs.chain(taken).zip(self.apart.iter().flatten()) {
            *at = offset;
            offset += size + 5;
        }
        layout.tails = offset;
    }

    /// Lengthens short branches that do not reach; true if there were any.
    fn grow(&self, layout: &mut ProcLayout) -> bool {
        let cfg = self.cfg;
        let first_block = cfg.proc(self.id).first_block.0;
        let mut grown = false;
        for short in &self.short {
            let piece = &self.pieces[short.block as usize];
            let last = cfg.block(BlockId(first_block + short.block)).last();
            let at = last.index() - self.insts.start;
            let form = layout.forms[at];
            let longer = match form {
                Form::COPY => Form::LONG_COUNTED,
                Form::SHORT => Form::LONG,
                _ => continue,
            };
            let from = piece.label + piece.inner + form.size(cfg.inst(last));
            let stub = layout.taken_offset(last);
            let label = short.target.map(|t| self.pieces[t as usize].label);
            let Some(target) = stub.or(label) else {
                continue;
            };
            if i8::try_from(i64::from(target) - i64::from(from)).is_err() {
                layout.forms[at] = longer;
                grown = true;
            }
        }
        grown
    }
}
