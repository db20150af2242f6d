//! Places of pads: which bytes of the original text become jumps to the new text.
//!
//! At every original address of moved code that control can reach indirectly
//! is a jump to the new text. Five bytes are needed before the next such address; where
//! there is no space, a two-byte jump leads to an island of five dead bytes
//! within reach, over further two-byte jumps if need be. Where even that
//! does not fit, the original instruction stays: it runs there and flows into
//! the next pad, and the procedure is reported as partial. `endbr64` stays in front of a pad.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use crate::cfg::Cfg;
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::x86::branch::{ENDBR64, JMP_LEN, JMP_SHORT_LEN};
use crate::x86::opcode;

use super::free::Free;
use super::home::{Homes, Landing};
use super::{MovedSet, Options};

/// Largest number of bytes that stay.
pub(crate) const KEPT: u64 = 15;

/// What is written at an address of the old text.
#[derive(Debug)]
pub(crate) enum Jump {
    /// Five bytes, to the new place of the landing with this index.
    New(usize),
    /// Two bytes, to another address of the old text.
    Short(u64),
    /// One byte, the opcode of a two-byte jump to that address; its distance
    /// is the first byte of the jump that follows.
    Opcode,
}

/// The jumps of the old text and their places. They do not depend on new addresses.
#[derive(Debug)]
pub struct Sites {
    pub(crate) landings: Vec<Landing>,
    pub(crate) jumps: Vec<(u64, Jump)>,
    left: Vec<(ProcId, u64)>,
    /// Calls that push original return addresses.
    pub(crate) homes: Homes,
    /// Bytes that are free, which at the end nothing needs any more.
    pub(crate) free: Free,
}

impl Sites {
    /// Finds a place for each pad of the procedures that move.
    pub fn new(image: &Image, cfg: &Cfg, moved: &MovedSet) -> Self {
        let landings: Vec<Landing> = cfg
            .blocks
            .par_iter()
            .enumerate()
            .filter(|(_, b)| b.is_indirect_target && moved.contains(b.proc))
            .map(|(i, b)| Landing {
                address: cfg.inst_pc(b.first),
                proc: b.proc,
                block: BlockId::from_index(i),
                call: None,
            })
            .collect();
        let mut homes = Homes::new(image, cfg, moved, &landings);
        loop {
            let mut sites = Self::place(image, cfg, moved, landings.clone(), homes);
            homes = std::mem::take(&mut sites.homes);
            if !homes.make_space(image, cfg, &sites.left) {
                sites.homes = homes;
                return sites;
            }
        }
    }

    /// Finds a place for each pad, those after calls at home included.
    fn place(
        image: &Image,
        cfg: &Cfg,
        moved: &MovedSet,
        mut landings: Vec<Landing>,
        homes: Homes,
    ) -> Self {
        let mut free = Free::new(image, cfg, moved);
        for (_, call) in homes.in_place() {
            free.take(cfg.inst_pc(call), cfg.inst(call).len.into());
        }
        landings.extend(homes.landings());
        landings.sort_by_key(|l| l.address);
        let mut sites = Self {
            landings,
            jumps: Vec::new(),
            left: Vec::new(),
            homes,
            free,
        };
        let tight = sites.roomy(image);
        let tiny = sites.short(tight);
        sites.punned(tiny);
        sites
    }

    /// Addresses at which an original instruction has to stay for want of space, with their
    /// procedures.
    pub fn left(&self) -> &[(ProcId, u64)] {
        &self.left
    }

    /// The blocks that pads lead to, without those that calls return to.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockId> + '_ {
        let landings = self.landings.iter().filter(|l| l.call.is_none());
        landings.map(|landing| landing.block)
    }

    /// True if a pad for jumps belongs at this address, whether or not there was space for it.
    pub(crate) fn is_landing(&self, address: u64) -> bool {
        self.landings
            .binary_search_by_key(&address, |l| l.address)
            .is_ok_and(|i| self.landings[i].call.is_none())
    }

    /// The next address after this one at which a pad belongs.
    pub(crate) fn next_after(&self, address: u64) -> u64 {
        let i = self.landings.partition_point(|l| l.address <= address);
        self.landings.get(i).map_or(u64::MAX, |l| l.address)
    }

    fn next(&self, i: usize) -> u64 {
        self.landings.get(i + 1).map_or(u64::MAX, |l| l.address)
    }

    /// Places the pads that have space for five bytes, so that islands take the remaining bytes.
    /// Yields the indexes of the other landings.
    fn roomy(&mut self, image: &Image) -> Vec<usize> {
        let mut tight = Vec::new();
        for i in 0..self.landings.len() {
            let address = self.landings[i].address;
            let next = self.next(i);
            let has_endbr = image.bytes_at(address, ENDBR64.len()) == Some(&ENDBR64);
            let candidates = [
                address + if has_endbr { ENDBR64.len() as u64 } else { 0 },
                address,
            ];
            let place = candidates
                .into_iter()
                .find(|p| p + JMP_LEN as u64 <= next && self.free.is_free(*p, JMP_LEN));
            match place {
                Some(p) => {
                    self.free.take(address, (p - address) as usize + JMP_LEN);
                    self.jumps.push((p, Jump::New(i)));
                }
                None => tight.push(i),
            }
        }
        tight
    }

    /// Places two-byte jumps to islands. Yields the indexes of landings that have not even space for
    /// two bytes.
    fn short(&mut self, tight: Vec<usize>) -> Vec<usize> {
        let (short, tiny): (Vec<_>, Vec<_>) = tight.into_iter().partition(|i| {
            let address = self.landings[*i].address;
            address + JMP_SHORT_LEN as u64 <= self.next(*i)
                && self.free.is_free(address, JMP_SHORT_LEN)
        });
        for i in &short {
            self.free.take(self.landings[*i].address, JMP_SHORT_LEN);
        }
        for i in &tiny {
            self.free.take(self.landings[*i].address, 1);
        }
        for i in short {
            let address = self.landings[i].address;
            let Some(hops) = self.free.take_route(address) else {
                self.leave(i);
                continue;
            };
            let mut at = address;
            for hop in hops {
                self.jumps.push((at, Jump::Short(hop)));
                at = hop;
            }
            self.jumps.push((at, Jump::New(i)));
        }
        tiny
    }

    /// One byte before another pad: the opcode of a two-byte jump whose
    /// distance is the first byte of that pad.
    fn punned(&mut self, tiny: Vec<usize>) {
        // Opcodes of the jumps right after landings. All but the tiny ones' are placed already.
        let after: HashSet<u64> = tiny.iter().map(|i| self.landings[*i].address + 1).collect();
        let of_jump = |(at, jump): &(u64, Jump)| {
            let opcode = match jump {
                Jump::New(_) => opcode::JMP,
                Jump::Short(_) | Jump::Opcode => opcode::JMP_SHORT,
            };
            after.contains(at).then_some((*at, opcode))
        };
        let mut opcodes: HashMap<u64, u8> = self.jumps.iter().filter_map(of_jump).collect();
        // The order is descending, so that the jump that follows is placed already.
        for i in tiny.into_iter().rev() {
            let address = self.landings[i].address;
            let Some(&first) = opcodes.get(&(address + 1)) else {
                self.leave(i);
                continue;
            };
            let placed = self.jumps.len();
            let landing =
                (address + JMP_SHORT_LEN as u64).wrapping_add_signed(i64::from(first as i8));
            if self.free.is_free(landing, JMP_LEN) {
                self.free.take(landing, JMP_LEN);
                self.jumps.push((landing, Jump::New(i)));
            } else if self.free.is_free(landing, JMP_SHORT_LEN)
                && let Some(island) = {
                    self.free.take(landing, JMP_SHORT_LEN);
                    self.free.island(landing)
                }
            {
                self.free.take(island, JMP_LEN);
                self.jumps.push((landing, Jump::Short(island)));
                self.jumps.push((island, Jump::New(i)));
            } else {
                self.leave(i);
                continue;
            }
            self.jumps.push((address, Jump::Opcode));
            opcodes.extend(self.jumps[placed..].iter().filter_map(of_jump));
        }
    }

    /// The original instructions up to the next pad run in place.
    fn leave(&mut self, i: usize) {
        let Landing { address, proc, .. } = self.landings[i];
        let len = (self.next(i) - address).min(KEPT) as usize;
        self.free.take(address, len);
        self.left.push((proc, address));
    }
}

impl MovedSet {
    /// The procedures that have to move for the plan, and the places of their pads. `insertions` is
    /// as in [`MovedSet::needed`], `all` are the places of pads if everything moves.
    pub(crate) fn choose(
        image: &Image,
        cfg: &Cfg,
        insertions: &[u32],
        all: Sites,
        options: &Options,
    ) -> (Self, Sites) {
        let mut moved = Self::needed(cfg, insertions, options);
        loop {
            moved.close(cfg);
            if moved.count() == cfg.procs.iter().filter(|p| p.is_movable()).count() {
                return (moved, all);
            }
            // Pads may need dead bytes of neighbours, which are in use if the neighbours stay.
            let sites = Sites::new(image, cfg, &moved);
            let homeless = sites.homes.homeless.iter();
            let left: HashSet<_> = all.left().iter().collect();
            let gaps: Vec<u64> = sites
                .left()
                .iter()
                .filter(|place| !left.contains(place))
                .chain(homeless)
                .map(|(_, address)| *address)
                .collect();
            if gaps.is_empty() {
                return (moved, sites);
            }
            let mut grown = false;
            for address in gaps {
                grown |= moved.add_around(cfg, address);
            }
            if !grown {
                return (Self::all(cfg), all);
            }
        }
    }
}
