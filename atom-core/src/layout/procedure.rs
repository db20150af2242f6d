//! The layout of one procedure: the form of each of its instructions, and the offset of each of its
//! blocks from its start. Branches begin as short ones and grow until all of them reach their
//! targets.

use crate::cfg::{Cfg, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::plan::{Insertion, Plan, Position};
use crate::x86::branch::{self, BranchForm};
use crate::x86::{ControlFlow, Inst};

use super::home::{self, Home, Homes};
use super::tables;

/// How an instruction is written at its new place. The type takes one byte, since there are
/// millions of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form(u8);

impl Form {
    /// The bytes as they are; a rip-relative displacement is adjusted.
    pub(crate) const COPY: Self = Self(0x80);
    /// Two-byte branch inside the procedure.
    pub(crate) const SHORT: Self = Self(0x81);
    /// Branch or call with a 32-bit displacement.
    pub(crate) const LONG: Self = Self(0x82);
    /// `loop`, `jrcxz` and their like over a distance that they do not reach.
    pub(crate) const LONG_COUNTED: Self = Self(0x83);
    /// `call next`: pushes the original return address.
    pub(crate) const PUSH_RETURN: Self = Self(0x84);

    /// A jump to the call in the old text.
    pub(crate) const HOME: Self = Self(0x85);
    /// The first of the forms [`Form::pushed`].
    const PUSHED: u8 = 0xc0;

    /// A call that pushes the original return address, which ends with a jump of `len` bytes.
    pub(crate) const fn pushed(len: u8) -> Self {
        debug_assert!(len < 0x40);
        Self(Self::PUSHED | len)
    }

    /// True for [`Form::pushed`].
    pub(crate) fn is_pushed(self) -> bool {
        self.0 >= Self::PUSHED
    }

    /// The load of an entry from the copy of a jump table; `size` is the size of the load in bytes.
    pub(crate) const fn table_load(size: u8) -> Self {
        debug_assert!(size < 0x80);
        Self(size)
    }

    /// The size in bytes of a load from the copy of a jump table; `None` for other forms.
    pub(crate) fn load_size(self) -> Option<u8> {
        (self.0 < 0x80).then_some(self.0)
    }

    /// By how many bytes the stack pointer is lower in this form, each with the offset from which it holds.
    pub(crate) fn depths(self) -> &'static [(u64, u32)] {
        match self {
            // The first byte is a push, and the last instruction leaves one word.
            Self::PUSH_RETURN => &[(1, 8)],
            _ if self.is_pushed() => &branch::PUSHED_DEPTHS,
            _ => &[],
        }
    }

    /// Size in bytes of the instruction in this form.
    pub(crate) fn size(self, inst: &Inst) -> u32 {
        match self {
            Self::COPY => u32::from(inst.len),
            Self::SHORT => branch::JMP_SHORT_LEN as u32,
            Self::LONG if inst.flow == ControlFlow::CondJump => branch::JCC_LEN as u32,
            Self::LONG => branch::JMP_LEN as u32,
            Self::LONG_COUNTED => u32::from(inst.len) + branch::FAR_COUNTED_MORE as u32,
            Self::PUSH_RETURN => branch::PUSH_ADDRESS_LEN as u32,
            Self::HOME => branch::JMP_LEN as u32,
            Self(size) if self.is_pushed() => {
                branch::PUSHED_LEN as u32 + u32::from(size - Self::PUSHED)
            }
            Self(size) => u32::from(size),
        }
    }
}

/// The layout of one procedure.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProcLayout {
    /// For each instruction, the offset of its label from the procedure's
    /// start; inserted code before the instruction is after the label.
    pub labels: Vec<u32>,
    /// For each instruction, its form.
    pub forms: Vec<Form>,
    /// Jumps from a block to the block that it falls through to, if that block does not follow: the
    /// instruction after which the jump is, and the original address of its target.
    pub bridges: Vec<(InstId, u64)>,
    /// Code for entries in the middle: the block and the offset.
    pub stubs: Vec<(BlockId, u32)>,
    /// Code on the way to a branch's target: the branch and the offset.
    pub taken: Vec<(InstId, u32)>,
    /// Offset of the cold parts of inserted code, which are in the order of insertions.
    pub cold_parts: u32,
    /// Size of the procedure in bytes.
    pub size: u32,
}

impl ProcLayout {
    pub(crate) fn taken_offset(&self, branch: InstId) -> Option<u32> {
        let at = self.taken.binary_search_by_key(&branch, |t| t.0).ok()?;
        Some(self.taken[at].1)
    }
}

/// A block with its inserted code. Only the size of the block's last instruction may change.
struct Piece {
    /// Distance of the block from the procedure's start in the original, if dropped padding had
    /// aligned the block.
    aligned: Option<u32>,
    /// Size in bytes of the code inserted in front of the block's label.
    entry: u32,
    /// Size in bytes from the label to the last instruction.
    inner: u32,
    /// Size in bytes of the code after the last instruction.
    behind: u32,
    /// Offset of the label from the procedure's start.
    label: u32,
}

/// A branch that begins as a short branch.
struct Short {
    /// Index of the branch's block in the procedure.
    block: u32,
    /// Index of the target's block. `None` if the branch leads to code on the way to a target
    /// outside of the procedure.
    target: Option<u32>,
}

pub(crate) struct ProcBuilder<'a> {
    image: &'a Image,
    cfg: &'a Cfg,
    plan: &'a Plan,
    /// Insertions of this procedure.
    insertions: &'a [Insertion],
    copies: &'a [tables::TableCopy],
    homes: &'a Homes,
    id: ProcId,
    insts: std::ops::Range<usize>,
    pieces: Vec<Piece>,
    short: Vec<Short>,
    /// Sizes in bytes of the code at the stubs, and of the code on the way to branches' targets.
    apart: [Vec<u32>; 2],
}

impl<'a> ProcBuilder<'a> {
    pub(crate) fn new(
        image: &'a Image,
        cfg: &'a Cfg,
        plan: &'a Plan,
        (insertions, copies, homes): (&'a [Insertion], &'a [tables::TableCopy], &'a Homes),
        id: ProcId,
    ) -> Self {
        Self {
            image,
            cfg,
            plan,
            insertions,
            copies,
            homes,
            id,
            insts: cfg.proc_insts(id),
            pieces: Vec::with_capacity(cfg.proc(id).block_count as usize),
            short: Vec::new(),
            apart: Default::default(),
        }
    }

    pub(crate) fn build(mut self) -> ProcLayout {
        let mut layout = ProcLayout {
            labels: Vec::with_capacity(self.insts.len()),
            forms: Vec::with_capacity(self.insts.len()),
            ..ProcLayout::default()
        };
        self.choose_forms(&mut layout);
        self.find_bridges(&mut layout);
        self.measure(&mut layout);
        // Forms only grow, so the loop ends.
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
        let cold_parts = all.map(|i| self.plan.snippets[i.snippet as usize].cold_part);
        layout.size = layout.cold_parts + cold_parts.sum::<u32>();
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
        // Few procedures have copied tables.
        let copies = {
            let first = self
                .copies
                .partition_point(|c| c.load.index() < self.insts.start);
            let end = self
                .copies
                .partition_point(|c| c.load.index() < self.insts.end);
            &self.copies[first..end]
        };
        let plain = |id: InstId| match tables::copy_at(copies, id) {
            Some(copy) => Form::table_load(copy.load_size),
            None => Form::COPY,
        };
        let first_block = cfg.proc(self.id).first_block;
        // Only the last instruction of a block moves control.
        for b in cfg.proc(self.id).blocks() {
            let block = cfg.block(b);
            let last = block.last();
            let inner = layout.forms.len() + block.count as usize - 1;
            if copies.is_empty() {
                layout.forms.resize(inner, Form::COPY)
            } else {
                layout
                    .forms
                    .extend((block.first.0..last.0).map(|i| plain(InstId(i))))
            }
            let inst = cfg.inst(last);
            if matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall)
                && let Some(form) = self.home_form(last)
            {
                layout.forms.push(form);
                continue;
            }
            layout.forms.push(match inst.flow {
                ControlFlow::Call if inst.special => Form::PUSH_RETURN,
                ControlFlow::Call => Form::LONG,
                ControlFlow::Jump | ControlFlow::CondJump => {
                    let target = self.target_inside(b);
                    while taken.next_if(|t| *t < last.index()).is_some() {}
                    let inside = target.is_some() || taken.peek() == Some(&last.index());
                    let BranchForm { uses_rcx, is_short } = self.branch_form(last);
                    if inside && is_short {
                        let block = b.0 - first_block.0;
                        self.short.push(Short { block, target });
                    }
                    match (inside && is_short, uses_rcx) {
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

    /// The form of a call that pushes the original return address.
    fn home_form(&self, call: InstId) -> Option<Form> {
        Some(match self.homes.of(call)? {
            Home::InPlace => Form::HOME,
            Home::Pushed => Form::pushed(home::pushed_len(self.image, self.cfg, call)? as u8),
        })
    }

    /// The index of the block to which the direct branch at a block's end leads, if that block is
    /// in the procedure.
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

    /// The form of a direct branch.
    fn branch_form(&self, id: InstId) -> BranchForm {
        let inst = self.cfg.inst(id);
        let bytes = self
            .image
            .bytes_at(self.cfg.inst_pc(id), usize::from(inst.len));
        match bytes.and_then(branch::plain_form) {
            Some(form) => form,
            None => {
                let d = self.cfg.decode(self.image, id);
                let uses_rcx = d.is_jcx_short() || d.is_loop() || d.is_loopcc();
                let is_short = d.is_jcc_short() || d.is_jmp_short() || uses_rcx;
                BranchForm { uses_rcx, is_short }
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
            // After a call that never returns there may be no block to continue to.
            let goes_on = cfg.succs(b).iter().any(|s| match s {
                Succ::Fall(_) => true,
                Succ::Tail(t) => {
                    t.get() == next
                        && (cfg.inst_at(next).is_some()
                            || !matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall))
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
            // Padding that control does not pass through was dropped; the block keeps the padding's
            // alignment.
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
                piece.behind += branch::JMP_LEN as u32;
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
            offset += size + branch::JMP_LEN as u32;
        }
        layout.cold_parts = offset;
    }

    /// Lengthens short branches that do not reach their targets; true if there were any.
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

/// Total size of the snippets at one place.
pub(crate) fn snippets_size(plan: &Plan, insertions: &[Insertion]) -> u32 {
    insertions.iter().map(|i| snippet_size(plan, i)).sum()
}

pub(crate) fn snippet_size(plan: &Plan, insertion: &Insertion) -> u32 {
    plan.snippets[insertion.snippet as usize].main_size()
}

/// Splits off the insertions at `inst` with `position`.
pub(crate) fn take_at<'p>(
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
