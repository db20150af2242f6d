//! Bytes of the original text that nothing needs any more: space for pads and islands.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rayon::prelude::*;

use super::MovedSet;
use crate::cfg::Cfg;
use crate::ids::ProcId;
use crate::image::Image;
use crate::x86::branch::JMP_LEN;
use crate::x86::padding_len;

/// Largest number of two-byte jumps from a pad to its island.
pub(crate) const MAX_HOPS: usize = 16;

/// Number of procedures that one piece of parallel work takes.
const CHUNK: usize = 256;

/// A bit for each byte of an executable range.
#[derive(Debug)]
struct Bits {
    len: usize,
    /// Atomic, since several threads set bits at the same time.
    words: Vec<AtomicU64>,
}

impl Bits {
    fn new(len: usize) -> Self {
        let words = (0..len.div_ceil(64)).map(|_| AtomicU64::new(0));
        let words = words.collect();
        Self { len, words }
    }

    /// The words of a range, each with its part of the range.
    fn words(at: usize, end: usize) -> impl Iterator<Item = (usize, u64)> {
        let words = if at < end {
            at / 64..end.div_ceil(64)
        } else {
            0..0
        };
        words.map(move |word| {
            let from = at.max(word * 64) - word * 64;
            let to = end.min(word * 64 + 64) - word * 64;
            (word, (!0 >> (64 - (to - from))) << from)
        })
    }

    /// True if the whole range is inside and all of its bits are set.
    fn all(&self, at: usize, len: usize) -> bool {
        at + len <= self.len
            && Self::words(at, at + len)
                .all(|(word, mask)| self.words[word].load(Relaxed) & mask == mask)
    }

    /// Sets the bits of a range that are inside; other threads may set bits at the same time.
    fn set(&self, at: usize, len: usize) {
        for (word, mask) in Self::words(at, (at + len).min(self.len)) {
            self.words[word].fetch_or(mask, Relaxed);
        }
    }

    /// Sets or clears the bits of a range that are inside.
    fn put(&mut self, at: usize, len: usize, value: bool) {
        for (word, mask) in Self::words(at, (at + len).min(self.len)) {
            let word = self.words[word].get_mut();
            if value { *word |= mask } else { *word &= !mask }
        }
    }

    /// The runs of bytes that are set.
    fn runs(&self, mut each: impl FnMut(usize, usize)) {
        let mut start = None;
        for i in 0..self.len {
            let is_set = self.words[i / 64].load(Relaxed) >> (i % 64) & 1 != 0;
            match (start, is_set) {
                (None, true) => start = Some(i),
                (Some(from), false) => {
                    each(from, i);
                    start = None;
                }
                _ => {}
            }
        }
        if let Some(from) = start {
            each(from, self.len);
        }
    }
}

/// The free bytes of all executable ranges.
#[derive(Debug, Default)]
pub(crate) struct Free {
    /// By the start of each range.
    regions: BTreeMap<u64, Bits>,
}

impl Free {
    /// The bytes of all procedures that move, and the padding between and after it
    /// their instructions.
    pub(crate) fn new(image: &Image, cfg: &Cfg, moved: &MovedSet) -> Self {
        let free = Self {
            regions: image
                .segments
                .iter()
                .filter(|s| s.is_executable())
                .map(|s| (s.address, Bits::new(s.file_size as usize)))
                .collect(),
        };
        (0..cfg.procs.len())
            .into_par_iter()
            .map(ProcId::from_index)
            .with_min_len(CHUNK)
            .filter(|id| moved.contains(*id))
            .for_each(|id| free.set_proc(image, cfg, id));
        free
    }

    /// Sets the bytes of a procedure.
    fn set_proc(&self, image: &Image, cfg: &Cfg, id: ProcId) {
        let next_proc = cfg.procs.get(id.index() + 1).map_or(u64::MAX, |p| p.start);
        let mut covered = cfg.proc(id).start;
        // Adjoining ranges are set together.
        let mut run = (covered, covered);
        let mut set = |start: u64, end: u64| {
            if run.0 <= start && start <= run.1 {
                run.1 = run.1.max(end);
            } else {
                self.set(run.0, run.1);
                run = (start, end);
            }
        };
        let mut blocks = cfg.proc(id).blocks().peekable();
        while let Some(b) = blocks.next() {
            let end = cfg.inst_end(cfg.block(b).last());
            set(cfg.block_pc(b), end);
            covered = covered.max(end);
            // Padding between blocks and after the last.
            let next = blocks.peek().map_or(next_proc, |b| cfg.block_pc(*b));
            if covered >= next {
                continue;
            }
            let mut at = covered;
            let mut aligned = covered;
            // What something refers to is no padding.
            let references = &cfg.text_references;
            let reference = references.get(references.partition_point(|r| *r < covered));
            let next = reference.map_or(next, |r| next.min(*r));
            while let Some(len) = padding_at(image, at).filter(|len| at + len <= next) {
                at += len;
                // The bytes that follow need not be code: data may begin like a `nop`.
                if at <= covered.next_multiple_of(DATA_ALIGNMENT) {
                    aligned = at;
                }
            }
            let padding_end = if at == next { at } else { aligned };
            set(covered, padding_end);
        }
        self.set(run.0, run.1);
    }

    /// Sets the bytes that are in the executable range of the first byte.
    fn set(&self, start: u64, end: u64) {
        if let Some((first, bits)) = self.regions.range(..=start).next_back() {
            bits.set((start - first) as usize, (end - start) as usize);
        }
    }

    /// The free bytes, as ranges in ascending order.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, bits) in &self.regions {
            bits.runs(|from, to| {
                let (from, to) = (start + from as u64, start + to as u64);
                match ranges.last_mut() {
                    Some(last) if last.1 == from => last.1 = to,
                    _ => ranges.push((from, to)),
                }
            });
        }
        ranges
    }

    /// True if all of these bytes are free.
    pub(crate) fn is_free(&self, address: u64, len: usize) -> bool {
        let region = self.regions.range(..=address).next_back();
        region.is_some_and(|(start, bits)| bits.all((address - start) as usize, len))
    }

    fn put(&mut self, address: u64, len: usize, value: bool) {
        if let Some((start, bits)) = self.regions.range_mut(..=address).next_back() {
            bits.put((address - start) as usize, len, value);
        }
    }

    /// Marks bytes as used.
    pub(crate) fn take(&mut self, address: u64, len: usize) {
        self.put(address, len, false);
    }

    /// Address of the nearest five free bytes that a two-byte jump at `from` reaches.
    pub(crate) fn island(&self, from: u64) -> Option<u64> {
        let origin = from + 2;
        (0..=127u64)
            .flat_map(|d| [origin.checked_add(d), origin.checked_sub(d + 1)])
            .flatten()
            .filter(|a| {
                let distance = a.wrapping_sub(origin) as i64;
                (-128..=127).contains(&distance)
            })
            .find(|a| self.is_free(*a, JMP_LEN))
    }

    /// Takes an island for a two-byte jump at `from`. Where many landings are close together no
    /// island is in reach. The jump then leads over other two-byte jumps, upwards or downwards. The
    /// result are the addresses of these jumps and, as the last, the address of the island.
    pub(crate) fn take_route(&mut self, from: u64) -> Option<Vec<u64>> {
        for upwards in [true, false] {
            let mut hops = Vec::new();
            let mut at = from;
            while hops.len() < MAX_HOPS {
                if let Some(island) = self.island(at) {
                    self.take(island, JMP_LEN);
                    hops.push(island);
                    return Some(hops);
                }
                let Some(relay) = self.relay(at, upwards) else {
                    break;
                };
                self.take(relay, 2);
                hops.push(relay);
                at = relay;
            }
            for hop in hops {
                self.put(hop, 2, true);
            }
        }
        None
    }

    /// Address of the farthest two free bytes that a two-byte jump at `from` reaches.
    fn relay(&self, from: u64, upwards: bool) -> Option<u64> {
        let origin = from + 2;
        (3..=127u64)
            .rev()
            .filter_map(|d| {
                if upwards {
                    origin.checked_add(d)
                } else {
                    origin.checked_sub(d)
                }
            })
            .find(|a| self.is_free(*a, 2))
    }
}

/// Data between procedures starts at a multiple of this.
const DATA_ALIGNMENT: u64 = 8;

/// Length of a padding instruction: any `nop`, or `int3`.
fn padding_at(image: &Image, pc: u64) -> Option<u64> {
    Some(padding_len(image.rest_at(pc)?)? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_as_flags() {
        let mut bits = Bits::new(1000);
        let mut flags = vec![false; 1000];
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..3000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (at, len) = ((random >> 8) as usize % 1000, (random >> 40) as usize % 150);
            let end = (at + len).min(1000);
            let value = random & 1 != 0;
            match (value, random & 2 != 0) {
                (true, true) => bits.set(at, len),
                _ => bits.put(at, len, value),
            }
            flags[at..end].fill(value);
            let (at, len) = ((random >> 20) as usize % 1000, (random >> 50) as usize % 9);
            let expected = flags
                .get(at..at + len)
                .is_some_and(|f| f.iter().all(|b| *b));
            assert_eq!(bits.all(at, len), expected, "{at} {len}");
        }
        let mut again = vec![false; 1000];
        bits.runs(|from, to| again[from..to].fill(true));
        assert!(again == flags && flags.contains(&true) && flags.contains(&false));
    }
}
