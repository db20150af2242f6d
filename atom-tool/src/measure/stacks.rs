//! Call stacks, found by walking the stack when a routine asks for one.
//!
//! Nothing is added to the program's calls, so a tool pays only where it asks. The walk follows the exception tables: from a
//! return address to the call that pushed it, and from there to the caller's frame. It ends at the first frame of which
//! the tables tell nothing by rsp or rbp and an offset, and in code that is not instrumented.
//!
//! ```
//! use atom_tool::prelude::*;
//! use atom_tool::stacks::{self, CallStacks};
//!
//! #[analysis]
//! fn malloc(calls: Sites, sp: u64, rbp: u64) {
//!     let mut numbers = [0; 12];
//!     let count = stacks::at_entry(sp, rbp, &mut numbers);
//!     for site in numbers[..count].iter().filter_map(|n| calls.get(*n as usize)) {
//!         println!("called by {} at {}", site.proc, Address(site.pc));
//!     }
//! }
//!
//! fn instrument(program: &Program, _args: &Args) -> Result {
//!     let stacks = CallStacks::add(program);
//!     for proc in program.procs_named("malloc").into_iter().filter(|proc| !proc.is_opaque()) {
//!         proc.add_call(Before, malloc, (&stacks.calls, Reg::Rsp, Reg::Rbp));
//!     }
//!     Ok(())
//! }
//!
//! atom_tool::tool!(instrument);
//! # fn main() {}
//! ```

use std::collections::HashMap;

use atom_abi::query::CallFrameRecord;

use crate::Place::Before;
use crate::calls::params::Array;
use crate::data::sites::SiteList;
use crate::measure::paths::walk::{self, Frame, SiteFrame, WORD};
use crate::navigation::address::on_object_event;
use crate::navigation::handle::{Inst, Proc};
use crate::navigation::program::Program;
use crate::{InstType, Reg, analysis, plain_data};

plain_data! {
    /// How the frame of a procedure is found at one of its instructions.
    pub struct FrameRule {
        offset: i32,
        rbp: i32,
    }
}

impl FrameRule {
    fn of(record: CallFrameRecord) -> Self {
        let site = SiteFrame::new(0, Some(record), [0, 0]);
        Self {
            offset: site.offset,
            rbp: site.rbp,
        }
    }
}

/// Instrument side: what walking needs to know of all calls. It takes [`on_object_event`], and has no place beside
/// [`CallPaths`](crate::paths::CallPaths) by call site.
pub struct CallStacks {
    /// The calls, in the order of their numbers.
    pub calls: SiteList,
    /// Their numbers by the indices of the instructions.
    numbers: HashMap<usize, u32>,
}

#[analysis]
fn stacks_begin(frames: Array<SiteFrame>) {
    walk::begin(frames);
    on_object_event(|_, _| walk::forget());
}

impl CallStacks {
    /// Adds a call at the program's start.
    pub fn add(program: &Program<'_>) -> Self {
        let mut found: Vec<(Inst<'_>, Option<CallFrameRecord>)> = Vec::new();
        for proc in program.procs() {
            let frames = by_inst(proc);
            let last = proc.blocks().map(|block| block.last_inst());
            let calls = last.filter(|last| last.is_type(InstType::Call));
            found.extend(calls.map(|call| (call, frames.get(&call.index()).copied())));
        }
        found.sort_by_key(|(call, _)| call.pc());
        let mut calls = SiteList::new();
        let mut sites = Vec::new();
        let mut numbers = HashMap::new();
        for (call, frame) in found {
            numbers.insert(call.index(), calls.push(call) as u32);
            let back = call.pc() + call.size() as u64;
            sites.push(SiteFrame::new(back, frame, [0, 0]));
        }
        let host = program.session.host;
        (host.map_returns)(host.context);
        program.add_call(Before, stacks_begin, (&sites,));
        Self { calls, numbers }
    }

    /// The number of a call.
    pub fn number_of(&self, call: Inst<'_>) -> Option<u32> {
        self.numbers.get(&call.index()).copied()
    }
}

fn by_inst(proc: Proc<'_>) -> HashMap<usize, CallFrameRecord> {
    let frames = proc.call_frames().into_iter();
    frames.map(|frame| (frame.inst as usize, frame)).collect()
}

/// Instrument side: the rules of one procedure.
pub struct FrameRules {
    /// At calls, in the order of instructions.
    calls: Vec<(usize, FrameRule)>,
    /// Where there are none.
    otherwise: FrameRule,
}

impl FrameRules {
    /// The rules of a procedure.
    pub fn of(proc: Proc<'_>) -> Self {
        let mut calls: Vec<_> = (proc.call_frames().into_iter())
            .map(|frame| (frame.inst as usize, FrameRule::of(frame)))
            .collect();
        calls.sort_by_key(|(inst, _)| *inst);
        let frame = proc.frame();
        let by_rbp = frame.as_ref().and_then(crate::Frame::frame_reg) == Some(Reg::Rbp);
        let record = CallFrameRecord {
            inst: 0,
            by_rbp: by_rbp.into(),
            offset: match (by_rbp, &frame) {
                (true, _) => 2 * WORD as i32,
                (false, Some(frame)) => frame.size() as i32,
                (false, None) => WORD as i32,
            },
            rbp_offset: if by_rbp { -2 * WORD as i32 } else { 0 },
        };
        Self {
            calls,
            otherwise: FrameRule::of(record),
        }
    }

    /// The rule at an instruction: the rule of the nearest call before it, or of the first. It may be wrong in a prologue
    /// or an epilogue.
    pub fn at(&self, inst: Inst<'_>) -> FrameRule {
        let after = self
            .calls
            .partition_point(|(call, _)| *call <= inst.index());
        let near = self.calls.get(after.saturating_sub(1));
        near.map_or(self.otherwise, |(_, rule)| *rule)
    }
}

/// Analysis side: the numbers of the calls that led to a procedure which was just entered with this rsp and rbp, the innermost
/// first. Returns how many were found.
pub fn at_entry(sp: u64, rbp: u64, numbers: &mut [u32]) -> usize {
    walk_from(Frame { slot: sp, rbp }, numbers)
}

/// Analysis side: as [`at_entry`], inside a procedure, with rsp and rbp at an instruction that has this rule.
pub fn at_inst(rule: FrameRule, sp: u64, rbp: u64, numbers: &mut [u32]) -> usize {
    let site = SiteFrame {
        back: 0,
        offset: rule.offset,
        rbp: rule.rbp,
        procs: [0, 0],
    };
    let frame = site.outwards(sp, rbp);
    frame.map_or(0, |frame| walk_from(frame, numbers))
}

/// Analysis side: the words of the stack on which the result of a walk depends. While rsp and rbp are the same and all these
/// words, so is the result, until objects are mapped or unmapped ([`changes`]).
#[derive(Clone, Copy, Debug)]
pub struct Words<const N: usize> {
    /// Addresses and words.
    pub seen: [[u64; 2]; N],
    /// Number of words that were read; more than `N` if there was no room.
    pub len: usize,
}

impl<const N: usize> Words<N> {
    /// None.
    pub const fn new() -> Self {
        Self {
            seen: [[0; 2]; N],
            len: 0,
        }
    }

    #[inline(always)]
    fn load(&mut self, address: u64) -> u64 {
        // SAFETY: a word of the running thread's stack, say the exception tables.
        let word = unsafe { walk::word(address) };
        if let Some(place) = self.seen.get_mut(self.len) {
            *place = [address, word];
        }
        self.len += 1;
        word
    }
}

impl<const N: usize> Default for Words<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Analysis side: number of times that objects were mapped or unmapped so far.
#[inline(always)]
pub fn changes() -> u64 {
    walk::changes()
}

/// Analysis side: as [`at_entry`], and notes what it reads.
pub fn at_entry_by<const N: usize>(
    sp: u64,
    rbp: u64,
    numbers: &mut [u32],
    words: &mut Words<N>,
) -> usize {
    walk_by(Frame { slot: sp, rbp }, numbers, words)
}

fn walk_from(frame: Frame, numbers: &mut [u32]) -> usize {
    walk_by(frame, numbers, &mut Words::<0>::new())
}

#[inline(always)]
fn walk_by<const N: usize>(mut frame: Frame, numbers: &mut [u32], words: &mut Words<N>) -> usize {
    let mut count = 0;
    while let Some(place) = numbers.get_mut(count) {
        let back = words.load(frame.slot);
        let Some((number, site)) = walk::site_behind(back) else {
            break;
        };
        *place = number - 1;
        count += 1;
        let outer = site.outwards_by(frame.slot + WORD, frame.rbp, |at| words.load(at));
        let Some(outer) = outer else {
            break;
        };
        frame = outer;
    }
    count
}
