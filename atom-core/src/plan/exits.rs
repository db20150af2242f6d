//! Where a process may end without returning from main.
//!
//! The runtime's `finish` runs once for each process that ends. A process that returns from main or
//! calls `exit` reaches it through the program's finalisers. The other places get hooks:
//!
//! - the libc functions that end a process without running finalisers, at their PLT entry or at the
//!   call through their slot;
//! - the program's own `syscall` instructions, and its calls of the function `syscall`, where the number
//!   may be that of an exit;
//! - in a static program `abort`, found by its name.
//!
//! `finish` does nothing the second time, so one hook too many does no harm.
//!
//! A successful `exec` ends the program too. It is hooked in the same ways, but with the runtime's
//! `exec`, which accounts for a call that fails. If executed programs are instrumented too, the runtime's
//! `system_call` comes before it at `syscall` instructions, and executes the instrumented program.

use std::collections::HashMap;

use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};

use super::code::{Asm, Home, Target};
use super::site::{self, Point, SiteCall};
use super::wrapper::Wrappers;
use super::{Clobbers, Options};
use crate::cfg::{Cfg, Proc, ProcKind};
use crate::ids::InstId;
use crate::image::{Image, ObjectKind};
use crate::live::RegSet;
use crate::tool::Constants;
use crate::tool::value::Value;
use crate::x86::ControlFlow;
use crate::x86::Register;
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::{Cond, Gpr};

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

/// Functions that replace the process's program, and how their first argument names the new one: by
/// path, by a name to look for, or otherwise.
const EXECUTING: [(&str, Exec); 9] = [
    ("execve", Exec::Path),
    ("execv", Exec::Path),
    ("execl", Exec::Path),
    ("execle", Exec::Path),
    ("execvp", Exec::Name),
    ("execlp", Exec::Name),
    ("execvpe", Exec::Name),
    ("fexecve", Exec::Other),
    ("execveat", Exec::Other),
];

/// Second argument of the runtime's `exec`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exec {
    /// The first argument is a path.
    Path = 0,
    /// The first argument is a name that may be looked up in `PATH`.
    Name = 1,
    /// The first argument is neither a path nor a name.
    Other = 2,
}

/// Numbers of the system calls `exit`, which ends a thread, and `exit_group`.
const SYS_EXIT: i32 = libc::SYS_exit as i32;
const SYS_EXIT_GROUP: i32 = libc::SYS_exit_group as i32;
/// Numbers of system calls that name a file: those that open files are made by the program interpreter
/// for objects, those that read links by all objects, perhaps for `/proc/self/exe`.
const OPENING: [i32; 2] = [libc::SYS_open as i32, libc::SYS_openat as i32];
const READING_LINKS: [i32; 2] = [libc::SYS_readlink as i32, libc::SYS_readlinkat as i32];
/// Numbers of the system calls by which the program interpreter maps and unmaps objects.
const MAPPING: [i32; 2] = [libc::SYS_mmap as i32, libc::SYS_munmap as i32];
/// Number of the system call that sets what a signal does.
const SYS_RT_SIGACTION: i32 = libc::SYS_rt_sigaction as i32;
/// Numbers of the system calls by which a process forbids itself system calls.
const FORBIDDING: [i32; 2] = [libc::SYS_prctl as i32, libc::SYS_seccomp as i32];
/// Numbers of the system calls that replace the process's program.
const SYS_EXECVE: i32 = libc::SYS_execve as i32;
const SYS_EXECVEAT: i32 = libc::SYS_execveat as i32;

/// Registers of a system call's number and arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arguments {
    number: Gpr,
    first: Gpr,
}

/// Registers at the instruction `syscall`.
const MADE: Arguments = Arguments {
    number: Gpr::RAX,
    first: Gpr::RDI,
};
/// Registers at a call of the C library's function `syscall`.
const CALLED: Arguments = Arguments {
    number: Gpr::RDI,
    first: Gpr::RSI,
};

/// Numbers of the system calls at whose arguments the runtime looks in an object of this kind.
fn looked_at(kind: ObjectKind, is_whole: bool, follows: bool) -> Vec<i32> {
    let mut numbers = Vec::new();
    if is_whole {
        numbers.extend(READING_LINKS);
        numbers.push(SYS_RT_SIGACTION);
        if kind == ObjectKind::Interpreter {
            numbers.extend(OPENING);
            numbers.extend(MAPPING);
        }
    }
    if is_whole || kind.is_static() {
        numbers.extend(FORBIDDING);
    }
    if follows && (is_whole || kind.is_static()) {
        numbers.extend([SYS_EXECVE, SYS_EXECVEAT]);
    }
    numbers
}

/// The hooks of a program.
pub struct Exits {
    finish: u64,
    exec: Option<u64>,
    slots: HashMap<u64, Hook>,
    /// True if the process has one thread, whose end is the end of the process.
    thread_exit_ends: bool,
    /// True if all objects of the process are instrumented.
    is_whole: bool,
    /// Address of the runtime's routine that looks at the arguments of system calls, and the numbers of
    /// these calls; `None` if there are none.
    looks: Option<(u64, Vec<i32>)>,
    is_static: bool,
}

fn hook_of(name: &str) -> Option<Hook> {
    let name = name.split('@').next().unwrap_or(name);
    if ENDING.contains(&name) {
        return Some(Hook::Always);
    }
    if name == "syscall" {
        return Some(Hook::Syscall(CALLED));
    }
    let exec = EXECUTING.iter().find(|e| e.0 == name)?;
    Some(Hook::Exec(exec.1))
}

impl Exits {
    /// Finds the hooks; `None` if the tool's file has no runtime that they could call.
    pub fn new(image: &Image, options: &Options<'_>) -> Option<Self> {
        let is_whole = options.home == Home::Area;
        let slots = image
            .relocs
            .iter()
            .filter(|_| !is_whole)
            .filter(|r| matches!(r.kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT))
            .filter_map(|r| {
                let symbol = image.dynamic_symbols.get(r.symbol as usize)?;
                Some((r.address, hook_of(&symbol.name)?))
            })
            .collect();
        Some(Self {
            finish: options.finish?,
            exec: options.exec,
            slots,
            thread_exit_ends: !options.may_have_threads,
            is_whole,
            looks: options
                .system_call
                .map(|routine| (routine, looked_at(image.kind, is_whole, options.follows)))
                .filter(|(_, numbers)| !numbers.is_empty()),
            is_static: image.kind.is_static(),
        })
    }

    /// The hook of a procedure that is a PLT entry of such a function, or that is `abort` in a program
    /// with its own libc: `abort` ends the process by a signal, without a system call that ends it.
    pub fn at_entry(&self, proc: &Proc) -> Option<Hook> {
        let name = proc.name.as_deref()?;
        if proc.kind != ProcKind::Plt {
            return (self.is_static && name == "abort").then_some(Hook::Always);
        }
        if self.is_whole {
            return None;
        }
        hook_of(name.strip_suffix("@plt")?)
    }

    /// The hook before an instruction, if it needs one.
    pub fn hook(&self, image: &Image, cfg: &Cfg, proc: &Proc, inst: InstId) -> Option<Hook> {
        let what = cfg.inst(inst);
        match what.flow {
            ControlFlow::Syscall => {
                let is_one = || {
                    let numbers: Vec<u64> = self.numbers().map(|n| n as u64).collect();
                    Constants::new(image, cfg, proc).may_be(inst, Register::RAX, &numbers)
                };
                (!self.is_whole || is_one()).then_some(Hook::Syscall(MADE))
            }
            ControlFlow::IndirectCall | ControlFlow::IndirectJump
                if what.rip_relative && proc.kind != ProcKind::Plt && !self.slots.is_empty() =>
            {
                let slot = cfg.decode(image, inst).ip_rel_memory_address();
                self.slots.get(&slot).copied()
            }
            _ => None,
        }
    }

    /// Emits a hook. `free_below`: the program keeps nothing below rsp.
    pub fn emit(&self, hook: Hook, asm: &mut Asm, wrappers: &mut Wrappers, free_below: bool) {
        match hook {
            Hook::Always | Hook::Exec(_) => {
                let (routine, values) = match (hook, self.exec) {
                    (Hook::Exec(how), Some(exec)) => {
                        let values = vec![Value::Reg(Gpr::RDI), Value::Const(how as u64)];
                        (exec, values)
                    }
                    (Hook::Exec(_), None) => return,
                    _ => (self.finish, Vec::new()),
                };
                let call = SiteCall {
                    routine,
                    clobbers: Clobbers::EVERYTHING,
                    body: None,
                    common: 0,
                    values,
                };
                let point = Point {
                    live: RegSet::ALL,
                    may_set_df: true,
                    absolute: false,
                    is_piece: false,
                    free_below,
                };
                // Calls without bodies have no tail.
                site::emit(asm, asm.code.len(), &[call], point, wrappers);
            }
            Hook::Syscall(arguments) => {
                let red_zone = if free_below { 0 } else { RED_ZONE };
                asm.move_stack(-red_zone);
                self.emit_syscall(arguments, asm, wrappers);
                asm.move_stack(red_zone);
            }
        }
    }

    /// Emits a hook before a system call. System calls are slow, so saving all flags costs nothing.
    fn emit_syscall(&self, arguments: Arguments, asm: &mut Asm, wrappers: &mut Wrappers) {
        asm.push_flags();
        let mut ends = vec![(SYS_EXIT_GROUP, None)];
        if self.thread_exit_ends {
            ends.push((SYS_EXIT, None));
        }
        if self.exec.is_some() {
            ends.push((SYS_EXECVE, Some(Exec::Path)));
            ends.push((SYS_EXECVEAT, Some(Exec::Other)));
        }
        for number in self.looks.iter().flat_map(|l| &l.1) {
            asm.compare_low(arguments.number, *number);
            let skip = asm.jump_if(Cond::NE);
            self.emit_look(arguments, asm, wrappers);
            asm.land(skip);
        }
        for (number, exec) in ends {
            asm.compare_low(arguments.number, number);
            let skip = asm.jump_if(Cond::NE);
            asm.clear_direction();
            match exec.zip(self.exec) {
                None => asm.call(Target::Shared(wrappers.whole(self.finish))),
                Some((how, routine)) => {
                    asm.push(Gpr::RDI);
                    asm.push(Gpr::RSI);
                    asm.mov(Gpr::RDI, arguments.first);
                    asm.mov_imm(Gpr::RSI, how as u64);
                    asm.call(Target::Shared(wrappers.whole(routine)));
                    asm.pop(Gpr::RSI);
                    asm.pop(Gpr::RDI);
                }
            }
            asm.land(skip);
        }
        asm.pop_flags();
    }

    /// The numbers of all system calls that have a hook.
    fn numbers(&self) -> impl Iterator<Item = i32> {
        let ends = [SYS_EXIT_GROUP, SYS_EXIT, SYS_EXECVE, SYS_EXECVEAT];
        let looks = self.looks.iter().flat_map(|l| l.1.iter().copied());
        ends.into_iter().chain(looks)
    }

    /// Emits the call of the routine that looks at the arguments of a system call and may change them.
    fn emit_look(&self, arguments: Arguments, asm: &mut Asm, wrappers: &mut Wrappers) {
        let Some((routine, _)) = self.looks else {
            return;
        };
        if arguments != MADE {
            // A function of libc makes the call, and its own instruction has a hook.
            return;
        }
        // In memory they stand in the order of `atom_abi::SystemCall`.
        let registers = [
            Gpr::RAX,
            Gpr::RDI,
            Gpr::RSI,
            Gpr::RDX,
            Gpr::R10,
            Gpr::R8,
            Gpr::R9,
        ];
        asm.clear_direction();
        registers.iter().rev().for_each(|r| asm.push(*r));
        asm.mov(Gpr::RDI, Gpr::RSP);
        asm.call(Target::Shared(wrappers.whole(routine)));
        registers.iter().for_each(|r| asm.pop(*r));
    }
}

/// A kind of hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// The process ends here.
    Always,
    /// A system call, which may be an exit.
    Syscall(Arguments),
    /// The process may become another program here.
    Exec(Exec),
}
