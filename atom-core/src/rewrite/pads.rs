//! Pads: what remains in the original text.
//!
//! At every original address that control can reach indirectly stands a jump
//! to the new text. Five bytes are needed before the next such address; where
//! there is no room, a two-byte jump leads to an island of five dead bytes
//! within reach. Where even that does not fit, the original instruction stays:
//! it runs there and flows into the next pad, and the procedure is reported as
//! partial. `endbr64` stays in front of a pad.

use std::collections::BTreeMap;

use crate::cfg::Cfg;
use crate::error::Result;
use crate::ids::{BlockId, ProcId};
use crate::image::Image;

use super::{Layout, Options};

/// Changes of the original text.
#[derive(Debug, Default)]
pub struct OldText {
    /// Bytes to write: address, bytes, how many of them.
    pub patches: Vec<(u64, [u8; 5], u8)>,
    /// Ranges to fill with `int3` before the patches are written.
    pub dead: Vec<(u64, u64)>,
    /// Procedures in which an original instruction still runs: procedure, address.
    pub left: Vec<(ProcId, u64)>,
}

const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Plans the pads for all moved procedures.
pub fn place(image: &Image, cfg: &Cfg, layout: &Layout, options: &Options) -> Result<OldText> {
    let mut old = OldText::default();
    let mut free = Free::new(image, cfg);
    let targets: Vec<(u64, ProcId, BlockId)> = cfg
        .blocks
        .iter()
        .enumerate()
        .filter(|(_, b)| b.is_indirect_target)
        .map(|(i, b)| (cfg.inst_pc(b.first), b.proc, BlockId::from_index(i)))
        .collect();
    let new_address = |(address, proc, block): (u64, ProcId, BlockId)| {
        if address == cfg.proc(proc).start {
            layout
                .entry(proc)
                .expect("blocks belong to moved procedures")
        } else {
            layout.label(proc, cfg.block(block).first)
        }
    };
    // First the pads with room for themselves, so that islands take what is left.
    let mut tight = Vec::new();
    for (i, target) in targets.iter().enumerate() {
        let next = targets.get(i + 1).map_or(u64::MAX, |t| t.0);
        let has_endbr = image.bytes_at(target.0, 4) == Some(&ENDBR64);
        let candidates = [target.0 + 4 * u64::from(has_endbr), target.0];
        let place = candidates
            .into_iter()
            .find(|p| p + 5 <= next && free.is_free(*p, 5));
        match place {
            Some(p) => {
                free.take(target.0, (p + 5 - target.0) as usize);
                old.patches.push((p, jump(p, new_address(*target)), 5));
            }
            None => tight.push((*target, next)),
        }
    }
    let mut short = Vec::new();
    for (target, next) in tight {
        let has_room = target.0 + 2 <= next && free.is_free(target.0, 2);
        if has_room {
            free.take(target.0, 2);
            short.push(target);
        } else {
            let len = (next - target.0).min(15) as usize;
            free.take(target.0, len);
            old.left.push((target.1, target.0));
        }
    }
    for target in short {
        match free.island(target.0) {
            Some(island) => {
                free.take(island, 5);
                let distance = island.wrapping_sub(target.0 + 2) as i8;
                old.patches
                    .push((target.0, [0xeb, distance as u8, 0, 0, 0], 2));
                old.patches
                    .push((island, jump(island, new_address(target)), 5));
            }
            None => {
                // The original instructions up to the next pad run in place.
                let next = targets.partition_point(|t| t.0 <= target.0);
                let next = targets.get(next).map_or(target.0 + 15, |t| t.0);
                free.take(target.0, (next - target.0).min(15) as usize);
                old.left.push((target.1, target.0));
            }
        }
    }
    if options.strict {
        old.dead = free.ranges();
    }
    Ok(old)
}

fn jump(from: u64, to: u64) -> [u8; 5] {
    let distance = (to.wrapping_sub(from + 5) as i32).to_le_bytes();
    [0xe9, distance[0], distance[1], distance[2], distance[3]]
}

/// Bytes of the original text that nothing needs any more.
struct Free {
    /// Start of each executable range, and a flag for each byte.
    regions: BTreeMap<u64, Vec<bool>>,
}

impl Free {
    fn new(image: &Image, cfg: &Cfg) -> Self {
        let mut free = Self {
            regions: image
                .segments
                .iter()
                .filter(|s| s.is_executable())
                .map(|s| (s.address, vec![false; s.file_size as usize]))
                .collect(),
        };
        for (i, proc) in cfg.procs.iter().enumerate() {
            if !proc.is_moved() {
                continue;
            }
            let insts = &cfg.insts[cfg.proc_insts(ProcId::from_index(i))];
            let next_proc = cfg.procs.get(i + 1).map_or(u64::MAX, |p| p.start);
            let mut covered = proc.start;
            for (k, inst) in insts.iter().enumerate() {
                let pc = cfg.base + u64::from(inst.offset);
                let end = pc + u64::from(inst.len);
                free.set(pc, usize::from(inst.len), true);
                covered = covered.max(end);
                // Padding between instructions and behind the last.
                let next = insts
                    .get(k + 1)
                    .map_or(next_proc, |n| cfg.base + u64::from(n.offset));
                let mut at = covered;
                while at < next {
                    match padding_at(image, at) {
                        Some(len) if at + len <= next => {
                            free.set(at, len as usize, true);
                            at += len;
                        }
                        _ => break,
                    }
                }
            }
        }
        free
    }

    fn region(&self, address: u64) -> Option<(u64, &Vec<bool>)> {
        let (start, flags) = self.regions.range(..=address).next_back()?;
        (address - start < flags.len() as u64).then_some((*start, flags))
    }

    fn is_free(&self, address: u64, len: usize) -> bool {
        self.region(address).is_some_and(|(start, flags)| {
            let at = (address - start) as usize;
            flags
                .get(at..at + len)
                .is_some_and(|f| f.iter().all(|b| *b))
        })
    }

    fn set(&mut self, address: u64, len: usize, value: bool) {
        if let Some((start, flags)) = self.regions.range_mut(..=address).next_back() {
            let at = (address - start) as usize;
            let end = (at + len).min(flags.len());
            if at < end {
                flags[at..end].fill(value);
            }
        }
    }

    fn take(&mut self, address: u64, len: usize) {
        self.set(address, len, false);
    }

    /// Five free bytes that a two-byte jump at `from` reaches, the nearest first.
    fn island(&self, from: u64) -> Option<u64> {
        let origin = from + 2;
        (0..=127u64)
            .flat_map(|d| [origin.checked_add(d), origin.checked_sub(d + 1)])
            .flatten()
            .filter(|a| {
                let distance = a.wrapping_sub(origin) as i64;
                (-128..=127).contains(&distance)
            })
            .find(|a| self.is_free(*a, 5))
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges = Vec::new();
        for (start, flags) in &self.regions {
            let mut at = 0;
            while at < flags.len() {
                let run = flags[at..].iter().take_while(|f| **f).count();
                if run > 0 {
                    ranges.push((start + at as u64, start + (at + run) as u64));
                }
                at += run.max(1);
            }
        }
        ranges
    }
}

/// Length of a padding instruction: any `nop`, or `int3`.
fn padding_at(image: &Image, pc: u64) -> Option<u64> {
    use iced_x86::Mnemonic;
    let bytes = image.rest_at(pc)?;
    let instruction = crate::decode::decode_at(&bytes[..bytes.len().min(15)], pc)?;
    matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        .then_some(instruction.len() as u64)
}
