//! The program as procedures, basic blocks and instructions.
//!
//! Everything is in flat vectors in address order: the blocks of a
//! procedure are consecutive, and so are the instructions of a block. A procedure is
//! *full* if all of its code is understood and can move, *partial* if it can move
//! but something in it is known only in part, *opaque* if it always stays where it
//! is and is not instrumented.
//!
//! What the file tells comes first (`regions`, `pointers`, `seeds`), then the code of one procedure (`traverse`,
//! `jump_code`, `jump_table`), what is known of all of them (`discovery`) with what adds to that, the rounds (`build`),
//! and the graph (`discovered`, `flatten`).

mod addresses;
mod build;
pub mod call_frames;
mod discovered;
mod discovery;
mod evidence;
mod examined;
mod exits;
mod flatten;
pub mod frame;
mod frame_tables;
mod gaps;
mod go_stack;
pub mod graph;
mod grow;
mod jump_base;
mod jump_code;
mod jump_table;
mod numbers;
mod object;
mod obstacles;
mod open_tables;
mod parts;
mod plt;
pub(crate) mod pointers;
mod reaching;
pub(crate) mod regions;
mod returns;
pub mod seeds;
mod size;
mod stack_limits;
mod start_code;
pub mod stored;
mod text_data;
mod traps;
mod traverse;
mod type_hash;
mod uses;
mod v8;

pub use self::object::Object;
pub use discovered::Discovered;
pub use numbers::Numbers;

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use crate::ids::{Address48, BlockId, InstId, ProcId};
use crate::image::Image;
use crate::unwind::go::Origin;
use crate::x86::{Inst, Instruction, Run, decode_at, target_of};

pub use exits::Exit;
pub use size::CodeSize;

/// How well a procedure is understood.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// All of its code is understood.
    Full,
    /// It is instrumented except for a gap, which the text describes.
    Partial(String),
    /// It stays in place and is not instrumented; the text is the reason.
    Opaque(String),
}

/// What kind of code a procedure is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ProcKind {
    /// Ordinary code.
    #[default]
    Normal,
    /// An entry of a procedure linkage table; its name is `symbol@plt`.
    Plt,
    /// A part of another procedure that the compiler put elsewhere (`foo.cold`):
    /// entered only by jumps from that procedure, with its frame set up.
    Fragment(Option<ProcId>),
}

/// The return addresses that a moved procedure's calls push.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Returns {
    /// Addresses of the new text.
    #[default]
    New,
    /// The original ones, where a call can stay where it is.
    IfPossible,
    /// The original ones. If a call cannot push its own, the procedure stays in place.
    Always,
    /// The original ones, which the program looks up. If a call cannot push its own, the procedure stays in place.
    Original,
}

/// A procedure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proc {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Symbol name as in the symbol table, if there is one.
    pub name: Option<String>,
    /// What kind it is.
    pub kind: ProcKind,
    /// How well it is understood.
    pub status: Status,
    /// First of its blocks.
    pub first_block: BlockId,
    /// Number of its blocks; 0 if opaque.
    pub block_count: u32,
    /// True if only known direct calls and jumps can enter it: it is not
    /// exported, and its address is not taken.
    pub is_local: bool,
    /// The return addresses that its calls push if it moves.
    pub returns: Returns,
    /// True for a function that Go's tables list.
    pub is_go: bool,
    /// The language of such a function.
    pub go_origin: Origin,
    /// True if a frame description starts where it does.
    pub is_described: bool,
}

impl Proc {
    /// Its blocks.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockId> + ExactSizeIterator + use<> {
        (self.first_block.0..self.first_block.0 + self.block_count).map(BlockId)
    }

    /// True if it is understood, so that it can be instrumented and moved. The layout stage
    /// decides which procedures do move.
    pub fn is_movable(&self) -> bool {
        self.block_count != 0
    }

    /// Its name, or `sub_ADDRESS`.
    pub fn display_name(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("sub_{:x}", self.start),
        }
    }
}

/// A basic block: entered only at its first instruction, left only at its last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// The procedure that contains it.
    pub proc: ProcId,
    /// First of its instructions.
    pub first: InstId,
    /// Number of its instructions, at least 1.
    pub count: u32,
    /// Range in [`Cfg::succs`].
    pub first_succ: u32,
    /// Number of successors there.
    pub succ_count: u16,
    /// True if control can enter the procedure here from outside: by a direct call or
    /// jump of another procedure, or, for the first block, by any call.
    pub is_entry: bool,
    /// True if control can come here by an original address, such as a function pointer or an entry of a
    /// jump table. The original address needs a pad.
    pub is_indirect_target: bool,
    /// True for an exception landing pad, to which the unwinder comes by a new address.
    pub is_landing_pad: bool,
}

impl Block {
    /// Its instructions.
    pub fn insts(&self) -> impl DoubleEndedIterator<Item = InstId> + ExactSizeIterator + use<> {
        (self.first.0..self.first.0 + self.count).map(InstId)
    }

    /// Its last instruction.
    pub fn last(&self) -> InstId {
        InstId(self.first.0 + self.count - 1)
    }
}

/// Where control may go after a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Succ {
    /// To a block of the same procedure, by fall-through (also after a call).
    Fall(BlockId),
    /// To a block of the same procedure, by its branch or jump table.
    Branch(BlockId),
    /// Out of the procedure to this address by a jump (tail call, fragment).
    Tail(Address48),
    /// To a place that is not known: return, unbounded indirect jump.
    Unknown,
}

/// An indirect jump whose targets are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JumpTable {
    /// The jump.
    pub jump: InstId,
    /// Address of the table.
    pub table: u64,
    /// Size of an entry in bytes: 1, 2, 4 or 8.
    pub entry_size: u8,
    /// Number of entries; an upper bound if the code's own bound was not found.
    pub entries: u32,
    /// Address that is added to an entry; `None` if entries are absolute.
    pub relative_to: Option<u64>,
    /// The instruction that loads the entry, if it was found and is used by this jump only.
    pub load: Option<InstId>,
    /// The targets, sorted, without duplicates.
    pub targets: Vec<u64>,
}

/// Procedures that shall not move: first address and reason.
pub type Kept = BTreeMap<u64, String>;

/// The whole program's control flow.
#[derive(Debug, Default)]
pub struct Cfg {
    /// The image's base: [`Inst::offset`] counts from here.
    pub base: u64,
    /// Procedures in address order, not overlapping.
    pub procs: Vec<Proc>,
    /// Blocks of all moved procedures.
    pub blocks: Vec<Block>,
    /// Instructions of all blocks.
    pub insts: Vec<Inst>,
    /// Successors of all blocks.
    pub succs: Vec<Succ>,
    /// Jump tables, ordered by jump.
    pub jump_tables: Vec<JumpTable>,
    /// Pairs of procedures that move together or not at all, because one enters the other
    /// elsewhere than at its start by a jump, a call or an exception.
    pub together: Vec<(ProcId, ProcId)>,
    /// Addresses in the text that something refers to and at which no known instruction starts, in order. Data may
    /// are there, also where the bytes look like padding.
    pub text_references: Vec<u64>,
    /// Index of the starts of procedures.
    proc_starts: Starts,
    /// Index of the starts of blocks.
    block_starts: Starts,
}

/// Index to find procedures or blocks by address.
#[derive(Debug, Default)]
struct Starts {
    /// Offsets from the base at which they start, ascending.
    starts: Vec<u32>,
    /// The offsets are divided into pieces of equal size. By piece: number of starts before it.
    before: Vec<u32>,
    /// Binary logarithm of a piece's size in bytes.
    shift: u32,
}

impl Starts {
    /// The index of procedures that start at these addresses, which ascend, as far as their
    /// distances from `base` have 32 bits.
    fn of(base: u64, starts: impl Iterator<Item = u64>) -> Self {
        let offset = |start: u64| u32::try_from(start.checked_sub(base)?).ok();
        Self::of_offsets(starts.map_while(offset).collect())
    }

    /// Adds starts in front of those at `places`, which ascend. An index that has not all starts before, or that lacks
    /// one of these, covers nothing any more.
    fn insert(&mut self, places: &[usize], base: u64, starts: &[u64]) {
        let offset = |start: &u64| u32::try_from(start.checked_sub(base)?).ok();
        let offsets: Option<Vec<u32>> = starts.iter().map(offset).collect();
        let mut all = std::mem::take(&mut self.starts);
        let are_places = places.last().is_some_and(|place| *place <= all.len());
        if let Some(offsets) = offsets.filter(|_| are_places) {
            grow::insert_all(&mut all, places, offsets);
            *self = Self::of_offsets(all);
        }
    }

    /// The index of procedures, whose bounds are asked for often.
    fn of_offsets(starts: Vec<u32>) -> Self {
        let pieces = 2 * starts.len();
        Self::new(starts, pieces)
    }

    /// True if the index has exactly `count` starts.
    fn covers(&self, count: usize) -> bool {
        self.starts.len() == count
    }

    /// The index of starts, with about `pieces` pieces at most.
    fn new(starts: Vec<u32>, pieces: usize) -> Self {
        let last = starts.last().copied().unwrap_or(0);
        let mut shift = 6;
        while (last >> shift) as usize > pieces + 64 {
            shift += 1;
        }
        let mut before = Vec::with_capacity((last >> shift) as usize + 2);
        for (i, start) in starts.iter().enumerate() {
            let piece = (start >> shift) as usize;
            while before.len() <= piece {
                before.push(i as u32);
            }
        }
        before.push(starts.len() as u32);
        Self {
            starts,
            before,
            shift,
        }
    }

    /// Number of starts at an offset or before it.
    fn up_to(&self, offset: u32) -> usize {
        let piece = (offset >> self.shift) as usize;
        let Some(&[first, end]) = self.before.get(piece..=piece + 1) else {
            return self.starts.len();
        };
        let here = &self.starts[first as usize..end as usize];
        first as usize + here.partition_point(|s| *s <= offset)
    }
}

impl Cfg {
    /// Makes a full procedure partial, because some of its code is not instrumented after all.
    pub fn set_partial(&mut self, id: ProcId, reason: String) {
        let status = &mut self.procs[id.index()].status;
        if *status == Status::Full {
            *status = Status::Partial(reason);
        }
    }

    /// The procedure of which `id` is a part, or `id` itself. The calls at that procedure's entry and exit
    /// are made for its parts too.
    pub fn whole(&self, id: ProcId) -> ProcId {
        match self.proc(id).kind {
            ProcKind::Fragment(Some(parent)) => parent,
            _ => id,
        }
    }

    /// The procedure.
    pub fn proc(&self, id: ProcId) -> &Proc {
        &self.procs[id.index()]
    }

    /// The block.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }

    /// The instruction.
    pub fn inst(&self, id: InstId) -> &Inst {
        &self.insts[id.index()]
    }

    /// Virtual address of an instruction.
    pub fn inst_pc(&self, id: InstId) -> u64 {
        self.base + u64::from(self.insts[id.index()].offset)
    }

    /// Virtual address after an instruction.
    pub fn inst_end(&self, id: InstId) -> u64 {
        let inst = self.inst(id);
        self.base + u64::from(inst.offset) + u64::from(inst.len)
    }

    /// Virtual address of a block.
    pub fn block_pc(&self, id: BlockId) -> u64 {
        self.inst_pc(self.block(id).first)
    }

    /// Successors of a block.
    pub fn succs(&self, id: BlockId) -> &[Succ] {
        let block = self.block(id);
        let first = block.first_succ as usize;
        &self.succs[first..first + usize::from(block.succ_count)]
    }

    /// The instructions of a procedure, as a range of indices into [`Cfg::insts`].
    pub fn proc_insts(&self, id: ProcId) -> Range<usize> {
        let proc = self.proc(id);
        if proc.block_count == 0 {
            return 0..0;
        }
        let first = self.block(proc.first_block);
        let last = self.block(BlockId(proc.first_block.0 + proc.block_count - 1));
        first.first.index()..last.first.index() + last.count as usize
    }

    /// Makes the indices of procedures and blocks. Call it when both are complete.
    fn index(&mut self) {
        self.proc_starts = Starts::of(self.base, self.procs.iter().map(|p| p.start));
        let offset = |b: &Block| self.insts[b.first.index()].offset;
        let starts = self.blocks.par_iter().map(offset).collect();
        self.block_starts = Starts::new(starts, self.blocks.len() / 4);
    }

    /// The last procedure that starts at an address or before it.
    pub(crate) fn last_proc_from(&self, address: u64) -> Option<ProcId> {
        let offset = u32::try_from(address.checked_sub(self.base)?);
        let after = match offset {
            Ok(offset) if self.proc_starts.covers(self.procs.len()) => {
                self.proc_starts.up_to(offset)
            }
            _ => self.procs.partition_point(|p| p.start <= address),
        };
        Some(ProcId::from_index(after.checked_sub(1)?))
    }

    /// The procedure whose range contains an address.
    pub fn proc_at(&self, address: u64) -> Option<ProcId> {
        let id = self.last_proc_from(address)?;
        (address < self.proc(id).end).then_some(id)
    }

    /// The instruction that starts at an address.
    pub fn inst_at(&self, address: u64) -> Option<InstId> {
        self.inst_in(self.proc_at(address)?, address)
    }

    /// The instruction of a procedure that starts at an address.
    pub fn inst_in(&self, proc: ProcId, address: u64) -> Option<InstId> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let block = self.block(self.last_block_from(offset)?);
        let insts = &self.insts[block.first.index()..][..block.count as usize];
        let found = insts.partition_point(|i| i.offset < offset);
        (insts.get(found)?.offset == offset && block.proc == proc)
            .then(|| InstId::from_index(block.first.index() + found))
    }

    /// The block that contains an instruction.
    pub fn block_of(&self, inst: InstId) -> BlockId {
        let block = self.last_block_from(self.inst(inst).offset);
        block.expect("an instruction of the cfg is in a block")
    }

    /// The last block that starts at an offset or before it. All instructions are in address order, also across
    /// procedures and where they overlap, and blocks are consecutive pieces of that order.
    fn last_block_from(&self, offset: u32) -> Option<BlockId> {
        debug_assert!(self.block_starts.covers(self.blocks.len()));
        let after = self.block_starts.up_to(offset);
        Some(BlockId::from_index(after.checked_sub(1)?))
    }

    /// The block that starts at an address.
    pub fn block_at(&self, address: u64) -> Option<BlockId> {
        let offset = u32::try_from(address.checked_sub(self.base)?).ok()?;
        let block = self.last_block_from(offset)?;
        (self.block_starts.starts[block.index()] == offset).then_some(block)
    }

    /// The target of a direct branch or call.
    pub fn direct_target(&self, image: &Image, id: InstId) -> Option<u64> {
        let pc = self.inst_pc(id);
        let bytes = image.bytes_at(pc, usize::from(self.inst(id).len))?;
        target_of(bytes, pc)
    }

    /// An instruction decoded in full, with its original address.
    pub fn decode(&self, image: &Image, id: InstId) -> crate::x86::Instruction {
        let pc = self.inst_pc(id);
        let bytes = image
            .bytes_at(pc, usize::from(self.inst(id).len))
            .unwrap_or(&[]);
        decode_at(bytes, pc)
            .expect("an instruction of the cfg decodes as it did when the cfg was built")
    }

    /// The instructions of a block, each with its bytes and the bytes that follow them.
    pub fn block_bytes<'a>(
        &'a self,
        image: &'a Image,
        id: BlockId,
    ) -> impl DoubleEndedIterator<Item = (&'a Inst, &'a [u8])> + ExactSizeIterator {
        let block = self.block(id);
        let first = block.first.index();
        let insts = &self.insts[first..first + block.count as usize];
        let start = insts[0].offset;
        let rest = image.rest_at(self.base + u64::from(start)).unwrap_or(&[]);
        insts
            .iter()
            .map(move |inst| (inst, &rest[(inst.offset - start) as usize..]))
    }

    /// The instructions of a block, decoded one after the other.
    pub fn decode_block<'i>(
        &self,
        image: &'i Image,
        id: BlockId,
    ) -> impl Iterator<Item = Instruction> + use<'i> {
        let block = self.block(id);
        let pc = self.inst_pc(block.first);
        let size = self.inst_end(block.last()) - pc;
        let mut run = Run::new(image.bytes_at(pc, size as usize).unwrap_or(&[]), pc);
        (0..block.count).map(move |_| {
            let mut instruction = Instruction::default();
            let is_valid = run.next_into(&mut instruction);
            assert!(is_valid, "a block decodes as it did when the cfg was built");
            instruction
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Starts;

    #[test]
    fn index_finds_what_a_search_finds() {
        for (count, gap) in [(0, 1), (1, 1), (5, 3), (300, 40), (50, 100_000)] {
            let mut starts: Vec<u32> = (0..count)
                .map(|i: u32| 77 + (i * 7919 % 13) + i * gap * 13)
                .collect();
            starts.sort_unstable();
            let index = Starts::new(starts.clone(), 2 * starts.len());
            let around = starts.iter().flat_map(|s| [s - 1, *s, s + 1, s + gap]);
            for offset in around.chain([0, u32::MAX]) {
                let expected = starts.partition_point(|s| *s <= offset);
                assert_eq!(index.up_to(offset), expected, "{count} {gap} {offset}");
            }
        }
    }
}
