//! From what was discovered to the flat vectors of the [`Cfg`].

use rayon::prelude::*;

use super::build::Discovery;
use super::jump_table::Found;
use super::seeds::FrameFacts;
use super::traverse::{Body, mark};
use super::{Block, Cfg, JumpTable, Proc, ProcKind, Status, Succ};
use crate::decode::{Flow, Inst, decode_at, direct_target};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;

impl Discovery<'_> {
    pub(super) fn finish(mut self, frames: &FrameFacts) -> Cfg {
        let image = self.image;
        self.bodies.par_iter_mut().for_each(Body::finish);
        let tables = self.find_tables(usize::MAX);
        let reasons = self.obstacles(frames, &tables);
        // A procedure that stays keeps its exception table, with original addresses.
        for (range, pad) in &frames.landing_pads {
            let owner = self.body_at(frames.ranges[*range].start);
            if owner.is_some_and(|i| reasons[i].is_some())
                && let Some(i) = self.body_at(*pad)
            {
                self.bodies[i].add_mark(*pad, mark::INDIRECT);
            }
        }
        self.mark_entries_from_opaque(&reasons);
        self.set_fragments();
        self.clear_entries_between_parts();
        let pointers = &self.pointers;
        let ends: Vec<u64> = frames.ranges.iter().map(|r| r.end).collect();
        let mut cfg = Cfg {
            base: image.base,
            ..Cfg::default()
        };
        let flat: Vec<_> = self
            .bodies
            .par_iter()
            .zip(&reasons)
            .map(|(b, reason)| {
                if reason.is_none() {
                    blocks_of(image, b)
                } else {
                    Default::default()
                }
            })
            .collect();
        for (i, ((seed, body), (insts, blocks))) in
            self.seeds.iter().zip(&self.bodies).zip(flat).enumerate()
        {
            let proc = ProcId::from_index(i);
            let first_inst = cfg.insts.len() as u32;
            let first_block = cfg.blocks.len() as u32;
            for b in &blocks {
                let marks = body.mark_at(image.base + u64::from(insts[b.0 as usize].offset));
                let is_start = image.base + u64::from(insts[b.0 as usize].offset) == body.start;
                let fragment = matches!(seed.kind, ProcKind::Fragment(_));
                cfg.blocks.push(Block {
                    proc,
                    first: InstId(first_inst + b.0),
                    count: b.1,
                    first_succ: 0,
                    succ_count: 0,
                    is_entry: (is_start && !fragment) || marks & mark::ENTRY != 0,
                    is_indirect_target: is_start || marks & mark::INDIRECT != 0,
                    is_landing_pad: marks & mark::LANDING != 0,
                });
            }
            cfg.insts.extend(insts);
            let end = if seed.end.is_some() || ends.binary_search(&body.end).is_ok() {
                body.end
            } else if reasons[i].is_some() {
                // What was not understood may go on up to the next procedure.
                self.empty_body(i).end
            } else {
                body.code_end().max(body.start + 1)
            };
            cfg.procs.push(Proc {
                start: body.start,
                end,
                name: seed.name.clone(),
                kind: seed.kind,
                status: match &reasons[i] {
                    None => Status::Full,
                    Some(reason) => Status::Opaque(reason.clone()),
                },
                first_block: BlockId(first_block),
                block_count: blocks.len() as u32,
                is_local: !seed.is_exported && !pointers.contains(&body.start),
            });
        }
        cfg.together = self.together(frames, &reasons);
        cfg.jump_tables = jump_tables(&cfg, tables);
        link_blocks(image, &mut cfg);
        cfg
    }
}

/// The tables whose jumps are known, in terms of the finished instructions.
fn jump_tables(cfg: &Cfg, found: Vec<Found>) -> Vec<JumpTable> {
    let mut tables: Vec<JumpTable> = found
        .into_iter()
        .filter_map(|t| {
            let mut targets = t.targets.clone();
            targets.sort_unstable();
            targets.dedup();
            Some(JumpTable {
                jump: cfg.inst_at(t.jump?)?,
                table: t.table,
                entry_size: t.entry_size,
                entries: t.targets.len() as u32,
                relative_to: (t.entry_size == 4).then_some(t.table),
                load: t.load.and_then(|l| cfg.inst_at(l)),
                targets,
            })
        })
        .collect();
    tables.sort_unstable_by_key(|t| t.jump);
    tables
}

/// Instructions in order, and blocks as (first, count).
fn blocks_of(image: &Image, body: &Body) -> (Vec<Inst>, Vec<(u32, u32)>) {
    let offset_of = |pc: u64| (pc - image.base) as u32;
    let start = offset_of(body.start);
    let mut insts = body.insts.clone();
    let mut leader: Vec<bool> = insts
        .iter()
        .map(|i| body.marks[(i.offset - start) as usize] & mark::LEADER != 0)
        .collect();
    // Where instructions overlap, what follows the longer one is a leader.
    for i in 0..insts.len().saturating_sub(1) {
        let end = insts[i].offset + u32::from(insts[i].len);
        if insts[i + 1].offset < end {
            leader[i + 1] = true;
            if let Ok(after) = insts.binary_search_by_key(&end, |x| x.offset) {
                leader[after] = true;
            }
        }
    }
    let mut blocks: Vec<(u32, u32)> = Vec::new();
    for i in 0..insts.len() {
        let joined = i > 0
            && !leader[i]
            && !insts[i - 1].flow.ends_block()
            && insts[i - 1].offset + u32::from(insts[i - 1].len) == insts[i].offset;
        match blocks.last_mut() {
            Some(last) if joined => last.1 += 1,
            _ => blocks.push((i as u32, 1)),
        }
    }
    for inst in &mut insts {
        if inst.flow == Flow::Call {
            let pc = image.base + u64::from(inst.offset);
            let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
            let target = decode_at(bytes, pc).and_then(|d| direct_target(&d));
            // `call next`: its return address is read as data.
            inst.special = target == Some(pc + u64::from(inst.len));
        }
    }
    (insts, blocks)
}

/// Fills in the successors of all blocks.
fn link_blocks(image: &Image, cfg: &mut Cfg) {
    let succs: Vec<Vec<Succ>> = (0..cfg.procs.len())
        .into_par_iter()
        .map(|p| proc_succs(image, cfg, ProcId::from_index(p)))
        .collect::<Vec<_>>()
        .into_iter()
        .flatten()
        .collect();
    for (block, list) in cfg.blocks.iter_mut().zip(succs) {
        block.first_succ = cfg.succs.len() as u32;
        block.succ_count = list.len().min(usize::from(u16::MAX)) as u16;
        cfg.succs
            .extend(list.into_iter().take(usize::from(u16::MAX)));
    }
}

fn proc_succs(image: &Image, cfg: &Cfg, id: ProcId) -> Vec<Vec<Succ>> {
    let proc = cfg.proc(id);
    let first = proc.first_block.index();
    let blocks = &cfg.blocks[first..first + proc.block_count as usize];
    let block_at = |pc: u64| {
        let offset = u32::try_from(pc.checked_sub(cfg.base)?).ok()?;
        let i = blocks
            .binary_search_by_key(&offset, |b| cfg.inst(b.first).offset)
            .ok()?;
        Some(BlockId::from_index(first + i))
    };
    let inside = |pc: u64| pc >= proc.start && pc < proc.end;
    let indirect: Vec<BlockId> = proc
        .blocks()
        .filter(|b| {
            let block = cfg.block(*b);
            block.is_indirect_target && cfg.block_pc(*b) != proc.start
        })
        .collect();
    blocks
        .iter()
        .map(|block| {
            let last = block.last();
            let inst = cfg.inst(last);
            let mut list = Vec::new();
            let goes_on = |pc: u64| match block_at(pc) {
                Some(b) if inside(pc) => Succ::Fall(b),
                _ => Succ::Tail(pc),
            };
            match inst.flow {
                Flow::Jump | Flow::CondJump => {
                    let target =
                        direct_target(&cfg.decode(image, last)).expect("direct jumps have targets");
                    list.push(match block_at(target) {
                        Some(b) if inside(target) => Succ::Branch(b),
                        _ => Succ::Tail(target),
                    });
                }
                Flow::IndirectJump => match cfg.jump_tables.binary_search_by_key(&last, |t| t.jump)
                {
                    Ok(t) => list.extend(cfg.jump_tables[t].targets.iter().map(
                        |t| match block_at(*t) {
                            Some(b) if inside(*t) => Succ::Branch(b),
                            _ => Succ::Tail(*t),
                        },
                    )),
                    Err(_) => {
                        list.extend(indirect.iter().map(|b| Succ::Branch(*b)));
                        list.push(Succ::Unknown);
                    }
                },
                Flow::Return => list.push(Succ::Unknown),
                _ => {}
            }
            if !inst.flow.ends_flow() {
                list.push(goes_on(cfg.inst_end(last)));
            }
            list
        })
        .collect()
}
