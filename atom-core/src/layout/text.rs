//! Sizes and addresses of the new text.

use std::sync::Arc;

use rayon::prelude::*;

use crate::cfg::{Block, Cfg, Object};
use crate::error::{Error, Result};
use crate::ids::{BlockId, InstId, ProcId};
use crate::parallel::AT_ONCE;
use crate::plan::{Insertion, Plan, Position, Version};
use crate::unwind::write::MovedRange;

use super::procedure::{ProcBuilder, ProcLayout, snippets_size, take_at};
use super::sites::Sites;
use super::{MovedSet, Options, Region, guards, start_size, tables};

/// Addresses of all moved code: the only map from old to new addresses.
#[derive(Debug)]
pub struct Layout {
    /// The version of the procedures.
    pub version: Version,
    /// First address of the new segments.
    pub start: u64,
    /// The addresses that the new segments may have.
    pub region: Region,
    /// Offsets from `start` of the shared snippets.
    pub shared: Vec<u32>,
    /// One past the last address of the new text.
    pub end: u64,
    /// The procedures that move.
    pub moved: Arc<MovedSet>,
    /// Fill dead original text with `int3`.
    pub strict: bool,
    /// Places of the pads of the procedures that move.
    pub(crate) sites: Arc<Sites>,
    /// Guards of pads, by block.
    pub(crate) guards: Vec<guards::GuardPlace>,
    pub(crate) procs: Vec<ProcLayout>,
    /// New start address of each procedure; 0 if it stays.
    pub(crate) starts: Vec<u64>,
    /// Copies of jump tables, by the instructions that load from them.
    pub(crate) copies: Vec<tables::TableCopy>,
    /// Address of the table of return addresses, if the plan uses one.
    pub(crate) return_map: Option<u64>,
    /// Address and bytes of the table of instruction boundaries, if the plan wants one.
    pub(crate) boundaries: Option<(u64, Vec<u8>)>,
    /// First instruction index of each procedure.
    pub(crate) first_insts: Arc<Vec<usize>>,
    /// For each procedure the number of its first insertion; at the end the number of all
    /// insertions.
    pub(super) first_insertions: Vec<u32>,
}

/// The forms of all instructions of the procedures that move.
fn forms(
    object: &Object<'_>,
    (plan, version): (&Plan, Version),
    (moved, sites): (&MovedSet, &Sites),
    copies: &[tables::TableCopy],
    first_insertions: &[u32],
) -> Vec<ProcLayout> {
    let (image, cfg) = (object.image, &object.cfg);
    (0..cfg.procs.len())
        .into_par_iter()
        .with_max_len(AT_ONCE)
        .map(ProcId::from_index)
        .map(|p| {
            if moved.contains(p) {
                let [from, to] = [p.index(), p.index() + 1].map(|i| first_insertions[i] as usize);
                let own = &plan.insertions(version)[from..to];
                ProcBuilder::new(image, cfg, plan, (own, copies, &sites.homes), p).build()
            } else {
                ProcLayout::default()
            }
        })
        .collect()
}

/// Places the copies of jump tables from `cursor` on.
fn place_copies(copies: &mut [tables::TableCopy], cursor: &mut u64) {
    for copy in copies {
        copy.address = cursor.next_multiple_of(8);
        *cursor = copy.address.wrapping_add(copy.size);
    }
}

/// Addresses of the procedures that move, in their original order from `cursor` on; 0 for the others.
fn place(
    object: &Object<'_>,
    procs: &[ProcLayout],
    moved: &MovedSet,
    cursor: &mut u64,
) -> Vec<u64> {
    let mut starts = Vec::with_capacity(procs.len());
    for (i, (proc, layout)) in object.cfg.procs.iter().zip(procs).enumerate() {
        if !moved.contains(ProcId::from_index(i)) {
            starts.push(0);
            continue;
        }
        // A procedure keeps its offset in a cache line where that takes little padding, and its
        // offset in a fetch block of 16 bytes always. So the compiler's alignment of loops is
        // kept.
        let line = proc.start.wrapping_sub(*cursor) & 63;
        *cursor += if line < 16 { line } else { line & 15 };
        starts.push(*cursor);
        *cursor = cursor.wrapping_add(u64::from(layout.size));
        // Go's runtime looks up the address after a call, which must not be the next procedure's.
        *cursor += u64::from(object.unwind.go.is_some());
    }
    starts
}

impl Layout {
    /// Lays out the new text: space for the start-up code, the plan's
    /// shared snippets, then the procedures that move in their original order.
    /// `sites` are the places of pads if everything moves.
    pub fn new(object: &Object<'_>, plan: &Plan, sites: Sites, options: &Options) -> Result<Self> {
        let (image, cfg) = (object.image, &object.cfg);
        let region = options.region_of(image);
        let start = region.start;
        let version = Version::Full;
        let first_insertions = first_insertions(cfg, plan.insertions(version));
        let (moved, sites) = MovedSet::choose(image, cfg, &first_insertions, sites, options);
        let mut copies = tables::select(image, cfg, plan.insertions(version), &moved);
        let placed = (&moved, &sites);
        let procs = forms(object, (plan, version), placed, &copies, &first_insertions);
        let mut cursor = start + start_size(image.kind);
        let mut shared = Vec::with_capacity(plan.shared.len());
        for snippet in &plan.shared {
            cursor = cursor.next_multiple_of(16);
            shared.push((cursor - start) as u32);
            cursor += u64::from(snippet.code.end - snippet.code.start);
        }
        let guards = guards::place(plan, sites.blocks(), &mut cursor);
        cursor = cursor.next_multiple_of(64);
        let starts = place(object, &procs, &moved, &mut cursor);
        place_copies(&mut copies, &mut cursor);
        let layout = Self {
            version,
            start,
            region,
            shared,
            guards,
            strict: options.strict,
            end: cursor,
            moved: Arc::new(moved),
            sites: Arc::new(sites),
            first_insts: Arc::new(
                (0..cfg.procs.len())
                    .map(|p| cfg.proc_insts(ProcId::from_index(p)).start)
                    .collect(),
            ),
            first_insertions,
            procs,
            starts,
            copies,
            return_map: None,
            boundaries: None,
        };
        layout.fits(object)?;
        Ok(layout)
    }

    /// The light version of the same procedures, after the code of this one.
    pub(super) fn light(&self, object: &Object<'_>, plan: &Plan) -> Result<Self> {
        let (image, cfg) = (object.image, &object.cfg);
        let version = Version::Light;
        let first_insertions = first_insertions(cfg, plan.insertions(version));
        let mut copies = tables::select(image, cfg, plan.insertions(version), &self.moved);
        let placed = (&*self.moved, &*self.sites);
        let procs = forms(object, (plan, version), placed, &copies, &first_insertions);
        let mut cursor = self.end.next_multiple_of(64);
        let starts = place(object, &procs, &self.moved, &mut cursor);
        place_copies(&mut copies, &mut cursor);
        let light = Self {
            version,
            end: cursor,
            shared: self.shared.clone(),
            guards: self.guards.clone(),
            moved: self.moved.clone(),
            sites: self.sites.clone(),
            first_insts: self.first_insts.clone(),
            first_insertions,
            procs,
            starts,
            copies,
            boundaries: None,
            ..*self
        };
        light.fits(object)?;
        Ok(light)
    }

    /// Fails if the new text is too large for its region.
    pub(super) fn fits(&self, object: &Object<'_>) -> Result<()> {
        if self.end.wrapping_sub(self.start) > self.region.size {
            let error = Error::too_large("laying out the new text", "it does");
            return Err(error.file(&object.image.path));
        }
        Ok(())
    }

    /// New address of an instruction's label.
    pub fn label(&self, proc: ProcId, inst: InstId) -> u64 {
        let i = proc.index();
        self.starts[i] + u64::from(self.procs[i].labels[inst.index() - self.first_insts[i]])
    }

    /// New addresses of a block's instructions themselves, after the code inserted before each.
    pub fn copies(&self, plan: &Plan, block: &Block) -> impl Iterator<Item = u64> {
        let i = block.proc.index();
        let first = block.first.index() - self.first_insts[i];
        let labels = &self.procs[i].labels[first..][..block.count as usize];
        let all = self.insertions(plan, block.proc);
        let mut rest = &all[all.partition_point(|i| i.inst < block.first)..];
        block.insts().zip(labels).map(move |(inst, label)| {
            take_at(&mut rest, inst, Position::Entry);
            let before = snippets_size(plan, take_at(&mut rest, inst, Position::Before));
            take_at(&mut rest, inst, Position::After);
            take_at(&mut rest, inst, Position::Taken);
            self.starts[i] + u64::from(label + before)
        })
    }

    /// New address of the first instruction of a procedure that is not before
    /// an original address: at its start the procedure's entry, after its last
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

    /// Address of the table of return addresses, if there is one.
    pub fn return_map(&self) -> Option<u64> {
        self.return_map
    }

    /// Address of the table of instruction boundaries, if there is one.
    pub fn boundaries(&self) -> Option<u64> {
        self.boundaries.as_ref().map(|table| table.0)
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
        if self.sites.homes.of(inst).is_some() {
            return Some(old);
        }
        self.end_of(cfg, plan, proc, inst)
    }

    /// Where what holds at an original address of a moved procedure, at which an instruction
    /// starts or the procedure ends, holds now: after the instruction before it, if there is one.
    pub(crate) fn row_address(
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

    /// New end of an instruction, before what is inserted after it.
    pub(crate) fn end_of(&self, cfg: &Cfg, plan: &Plan, proc: ProcId, inst: InstId) -> Option<u64> {
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
    pub(crate) fn form_size(&self, cfg: &Cfg, proc: ProcId, inst: InstId) -> u32 {
        let at = inst.index() - self.first_insts[proc.index()];
        self.procs[proc.index()].forms[at].size(cfg.inst(inst))
    }

    /// The procedure at an original address, or that ends there, if it moves.
    pub(crate) fn moved_proc_at(&self, cfg: &Cfg, old: u64) -> Option<ProcId> {
        let proc = cfg.last_proc_from(old)?;
        (self.moved.contains(proc) && old <= cfg.proc(proc).end).then_some(proc)
    }

    /// The insertions of a procedure.
    pub(crate) fn insertions<'p>(&self, plan: &'p Plan, proc: ProcId) -> &'p [Insertion] {
        let [from, to] = [proc.index(), proc.index() + 1].map(|i| self.first_insertions[i]);
        &plan.insertions(self.version)[from as usize..to as usize]
    }

    /// The insertions at an instruction of a procedure.
    pub(crate) fn insertions_at<'p>(
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
    pub(crate) fn new_address(&self, cfg: &Cfg, old: u64) -> Option<u64> {
        self.address_in(cfg, self.moved_proc_at(cfg, old)?, old)
    }

    /// The same in a procedure that moves.
    pub(crate) fn address_in(&self, cfg: &Cfg, proc: ProcId, old: u64) -> Option<u64> {
        let i = proc.index();
        match cfg.inst_in(proc, old) {
            Some(inst) => Some(self.label(proc, inst)),
            None if old == cfg.proc(proc).end => {
                Some(self.starts[i] + u64::from(self.procs[i].size))
            }
            None => None,
        }
    }

    /// True if the procedure has calls of which code pushes the return address.
    pub(crate) fn pushes_returns(&self, proc: ProcId) -> bool {
        let mut forms = self.procs[proc.index()].forms.iter();
        forms.any(|form| !form.depths().is_empty())
    }

    /// The stack pointer in such a call, if this is one: addresses, and by how many bytes it is lower from there on.
    pub(crate) fn pushed_return(
        &self,
        cfg: &Cfg,
        plan: &Plan,
        proc: ProcId,
        inst: InstId,
    ) -> Option<impl Iterator<Item = (u64, u32)> + use<>> {
        let at = inst.index() - self.first_insts[proc.index()];
        let form = self.procs[proc.index()].forms[at];
        if form.depths().is_empty() {
            return None;
        }
        let end = self.end_of(cfg, plan, proc, inst)?;
        let start = end - u64::from(form.size(cfg.inst(inst)));
        let depths = form
            .depths()
            .iter()
            .map(move |(at, depth)| (start + at, *depth));
        Some(depths.chain([(end, 0)]))
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
    pub(crate) fn stub(&self, proc: ProcId, block: BlockId) -> Option<u64> {
        let i = proc.index();
        let stubs = &self.procs[i].stubs;
        let at = stubs.binary_search_by_key(&block, |s| s.0).ok()?;
        Some(self.starts[i] + u64::from(stubs[at].1))
    }

    /// Address to which a branch goes that has code on the way to its target.
    pub(crate) fn taken(&self, proc: ProcId, branch: InstId) -> Option<u64> {
        let i = proc.index();
        let offset = self.procs[i].taken_offset(branch)?;
        Some(self.starts[i] + u64::from(offset))
    }

    /// New address for a transfer from procedure `from` to an original address; `None` if the
    /// target stays in place.
    pub(crate) fn target(
        &self,
        cfg: &Cfg,
        from: ProcId,
        is_call: bool,
        address: u64,
    ) -> Option<u64> {
        let own = cfg.proc(from);
        let to = if own.start <= address && address < own.end {
            from
        } else {
            cfg.proc_at(address)?
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

/// For each procedure the number of its first insertion; at the end the number of all insertions.
fn first_insertions(cfg: &Cfg, insertions: &[Insertion]) -> Vec<u32> {
    let mut next = 0;
    let firsts = (0..cfg.procs.len()).map(ProcId::from_index).map(|p| {
        let first = next;
        let insts = cfg.proc_insts(p);
        let mine = insertions[next..].iter();
        next += mine.take_while(|i| i.inst.index() < insts.end).count();
        first as u32
    });
    let mut firsts: Vec<u32> = firsts.collect();
    firsts.push(insertions.len() as u32);
    firsts
}

impl Layout {
    /// New address of a block for control that comes from unknown code.
    pub(crate) fn landing(&self, cfg: &Cfg, block: BlockId) -> u64 {
        self.guard(block)
            .unwrap_or_else(|| self.behind_guard(cfg, block))
    }

    /// The guard of a block's pad.
    pub fn guard(&self, block: BlockId) -> Option<u64> {
        let at = self.guards.binary_search_by_key(&block, |g| g.block).ok()?;
        Some(self.guards[at].address)
    }

    /// Address of the moved block to which a pad leads, after the guard if there is one.
    pub(crate) fn behind_guard(&self, cfg: &Cfg, block: BlockId) -> u64 {
        let proc = cfg.block(block).proc;
        if cfg.block_pc(block) == cfg.proc(proc).start {
            self.entry(proc).expect("blocks belong to moved procedures")
        } else {
            self.label(proc, cfg.block(block).first)
        }
    }
}
