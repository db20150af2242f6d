//! Which calls need no note, since the stack tells of them.
//!
//! A call without a note (a *silent* call) is found by its return address on the stack when a node is looked for
//! ([`walk`](super::walk)). From there the search continues in the caller's frame, up to the innermost call that has a
//! note. So a call may be silent if the search is certain to arrive at it:
//!
//! - It certainly leads to a procedure that is seen, and the unwind tables say by a register and an offset where the frame of
//!   the calling procedure begins.
//! - The same is known at all calls in the called procedure, and in those to which it jumps, and none of
//!   them switches to another stack.
//! - It does not close a circle of silent calls. So recursion has a note in each round, and the search is short.

use std::collections::{HashMap, HashSet};

use atom_abi::query::CallFrameRecord;

use super::reach::{self, Entered};
use crate::navigation::handle::{Block, Inst, Proc};
use crate::navigation::program::Program;
use crate::{EdgeKind, InstType};

/// A call that may lead to what a tool looks for.
#[derive(Clone, Copy)]
pub(super) struct FoundCall<'a> {
    pub inst: Inst<'a>,
    /// The procedure to which it certainly leads.
    pub to: Option<Proc<'a>>,
    /// How the caller's frame is found.
    pub frame: Option<CallFrameRecord>,
    /// It needs no note.
    pub is_silent: bool,
}

/// What is known of a procedure.
#[derive(Default)]
struct Known {
    /// Indices of its calls.
    calls: Vec<usize>,
    /// Procedures to which it jumps.
    jumps: Vec<usize>,
    /// Calls of it need notes.
    needs_note: bool,
}

/// The calls of the procedures that may lead to those for which `has` is true, in the order of addresses.
pub(super) fn calls<'a>(
    program: &Program<'a>,
    procs: &[Proc<'a>],
    has: &dyn Fn(Proc<'_>) -> bool,
) -> Vec<FoundCall<'a>> {
    let mut calls = Vec::new();
    let mut known: HashMap<usize, Known> = HashMap::new();
    for proc in procs {
        let frames: HashMap<usize, CallFrameRecord> = (proc.call_frames().into_iter())
            .map(|frame| (frame.inst as usize, frame))
            .collect();
        let mut this = Known {
            needs_note: reach::switches_stack(*proc),
            ..Known::default()
        };
        for block in proc.blocks() {
            let last = block.last_inst();
            if !last.is_type(InstType::Call) {
                jumps(program, *proc, block, has, &mut this);
                continue;
            }
            let to = match reach::entered(program, last) {
                Entered::Nothing => continue,
                Entered::Proc(to) if !has(to) => continue,
                Entered::Proc(to) => Some(to),
                Entered::Any => None,
            };
            let frame = frames.get(&last.index()).copied();
            this.needs_note |= frame.is_none();
            calls.push(FoundCall {
                inst: last,
                to,
                frame,
                is_silent: false,
            });
        }
        known.insert(proc.index(), this);
    }
    calls.sort_by_key(|call| call.inst.pc());
    for (i, call) in calls.iter().enumerate() {
        if let Some(known) = known.get_mut(&call.inst.proc().index()) {
            known.calls.push(i);
        }
    }
    spread_needs(&mut known);
    for call in &mut calls {
        let to = call.to.filter(|to| to.first_block().is_some());
        let to = to.and_then(|to| known.get(&to.index()));
        call.is_silent = call.frame.is_some() && to.is_some_and(|to| !to.needs_note);
    }
    cut_circles(&mut calls, &known);
    calls
}

/// Notes where a block jumps out of its procedure.
fn jumps(
    program: &Program<'_>,
    proc: Proc<'_>,
    block: Block<'_>,
    has: &dyn Fn(Proc<'_>) -> bool,
    known: &mut Known,
) {
    let next = block.successors();
    let others = next.iter().filter_map(|edge| edge.block);
    let others = others.map(|block| block.proc().index());
    known
        .jumps
        .extend(others.filter(|other| *other != proc.index()));
    let is_out = |kind| matches!(kind, EdgeKind::Tail | EdgeKind::Unknown);
    let last = block.last_inst();
    if last.is_type(InstType::Ret) || !next.iter().any(|edge| is_out(edge.kind)) {
        return;
    }
    match reach::entered(program, last) {
        Entered::Nothing => {}
        Entered::Proc(to) if !has(to) => {}
        Entered::Proc(to) if to.first_block().is_some() => known.jumps.push(to.index()),
        _ => known.needs_note = true,
    }
}

/// What is jumped to stands for the jumping procedure.
fn spread_needs(known: &mut HashMap<usize, Known>) {
    let mut from: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut new: Vec<usize> = Vec::new();
    for (proc, this) in known.iter() {
        for to in &this.jumps {
            from.entry(*to).or_default().push(*proc);
            // A procedure that is not followed, such as a stub.
            if !known.contains_key(to) {
                new.push(*proc);
            }
        }
        if this.needs_note {
            new.push(*proc);
        }
    }
    let mut seen: HashSet<usize> = new.iter().copied().collect();
    while let Some(proc) = new.pop() {
        if let Some(this) = known.get_mut(&proc) {
            this.needs_note = true;
        }
        let around = from.get(&proc).into_iter().flatten();
        new.extend(around.filter(|other| seen.insert(**other)));
    }
}

/// A step of the search for circles: a procedure, the call by which the search came to it, and the number of ways out of it that
/// have been followed.
struct Step {
    proc: usize,
    by: Option<usize>,
    done: usize,
}

/// Gives notes to calls such that no circle of silent calls and jumps has a call.
fn cut_circles(calls: &mut [FoundCall<'_>], known: &HashMap<usize, Known>) {
    let mut seen: HashSet<usize> = HashSet::new();
    let mut open: HashMap<usize, usize> = HashMap::new();
    let mut starts: Vec<usize> = known.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        if !seen.insert(start) {
            continue;
        }
        let mut steps = vec![Step {
            proc: start,
            by: None,
            done: 0,
        }];
        open.insert(start, 0);
        while let Some(step) = steps.last_mut() {
            let (proc, done) = (step.proc, step.done);
            step.done += 1;
            let Some(this) = known.get(&proc) else {
                open.remove(&proc);
                steps.pop();
                continue;
            };
            let call = this.calls.get(done).copied();
            let to = match call {
                Some(call) => calls[call]
                    .to
                    .filter(|_| calls[call].is_silent)
                    .map(|to| to.index()),
                None => match this.jumps.get(done - this.calls.len()) {
                    Some(to) => Some(*to),
                    None => {
                        open.remove(&proc);
                        steps.pop();
                        continue;
                    }
                },
            };
            let Some(to) = to else { continue };
            if let Some(at) = open.get(&to) {
                let on_way = steps[at + 1..].iter().rev().find_map(|step| step.by);
                if let Some(cut) = call.or(on_way) {
                    calls[cut].is_silent = false;
                }
            } else if seen.insert(to) {
                open.insert(to, steps.len());
                steps.push(Step {
                    proc: to,
                    by: call,
                    done: 0,
                });
            }
        }
    }
}
