//! Code after instructions that raise a signal (traps).
//!
//! `ud2`, `int3`, `hlt` and similar instructions end the process unless a handler takes the
//! signal. A handler may return to the instruction after a breakpoint, or move
//! the saved instruction pointer over one of the other instructions. So the code after such an
//! instruction can be reached by way of the kernel, as the code after a system call.
//!
//! Compilers also put traps where control never comes: after each call that does not
//! return. Other code or no code follows there, and an edge to it would
//! cost counters and registers. So a trap that is reached only after a call of a
//! procedure without a return ends control flow.

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::discovery::Discovery;
use super::graph::is_never;
use super::traverse::{Body, Ref, mark};
use super::{ProcKind, jump_table};
use crate::image::Image;
use crate::image::imports::Imports;
use crate::x86::{self, ControlFlow, Inst, decode_at, padding_len};

/// How control comes to an instruction, as far as its procedure shows.
enum Reached {
    /// Only from the returns of these calls, perhaps by way of jumps. The list may be empty.
    Behind(Vec<Inst>),
    /// Also in other ways: by a condition, from outside, or from the procedure's start.
    Otherwise,
}

/// A trap that is reached only from the returns of calls, so that the callees decide.
struct Open {
    /// Number of the body.
    body: usize,
    /// Index of the trap in the body's instructions.
    trap: usize,
    /// The calls.
    calls: Vec<Inst>,
}

impl Discovery<'_> {
    /// Follows control after traps. Returns true if there is anything new.
    pub(super) fn follow_traps(&mut self) -> bool {
        let image = self.image;
        let found: Vec<(usize, Vec<usize>, Vec<Open>)> = self
            .bodies
            .par_iter_mut()
            .enumerate()
            .filter(|(_, body)| body.without_traps != Some(body.changes))
            .filter_map(|(i, body)| {
                let (certain, open) = traps(image, i, body);
                if certain.is_empty() && open.is_empty() {
                    body.without_traps = Some(body.changes);
                    return None;
                }
                Some((i, certain, open))
            })
            .collect();
        if found.is_empty() {
            return false;
        }
        let callees = if found.iter().any(|f| !f.2.is_empty()) {
            Some(Callees::new(self, found.iter().flat_map(|f| &f.2)))
        } else {
            None
        };
        let mut traps: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (i, mut all, open) in found {
            let returning = open.into_iter().filter(|o| {
                o.calls.iter().any(|call| {
                    callees
                        .as_ref()
                        .is_some_and(|c| c.may_return(self, o.body, call))
                })
            });
            all.extend(returning.map(|o| o.trap));
            if !all.is_empty() {
                traps.insert(i, all);
            }
        }
        self.bodies
            .par_iter_mut()
            .enumerate()
            .filter_map(|(i, body)| Some((body, traps.get(&i)?)))
            .map(|(body, traps)| resume(image, body, traps))
            .reduce(|| false, |a, b| a | b)
    }
}

/// The traps of a body with possible code after them: indices of the traps that control may
/// certainly reach, and the traps after calls. `number` is the number of the body.
fn traps(image: &Image, number: usize, body: &Body) -> (Vec<usize>, Vec<Open>) {
    let (mut certain, mut open) = (Vec::new(), Vec::new());
    let mut known = None;
    for (i, inst) in body.insts.iter().enumerate() {
        if inst.flow != ControlFlow::Halt || !leads_on(image, body, end_of(image, inst)) {
            continue;
        }
        let branches = known.get_or_insert_with(|| branches_of(image, body));
        match reached(image, body, branches, i) {
            Reached::Otherwise => certain.push(i),
            Reached::Behind(calls) => open.push(Open {
                body: number,
                trap: i,
                calls,
            }),
        }
    }
    (certain, open)
}

fn end_of(image: &Image, inst: &Inst) -> u64 {
    image.base + u64::from(inst.offset) + u64::from(inst.len)
}

/// True if a body has more than padding from an address to its end.
fn leads_on(image: &Image, body: &Body, mut pc: u64) -> bool {
    while body.contains(pc) {
        let marks = body.mark_at(pc);
        if marks & mark::START != 0 {
            return true;
        }
        if marks & mark::INSIDE != 0 {
            return false;
        }
        let rest = image.rest_at(pc).unwrap_or(&[]);
        match padding_len(rest) {
            Some(len) => pc += len as u64,
            None => return decode_at(&rest[..rest.len().min(15)], pc).is_some(),
        }
    }
    false
}

/// The branches of a body: target and index of the branch among the instructions, in the order of targets.
fn branches_of(image: &Image, body: &Body) -> Vec<(u64, usize)> {
    let all = body.insts.iter().enumerate();
    let branches = all.filter(|(_, i)| matches!(i.flow, ControlFlow::Jump | ControlFlow::CondJump));
    let mut branches: Vec<_> = branches
        .filter_map(|(place, inst)| Some((target_of(image, inst)?, place)))
        .collect();
    branches.sort_unstable();
    branches
}

fn target_of(image: &Image, inst: &Inst) -> Option<u64> {
    let pc = image.base + u64::from(inst.offset);
    let bytes = image.bytes_at(pc, usize::from(inst.len))?;
    x86::target_of(bytes, pc)
}

/// How control comes to the trap with index `trap`: goes back to calls and conditions.
fn reached(image: &Image, body: &Body, branches: &[(u64, usize)], trap: usize) -> Reached {
    let mut calls = Vec::new();
    let mut seen = FxHashSet::default();
    let mut work = vec![trap];
    while let Some(i) = work.pop() {
        if !seen.insert(i) {
            continue;
        }
        let pc = image.base + u64::from(body.insts[i].offset);
        let named = body.mark_at(pc) & (mark::INDIRECT | mark::ENTRY | mark::LANDING) != 0;
        if named || pc == body.start {
            return Reached::Otherwise;
        }
        let first = branches.partition_point(|b| b.0 < pc);
        for &(_, source) in branches[first..].iter().take_while(|b| b.0 == pc) {
            if body.insts[source].flow == ControlFlow::CondJump {
                return Reached::Otherwise;
            }
            work.push(source);
        }
        let before = i.checked_sub(1).map(|b| &body.insts[b]);
        let Some(before) = before.filter(|b| end_of(image, b) == pc) else {
            if i > 0 && end_of(image, &body.insts[i - 1]) > pc {
                // The instruction in front overlaps this one.
                return Reached::Otherwise;
            }
            continue;
        };
        match before.flow {
            ControlFlow::FallThrough => work.push(i - 1),
            ControlFlow::Call | ControlFlow::IndirectCall => calls.push(*before),
            ControlFlow::CondJump | ControlFlow::Syscall | ControlFlow::Trap => {
                return Reached::Otherwise;
            }
            ControlFlow::Jump
            | ControlFlow::IndirectJump
            | ControlFlow::Return
            | ControlFlow::Halt => {}
        }
    }
    Reached::Behind(calls)
}

/// Explores the bytes after traps as code where they are plausible code. Returns true if anything changed.
fn resume(image: &Image, body: &mut Body, traps: &[usize]) -> bool {
    let mut changed = false;
    // Exploring adds instructions at the end of the list, so the indices of traps stay.
    for &trap in traps {
        let next = end_of(image, &body.insts[trap]);
        if body.mark_at(next) & mark::START == 0 {
            if !jump_table::is_plausible(image, body, next) {
                continue;
            }
            let mut trial = body.clone();
            trial.explore(image, next);
            if trial.obstacle.is_some() && body.obstacle.is_none()
                || trial.disagrees_anywhere(body, image.base)
            {
                continue;
            }
            *body = trial;
        }
        body.add_mark(next, mark::LEADER);
        body.insts[trap].flow = ControlFlow::Trap;
        body.changes += 1;
        changed = true;
    }
    if changed {
        body.finish();
    }
    changed
}

/// Facts of procedures that are called in front of traps.
struct Callees<'a> {
    imports: Imports<'a>,
    /// Contents of the slots through which calls go, by the addresses of the slots.
    slots: FxHashMap<u64, u64>,
    /// By body: true if it has a way out.
    returns: Vec<bool>,
}

impl<'a> Callees<'a> {
    fn new<'o>(discovery: &Discovery<'a>, open: impl Iterator<Item = &'o Open>) -> Self {
        let image = discovery.image;
        let calls = open.flat_map(|o| &o.calls);
        let wanted: FxHashSet<u64> = calls.filter_map(|c| slot_of(image, c)).collect();
        let relative = |r: &&crate::image::Reloc| {
            r.kind == object::elf::R_X86_64_RELATIVE && wanted.contains(&r.address)
        };
        let relocs = image.relocs.par_iter().filter(relative);
        Self {
            imports: Imports::new(image),
            slots: relocs.map(|r| (r.address, r.addend as u64)).collect(),
            returns: returning(discovery),
        }
    }

    /// True if a call in a body may return; true in doubt.
    fn may_return(&self, discovery: &Discovery<'_>, body: usize, call: &Inst) -> bool {
        let image = discovery.image;
        let target = match call.flow {
            ControlFlow::Call => target_of(image, call),
            _ => match slot_of(image, call) {
                Some(slot) if self.imports.name(slot).is_some_and(is_never) => return false,
                Some(slot) => self.slots.get(&slot).copied(),
                None => None,
            },
        };
        let callee = target.and_then(|t| Some((t, discovery.body_at(t)?)));
        match callee {
            // A call inside of one procedure may be a trick of assembly, so it counts as returning.
            Some((_, i)) if i == body => true,
            Some((target, i)) => self.returns[i] || target != discovery.bodies[i].start,
            None => true,
        }
    }
}

/// Address of the slot that a call through memory reads.
fn slot_of(image: &Image, call: &Inst) -> Option<u64> {
    if call.flow != ControlFlow::IndirectCall || !call.rip_relative {
        return None;
    }
    let pc = image.base + u64::from(call.offset);
    let bytes = image.bytes_at(pc, usize::from(call.len))?;
    Some(decode_at(bytes, pc)?.ip_rel_memory_address())
}

/// By body: true if it has a return, or a way to code that has one or is not known.
fn returning(discovery: &Discovery<'_>) -> Vec<bool> {
    let bodies = &discovery.bodies;
    let mut returns: Vec<bool> = bodies
        .par_iter()
        .zip(&discovery.seeds)
        .map(|(body, seed)| match seed.kind {
            ProcKind::Plt => !seed.name.as_deref().is_some_and(is_never),
            _ => body.obstacle.is_some() || body.has_exit,
        })
        .collect();
    // Jumps from procedures without a return to other procedures.
    let mut jumps: Vec<(usize, Option<usize>)> = (0..bodies.len())
        .into_par_iter()
        .filter(|i| !returns[*i] && discovery.seeds[*i].kind != ProcKind::Plt)
        .flat_map_iter(|i| {
            bodies[i].refs.iter().filter_map(move |r| match *r {
                Ref::Jump(to) | Ref::CondJump(to) => Some((i, discovery.body_at(to))),
                _ => None,
            })
        })
        .collect();
    loop {
        let before = jumps.len();
        jumps.retain(|&(from, to)| {
            let out = to.is_none_or(|to| returns[to]);
            returns[from] |= out;
            !out && !returns[from]
        });
        if jumps.len() == before {
            return returns;
        }
    }
}
