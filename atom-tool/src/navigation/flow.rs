//! Control flow inside a procedure: edges, dominators, loops, the frame.
//!
//! A part of a procedure that the compiler put elsewhere (`foo.cold`) is a
//! procedure of its own among the handles, but here both are one: an edge may
//! lead from one to the other, and a loop may have blocks in both.

use std::ffi::c_void;
use std::ops::Deref;

use atom_abi::host::{NONE, Reg};
use atom_abi::query::{
    CallFrameRecord, EdgeKind, EdgeRecord, FrameRecord, LoopRecord, Relation, Sink,
};

use crate::navigation::handle::{Block, FromId, Proc};
use crate::navigation::program::{Session, each};

/// An edge of the control flow, as one of its two blocks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge<'a> {
    /// How control goes along it.
    pub kind: EdgeKind,
    /// The block at the other end; none if it is not in this procedure.
    pub block: Option<Block<'a>>,
    /// The address at the other end, if it is known.
    pub address: Option<u64>,
}

/// A natural loop: a block through which it is entered, and all blocks from
/// which control comes back there without leaving.
#[derive(Clone, Debug)]
pub struct Loop<'a> {
    /// The block through which it is entered.
    pub header: Block<'a>,
    /// Index in [`Loops`] of the innermost loop around this one.
    pub parent: Option<usize>,
    /// Nesting depth; 1 for an outermost loop.
    pub depth: u32,
    /// Blocks from which control goes back to the header.
    pub latches: Vec<Block<'a>>,
    /// All its blocks, including the blocks of inner loops.
    pub blocks: Vec<Block<'a>>,
}

/// The loops of a procedure, outer ones before inner ones.
#[derive(Clone, Debug)]
pub struct Loops<'a> {
    list: Vec<Loop<'a>>,
    /// The procedure has cycles that can be entered at several blocks. They are no natural loops
    /// and are not listed.
    pub irreducible: bool,
}

impl<'a> Deref for Loops<'a> {
    type Target = [Loop<'a>];

    fn deref(&self) -> &[Loop<'a>] {
        &self.list
    }
}

/// The stack frame of a procedure.
///
/// Offsets count from the *virtual frame pointer*, the value of rsp before the
/// call that entered the procedure; in its body rsp is `size` bytes below.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    record: FrameRecord,
}

impl Frame {
    /// Number of bytes from the virtual frame pointer down to the lowest rsp in the body: the
    /// return address, saved registers, locals, arguments of calls.
    pub fn size(&self) -> u64 {
        self.record.size
    }

    /// True if the size is not fixed (`alloca`, alignment); then `size` is the fixed part.
    pub fn is_dynamic(&self) -> bool {
        self.record.is_dynamic
    }

    /// True if unwind tables said which registers are saved; else the first
    /// instructions did.
    pub fn from_tables(&self) -> bool {
        self.record.from_tables
    }

    /// The saved general registers, bit n for register n.
    pub fn int_mask(&self) -> u32 {
        self.record.int_mask
    }

    /// Offset of the first saved general register, the one with the highest address.
    pub fn int_offset(&self) -> Option<i32> {
        self.saved_ints().map(|s| s.1).max()
    }

    /// The saved vector registers, bit n for register n. No procedure that keeps
    /// to the System V ABI saves any.
    pub fn float_mask(&self) -> u32 {
        self.record.float_mask
    }

    /// Each saved general register with its offset.
    pub fn saved_ints(&self) -> impl Iterator<Item = (Reg, i32)> + '_ {
        saved(Reg::Rax, self.record.int_mask, &self.record.int_offsets)
    }

    /// Each saved vector register with its offset.
    pub fn saved_floats(&self) -> impl Iterator<Item = (Reg, i32)> + '_ {
        let record = &self.record;
        saved(Reg::Xmm0, record.float_mask, &record.float_offsets)
    }

    /// Offset of the upper end of the local variables, below return address and saved registers.
    pub fn local_offset(&self) -> i32 {
        self.record.local_offset
    }

    /// Offset of the return address.
    pub fn return_offset(&self) -> i32 {
        self.record.return_offset
    }

    /// The register that addresses the frame in the body: rbp or rsp, seldom another.
    pub fn frame_reg(&self) -> Option<Reg> {
        Reg::from_number(self.record.frame_reg)
    }

    /// Size in bytes of `endbr64` at the start, or 0.
    pub fn landing_size(&self) -> u32 {
        self.record.landing_size
    }
}

fn saved(first: Reg, mask: u32, offsets: &[i32; 16]) -> impl Iterator<Item = (Reg, i32)> {
    (0..16)
        .filter(move |i| mask >> i & 1 != 0)
        .filter_map(move |i| {
            let reg = Reg::from_number(first as u32 + i)?;
            Some((reg, offsets[i as usize]))
        })
}

fn block<'a>(session: &'a Session<'a>, id: u32) -> Option<Block<'a>> {
    (id != NONE).then(|| Block::from_id(session, id))
}

impl<'a> Block<'a> {
    fn edges(&self, ask: impl FnOnce(*mut c_void, Sink<EdgeRecord>)) -> Vec<Edge<'a>> {
        let mut edges = Vec::new();
        each(ask, |edge: &EdgeRecord| {
            edges.push(Edge {
                kind: EdgeKind::from_number(edge.kind),
                block: block(self.session, edge.block),
                address: (edge.address != 0).then_some(edge.address),
            });
        });
        edges
    }

    /// Edges to the blocks that control may enter next. A call that never returns has none.
    pub fn successors(&self) -> Vec<Edge<'a>> {
        let host = self.session.host;
        self.edges(|arg, sink| (host.block_successors)(host.context, self.id, arg, sink))
    }

    /// Edges from the blocks of its procedure from which control may come.
    pub fn predecessors(&self) -> Vec<Edge<'a>> {
        let host = self.session.host;
        self.edges(|arg, sink| (host.block_predecessors)(host.context, self.id, arg, sink))
    }

    fn relation(&self, what: Relation) -> u32 {
        let host = self.session.host;
        (host.block_relation)(host.context, self.id, what as u32)
    }

    /// Immediate dominator: the last block before this one that every path from an entry of the
    /// procedure passes. None for entries.
    pub fn immediate_dominator(&self) -> Option<Self> {
        block(self.session, self.relation(Relation::Dominator))
    }

    /// Immediate post-dominator: the first block after this one that every path to an end of the
    /// procedure passes. A call that never returns is such an end, too.
    pub fn immediate_post_dominator(&self) -> Option<Self> {
        block(self.session, self.relation(Relation::PostDominator))
    }

    /// True if every path from an entry to `other` passes this block.
    /// Blocks dominate themselves.
    pub fn dominates(&self, other: Self) -> bool {
        let host = self.session.host;
        (host.block_dominates)(host.context, self.id, other.id, false)
    }

    /// True if every path from `other` to an end of the procedure passes this block.
    pub fn post_dominates(&self, other: Self) -> bool {
        let host = self.session.host;
        (host.block_dominates)(host.context, self.id, other.id, true)
    }

    /// True if some entry of the procedure leads to it, as far as is known.
    pub fn is_reachable(&self) -> bool {
        self.relation(Relation::Reachable) == 1
    }

    /// False if calls on the block are not made, because the user chose other parts of the program.
    pub fn is_selected(&self) -> bool {
        self.relation(Relation::Selected) == 1
    }

    /// True if the block's address is taken: it is a code pointer in data or in an operand, or it is
    /// exported. A call through a pointer, or a library, may lead there.
    pub fn is_address_taken(&self) -> bool {
        self.relation(Relation::AddressTaken) == 1
    }

    /// Index in [`Proc::loops`] of the innermost loop that contains the block.
    pub fn innermost_loop(&self) -> Option<usize> {
        let place = self.relation(Relation::InnermostLoop);
        (place != NONE).then_some(place as usize)
    }
}

impl<'a> Proc<'a> {
    /// Its natural loops.
    pub fn loops(&self) -> Loops<'a> {
        let host = self.session.host;
        let mut list = Vec::new();
        let mut irreducible = false;
        let blocks = |ids: *const u32, count: usize| -> Vec<Block<'a>> {
            // SAFETY: by the interface, `count` numbers are there during the call.
            let ids = unsafe { std::slice::from_raw_parts(ids, count) };
            let handle = |id: &u32| Block::from_id(self.session, *id);
            ids.iter().map(handle).collect()
        };
        each(
            |arg, sink| irreducible = (host.proc_loops)(host.context, self.id, arg, sink),
            |item: &LoopRecord| {
                list.push(Loop {
                    header: Block::from_id(self.session, item.header),
                    parent: (item.parent != NONE).then_some(item.parent as usize),
                    depth: item.depth,
                    latches: blocks(item.latches, item.latch_count as usize),
                    blocks: blocks(item.blocks, item.block_count),
                });
            },
        );
        Loops { list, irreducible }
    }

    /// Blocks at which control can enter the procedure: the first one, those that other procedures
    /// jump to, and those that control reaches without an edge (landing pads, for example).
    pub fn entries(&self) -> Vec<Block<'a>> {
        let host = self.session.host;
        let mut entries = Vec::new();
        each(
            |arg, sink| (host.proc_entries)(host.context, self.id, arg, sink),
            |id: &u32| entries.push(Block::from_id(self.session, *id)),
        );
        entries
    }

    /// Blocks at which calls may begin to be made in the middle of an execution, and cease to. These are the procedure's
    /// [entries](Proc::entries), and in a run with windows the blocks at which control goes from the version of the
    /// procedure without calls to the one with calls, and back. A routine that relies on what a call
    /// earlier in the procedure has done begins anew at them.
    pub fn starts(&self) -> Vec<Block<'a>> {
        let host = self.session.host;
        let mut starts = self.entries();
        each(
            |arg, sink| (host.proc_crossings)(host.context, self.id, arg, sink),
            |id: &u32| starts.push(Block::from_id(self.session, *id)),
        );
        starts
    }

    /// The procedure's stack frame; none for an opaque procedure without unwind tables.
    pub fn frame(&self) -> Option<Frame> {
        let host = self.session.host;
        let mut record = FrameRecord::default();
        (host.proc_frame)(host.context, self.id, &mut record).then_some(Frame { record })
    }

    /// How the caller's frame is found at the procedure's calls, by the numbers of the instructions. Calls without a simple
    /// rule are left out.
    pub(crate) fn call_frames(&self) -> Vec<CallFrameRecord> {
        let host = self.session.host;
        let mut frames = Vec::new();
        each(
            |arg, sink| (host.call_frames)(host.context, self.id, arg, sink),
            |frame: &CallFrameRecord| frames.push(*frame),
        );
        frames
    }

    /// Number of bytes of which rsp is a multiple before each call by the procedure's calling convention: 16 in the System
    /// V ABI, 8 in a function of Go. Code in assembly language need not keep to it.
    pub fn stack_alignment(&self) -> u64 {
        let host = self.session.host;
        (host.stack_alignment)(host.context, self.id)
    }
}
