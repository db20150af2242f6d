//! Where a process may end without returning from main.
//!
//! The runtime's `finish` runs once for each process that ends. The ordinary
//! way out reaches it through the program's finalisers; here are the others:
//! the libc functions that end a process without running finalisers, hooked
//! at their PLT entry or at the call through their slot, and the program's own
//! `syscall` instructions where the call's number is that of an exit. `finish`
//! does nothing the second time, so one hook too many does no harm.

use std::collections::HashSet;

use super::Clobbers;
use super::asm::{Asm, Cond};
use super::code::Target;
use super::site::{self, Point, RED_ZONE, SiteCall};
use super::wrapper::{Wrapper, Wrappers};
use crate::cfg::{Cfg, Proc, ProcKind};
use crate::decode::Flow;
use crate::ids::InstId;
use crate::image::Image;
use crate::live::RegSet;

/// Functions that end the process without running its finalisers.
const ENDING: [&str; 9] = [
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "__assert_fail",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "_ZSt9terminatev",
];

const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;

/// Numbers of `exit`, which ends a thread, and `exit_group`.
const SYS_EXIT: i32 = 60;
const SYS_EXIT_GROUP: i32 = 231;

/// What to call where.
pub struct Exits {
    finish: u64,
    slots: HashSet<u64>,
    thread_exit_ends: bool,
}

fn is_ending(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    ENDING.contains(&name)
}

impl Exits {
    /// `thread_exit_ends`: the process has one thread, so its end is the process's.
    pub fn new(image: &Image, finish: u64, thread_exit_ends: bool) -> Self {
        let slots = image
            .relocs
            .iter()
            .filter(|r| matches!(r.kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT))
            .filter(|r| {
                image
                    .dynamic_symbols
                    .get(r.symbol as usize)
                    .is_some_and(|s| is_ending(&s.name))
            })
            .map(|r| r.address)
            .collect();
        Self {
            finish,
            slots,
            thread_exit_ends,
        }
    }

    /// True if the procedure is a PLT entry of such a function.
    pub fn is_ending_plt(&self, proc: &Proc) -> bool {
        proc.kind == ProcKind::Plt
            && proc
                .name
                .as_deref()
                .and_then(|n| n.strip_suffix("@plt"))
                .is_some_and(is_ending)
    }

    /// The hook before this instruction, if it needs one.
    pub fn hook(&self, image: &Image, cfg: &Cfg, proc: &Proc, inst: InstId) -> Option<Hook> {
        let what = cfg.inst(inst);
        match what.flow {
            Flow::Syscall => Some(Hook::Syscall),
            Flow::IndirectCall | Flow::IndirectJump
                if what.rip_relative && proc.kind != ProcKind::Plt && !self.slots.is_empty() =>
            {
                let slot = cfg.decode(image, inst).ip_rel_memory_address();
                self.slots.contains(&slot).then_some(Hook::Always)
            }
            _ => None,
        }
    }

    /// Emits a hook.
    pub fn emit(&self, hook: Hook, asm: &mut Asm, wrappers: &mut Wrappers) {
        match hook {
            Hook::Always => {
                let call = SiteCall {
                    routine: self.finish,
                    clobbers: Clobbers::EVERYTHING,
                    body: None,
                    common: 0,
                    values: Vec::new(),
                };
                let point = Point {
                    live: RegSet::ALL,
                    may_set_df: true,
                    absolute: false,
                    is_piece: false,
                };
                // Without bodies there is no tail.
                site::emit(asm, asm.code.len(), &[call], point, wrappers);
            }
            Hook::Syscall => self.emit_syscall(asm, wrappers),
        }
    }

    /// System calls are slow enough that saving the flags whole costs nothing.
    fn emit_syscall(&self, asm: &mut Asm, wrappers: &mut Wrappers) {
        asm.move_stack(-RED_ZONE);
        asm.push_flags();
        asm.compare_eax(SYS_EXIT_GROUP);
        let skip = if self.thread_exit_ends {
            let group = asm.jump_if(Cond::E);
            asm.compare_eax(SYS_EXIT);
            let skip = asm.jump_if(Cond::NE);
            asm.land(group);
            skip
        } else {
            asm.jump_if(Cond::NE)
        };
        asm.clear_direction();
        let wrapper = Wrapper {
            routine: self.finish,
            gprs: RegSet::CALLER_SAVED.gpr_mask(),
            xmms: u16::MAX,
            flags: false,
            mxcsr: true,
            align: true,
            stack_words: 0,
            yields: false,
            detour: None,
        };
        asm.call(Target::Shared(wrappers.index(wrapper)));
        asm.land(skip);
        asm.pop_flags();
        asm.move_stack(RED_ZONE);
    }
}

/// A kind of hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// The process ends here.
    Always,
    /// A system call, which may be an exit.
    Syscall,
}
