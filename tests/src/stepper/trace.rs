//! The tracing loop: threads, forks, signals, and what each stop means.
//!
//! With [`Options::skip_libraries`], code outside the program's text is not
//! stepped: once a process with a single thread has been outside for a while,
//! its text is closed ([`super::gate`]) and it runs at full speed until it comes back.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use libc::pid_t;

use super::gate::{Gate, OUTSIDE_STEPS};
use super::ptrace;
use super::refs::{Reference, Step, references};
use super::text::{Text, will_take};
use super::{BranchCount, Process, Profile};
use crate::error::{Error, Result};

/// `si_code` of the stop at the first instruction of a signal handler.
const AT_HANDLER: i32 = libc::SIGTRAP;

/// How to run a program.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Count in forked children too; otherwise they run untraced.
    pub follow_forks: bool,
    /// Run library code at full speed (see the module's head). It changes what
    /// the program sees only where it blocks or ignores SIGSEGV itself.
    pub skip_libraries: bool,
    /// Number of steps after which the run is given up.
    pub max_steps: u64,
    /// Keep standard output in the profile instead of passing it on.
    pub capture: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            follow_forks: false,
            skip_libraries: false,
            max_steps: u64::MAX,
            capture: false,
        }
    }
}

/// One address space, shared by its threads.
struct Space {
    process: Process,
    counts: HashMap<u64, u64>,
    branches: HashMap<u64, BranchCount>,
    bias: u64,
    tasks: usize,
    /// The program's text is mapped without execute permission at present.
    closed: bool,
    gate: Option<Gate>,
}

struct Thread {
    space: usize,
    /// What the pending instruction will access, where somebody watches.
    references: Vec<Reference>,
    /// The thread was resumed at this (run-time) address of the program's text.
    pending: Option<u64>,
    /// Outcome of the pending branch, where the next address cannot tell.
    foreseen: Option<bool>,
    /// A signal was passed on with the last resume.
    delivering: bool,
    /// The `rep` instruction here has been counted and continues.
    rep: Option<u64>,
    /// `rep` instructions that signal handlers interrupted, with their rsp.
    interrupted: Vec<(u64, u64)>,
    /// The text was found closed here, and opened; nothing ran since.
    reopened: Option<u64>,
    outside: u32,
    last_pc: u64,
    fresh: bool,
}

impl Thread {
    fn new(space: usize, fresh: bool) -> Self {
        Self {
            space,
            references: Vec::new(),
            pending: None,
            foreseen: None,
            delivering: false,
            rep: None,
            interrupted: Vec::new(),
            reopened: None,
            outside: 0,
            last_pc: 0,
            fresh,
        }
    }
}

/// Callback for each step of the program itself.
struct Watcher<'a> {
    tell: &'a mut dyn FnMut(&Step<'_>),
    factory: iced_x86::InstructionInfoFactory,
}

struct Tracer<'a> {
    text: Text,
    watcher: Option<Watcher<'a>>,
    options: Options,
    file_id: (u64, u64),
    spaces: Vec<Space>,
    threads: HashMap<pid_t, Thread>,
    /// Children that stopped before their parent's event told of them.
    early: HashSet<pid_t>,
    steps: u64,
    main_pid: pid_t,
    wait_status: i32,
}

/// Lets a command start without address randomisation, traced by this thread.
pub(crate) fn begin_traced(command: &mut Command) {
    // SAFETY: the closure makes two system calls only, which are safe after fork.
    unsafe {
        command.pre_exec(|| {
            if libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) == -1
                || libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

/// Runs `command` to its end, counting the instructions of the program at `program`.
///
/// The command must execute that very file. Must be called on a thread that has
/// no other children of its own.
pub fn run(program: &Path, command: &mut Command, options: Options) -> Result<Profile> {
    trace(program, command, options, None)
}

/// As [`run`], and `tell` hears of each instruction with its references to memory.
pub fn watch(
    program: &Path,
    command: &mut Command,
    options: Options,
    tell: &mut dyn FnMut(&Step<'_>),
) -> Result<Profile> {
    let watcher = Watcher {
        tell,
        factory: iced_x86::InstructionInfoFactory::new(),
    };
    trace(program, command, options, Some(watcher))
}

fn trace(
    program: &Path,
    command: &mut Command,
    options: Options,
    watcher: Option<Watcher<'_>>,
) -> Result<Profile> {
    let text = Text::read(program)?;
    let fail = |e: io::Error| Error::new("stepping the program", e.to_string()).file(program);
    let file_id = std::fs::metadata(program)
        .map(|m| (m.dev(), m.ino()))
        .map_err(fail)?;
    if options.capture {
        command.stdout(Stdio::piped());
    }
    begin_traced(command);
    let mut child = crate::start::spawn(command).map_err(fail)?;
    let reader = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut out = Vec::new();
            // A broken pipe ends the output; what came before it still counts.
            let _ = pipe.read_to_end(&mut out);
            out
        })
    });
    let mut tracer = Tracer {
        text,
        watcher,
        options,
        file_id,
        spaces: Vec::new(),
        threads: HashMap::new(),
        early: HashSet::new(),
        steps: 0,
        main_pid: child.id() as pid_t,
        wait_status: 0,
    };
    let result = tracer.trace();
    if result.is_err() {
        for &tid in tracer.threads.keys() {
            // SAFETY: kill with the id of a process that this call started.
            unsafe { libc::kill(tid, libc::SIGKILL) };
        }
        while ptrace::wait(-1).is_ok() {}
    }
    let stdout = reader
        .map(|r| r.join().unwrap_or_default())
        .unwrap_or_default();
    result.map_err(fail)?;
    let processes = tracer.spaces.into_iter().map(Space::finish).collect();
    Ok(Profile {
        processes,
        wait_status: tracer.wait_status,
        steps: tracer.steps,
        stdout,
    })
}

impl Space {
    fn finish(mut self) -> Process {
        self.process.counts = self.counts.into_iter().collect();
        self.process.branches = self.branches.into_iter().collect();
        self.process
    }
}

impl Tracer<'_> {
    fn trace(&mut self) -> io::Result<()> {
        let pid = self.main_pid;
        let (_, status) = ptrace::wait(pid)?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("it ended before its first instruction"));
        }
        ptrace::set_options(
            pid,
            libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_EXITKILL,
        )?;
        let space = self.new_space(pid, None)?;
        self.threads.insert(pid, Thread::new(space, false));
        if self.options.skip_libraries {
            self.threads.get_mut(&pid).expect("just added").outside = OUTSIDE_STEPS;
        }
        self.go(pid, 0)?;
        while !self.threads.is_empty() {
            let (tid, status) = ptrace::wait(-1)?;
            let done = self.stopped(tid, status);
            match done {
                // The thread was killed between its stop and our request; its end will be reported.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
            if self.steps > self.options.max_steps {
                return Err(io::Error::other(format!(
                    "it ran for more than {} steps",
                    self.options.max_steps
                )));
            }
        }
        Ok(())
    }

    fn new_space(&mut self, pid: pid_t, parent: Option<pid_t>) -> io::Result<usize> {
        let bias = entry_point(pid)?.wrapping_sub(self.text.entry);
        self.spaces.push(Space {
            process: Process {
                pid,
                parent,
                ..Process::default()
            },
            counts: HashMap::new(),
            branches: HashMap::new(),
            bias,
            tasks: 1,
            closed: false,
            gate: Gate::find(pid),
        });
        Ok(self.spaces.len() - 1)
    }

    fn stopped(&mut self, tid: pid_t, status: i32) -> io::Result<()> {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            self.leave(tid);
            if tid == self.main_pid {
                self.wait_status = status;
            }
            return Ok(());
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            self.early.insert(tid);
            return Ok(());
        };
        let signal = libc::WSTOPSIG(status);
        if thread.fresh && signal == libc::SIGSTOP {
            thread.fresh = false;
            return self.go(tid, 0);
        }
        match status >> 16 {
            0 => {}
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.new_child(tid, status >> 16)?;
                return self.go_on(tid);
            }
            libc::PTRACE_EVENT_EXEC => return self.executed(tid),
            _ => return self.go_on(tid),
        }
        if signal == libc::SIGTRAP {
            self.trapped(tid)
        } else {
            self.signalled(tid, signal)
        }
    }

    /// A thread ended or went to another program. A system call that did not
    /// return (exit, execve) was executed nevertheless.
    fn leave(&mut self, tid: pid_t) {
        let Some(thread) = self.threads.remove(&tid) else {
            return;
        };
        let space = &mut self.spaces[thread.space];
        space.tasks -= 1;
        if let Some(p) = thread.pending {
            let address = p.wrapping_sub(space.bias);
            let insn = self.text.info(address).insn;
            if insn.mnemonic() == iced_x86::Mnemonic::Syscall {
                *space.counts.entry(address).or_default() += 1;
                if let Some(watcher) = &mut self.watcher {
                    (watcher.tell)(&Step {
                        thread: tid,
                        pc: address,
                        len: insn.len(),
                        repeated: false,
                        references: &[],
                        next: address,
                    });
                }
            }
        }
    }

    /// A stop with SIGTRAP: a step was done, or the program trapped itself.
    fn trapped(&mut self, tid: pid_t) -> io::Result<()> {
        let pc = ptrace::pc(tid)?;
        let thread = self.threads.get_mut(&tid).expect("known thread");
        let suspicious = thread.delivering || pc == thread.last_pc || thread.pending.is_none();
        let own_trap = thread.pending.is_some_and(|p| {
            let bias = self.spaces[thread.space].bias;
            self.text.info(p.wrapping_sub(bias)).insn.mnemonic() == iced_x86::Mnemonic::Int3
        });
        if suspicious || own_trap {
            match ptrace::signal_code(tid) {
                Some(AT_HANDLER) => {
                    self.interrupt(tid)?;
                    return self.go(tid, 0);
                }
                // TRAP_BRKPT ends a system call, TRAP_TRACE a step.
                Some(libc::TRAP_BRKPT | libc::TRAP_TRACE) => {}
                Some(_) => {
                    if own_trap {
                        self.complete(tid, pc)?;
                    }
                    return self.signalled(tid, libc::SIGTRAP);
                }
                None => return self.go_on(tid),
            }
        }
        self.complete(tid, pc)?;
        self.go_from(tid, pc, 0)
    }

    /// A stop at which a signal is about to be delivered, or a group stop.
    fn signalled(&mut self, tid: pid_t, signal: i32) -> io::Result<()> {
        let Some(code) = ptrace::signal_code(tid) else {
            return self.go_on(tid);
        };
        let pc = ptrace::pc(tid)?;
        let thread = self.threads.get_mut(&tid).expect("known thread");
        let space = &mut self.spaces[thread.space];
        if signal == libc::SIGSEGV
            && code > 0
            && self.text.contains(pc.wrapping_sub(space.bias))
            && (space.closed || thread.reopened != Some(pc) && ptrace::fetch_refused(tid, pc))
        {
            // Another thread may have come back at the same time, and the text is open by now.
            // A fault of the program's own comes again.
            thread.reopened = Some(pc);
            let index = thread.space;
            if space.closed {
                self.protect(tid, index, true)?;
            }
            return self.go(tid, 0);
        }
        let fault = code > 0
            && matches!(
                signal,
                libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE
            );
        if fault && thread.pending == Some(pc) {
            let address = pc.wrapping_sub(space.bias);
            if thread.rep.take() != Some(pc) {
                *space.counts.entry(address).or_default() += 1;
            }
            thread.pending = None;
        }
        self.go_from(tid, pc, signal)
    }

    /// The pending instruction of a thread was interrupted before it could run.
    fn interrupt(&mut self, tid: pid_t) -> io::Result<()> {
        let thread = self.threads.get_mut(&tid).expect("known thread");
        if let (Some(p), Some(rep)) = (thread.pending.take(), thread.rep.take())
            && p == rep
        {
            // The frame is new; what it interrupted is found again by its stack pointer.
            let rsp = interrupted_rsp(tid)?;
            thread.interrupted.push((p, rsp));
        }
        Ok(())
    }

    /// The pending instruction of a thread ran, and control is now at `pc`.
    fn complete(&mut self, tid: pid_t, pc: u64) -> io::Result<()> {
        let thread = self.threads.get_mut(&tid).expect("known thread");
        thread.reopened = None;
        let Some(p) = thread.pending.take() else {
            return Ok(());
        };
        let space = &mut self.spaces[thread.space];
        let address = p.wrapping_sub(space.bias);
        let info = self.text.info(address);
        let going_on = info.rep && thread.rep == Some(p);
        thread.rep = (info.rep && pc == p).then_some(p);
        if !going_on {
            *space.counts.entry(address).or_default() += 1;
        }
        if let Some(watcher) = &mut self.watcher {
            (watcher.tell)(&Step {
                thread: tid,
                pc: address,
                len: info.insn.len(),
                repeated: going_on,
                references: &thread.references,
                next: pc.wrapping_sub(space.bias),
            });
        }
        if let Some(branch) = info.branch {
            let taken = thread
                .foreseen
                .take()
                .unwrap_or(pc.wrapping_sub(space.bias) != branch.next);
            let count = space.branches.entry(address).or_default();
            if taken {
                count.taken += 1
            } else {
                count.not_taken += 1
            }
        }
        if info.pushf {
            // The pushed flags show the trap flag that stepping set.
            let rsp = ptrace::rsp(tid)?;
            let word = ptrace::peek(tid, rsp)?;
            ptrace::poke(tid, rsp, word & !0x100)?;
        }
        Ok(())
    }

    /// Resumes a thread after a stop that is no step of its own.
    fn go_on(&mut self, tid: pid_t) -> io::Result<()> {
        let thread = &self.threads[&tid];
        let space = &self.spaces[thread.space];
        if space.closed && space.tasks == 1 && thread.pending.is_none() {
            ptrace::resume(tid, 0)
        } else {
            self.steps += 1;
            ptrace::step(tid, 0)
        }
    }

    /// Resumes a thread, noting the instruction that it is at.
    fn go(&mut self, tid: pid_t, signal: i32) -> io::Result<()> {
        let pc = ptrace::pc(tid)?;
        self.go_from(tid, pc, signal)
    }

    /// As `go`, for a thread whose position is known.
    fn go_from(&mut self, tid: pid_t, pc: u64, signal: i32) -> io::Result<()> {
        let thread = self.threads.get_mut(&tid).expect("known thread");
        let index = thread.space;
        let space = &self.spaces[index];
        let address = pc.wrapping_sub(space.bias);
        thread.delivering = signal != 0;
        thread.last_pc = pc;
        if self.text.contains(address) {
            thread.outside = 0;
            thread.pending = Some(pc);
            if !thread.interrupted.is_empty() {
                let key = (pc, ptrace::rsp(tid)?);
                if let Some(i) = thread.interrupted.iter().position(|k| *k == key) {
                    thread.interrupted.truncate(i);
                    thread.rep = Some(pc);
                }
            }
            let info = self.text.info(address);
            if let Some(watcher) = &mut self.watcher {
                let (regs, to) = (ptrace::regs(tid)?, &mut thread.references);
                references(
                    &mut watcher.factory,
                    &info.insn,
                    info.rep,
                    &regs,
                    space.bias,
                    to,
                );
            }
            thread.foreseen = match info.branch {
                Some(b) if b.next == b.target => Some(will_take(
                    &info.insn,
                    ptrace::flags(tid)?,
                    ptrace::rcx(tid)?,
                )),
                _ => None,
            };
        } else {
            thread.pending = None;
            thread.rep = None;
            thread.outside += 1;
            if self.options.skip_libraries && space.tasks == 1 && space.gate.is_some() {
                if !space.closed && thread.outside > OUTSIDE_STEPS && signal == 0 {
                    self.protect(tid, index, false)?;
                }
                if self.spaces[index].closed {
                    return ptrace::resume(tid, signal);
                }
            }
        }
        self.steps += 1;
        ptrace::step(tid, signal)
    }

    fn new_child(&mut self, tid: pid_t, event: i32) -> io::Result<()> {
        let child = ptrace::event_message(tid)? as pid_t;
        let parent_space = self.threads[&tid].space;
        let shared = shares_memory(tid, child).unwrap_or(event != libc::PTRACE_EVENT_FORK);
        let space = if shared {
            self.spaces[parent_space].tasks += 1;
            parent_space
        } else {
            let parent = &self.spaces[parent_space];
            let copy = Space {
                process: Process {
                    pid: child,
                    parent: Some(parent.process.pid),
                    ..Process::default()
                },
                counts: parent.counts.clone(),
                branches: parent.branches.clone(),
                bias: parent.bias,
                tasks: 1,
                closed: parent.closed,
                gate: parent.gate,
            };
            if !self.options.follow_forks {
                return self.let_go(child, copy);
            }
            self.spaces.push(copy);
            self.spaces.len() - 1
        };
        self.threads.insert(child, Thread::new(space, true));
        if self.early.remove(&child) {
            self.threads.get_mut(&child).expect("just added").fresh = false;
            self.go(child, 0)?;
        }
        Ok(())
    }

    /// Detaches a forked child, with its text executable again.
    fn let_go(&mut self, child: pid_t, space: Space) -> io::Result<()> {
        if !self.early.remove(&child) {
            ptrace::wait(child)?;
        }
        if space.closed {
            self.spaces.push(space);
            let index = self.spaces.len() - 1;
            let opened = self.protect(child, index, true);
            self.spaces.pop();
            opened?;
        }
        ptrace::detach(child, 0)
    }

    /// A thread executed another program.
    fn executed(&mut self, tid: pid_t) -> io::Result<()> {
        self.leave(tid);
        let same = std::fs::metadata(format!("/proc/{tid}/exe"))
            .is_ok_and(|m| (m.dev(), m.ino()) == self.file_id);
        if !same && tid != self.main_pid {
            return ptrace::detach(tid, 0);
        }
        // The program itself stays traced for its exit status, counting or not.
        let space = self.new_space(tid, Some(tid))?;
        if !same {
            self.spaces[space].bias = 1 << 63;
        }
        self.threads.insert(tid, Thread::new(space, false));
        self.go(tid, 0)
    }

    /// Makes the program's text executable or not.
    fn protect(&mut self, tid: pid_t, index: usize, executable: bool) -> io::Result<()> {
        let space = &mut self.spaces[index];
        let gate = space
            .gate
            .ok_or_else(|| io::Error::other("no system call instruction in the vDSO"))?;
        gate.protect(tid, self.text.ranges_at(space.bias), executable)?;
        space.closed = !executable;
        Ok(())
    }
}

/// rsp as saved in the frame of the signal handler that is about to run.
///
/// The frame starts with the return address; `ucontext_t` follows.
fn interrupted_rsp(tid: pid_t) -> io::Result<u64> {
    let greg = std::mem::offset_of!(libc::ucontext_t, uc_mcontext) + 8 * libc::REG_RSP as usize;
    ptrace::peek(tid, ptrace::rsp(tid)? + 8 + greg as u64)
}

/// Run-time entry point, from the auxiliary vector.
pub(crate) fn entry_point(pid: pid_t) -> io::Result<u64> {
    let auxv = std::fs::read(format!("/proc/{pid}/auxv"))?;
    let mut words = auxv
        .chunks_exact(8)
        .map(|c| u64::from_ne_bytes(c.try_into().expect("8 bytes")));
    while let (Some(kind), Some(value)) = (words.next(), words.next()) {
        if kind == libc::AT_ENTRY {
            return Ok(value);
        }
    }
    Err(io::Error::other("its auxiliary vector has no entry point"))
}

/// Whether two tasks share their address space.
fn shares_memory(a: pid_t, b: pid_t) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: kcmp takes numbers only.
    let r = unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) };
    (r >= 0).then_some(r == 0)
}
