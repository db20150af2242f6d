//! Per-thread data: how a point finds the running thread's data, and where a new thread must be noticed.
//!
//! The main block is in the plan's data. The gs base is the distance from it
//! to the running thread's block (see `atom_abi::ThreadBlock`), 0 in the first
//! thread. A new thread has its parent's base until it passes a *guard*, which
//! compares the thread pointer with the thread pointer of the block's owner. Guards
//! are where a thread can come from outside:
//! - after system calls of the program's own code that may start a thread;
//! - in a dynamic program at the pads of procedures: the thread was started by a
//!   library, and enters through a function pointer. A static program has no such
//!   library.
//!
//! A pad in the middle of a procedure has a guard too, unless the procedure's own indirect jumps lead
//! there.
//!
//! The counts of a forked child begin at 0. So the runtime is called where such a child begins: after system calls
//! that may fork, in processes with one thread too.

use std::collections::HashSet;

use atom_abi::{THREAD_LEFT, ThreadInfo};
use rayon::prelude::*;

use super::code::{Asm, Guards, Target, Version};
use super::data::ThreadPlace;
use super::private_stack::PrivateStack;
use super::wrapper::{Wrapper, Wrappers};
use crate::cfg::{Cfg, ProcKind};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::{Live, RegSet};
use crate::tool;
use crate::tool::value::Value;
use crate::x86::ControlFlow;
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::Gpr;

/// Export of the runtime that is called where a forked child may begin.
pub const FORKED: &str = "__atom_forked";

/// How inserted code finds the running thread's data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ThreadAccess {
    /// Like other data, as there is one thread.
    #[default]
    Only,
    /// Through the gs segment.
    Gs,
    /// By asking the runtime each time, as the program or one of its libraries uses gs.
    Lookup,
}

/// Options for per-thread data. Addresses are those of the tool's file.
#[derive(Clone, Copy, Default, Debug)]
pub struct ThreadOptions {
    /// How inserted code finds the data.
    pub access: ThreadAccess,
    /// Address of the runtime's `thread_enter`.
    pub enter: u64,
    /// Address of the runtime's `thread_started`.
    pub started: u64,
    /// Address of the runtime's `thread_block`.
    pub block: u64,
    /// Address of the runtime's `forked`.
    pub forked: Option<u64>,
    /// True if analysis routines run on stacks of their own, one for each thread, as the program's may be too small.
    pub own_stack: bool,
    /// True if the process certainly has one thread.
    pub one_thread: bool,
    /// True if each thread is sampled for itself.
    pub are_sampled: bool,
}

/// Facts that decide how inserted code finds the running thread's data.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    /// True if the tool has data for each thread.
    pub has_data: bool,
    /// True if the process may have more than one thread.
    pub may_have_threads: bool,
    /// True if analysis routines need stacks of their own.
    pub own_stack: bool,
    /// True if each thread is sampled for itself.
    pub are_sampled: bool,
}

impl ThreadOptions {
    /// Chooses the options. `has_foreign` tells whether rsp leads to data somewhere, where inserted code needs another
    /// stack, and `uses_gs` whether gs must be left to the program.
    pub(super) fn new(
        facts: Facts,
        has_foreign: impl FnOnce() -> bool,
        uses_gs: impl FnOnce() -> bool,
        tool: &tool::ToolFacts,
    ) -> Self {
        let data = facts.has_data || facts.are_sampled;
        let access = match () {
            () if facts.own_stack => ThreadAccess::Gs,
            () if !facts.may_have_threads => ThreadAccess::Only,
            () if !data && !has_foreign() => ThreadAccess::Only,
            () if !uses_gs() => ThreadAccess::Gs,
            // A look-up needs a stack by itself.
            () if !data => ThreadAccess::Only,
            () => ThreadAccess::Lookup,
        };
        Self {
            access,
            enter: tool.thread_enter,
            started: tool.thread_started,
            block: tool.thread_block,
            forked: tool.export(FORKED),
            own_stack: facts.own_stack,
            one_thread: !facts.may_have_threads,
            are_sampled: facts.are_sampled,
        }
    }
}

/// The part of planning that deals with threads.
pub struct Threads {
    options: ThreadOptions,
    place: Option<ThreadPlace>,
    /// The program's system calls after which a new thread may run.
    starts: HashSet<InstId>,
    /// Instructions after which a forked child may run.
    forks: HashSet<InstId>,
}

impl Threads {
    /// Makes the part for the data as it is laid out. `counts` says whether the tool counts anything, `is_whole`
    /// whether all objects of the process are instrumented.
    pub fn new(
        (image, cfg): (&Image, &Cfg),
        place: Option<ThreadPlace>,
        options: ThreadOptions,
        (counts, is_whole): (bool, bool),
    ) -> Self {
        let by_gs = place.is_some() && options.access == ThreadAccess::Gs;
        let set = |found: Vec<InstId>| found.into_iter().collect();
        Self {
            options,
            place,
            starts: if by_gs {
                set(tool::may_start_threads(image, cfg))
            } else {
                HashSet::new()
            },
            forks: match options.forked.filter(|_| counts) {
                Some(_) => set(tool::may_fork(image, cfg, is_whole)),
                None => HashSet::new(),
            },
        }
    }

    /// Place of the main block, if threads find their data through gs.
    pub fn by_gs(&self) -> Option<ThreadPlace> {
        self.place
            .filter(|_| self.options.access == ThreadAccess::Gs)
    }

    /// Offset of the main block, if routines run on stacks that blocks name.
    pub fn stack(&self) -> Option<u32> {
        let place = self.place.filter(|_| self.options.own_stack)?;
        Some(place.block)
    }

    /// The stack for points at which rsp may lead to data. `None` if the running thread's cannot be found without a call.
    pub fn private_stack(&self) -> Option<PrivateStack> {
        let ThreadPlace { block, size, .. } = self.place?;
        let by_gs = match self.options.access {
            ThreadAccess::Only if self.options.one_thread => false,
            ThreadAccess::Gs => true,
            _ => return None,
        };
        Some(PrivateStack::in_block(block, size, by_gs))
    }

    /// Offset of the `ThreadInfo`, which says where the tool's cells are; `None` if the tool has none.
    pub fn cells(&self) -> Option<u32> {
        self.place.filter(|p| p.has_data).map(|place| place.info)
    }

    /// Offset of the `ThreadInfo` for the runtime; `None` if there is only one thread.
    pub fn info(&self) -> Option<u32> {
        let place = self.place?;
        (self.options.access != ThreadAccess::Only).then_some(place.info)
    }

    /// The address of the running thread's copy of what is in the main block
    /// at `at`, an offset in the plan's data.
    pub fn value(&self, at: u32) -> Value {
        let block = self.place.map_or(0, |p| p.block);
        match self.options.access {
            ThreadAccess::Only => Value::Data(at),
            ThreadAccess::Gs => Value::Thread { block, at },
            ThreadAccess::Lookup => Value::ThreadLookup {
                routine: self.options.block,
                block,
                offset: at - block,
            },
        }
    }

    /// Address of the running thread's block. Threads share the main one where each would have to look its own up.
    pub fn own_block(&self) -> Value {
        let block = self.place.map_or(0, |p| p.block);
        match self.by_gs() {
            Some(_) => Value::Thread { block, at: block },
            None => Value::Data(block),
        }
    }

    /// Offset of the number of tests that are left to the running thread in a version, in the main block; true if it is named
    /// with a gs prefix.
    pub fn tests_left(&self, version: Version) -> (u32, bool) {
        let block = self.place.map_or(0, |p| p.block);
        let at = THREAD_LEFT + size_of::<i32>() * version as usize;
        (block + at as u32, self.by_gs().is_some())
    }

    /// The address for the calls at the program's end, which get the sums over all threads.
    pub fn total(&self, at: u32) -> Value {
        match (self.info(), self.place) {
            (Some(info), Some(place)) => Value::Pointed {
                slot: info + std::mem::offset_of!(ThreadInfo, totals) as u32,
                offset: at - place.block,
            },
            _ => Value::Data(at),
        }
    }

    /// True if a thread or a forked child may start after this instruction.
    pub fn may_start(&self, inst: InstId) -> bool {
        self.starts.contains(&inst) || self.forks.contains(&inst)
    }

    /// Emits the code after an instruction that may start a thread or a forked child, both of which find a 0 in
    /// rax. `free_below`: the program keeps nothing below rsp.
    pub fn emit_start(
        &self,
        inst: InstId,
        asm: &mut Asm,
        wrappers: &mut Wrappers,
        free_below: bool,
    ) {
        let red_zone = if free_below { 0 } else { RED_ZONE };
        // Other answers leave the stack alone: rsp may be any number.
        asm.swap(Gpr::RAX, Gpr::RCX);
        let zero = asm.jump_if_rcx_zero(false);
        asm.swap(Gpr::RAX, Gpr::RCX);
        let skip = asm.jump();
        asm.land(zero);
        asm.swap(Gpr::RAX, Gpr::RCX);
        asm.move_stack(-red_zone);
        asm.push_flags();
        asm.clear_direction();
        // A child's counts are its own before its threads are told apart.
        let forked = self.options.forked.filter(|_| self.forks.contains(&inst));
        let started = self.starts.contains(&inst).then_some(self.options.started);
        for routine in forked.into_iter().chain(started) {
            asm.call(Target::Shared(wrappers.index(Wrapper::whole(routine))));
        }
        asm.pop_flags();
        asm.move_stack(red_zone);
        asm.land(skip);
    }

    /// The stub that guards call. It keeps all registers and flags.
    pub fn emit_enter(&self, wrapper: u32) -> Asm {
        // It calls a shared snippet only.
        let mut asm = Asm::default();
        asm.push_flags();
        asm.clear_direction();
        asm.call(Target::Shared(wrapper));
        asm.pop_flags();
        asm.ret();
        asm
    }

    /// The wrapper of the runtime's function that guards call.
    pub fn enter_wrapper(&self) -> Wrapper {
        Wrapper::whole(self.options.enter)
    }
}

/// The wrapper that puts the address of the running thread's block into the word above its return
/// address. That word holds the address of the main block, which is right before the runtime's start,
/// when the runtime knows no threads. The wrapper changes nothing else.
pub fn lookup_wrapper(routine: u64) -> Wrapper {
    Wrapper {
        flags: true,
        yields: true,
        stub: None,
        ..Wrapper::whole(routine)
    }
}

/// The guards of all pads.
pub fn guards(image: &Image, cfg: &Cfg, live: &Live, block: u32, enter: u32) -> Guards {
    if image.kind.is_static() {
        return Guards::none(block, enter);
    }
    let mut guards = Guards {
        block,
        enter,
        ..Guards::default()
    };
    let parts: Vec<(Option<BlockId>, Vec<BlockId>)> = (0..cfg.procs.len())
        .into_par_iter()
        .map(ProcId::from_index)
        .filter(|id| cfg.proc(*id).is_movable())
        .map(|id| guards_of_proc(cfg, live, id))
        .collect();
    for (light, bare) in parts {
        guards.light.extend(light);
        guards.bare.extend(bare);
    }
    guards
}

/// Guards of a procedure: its first block, if the guard there may use r11, the flags and the stack; and
/// the blocks that need no guard.
fn guards_of_proc(cfg: &Cfg, live: &Live, id: ProcId) -> (Option<BlockId>, Vec<BlockId>) {
    let proc = cfg.proc(id);
    let first = proc.first_block;
    let is_start = cfg.block_pc(first) == proc.start && !matches!(proc.kind, ProcKind::Fragment(_));
    let busy = RegSet::gpr(11).with(RegSet::FLAGS);
    let light = is_start && !live.at_start(first).intersects(busy);
    let jumps = proc
        .blocks()
        .any(|b| cfg.inst(cfg.block(b).last()).flow == ControlFlow::IndirectJump);
    let bare = proc
        .blocks()
        .filter(|b| jumps && cfg.block(*b).is_indirect_target && cfg.block_pc(*b) != proc.start)
        .collect();
    (light.then_some(first), bare)
}
