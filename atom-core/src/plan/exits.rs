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

use super::Options;
use super::code::{Asm, Home, Target};
use super::site::{self, Point, SiteCall};
use super::spare_stack::SpareStack;
use super::wrapper::Wrappers;
use crate::cfg::{Cfg, Proc, ProcKind};
use crate::ids::InstId;
use crate::image::{Image, ObjectKind};
use crate::live::RegSet;
use crate::tool::Constants;
use crate::tool::value::Value;
use crate::x86::ControlFlow;
use crate::x86::Register;
use crate::x86::abi::RED_ZONE;
use crate::x86::asm::{Cond, Gpr, Mem, Patch};

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

/// Functions of the C library by which a program that is instrumented alone writes to its own text, and the numbers of
/// their system calls.
const CHANGING: [(&str, i32); 15] = [
    ("mprotect", libc::SYS_mprotect as i32),
    ("pkey_mprotect", libc::SYS_pkey_mprotect as i32),
    ("mmap", libc::SYS_mmap as i32),
    ("mmap64", libc::SYS_mmap as i32),
    ("open", libc::SYS_open as i32),
    ("open64", libc::SYS_open as i32),
    ("openat", libc::SYS_openat as i32),
    ("openat64", libc::SYS_openat as i32),
    ("creat", libc::SYS_creat as i32),
    ("lseek", libc::SYS_lseek as i32),
    ("lseek64", libc::SYS_lseek as i32),
    ("pwrite", libc::SYS_pwrite64 as i32),
    ("pwrite64", libc::SYS_pwrite64 as i32),
    ("process_vm_writev", libc::SYS_process_vm_writev as i32),
    ("ptrace", libc::SYS_ptrace as i32),
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
/// for objects, and by all objects perhaps to change the program's own file; those that read links by all objects, perhaps
/// for `/proc/self/exe`.
const OPENING: [i32; 2] = [libc::SYS_open as i32, libc::SYS_openat as i32];
const READING_LINKS: [i32; 2] = [libc::SYS_readlink as i32, libc::SYS_readlinkat as i32];
/// Numbers of the other system calls that may empty a file: the program's own file is not to be changed.
const CHANGING_FILES: [i32; 3] = [
    libc::SYS_creat as i32,
    libc::SYS_truncate as i32,
    libc::SYS_openat2 as i32,
];
/// Numbers of the system calls by which a process may write to its own text.
const WRITING_TEXT: [i32; 8] = [
    libc::SYS_mprotect as i32,
    libc::SYS_pkey_mprotect as i32,
    libc::SYS_lseek as i32,
    libc::SYS_pwrite64 as i32,
    libc::SYS_pwritev as i32,
    libc::SYS_pwritev2 as i32,
    libc::SYS_process_vm_writev as i32,
    libc::SYS_ptrace as i32,
];
/// Numbers of the system calls that start tasks, which may share the thread pointer.
const STARTING: [i32; 2] = [libc::SYS_clone as i32, libc::SYS_clone3 as i32];
/// Flags of [`OPENING`] of which one is set where a file is opened to be changed.
const TO_BE_CHANGED: i32 = libc::O_ACCMODE | libc::O_TRUNC;
/// Numbers of the system calls by which the program interpreter maps and unmaps objects. Others may map over
/// text by the first of them. Static programs may unmap the stack of a thread that ends by the second.
const MAPPING: [i32; 2] = [libc::SYS_mmap as i32, libc::SYS_munmap as i32];
/// Numbers of the system calls that set what a signal does, and that return from its handler.
const OF_SIGNALS: [i32; 2] = [libc::SYS_rt_sigaction as i32, libc::SYS_rt_sigreturn as i32];
/// Numbers of the system calls by which a process forbids itself system calls.
const FORBIDDING: [i32; 2] = [libc::SYS_prctl as i32, libc::SYS_seccomp as i32];
/// Numbers of the system calls on the limits of a process and on all of its memory.
const LIMITING: [i32; 4] = [
    libc::SYS_mlockall as i32,
    libc::SYS_prlimit64 as i32,
    libc::SYS_setrlimit as i32,
    libc::SYS_getrlimit as i32,
];
/// Number of the system call by which a process forbids itself to open files.
const SYS_RESTRICT: i32 = libc::SYS_landlock_restrict_self as i32;
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
    // The C library has no function of its own for it: programs call `syscall`.
    let mut numbers = vec![SYS_RESTRICT];
    if is_whole && !kind.is_static() {
        match kind {
            ObjectKind::Interpreter => numbers.extend(MAPPING),
            _ => numbers.push(MAPPING[0]),
        }
    }
    if is_whole || kind.is_static() {
        numbers.extend(READING_LINKS);
        numbers.extend(OF_SIGNALS);
        numbers.extend(FORBIDDING);
        numbers.extend(LIMITING);
        numbers.extend(OPENING);
        numbers.extend(CHANGING_FILES);
        numbers.extend(WRITING_TEXT);
        numbers.extend(STARTING);
        numbers.push(SYS_EXIT);
        if kind.is_static() {
            numbers.extend(MAPPING);
        }
    }
    if follows && (is_whole || kind.is_static()) {
        numbers.extend([SYS_EXECVE, SYS_EXECVEAT]);
    }
    numbers
}

/// Most numbers of system calls that are compared before a `jrcxz`, which reaches 127 bytes.
const NEAR_NUMBERS: usize = 8;

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
    /// True in the program interpreter, which opens libraries.
    opens_objects: bool,
    /// The stack of hooks where the program's may be none.
    spare: SpareStack,
}

fn hook_of(name: &str) -> Option<Hook> {
    let name = name.split('@').next().unwrap_or(name);
    if ENDING.contains(&name) {
        return Some(Hook::Always);
    }
    if name == "syscall" {
        return Some(Hook::Syscall(CALLED, Calls::All));
    }
    if let Some((_, number)) = CHANGING.iter().find(|(changing, _)| *changing == name) {
        return Some(Hook::Called(*number));
    }
    let exec = EXECUTING.iter().find(|e| e.0 == name)?;
    Some(Hook::Exec(exec.1))
}

impl Exits {
    /// Finds the hooks; `None` if the tool's file has no runtime that they could call.
    pub fn new(image: &Image, options: &Options<'_>, spare: SpareStack) -> Option<Self> {
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
                .map(|routine| (routine, looked_at(image.kind, is_whole, options.follows))),
            is_static: image.kind.is_static(),
            opens_objects: image.kind == ObjectKind::Interpreter,
            spare,
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
                let may_be = |calls: Calls| {
                    let numbers = self.numbers().filter(|n| calls.has(*n));
                    let numbers: Vec<u64> = numbers.map(|n| n as u64).collect();
                    Constants::new(image, cfg, proc).may_be(inst, Register::RAX, &numbers)
                };
                let calls = match (may_be(Calls::Ends), may_be(Calls::Others)) {
                    (true, true) => Calls::All,
                    (true, false) => Calls::Ends,
                    (false, true) => Calls::Others,
                    (false, false) => return None,
                };
                Some(Hook::Syscall(MADE, calls))
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

    /// Emits a hook. `free_below`: the program keeps nothing below rsp. `is_foreign`: rsp may lead to data.
    pub fn emit(
        &self,
        hook: Hook,
        asm: &mut Asm,
        wrappers: &mut Wrappers,
        (free_below, is_foreign): (bool, bool),
    ) {
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
                let call = SiteCall::of_runtime(routine, values);
                let point = Point::of_hook(RegSet::ALL, free_below);
                // Calls without bodies have no cold part.
                site::emit(asm, asm.code.len(), &[call], point, wrappers);
            }
            Hook::Called(number) => {
                let red_zone = if free_below { 0 } else { RED_ZONE };
                asm.move_stack(-red_zone);
                asm.push_flags();
                let condition = self.condition(number);
                let skip = condition.map(|(flags, mask)| {
                    // The fourth argument of a function is in another register.
                    let flags = if flags == Gpr::R10 { Gpr::RCX } else { flags };
                    asm.test_low(flags, mask);
                    asm.jump_if(Cond::E)
                });
                self.call_look(Some(number), Stack::Below(red_zone), asm, wrappers);
                skip.into_iter().for_each(|skip| asm.land(skip));
                asm.pop_flags();
                asm.move_stack(red_zone);
            }
            Hook::Syscall(arguments, calls) => {
                let skip = (arguments == MADE).then(|| self.emit_choice(calls, asm));
                let stack = Stack::Below(if free_below { 0 } else { RED_ZONE });
                let mut done: Vec<Patch> = skip.into_iter().collect();
                let is_made = arguments == MADE && !free_below;
                if is_made && is_foreign {
                    let taken = self.spare.enter(asm);
                    self.emit_syscall((arguments, calls), Stack::Spare, asm, wrappers);
                    self.spare.leave(asm);
                    done.push(taken);
                } else if is_made && calls != Calls::Others && self.sees_signals() {
                    // A handler that does not wait needs the program's stack where that is one.
                    let others = (calls == Calls::All).then(|| emit_ends_choice(asm));
                    let taken = self.spare.enter(asm);
                    self.emit_syscall((arguments, Calls::Ends), Stack::Spare, asm, wrappers);
                    self.spare.leave(asm);
                    done.push(asm.jump());
                    asm.land(taken);
                    self.emit_syscall((arguments, Calls::Ends), stack, asm, wrappers);
                    if let Some(others) = others {
                        done.push(asm.jump());
                        asm.land(others);
                        self.emit_syscall((arguments, Calls::Others), stack, asm, wrappers);
                    }
                } else {
                    self.emit_syscall((arguments, calls), stack, asm, wrappers);
                }
                done.into_iter().for_each(|jump| asm.land(jump));
            }
        }
    }

    /// Emits the way around a hook for system calls that have none. It changes rcx alone, as the instruction does. It
    /// leaves the stack alone: a thread may have unmapped its own, and rsp may be any number.
    fn emit_choice(&self, calls: Calls, asm: &mut Asm) -> Patch {
        let mut numbers: Vec<i32> = self.numbers().filter(|n| calls.has(*n)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut hooked = Vec::new();
        for near in numbers.chunks(NEAR_NUMBERS) {
            let mut found = Vec::new();
            for number in near {
                asm.lea32(Gpr::RCX, Mem::at(Gpr::RAX, -number));
                found.push(asm.jump_if_rcx_zero(false));
            }
            let others = asm.jump();
            found.into_iter().for_each(|jump| asm.land(jump));
            hooked.push(asm.jump());
            asm.land(others);
        }
        let skip = asm.jump();
        hooked.into_iter().for_each(|jump| asm.land(jump));
        skip
    }

    /// Emits a hook before some system calls. They are slow, so saving all flags costs nothing.
    fn emit_syscall(
        &self,
        (arguments, calls): (Arguments, Calls),
        stack: Stack,
        asm: &mut Asm,
        wrappers: &mut Wrappers,
    ) {
        let down = match stack {
            Stack::Below(bytes) => bytes,
            Stack::Spare => 0,
        };
        asm.move_stack(-down);
        asm.push_flags();
        let mut ends = vec![(SYS_EXIT_GROUP, None)];
        if self.thread_exit_ends {
            ends.push((SYS_EXIT, None));
        }
        if self.exec.is_some() {
            ends.push((SYS_EXECVE, Some(Exec::Path)));
            ends.push((SYS_EXECVEAT, Some(Exec::Other)));
        }
        ends.retain(|(number, _)| calls.has(*number));
        let looks = self.looks.iter().flat_map(|l| &l.1);
        for number in looks.filter(|number| calls.has(**number)) {
            asm.compare_low(arguments.number, *number);
            let skip = asm.jump_if(Cond::NE);
            let condition = self.condition(*number).filter(|_| arguments == MADE);
            let skip_others = condition.map(|(flags, mask)| {
                asm.test_low(flags, mask);
                asm.jump_if(Cond::E)
            });
            // A function of libc makes the call, and in a whole process its own instruction has a hook. The arguments of
            // the one call that has a hook at both places are not looked at.
            if arguments == MADE || *number == SYS_RESTRICT {
                let called = (arguments != MADE).then_some(*number);
                self.call_look(called, stack, asm, wrappers);
            }
            skip_others.into_iter().for_each(|skip| asm.land(skip));
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
        asm.move_stack(down);
    }

    /// True if the runtime sees all system calls on what signals do, so that it looks up instructions of the object's new text.
    pub fn sees_signals(&self) -> bool {
        let numbers = self.looks.as_ref().map(|l| &l.1[..]).unwrap_or_default();
        OF_SIGNALS.iter().all(|n| numbers.contains(n))
    }

    /// The register and the flags of which one has to be set if the runtime is to look at a system call.
    fn condition(&self, number: i32) -> Option<(Gpr, i32)> {
        let number = libc::c_long::from(number);
        match number {
            libc::SYS_open if !self.opens_objects => Some((Gpr::RSI, TO_BE_CHANGED)),
            libc::SYS_openat if !self.opens_objects => Some((Gpr::RDX, TO_BE_CHANGED)),
            libc::SYS_mprotect | libc::SYS_pkey_mprotect => Some((Gpr::RDX, libc::PROT_WRITE)),
            libc::SYS_clone => Some((Gpr::RDI, libc::CLONE_VM)),
            libc::SYS_mmap if !self.opens_objects => Some((Gpr::R10, libc::MAP_FIXED)),
            _ => None,
        }
    }

    /// The numbers of all system calls that have a hook.
    fn numbers(&self) -> impl Iterator<Item = i32> {
        let exit = self.thread_exit_ends.then_some(SYS_EXIT);
        let exec = self.exec.map(|_| [SYS_EXECVE, SYS_EXECVEAT]);
        let ends = [SYS_EXIT_GROUP].into_iter().chain(exit);
        let ends = ends.chain(exec.into_iter().flatten());
        let looks = self.looks.iter().flat_map(|l| l.1.iter().copied());
        ends.into_iter().chain(looks)
    }

    /// Emits the call of the routine that looks at the arguments of a system call and may change them: those of the
    /// instruction `syscall`, or of a function that makes the system call `called`. Between the stack of
    /// [`Self::emit_syscall`] and rsp are the flags.
    fn call_look(&self, called: Option<i32>, stack: Stack, asm: &mut Asm, wrappers: &mut Wrappers) {
        let Some((routine, _)) = self.looks else {
            return;
        };
        // In memory they are in the order of `atom_abi::SystemCall`.
        let registers = [
            Gpr::RAX,
            Gpr::RDI,
            Gpr::RSI,
            Gpr::RDX,
            if called.is_some() { Gpr::RCX } else { Gpr::R10 },
            Gpr::R8,
            Gpr::R9,
        ];
        let words = 8 * registers.len() as i32;
        asm.clear_direction();
        // The place of the stack pointer.
        asm.push(Gpr::RAX);
        // The number of a function's call goes below: rax has the number of its arguments in vector registers.
        let first = usize::from(called.is_some());
        registers[first..].iter().rev().for_each(|r| asm.push(*r));
        if let Some(number) = called {
            asm.push_imm(number);
        }
        let above = words + 16;
        match stack {
            Stack::Below(bytes) => asm.lea(Gpr::RDI, Mem::at(Gpr::RSP, above + bytes)),
            Stack::Spare => asm.load(Gpr::RDI, Mem::at(Gpr::RSP, above)),
        }
        asm.store(Mem::at(Gpr::RSP, words), Gpr::RDI);
        asm.mov(Gpr::RDI, Gpr::RSP);
        asm.call(Target::Shared(wrappers.whole(routine)));
        if called.is_some() {
            asm.move_stack(8);
        }
        registers[first..].iter().for_each(|r| asm.pop(*r));
        asm.move_stack(8);
    }
}

/// Emits the way around the hook of the system calls that end a thread or a process. It changes rcx alone.
fn emit_ends_choice(asm: &mut Asm) -> Patch {
    let found = [SYS_EXIT, SYS_EXIT_GROUP].map(|number| {
        asm.lea32(Gpr::RCX, Mem::at(Gpr::RAX, -number));
        asm.jump_if_rcx_zero(false)
    });
    let others = asm.jump();
    found.into_iter().for_each(|jump| asm.land(jump));
    others
}

/// Which system calls a hook is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Calls {
    /// All that have hooks.
    All,
    /// Those that end a thread or a process.
    Ends,
    /// The others.
    Others,
}

impl Calls {
    fn has(self, number: i32) -> bool {
        let is_end = [SYS_EXIT, SYS_EXIT_GROUP].contains(&number);
        match self {
            Self::All => true,
            Self::Ends => is_end,
            Self::Others => !is_end,
        }
    }
}

/// Where a hook's words are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stack {
    /// On the program's stack, this number of bytes lower.
    Below(i32),
    /// Below a word that holds the program's rsp.
    Spare,
}

/// A kind of hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// The process ends here.
    Always,
    /// A system call, which may be an exit.
    Syscall(Arguments, Calls),
    /// The process may become another program here.
    Exec(Exec),
    /// A function that makes the system call of this number.
    Called(i32),
}
