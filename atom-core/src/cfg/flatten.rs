//! From the discovered procedures to the flat vectors of the [`Cfg`].

use rayon::prelude::*;

use super::discovered::Discovered;
use super::jump_table::FoundTable;
use super::seeds::FrameFacts;
use super::traverse::{Body, mark};
use super::{Block, Cfg, JumpTable, Kept, Proc, ProcKind, Returns, Status, Succ};
use crate::error::Result;
use crate::ids::{Address48, BlockId, InstId, ProcId};
use crate::image::Image;
use crate::parallel::{self, AT_ONCE};
use crate::x86::{ControlFlow, Inst, target_of};

impl Cfg {
    /// Builds the graph of a program.
    pub fn build(image: &Image, frames: &FrameFacts) -> Result<Self> {
        let mut discovered = Discovered::new(image, frames, Returns::New);
        Ok(discovered.graph(frames, &Kept::new()))
    }
}

impl Discovered<'_> {
    /// The graph. The procedures in `kept` stay in place and are not instrumented. Instructions and names move to the graph,
    /// so another graph needs [`Discovered::take_back`] before.
    pub fn graph(&mut self, frames: &FrameFacts, kept: &Kept) -> Cfg {
        self.keep(frames, kept);
        let (image, reasons) = (self.discovery.image, &self.reasons);
        let mut cfg = Cfg {
            base: image.base,
            together: self.discovery.together(frames, reasons),
            text_references: self.text_references.clone(),
            ..Cfg::default()
        };
        let ends: Vec<u64> = frames.ranges.iter().map(|r| r.end).collect();
        let seeds = &self.discovery.seeds;
        let region_ends: Vec<u64> = (0..seeds.len())
            .map(|i| self.discovery.region_of(seeds, i))
            .collect();
        let pointers = &self.discovery.pointers;
        let parts: Vec<FlatProc> = (self.discovery.bodies.par_iter_mut())
            .with_max_len(AT_ONCE)
            .enumerate()
            .map(|(i, body)| {
                let has_end = seeds[i].end.is_some() || ends.binary_search(&body.end).is_ok();
                let end = match has_end {
                    true => body.end,
                    // A procedure that is not understood may continue up to the next one.
                    false if reasons[i].is_some() => region_ends[i],
                    false => body.code_end().max(body.start + 1),
                };
                let is_fragment = matches!(seeds[i].kind, ProcKind::Fragment(_));
                let (insts, blocks) = match reasons[i] {
                    None => blocks_of(image, body, is_fragment),
                    Some(_) => Default::default(),
                };
                FlatProc {
                    end,
                    is_local: !seeds[i].is_exported && !pointers.contains(seeds[i].start),
                    insts,
                    blocks,
                }
            })
            .collect();
        let mut insts = Vec::with_capacity(parts.len());
        let mut blocks = Vec::with_capacity(parts.len());
        let mut first_insts = Vec::with_capacity(parts.len());
        let (mut first_inst, mut first_block) = (0, 0);
        cfg.procs.reserve_exact(parts.len());
        let facts = self.returns.iter().zip(&self.gaps).zip(reasons);
        let seeds = self.discovery.seeds.iter_mut();
        for ((part, ((returns, gap), reason)), seed) in parts.into_iter().zip(facts).zip(seeds) {
            let understood = gap.clone().map_or(Status::Full, Status::Partial);
            let block_count = part.blocks.len() as u32;
            cfg.procs.push(Proc {
                start: seed.start,
                end: part.end,
                name: seed.name.take(),
                kind: seed.kind,
                status: reason.clone().map_or(understood, Status::Opaque),
                first_block: BlockId(first_block),
                block_count,
                is_local: part.is_local,
                returns: *returns,
                is_go: seed.is_go,
                go_origin: seed.go_origin,
                is_described: seed.is_described,
            });
            first_insts.push(first_inst);
            first_inst += part.insts.len() as u32;
            first_block += block_count;
            insts.push(part.insts);
            blocks.push(part.blocks);
        }
        cfg.insts = parallel::concat(insts);
        cfg.blocks = parallel::concat_with(blocks, |proc, block: Block| Block {
            proc: ProcId::from_index(proc),
            first: InstId(first_insts[proc] + block.first.0),
            ..block
        });
        cfg.index();
        cfg.jump_tables = jump_tables(&cfg, &self.tables);
        link_blocks(image, &mut cfg);
        cfg
    }

    /// Takes instructions and names back from a graph that [`Discovered::graph`] has made.
    pub fn take_back(&mut self, cfg: Cfg) {
        let bodies = self.discovery.bodies.par_iter_mut().with_max_len(AT_ONCE);
        bodies.enumerate().for_each(|(i, body)| {
            let insts = cfg.proc_insts(ProcId::from_index(i));
            if !insts.is_empty() {
                body.insts = cfg.insts[insts].to_vec();
            }
        });
        for (seed, proc) in self.discovery.seeds.iter_mut().zip(cfg.procs) {
            seed.name = proc.name;
        }
    }
}

/// The tables whose jumps are known, with the numbers of the finished instructions.
fn jump_tables(cfg: &Cfg, found: &[FoundTable]) -> Vec<JumpTable> {
    let mut tables: Vec<JumpTable> = found
        .par_iter()
        .filter_map(|t| {
            let mut targets = t.targets.clone();
            targets.sort_unstable();
            targets.dedup();
            Some(JumpTable {
                jump: cfg.inst_at(t.jump?)?,
                table: t.table,
                entry_size: t.entry_size,
                entries: t.targets.len() as u32,
                relative_to: t.relative_to,
                load: t.load.and_then(|l| cfg.inst_at(l)),
                targets,
            })
        })
        .collect();
    tables.sort_unstable_by_key(|t| t.jump);
    tables
}

/// The result for one body.
struct FlatProc {
    end: u64,
    is_local: bool,
    insts: Vec<Inst>,
    /// Blocks; their numbers of instructions count from the procedure's first.
    blocks: Vec<Block>,
}

/// The instructions of a body in order, which are taken from it, and its blocks.
fn blocks_of(image: &Image, body: &mut Body, is_fragment: bool) -> (Vec<Inst>, Vec<Block>) {
    let (marks, mut insts) = (&body.marks, std::mem::take(&mut body.insts));
    let start = (body.start - image.base) as u32;
    let mark_at = |inst: &Inst| marks[(inst.offset - start) as usize];
    let mut leader: Vec<bool> = (insts.iter().map(|i| mark_at(i) & mark::LEADER != 0)).collect();
    if let Some(first) = leader.first_mut() {
        *first = true;
    }
    for (i, pair) in insts.windows(2).enumerate() {
        let [before, inst] = pair else { continue };
        let end = before.offset + u32::from(before.len);
        if inst.offset != end || before.flow.ends_block() {
            leader[i + 1] = true;
        }
        // Where instructions overlap, the instruction after the longer one is a leader.
        if inst.offset < end
            && let Ok(after) = insts.binary_search_by_key(&end, |x| x.offset)
        {
            leader[after] = true;
        }
    }
    let mut blocks: Vec<Block> = Vec::with_capacity(leader.iter().filter(|l| **l).count());
    let mut first = 0;
    // Each leader's block continues up to the next one.
    while let Some(inst) = insts.get(first) {
        let others = leader[first + 1..].iter().position(|l| *l);
        let next = others.map_or(insts.len(), |others| first + 1 + others);
        let marks = mark_at(inst);
        let is_start = inst.offset == start;
        blocks.push(Block {
            proc: ProcId(0),
            first: InstId::from_index(first),
            count: (next - first) as u32,
            first_succ: 0,
            succ_count: 0,
            is_entry: (is_start && !is_fragment) || marks & mark::ENTRY != 0,
            is_indirect_target: is_start || marks & mark::INDIRECT != 0,
            is_landing_pad: marks & mark::LANDING != 0,
        });
        first = next;
    }
    for inst in &mut insts {
        if inst.flow == ControlFlow::Call {
            let pc = image.base + u64::from(inst.offset);
            let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
            // The return address of `call next` is read as data.
            inst.special = target_of(bytes, pc) == Some(pc + u64::from(inst.len));
        }
    }
    (insts, blocks)
}

/// Fills in the successors of all blocks.
fn link_blocks(image: &Image, cfg: &mut Cfg) {
    let (lists, counts): (Vec<Vec<Succ>>, Vec<Vec<u16>>) = (0..cfg.procs.len())
        .into_par_iter()
        .with_max_len(AT_ONCE)
        .map(|p| proc_succs(image, cfg, ProcId::from_index(p)))
        .unzip();
    let mut first = 0;
    for (count, block) in counts.into_iter().flatten().zip(&mut cfg.blocks) {
        block.first_succ = first;
        block.succ_count = count;
        first += u32::from(count);
    }
    cfg.succs = parallel::concat(lists);
}

/// The successors of a procedure's blocks, and the number of successors of each block.
fn proc_succs(image: &Image, cfg: &Cfg, id: ProcId) -> (Vec<Succ>, Vec<u16>) {
    let proc = cfg.proc(id);
    let first = proc.first_block.index();
    let blocks = &cfg.blocks[first..first + proc.block_count as usize];
    let own_block = |pc: u64| cfg.block_at(pc).filter(|b| cfg.block(*b).proc == id);
    let is_indirect = |b: &BlockId| {
        let block = cfg.block(*b);
        block.is_indirect_target && cfg.block_pc(*b) != proc.start
    };
    let mut all = Vec::with_capacity(2 * blocks.len());
    let mut counts = Vec::with_capacity(blocks.len());
    for (i, block) in blocks.iter().enumerate() {
        let last = block.last();
        let inst = cfg.inst(last);
        let before = all.len();
        let tail = |pc: u64| Succ::Tail(Address48::new(pc));
        // Most blocks lead to the one that follows, which is found without a search.
        let follows = |pc: u64| {
            let next = blocks.get(i + 1)?;
            (cfg.inst_pc(next.first) == pc).then(|| BlockId::from_index(first + i + 1))
        };
        let goes_on = |pc: u64| {
            let to = follows(pc).or_else(|| own_block(pc));
            to.map_or_else(|| tail(pc), Succ::Fall)
        };
        let jumps_to = |pc: u64| own_block(pc).map_or_else(|| tail(pc), Succ::Branch);
        match inst.flow {
            ControlFlow::Jump | ControlFlow::CondJump => {
                let target = cfg.direct_target(image, last);
                all.push(jumps_to(target.expect("direct jumps have targets")));
            }
            ControlFlow::IndirectJump => {
                match cfg.jump_tables.binary_search_by_key(&last, |t| t.jump) {
                    Ok(t) => all.extend(cfg.jump_tables[t].targets.iter().map(|t| jumps_to(*t))),
                    Err(_) => {
                        all.extend(proc.blocks().filter(is_indirect).map(Succ::Branch));
                        all.push(Succ::Unknown);
                    }
                }
            }
            ControlFlow::Return => all.push(Succ::Unknown),
            _ => {}
        }
        if !inst.flow.ends_flow() {
            all.push(goes_on(cfg.inst_end(last)));
        }
        all.truncate(before + usize::from(u16::MAX));
        counts.push((all.len() - before) as u16);
    }
    (all, counts)
}
