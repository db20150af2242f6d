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

use super::discovery::{Discovery, chosen, where_true};
use super::examined::{Callee, Traps};
use super::graph::is_never;
use super::traverse::{Body, Others, Ref, mark};
use super::{ProcKind, jump_table};
use crate::image::Image;
use crate::x86::{self, ControlFlow, Inst, decode_at, padding_len};

/// How control comes to an instruction, as far as its procedure shows.
enum Reached {
    /// Only from the returns of these calls, perhaps by way of jumps. The list may be empty.
    Behind(Vec<Inst>),
    /// Also in other ways: by a condition, from outside, or from the procedure's start.
    Otherwise,
}

impl Discovery<'_> {
    /// Follows control after traps. Returns true if there is anything new.
    pub(super) fn follow_traps(&mut self) -> bool {
        let image = self.image;
        let new = where_true(&self.news.traps);
        let bodies = chosen(&mut self.bodies, &new, |i| *i);
        bodies.into_par_iter().for_each(|(body, _)| {
            if body.traps.changes != Some(body.changes) {
                body.traps = traps(image, body);
            }
        });
        for i in new {
            self.news.traps[i] = !self.bodies[i].traps.is_empty();
        }
        let found = where_true(&self.news.traps);
        let mut callees = Callees::new(self, &found);
        let mut reached = Vec::new();
        for i in found {
            let body = &self.bodies[i];
            let mut all = body.traps.certain.clone();
            let mut may_return = |callee: &Callee| callees.may_return(body, *callee);
            for (trap, calls) in &body.traps.open {
                if calls.iter().any(&mut may_return) {
                    all.push(*trap);
                }
            }
            if !all.is_empty() {
                reached.push((i, all));
            }
        }
        for (i, _) in &reached {
            self.news.note(*i);
        }
        let bodies = chosen(&mut self.bodies, &reached, |(i, _)| *i);
        let resumed = bodies
            .into_par_iter()
            .map(|(body, (_, traps))| resume(image, body, traps));
        resumed.reduce(|| false, |a, b| a | b)
    }
}

/// The traps of a body with possible code after them.
fn traps(image: &Image, body: &Body) -> Traps {
    let mut found = Traps {
        changes: Some(body.changes),
        ..Traps::default()
    };
    let mut known = None;
    for (i, inst) in body.insts.iter().enumerate() {
        if inst.flow != ControlFlow::Halt || !leads_on(image, body, end_of(image, inst)) {
            continue;
        }
        let branches = known.get_or_insert_with(|| branches_of(image, body));
        match reached(image, body, branches, i) {
            Reached::Otherwise => found.certain.push(i),
            Reached::Behind(calls) => {
                let callees = calls.iter().map(|call| callee_of(image, call));
                found.open.push((i, callees.collect()));
            }
        }
    }
    found
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
            let explore = |body: &mut Body| body.explore(image, next);
            if !body.attempt(image.base, Others::All, explore) {
                continue;
            }
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

/// Where a call in front of a trap leads.
fn callee_of(image: &Image, call: &Inst) -> Callee {
    let found = match call.flow {
        ControlFlow::Call => target_of(image, call).map(Callee::Address),
        _ => slot_of(image, call).map(Callee::Slot),
    };
    found.unwrap_or(Callee::Unknown)
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

/// Facts of the procedures that are called in front of traps.
struct Callees<'d, 'a> {
    discovery: &'d Discovery<'a>,
    /// Contents of the slots through which calls go, by the addresses of the slots.
    slots: FxHashMap<u64, u64>,
    /// By the target of a call: true if the call may return.
    by_target: FxHashMap<u64, bool>,
    /// By body: true if it has a way out, as far as that was asked for.
    returns: FxHashMap<usize, bool>,
}

impl<'d, 'a> Callees<'d, 'a> {
    /// Facts for the traps in some bodies.
    fn new(discovery: &'d Discovery<'a>, bodies: &[usize]) -> Self {
        let open = bodies.iter().flat_map(|i| &discovery.bodies[*i].traps.open);
        let slot = |callee: &Callee| match callee {
            Callee::Slot(slot) => Some(*slot),
            _ => None,
        };
        let wanted: FxHashSet<u64> = open
            .flat_map(|(_, all)| all.iter().filter_map(slot))
            .collect();
        let relative = |r: &&crate::image::Reloc| {
            r.kind == object::elf::R_X86_64_RELATIVE && wanted.contains(&r.address)
        };
        let relocs = discovery.image.relocs.par_iter().filter(relative);
        Self {
            discovery,
            slots: relocs.map(|r| (r.address, r.addend as u64)).collect(),
            by_target: FxHashMap::default(),
            returns: FxHashMap::default(),
        }
    }

    /// True if a call in a body may return; true in doubt.
    fn may_return(&mut self, body: &Body, callee: Callee) -> bool {
        let target = match callee {
            Callee::Address(target) => target,
            Callee::Slot(slot) => {
                if self.discovery.imports.name(slot).is_some_and(is_never) {
                    return false;
                }
                match self.slots.get(&slot) {
                    Some(target) => *target,
                    None => return true,
                }
            }
            Callee::Unknown => return true,
        };
        // A call inside of one procedure may be a trick of assembly, so it counts as returning.
        if body.contains(target) {
            return true;
        }
        if let Some(known) = self.by_target.get(&target) {
            return *known;
        }
        let callee = self.discovery.body_at(target);
        let returns =
            callee.is_none_or(|i| target != self.discovery.bodies[i].start || self.has_way_out(i));
        self.by_target.insert(target, returns);
        returns
    }

    /// True if a body has a return, or a way to code that has one or is not known.
    fn has_way_out(&mut self, body: usize) -> bool {
        let discovery = self.discovery;
        let (mut seen, mut work) = (FxHashSet::from_iter([body]), vec![body]);
        while let Some(i) = work.pop() {
            let (code, seed) = (&discovery.bodies[i], &discovery.seeds[i]);
            let known = match seed.kind {
                ProcKind::Plt => Some(!seed.name.as_deref().is_some_and(is_never)),
                _ if code.obstacle.is_some() || code.has_exit => Some(true),
                _ => self.returns.get(&i).copied(),
            };
            match known {
                Some(true) => {
                    self.returns.insert(body, true);
                    return true;
                }
                Some(false) => continue,
                None => {}
            }
            for r in &code.refs {
                let (Ref::Jump(to) | Ref::CondJump(to)) = *r else {
                    continue;
                };
                let Some(next) = discovery.body_at(to) else {
                    self.returns.insert(body, true);
                    return true;
                };
                if seen.insert(next) {
                    work.push(next);
                }
            }
        }
        self.returns.extend(seen.into_iter().map(|i| (i, false)));
        false
    }
}
