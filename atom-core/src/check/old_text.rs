//! What has changed in the original text: only bytes that no longer run, and that nobody reads.
//!
//! Bytes may differ from the original's in instructions of procedures that moved, in padding after them, and in the
//! displacements of branches of procedures that stay. Whatever else is in the text, as tables and code that is not
//! understood, is as it was.

use rayon::prelude::*;

use super::memory::Memory;
use super::references::first_in;
use super::subject::{DOING, Subject};
use crate::cfg::regions::code_regions;
use crate::error::{Error, Result};
use crate::ids::{InstId, ProcId};
use crate::x86::padding_len;

/// Size in bytes of the pieces that are compared at once.
const PIECE: usize = 1 << 16;

/// Number of instructions that may overlap one byte at most, as far as one looks back.
const OVERLAPPING: usize = 4;

/// Judges the whole text. `references` are the addresses that operands in memory and relocations name, in order.
pub fn check(subject: &Subject<'_>, memory: &Memory<'_>, references: &[u64]) -> Result<()> {
    let image = subject.image();
    let judge = OldText {
        subject,
        references,
    };
    for (start, end) in code_regions(image) {
        let then = image.bytes_at(start, (end - start) as usize).unwrap_or(&[]);
        let now = memory.rest_at(start).unwrap_or(&[]);
        let pieces = then.par_chunks(PIECE).zip(now.par_chunks(PIECE));
        pieces.enumerate().try_for_each(|(n, (then, now))| {
            if now.starts_with(then) {
                return Ok(());
            }
            let first = start + (n * PIECE) as u64;
            let bytes = then.iter().zip(now).enumerate();
            let changed = bytes.filter(|(_, (then, now))| then != now);
            let changed = changed.map(|(at, _)| first + at as u64);
            changed
                .filter(|address| !image.is_header(*address, 1))
                .try_for_each(|address| judge.byte(address))
        })?;
    }
    judge.pads()
}

struct OldText<'s, 'a> {
    subject: &'s Subject<'a>,
    references: &'s [u64],
}

impl OldText<'_, '_> {
    fn fail(&self, address: u64, what: String) -> Result<()> {
        let cfg = self.subject.cfg();
        let name = cfg.proc_at(address).map(|p| cfg.proc(p).display_name());
        let error = Error::new(DOING, what)
            .file(&self.subject.image().path)
            .address(address);
        let error = match name {
            Some(name) => error.symbol(name),
            None => error,
        };
        Err(error.advice(
            "this is a defect of atom, not of the program or the tool; please report it with both",
        ))
    }

    fn is_moved(&self, proc: ProcId) -> bool {
        self.subject.placed.layout.entry(proc).is_some()
    }

    /// The instructions that cover a byte, and the last instruction in front of it.
    fn around(&self, address: u64) -> (impl Iterator<Item = InstId>, Option<InstId>) {
        let cfg = self.subject.cfg();
        let after = cfg
            .insts
            .partition_point(|i| cfg.base + u64::from(i.offset) <= address);
        let near = (after.saturating_sub(OVERLAPPING)..after).map(InstId::from_index);
        let covering = near.filter(move |i| cfg.inst_end(*i) > address);
        (covering, after.checked_sub(1).map(InstId::from_index))
    }

    /// Judges a byte that has changed.
    fn byte(&self, address: u64) -> Result<()> {
        let cfg = self.subject.cfg();
        let (mut covering, before) = self.around(address);
        let owner = |i: InstId| cfg.block(cfg.block_of(i)).proc;
        let is_right = |i: InstId| {
            // The other parts of instructions that stay are compared one by one.
            self.is_moved(owner(i)) || cfg.inst(i).flow.is_direct() && address > cfg.inst_pc(i)
        };
        match covering.next() {
            Some(first) if is_right(first) && covering.all(is_right) => return Ok(()),
            Some(_) => {
                let what = "an instruction that stays in place has been overwritten";
                return self.fail(address, what.into());
            }
            None => {}
        }
        let Some(before) = before.filter(|i| self.is_moved(owner(*i))) else {
            let what = "bytes that do not belong to moved code have been overwritten";
            return self.fail(address, what.into());
        };
        let start = cfg.inst_end(before);
        // The address directly after code may be the end of a range (`etext`), which nobody reads.
        if let Some(reference) = first_in(self.references, start + 1, address + 1) {
            let what = format!(
                "bytes at {reference:#x}, to which the program refers, have been overwritten"
            );
            return self.fail(address, what);
        }
        let mut at = start;
        while at <= address {
            let rest = self.subject.image().rest_at(at).unwrap_or(&[]);
            match padding_len(rest) {
                Some(len) => at += len as u64,
                None => {
                    let what =
                        "bytes that are neither moved code nor padding have been overwritten";
                    return self.fail(address, what.into());
                }
            }
        }
        Ok(())
    }

    /// Judges that no pad is in the middle of an instruction, unless a branch leads there, as over a `lock` prefix.
    fn pads(&self) -> Result<()> {
        let cfg = self.subject.cfg();
        let blocks = cfg.blocks.par_iter();
        blocks
            .filter(|b| b.is_indirect_target && self.is_moved(b.proc))
            .try_for_each(|b| {
                let pc = cfg.inst_pc(b.first);
                let (mut covering, _) = self.around(pc);
                let is_around = |i: &InstId| cfg.inst_pc(*i) < pc;
                match covering.find(is_around) {
                    Some(i) if !self.is_target(pc) => self.fail(
                        pc,
                        format!(
                            "a pad stands in the middle of the instruction at {:#x}",
                            cfg.inst_pc(i)
                        ),
                    ),
                    _ => Ok(()),
                }
            })
    }

    /// True if a direct branch leads to an address.
    fn is_target(&self, address: u64) -> bool {
        let (cfg, image) = (self.subject.cfg(), self.subject.image());
        let direct = (0..cfg.insts.len()).into_par_iter();
        direct
            .filter(|i| cfg.insts[*i].flow.is_direct())
            .any(|i| cfg.direct_target(image, InstId::from_index(i)) == Some(address))
    }
}
