//! The program as liveness needs it: effects of blocks, how blocks end, callers and callees.
//!
//! Compilers do not keep to the System V ABI inside a program. gcc keeps
//! values in caller-saved registers over calls of procedures that it has seen
//! not to touch these registers (`-fipa-ra`), and hand-written assembly passes values in
//! any registers. So for each procedure we compute what it *may write*
//! and *may read*, with all that it calls. The ABI alone is not relied on for calls whose other side is not known either:
//! see `expectations.rs`.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rayon::prelude::*;

use super::convention::{AT_GO_ENTRY, Convention};
use super::effects::{Effects, EffectsOf, Transfer, is_stack_store, purpose};
use super::ends::{Callee, End, Program, StackChange, StackTop, end_of, tails_of};
use super::expectations::{Expectations, Names};
use super::span::Span;
use super::{RegSet, far_calls, unknown_code};
use crate::cfg::{Cfg, Returns, Succ};
use crate::grouped::Grouped;
use crate::ids::{BlockId, ProcId};
use crate::image::{Image, ImageDecoder};
use crate::parallel;
use crate::x86::{ControlFlow, Inst, Memo, Mnemonic, OpKind, Register};

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockInfo {
    /// What all instructions of the block do, without callees.
    pub effects: Transfer,
    /// How the block ends.
    pub end: End,
    /// Distance in blocks back to the first predecessor of the same procedure; 0 if no predecessor
    /// is before this block.
    ahead: u16,
    /// Distance in blocks forward to the last predecessor of the same procedure, plus 1; 0 if all
    /// predecessors are before this block.
    behind: u16,
}

/// Distances of this size or larger: the block may be anywhere in the procedure.
const FAR: u16 = u16::MAX;

impl BlockInfo {
    /// A block of which nothing is known yet.
    const NEW: Self = Self {
        effects: Transfer::new(),
        end: End::Dead,
        ahead: 0,
        behind: 0,
    };

    /// Notes that block `from` leads to this block, which has the number `own`. Both are numbers in the procedure.
    fn comes_from(&mut self, from: u32, own: u32) {
        let (distance, is_behind) = if from < own {
            (own - from, false)
        } else {
            (from - own + 1, true)
        };
        let distance = distance.min(FAR.into()) as u16;
        if is_behind {
            self.behind = self.behind.max(distance)
        } else {
            self.ahead = self.ahead.max(distance)
        }
    }

    /// Number of a block such that no block before it leads to this block, whose number is `own`.
    /// Both are numbers in the procedure.
    pub fn comes_from_before(&self, own: u32) -> u32 {
        match self.ahead {
            FAR => 0,
            distance => own - u32::from(distance),
        }
    }

    /// The blocks from this one, whose number in the procedure is `own`, to its last predecessor;
    /// empty if all predecessors are before this block. `count` is the number of the procedure's blocks.
    pub fn comes_again(&self, own: u32, count: u32) -> Span {
        match self.behind {
            0 => Span::default(),
            FAR => Span::of(own..count),
            distance => Span::of(own..own + u32::from(distance)),
        }
    }
}

/// What is known of a procedure.
#[derive(Clone, Default, Debug)]
pub struct ProcInfo {
    /// Jumps out of the procedure, as block and target, in the order of blocks.
    pub tails: Vec<(BlockId, Callee)>,
    /// Procedures that it calls or jumps to, each once, with the blocks that do so.
    pub callees: Vec<(ProcId, Span)>,
    /// The blocks whose liveness depends on what is live at the procedure's returns.
    pub returns: Span,
    /// What may be written between entry and return, callees included.
    pub writes: RegSet,
    /// What may be read between entry and return before being written, callees included.
    pub reads: RegSet,
    /// The convention that it keeps to.
    pub convention: Convention,
    /// What it sets in front of a return without reading it: perhaps results, or restored for its caller.
    left: RegSet,
    /// True if code that is not understood may call or jump to the procedure directly.
    pub has_unknown_callers: bool,
    /// True if the procedure may be called through a pointer, or by another object.
    pub is_open: bool,
    /// True if the procedure may run with the direction flag set.
    pub may_set_df: bool,
    /// True if the procedure has a `popf`.
    pub restores_flags: bool,
    /// True if the procedure calls through a register a function that the compiler knew.
    calls_far: bool,
}

impl ProcInfo {
    /// Registers whose values at the entry a caller may have to give, if it reads those in `after` when the procedure has
    /// returned. What is live at the entry for the sake of other callers is left out for functions of Go: their
    /// functions in assembly keep registers for callers in C.
    pub fn wanted(&self, after: RegSet) -> RegSet {
        match self.convention {
            Convention {
                is_compiled: true, ..
            } => (self.reads | after) & AT_GO_ENTRY,
            Convention { is_go: true, .. } => self.reads | after,
            _ => self.reads | self.writes,
        }
    }

    /// Calls and jumps to known blocks: the number of the calling block in the procedure, the target
    /// and the target's procedure. `blocks` are the procedure's own, of which `first` is the first.
    fn calls(
        &self,
        first: BlockId,
        blocks: &[BlockInfo],
    ) -> impl Iterator<Item = (u32, BlockId, ProcId)> {
        let calls = blocks.iter().enumerate().filter_map(|(i, b)| match b.end {
            End::Call(callee) => Some((i as u32, callee)),
            _ => None,
        });
        let tails = self.tails.iter().map(move |t| (t.0.0 - first.0, t.1));
        calls.chain(tails).filter_map(|(own, callee)| match callee {
            Callee::Known(block, proc) => Some((own, block, proc)),
            _ => None,
        })
    }

    /// Adds what code outside of the known procedures may read and write when a block ends so.
    fn add_outside(&mut self, end: End) {
        match end {
            End::Plain | End::Return | End::Dead | End::Call(Callee::Known(..)) => {}
            End::Call(Callee::Import(_))
            | End::CallPointer
            | End::CallStrange
            | End::CallKeeping
            | End::TailCall
            | End::Import => {
                self.writes |= RegSet::CALLER_SAVED;
                self.reads |= RegSet::ALL;
            }
            End::CallGo | End::JumpGo => {
                self.writes |= RegSet::ALL;
                self.reads |= AT_GO_ENTRY;
            }
            End::Call(Callee::Unknown) | End::Unknown | End::Dispatch => {
                self.writes |= RegSet::ALL;
                self.reads |= RegSet::ALL;
            }
        }
    }

    /// Adds to what is live at a return what a caller that is not known may read there although no code of this
    /// object tells: what the procedure leaves alone or restores, and results in unusual registers.
    fn expect_unknown_callers(&mut self) {
        if self.is_open && !self.convention.is_go {
            let kept = RegSet::ALL.without(self.writes | RegSet::FLAGS);
            self.convention.at_return |= self.left | kept;
        }
    }

    /// Fills in [`ProcInfo::callees`].
    fn find_callees(&mut self, first: BlockId, blocks: &[BlockInfo]) {
        let mut known: Vec<(ProcId, u32)> = self
            .calls(first, blocks)
            .map(|(own, _, proc)| (proc, own))
            .collect();
        known.sort_unstable();
        self.callees = known
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| (same[0].0, Span::of(same[0].1..same[same.len() - 1].1 + 1)))
            .collect();
    }
}

/// The whole program as the solver reads it.
pub struct LiveGraph {
    /// Facts of blocks, by block.
    pub blocks: Vec<BlockInfo>,
    /// Facts of procedures, by procedure.
    pub procs: Vec<ProcInfo>,
    /// By procedure: the procedures that call it or jump to it, each with its blocks that do so.
    callers: Grouped<(ProcId, Span)>,
    /// By block: true if a call, or a jump of another procedure, leads to it.
    is_target: Vec<AtomicBool>,
    /// The names of functions by which objects call each other.
    pub names: Names,
}

impl LiveGraph {
    /// Reads the whole program once. `outside` is what other objects expect.
    pub fn build(image: &Image, cfg: &Cfg, outside: &Expectations) -> Self {
        let is_go = image.is_go();
        let names = Names::new(image, cfg, outside);
        let program = Program {
            image,
            cfg,
            names: &names,
        };
        let lengths = cfg.procs.iter().map(|p| p.block_count as usize);
        let is_target: Vec<AtomicBool> = (0..cfg.blocks.len())
            .into_par_iter()
            .map(|_| AtomicBool::new(false))
            .collect();
        let read = |reader: &mut Reader, p: usize, own: &mut [BlockInfo]| {
            let convention = match (is_go, cfg.procs[p].returns) {
                (true, _) => Convention::in_go(&cfg.procs[p]),
                (_, Returns::Original) => Convention::OCAML,
                _ => Convention::SYSTEM_V,
            };
            let mut info = read_proc(program, ProcId::from_index(p), own, reader, convention);
            let first = cfg.procs[p].first_block;
            info.find_callees(first, own);
            for (_, target, _) in info.calls(first, own) {
                is_target[target.index()].store(true, Relaxed);
            }
            info
        };
        let ((blocks, procs), hidden) = rayon::join(
            || parallel::in_pieces(BlockInfo::NEW, lengths, || Reader::new(image), read),
            || unknown_code::targets(image, cfg),
        );
        let callers = callers(&procs);
        let mut graph = Self {
            blocks,
            procs,
            callers,
            is_target,
            names,
        };
        graph.doubt_discarding(image, cfg);
        let has_far_calls = graph.procs.iter().any(|p| p.calls_far);
        if has_far_calls {
            graph.doubt_pointers(cfg);
        }
        graph.close_over_calls();
        for target in hidden {
            if let Some(proc) = cfg.proc_at(target) {
                graph.procs[proc.index()].has_unknown_callers = true;
            }
        }
        for info in &mut graph.procs {
            info.has_unknown_callers |= has_far_calls;
            info.expect_unknown_callers();
            info.writes = info.writes.with_read();
            info.reads = info.reads.with_read();
        }
        graph.spread_direction_flag(image, cfg);
        graph
    }

    /// Procedures that call a procedure or jump to it, each with its blocks that do so.
    pub fn callers(&self, proc: ProcId) -> &[(ProcId, Span)] {
        self.callers.of(proc.index())
    }

    /// True if a call, or a jump of another procedure, leads to the block.
    pub fn is_target(&self, block: BlockId) -> bool {
        self.is_target[block.index()].load(Relaxed)
    }

    /// Marks all calls through pointers as unknown. Needed in a program that calls functions through
    /// registers although the compiler knew them: each call through a pointer may be such a call.
    fn doubt_pointers(&mut self, cfg: &Cfg) {
        for (block, known) in self.blocks.iter_mut().zip(&cfg.blocks) {
            if block.end == End::CallPointer {
                block.end = End::Unknown;
                let info = &mut self.procs[known.proc.index()];
                info.writes |= RegSet::ALL;
                info.reads |= RegSet::ALL;
            }
        }
    }

    /// Marks calls of procedures that drop their return address as unknown. Such a callee returns to
    /// another place, so what is live after the call does not tell what is live when the callee ends.
    fn doubt_discarding(&mut self, image: &Image, cfg: &Cfg) {
        let discards: Vec<bool> = (0..cfg.blocks.len())
            .into_par_iter()
            .with_min_len(4096)
            .map(BlockId::from_index)
            .map(|b| self.is_target(b) && discards_return_address(image, cfg, b))
            .collect();
        if !discards.contains(&true) {
            return;
        }
        let in_doubt = |end| matches!(end, End::Call(Callee::Known(b, _)) if discards[b.index()]);
        for (b, block) in self.blocks.iter_mut().enumerate() {
            if in_doubt(block.end) || (discards[b] && block.end == End::Return) {
                block.end = End::Unknown;
                let info = &mut self.procs[cfg.blocks[b].proc.index()];
                info.writes |= RegSet::ALL;
                info.reads |= RegSet::ALL;
            }
        }
        let (blocks, procs) = (&self.blocks, &mut self.procs);
        (cfg.procs.par_iter().zip(procs)).for_each(|(proc, info)| {
            let first = proc.first_block;
            let own = first.index()..first.index() + proc.block_count as usize;
            info.find_callees(first, &blocks[own]);
        });
    }

    /// Adds to each procedure what its callees may read and write.
    fn close_over_calls(&mut self) {
        let mut work: Vec<usize> = (0..self.procs.len()).rev().collect();
        let mut queued = vec![true; self.procs.len()];
        while let Some(p) = work.pop() {
            queued[p] = false;
            let (mut reads, mut writes) = (self.procs[p].reads, self.procs[p].writes);
            for (callee, _) in &self.procs[p].callees {
                reads |= self.procs[callee.index()].reads;
                writes |= self.procs[callee.index()].writes;
            }
            if reads != self.procs[p].reads || writes != self.procs[p].writes {
                self.procs[p].reads = reads;
                self.procs[p].writes = writes;
                for (caller, _) in self.callers(ProcId::from_index(p)) {
                    if !std::mem::replace(&mut queued[caller.index()], true) {
                        work.push(caller.index());
                    }
                }
            }
        }
    }

    /// Marks the callees of procedures that may run with the direction flag set: also entries of the procedure linkage
    /// table, and callees that may drop their return address, which [`ProcInfo::callees`] leaves out.
    fn spread_direction_flag(&mut self, image: &Image, cfg: &Cfg) {
        let mut work: Vec<usize> = (0..self.procs.len())
            .filter(|p| self.procs[*p].may_set_df)
            .collect();
        while let Some(p) = work.pop() {
            let direct = cfg.procs[p].blocks().filter_map(|b| {
                let target = cfg.direct_target(image, cfg.block(b).last())?;
                cfg.proc_at(target)
            });
            let known = self.procs[p].callees.iter().map(|(callee, _)| *callee);
            let callees: Vec<ProcId> = known.chain(direct).collect();
            for callee in callees {
                if !std::mem::replace(&mut self.procs[callee.index()].may_set_df, true) {
                    work.push(callee.index());
                }
            }
        }
    }
}

/// The callers of each procedure, in the order of their numbers.
fn callers(procs: &[ProcInfo]) -> Grouped<(ProcId, Span)> {
    let calls = || {
        let callers = procs.iter().enumerate();
        callers.flat_map(|(caller, info)| {
            let callees = info.callees.iter();
            callees.map(move |(callee, blocks)| (callee.0, (ProcId::from_index(caller), *blocks)))
        })
    };
    Grouped::new(procs.len(), calls)
}

/// What is needed of an instruction inside a block.
#[derive(Clone, Copy, Default)]
struct Known {
    effects: Effects,
    /// The register or the flags for whose sake the instruction is there.
    sets: RegSet,
    stores_to_stack: bool,
    sets_df: bool,
    restores_flags: bool,
    /// How the instruction changes the top of the stack; `None` if it does not.
    stack_change: Option<StackChange>,
}

/// Reads instructions, and remembers the facts by their bytes.
struct Reader<'a> {
    decoder: ImageDecoder<'a>,
    effects_of: EffectsOf,
    known: Memo<Known>,
}

impl<'a> Reader<'a> {
    fn new(image: &'a Image) -> Self {
        Self {
            decoder: ImageDecoder::new(image),
            effects_of: EffectsOf::default(),
            known: Memo::new(),
        }
    }

    fn read_block(&mut self, program: Program<'_>, b: BlockId) -> Contents {
        let Program { image, cfg, .. } = program;
        let is_first = b == cfg.proc(cfg.block(b).proc).first_block;
        let mut found = Contents {
            effects: Effects::default(),
            read: RegSet::EMPTY,
            fresh: RegSet::EMPTY,
            stack_top: StackTop::default(),
            sets_df: false,
            restores_flags: false,
        };
        for (inst, bytes) in cfg.block_bytes(image, b) {
            let known = self.read(inst, bytes, cfg.base + u64::from(inst.offset));
            let uses = known.effects.uses;
            let stores = known.stores_to_stack && (is_first || uses.intersects(RegSet::XMMS));
            if !stores {
                found.read |= uses.without(found.effects.kills);
            }
            let flags_read = if uses.intersects(RegSet::FLAGS) {
                RegSet::FLAGS
            } else {
                RegSet::EMPTY
            };
            let gone = uses | known.effects.kills | flags_read;
            found.fresh = found.fresh.without(gone) | known.sets;
            found.effects = found.effects.then(&known.effects);
            found.sets_df |= known.sets_df;
            found.restores_flags |= known.restores_flags;
            if let (false, Some(change)) = (inst.flow == ControlFlow::Return, known.stack_change) {
                found.stack_top = found.stack_top.after(change);
            }
        }
        found
    }

    fn read(&mut self, inst: &Inst, bytes: &[u8], address: u64) -> Known {
        self.known.of(inst, bytes, || {
            let instruction = self.decoder.again(address);
            let effects = self.effects_of.of(&instruction);
            Known {
                effects,
                sets: purpose(&instruction, &effects),
                stores_to_stack: is_stack_store(&instruction),
                sets_df: matches!(
                    instruction.mnemonic(),
                    Mnemonic::Std | Mnemonic::Popf | Mnemonic::Popfq
                ),
                restores_flags: instruction.mnemonic() == Mnemonic::Popfq,
                stack_change: StackChange::of(&instruction),
            }
        })
    }
}

/// What the instructions of a block do.
struct Contents {
    effects: Effects,
    /// What is read before being overwritten, without stores of what may be no argument at all: functions
    /// with a variable number of arguments store all registers for arguments, others save registers.
    read: RegSet,
    /// What is set and not read after that.
    fresh: RegSet,
    stack_top: StackTop,
    sets_df: bool,
    restores_flags: bool,
}

fn read_proc(
    program: Program<'_>,
    id: ProcId,
    blocks: &mut [BlockInfo],
    reader: &mut Reader<'_>,
    convention: Convention,
) -> ProcInfo {
    let Program { image, cfg, .. } = program;
    let proc = cfg.proc(id);
    let is_entered_inside = |b: BlockId| b != proc.first_block && cfg.block(b).is_indirect_target;
    let mut info = ProcInfo {
        convention,
        is_open: !proc.is_local || proc.blocks().any(is_entered_inside),
        ..ProcInfo::default()
    };
    for b in proc.blocks() {
        let block = cfg.block(b);
        let Contents {
            effects,
            read,
            fresh,
            stack_top,
            sets_df,
            restores_flags: restores,
        } = reader.read_block(program, b);
        info.may_set_df |= sets_df;
        info.restores_flags |= restores;
        let end = end_of(program, b, stack_top, convention).of_caller(fresh);
        if end == End::Return {
            info.left |= fresh;
        }
        // Few blocks load a 64-bit constant.
        if end == End::CallPointer
            && block
                .insts()
                .any(|i| cfg.inst(i).len >= far_calls::CONSTANT)
        {
            let last = cfg.decode(image, block.last());
            let before = cfg.decode_block(image, b).take(block.count as usize - 1);
            info.calls_far |= far_calls::is_far(&last, before);
        }
        info.writes |= effects.writes;
        info.reads |= effects.uses;
        info.add_outside(end);
        if end == End::Plain {
            for callee in tails_of(program, b, convention) {
                match callee {
                    Callee::Known(..) => {}
                    Callee::Import(_) => {
                        info.writes |= RegSet::CALLER_SAVED;
                        info.reads |= RegSet::ALL;
                    }
                    Callee::Unknown => {
                        info.writes |= RegSet::ALL;
                        info.reads |= RegSet::ALL;
                    }
                }
                info.tails.push((b, callee));
            }
        } else if matches!(
            end,
            End::Call(_) | End::CallPointer | End::CallStrange | End::CallGo | End::CallKeeping
        ) {
            // A call at the end of a procedure returns into the next one, or,
            // if there is no code, not at all.
            let returns = cfg.proc_at(cfg.inst_end(block.last())).is_some();
            info.tails.extend(
                tails_of(program, b, convention)
                    .filter(|_| returns)
                    .map(|callee| (b, callee)),
            );
        }
        let first = proc.first_block.0;
        let number = b.0 - first;
        let out = &mut blocks[number as usize];
        out.effects = Transfer::from(effects).noting(read);
        out.end = end;
        for succ in cfg.succs(b) {
            if let Succ::Fall(to) | Succ::Branch(to) = succ {
                blocks[(to.0 - first) as usize].comes_from(number, to.0 - first);
            }
        }
        if end.leaves() || info.tails.last().is_some_and(|t| t.0 == b) {
            info.returns = info.returns.with(Span::one(number));
        }
    }
    if convention.is_go && info.restores_flags {
        // It returns to code that did not call it.
        info.convention.at_return = RegSet::ALL;
    }
    info
}

/// True if a block to which calls lead takes the return address off the stack.
fn discards_return_address(image: &Image, cfg: &Cfg, block: BlockId) -> bool {
    // Number of bytes pushed since the call.
    let mut depth = 0i64;
    for instruction in cfg.decode_block(image, block) {
        let moves_rsp = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::RSP;
        match instruction.mnemonic() {
            Mnemonic::Ret => return false,
            Mnemonic::Lea if moves_rsp => {
                let from_rsp = instruction.memory_base() == Register::RSP
                    && instruction.memory_index() == Register::None;
                if !from_rsp {
                    return false;
                }
                depth -= instruction.memory_displacement64() as i64;
            }
            // A switch of stacks: the depth is not known any more.
            Mnemonic::Mov | Mnemonic::Leave | Mnemonic::Xchg if moves_rsp => return false,
            Mnemonic::Leave => return false,
            _ => depth -= i64::from(instruction.stack_pointer_increment()),
        }
        if matches!(instruction.mnemonic(), Mnemonic::Add | Mnemonic::Sub) && moves_rsp {
            let Ok(value) = instruction.try_immediate(1) else {
                return false;
            };
            let raise = value as i64;
            depth -= if instruction.mnemonic() == Mnemonic::Add {
                raise
            } else {
                raise.wrapping_neg()
            };
        }
        if depth < 0 {
            return true;
        }
    }
    false
}
