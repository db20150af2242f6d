//! Threads of another process, stopped and looked at by `ptrace`.
//!
//! Threads are seized: they get no signal, and continue by themselves if this command ends. What a thread is stopped at is
//! always the kernel's *trap*, at which it is about to return to the program; a system call that was interrupted is made
//! again from there, unless the program counter is changed.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atom_core::error::ErrorKind;
use atom_core::{Error, Result};
pub use libc::user_regs_struct as Registers;

use crate::proc_stat;

pub const DOING: &str = "entering the process";

/// Longest wait for a thread's stop.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Time for which the wait takes the processor.
const SHORT: Duration = Duration::from_micros(500);
/// Time between two looks, at first and at last.
const LONGEST: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(20);
/// Longest wait for a thread's turn on a processor, or for its run.
const LONGEST_TURN: Duration = Duration::from_millis(20);

/// Size in bytes of the kernel's signal mask.
const MASK: usize = 8;

/// How the wait for a thread ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The kernel's trap, which was asked for or is the first one of a new thread.
    Trap,
    /// A system call begins or ends.
    Call,
    /// It has started the task with this number.
    Child(i32),
    /// A signal is about to be delivered.
    Signal(i32),
    /// The whole process is stopped.
    Group,
    /// It has ended.
    Ended,
}

/// Makes a `ptrace` call; the kernel's answer.
///
/// # Safety
/// As for the call.
unsafe fn ptrace(request: u32, tid: i32, address: usize, data: usize) -> std::io::Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { libc::ptrace(request, tid, address, data) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Seizes a thread. The threads that it starts are not: nobody would let them go.
fn seize(tid: i32) -> std::io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD;
    // SAFETY: no memory is read or written.
    unsafe { ptrace(libc::PTRACE_SEIZE, tid, 0, options as usize) }
}

/// Sets options of a seized thread, which is stopped.
pub fn set_options(tid: i32, options: i32) -> std::io::Result<()> {
    // SAFETY: no memory is read or written.
    unsafe { ptrace(libc::PTRACE_SETOPTIONS, tid, 0, options as usize) }
}

/// Lets a thread stop soon.
pub fn interrupt(tid: i32) {
    // A thread that has ended is noticed by the wait.
    // SAFETY: no memory is read or written.
    unsafe { ptrace(libc::PTRACE_INTERRUPT, tid, 0, 0) }.unwrap_or_default();
}

/// How a stopped thread continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Until something happens.
    Freely,
    /// Until a system call begins or ends.
    ToCall,
    /// By one instruction.
    Step,
}

/// Lets a stopped thread continue, with a signal or 0.
pub fn resume(tid: i32, how: How, signal: i32) -> std::io::Result<()> {
    let request = match how {
        How::Freely => libc::PTRACE_CONT,
        How::ToCall => libc::PTRACE_SYSCALL,
        How::Step => libc::PTRACE_SINGLESTEP,
    };
    // SAFETY: no memory is read or written.
    unsafe { ptrace(request, tid, 0, signal as usize) }
}

/// Lets a stopped thread go.
pub fn detach(tid: i32) {
    // A thread that has ended is gone.
    // SAFETY: no memory is read or written.
    unsafe { ptrace(libc::PTRACE_DETACH, tid, 0, 0) }.unwrap_or_default();
}

/// The registers of a stopped thread.
pub fn registers(tid: i32) -> std::io::Result<Registers> {
    // SAFETY: all zeros are valid registers, into which the kernel writes.
    unsafe {
        let mut registers: Registers = std::mem::zeroed();
        ptrace(libc::PTRACE_GETREGS, tid, 0, (&raw mut registers) as usize)?;
        Ok(registers)
    }
}

/// Sets them.
pub fn set_registers(tid: i32, registers: &Registers) -> std::io::Result<()> {
    // SAFETY: the kernel reads the structure.
    unsafe {
        ptrace(
            libc::PTRACE_SETREGS,
            tid,
            0,
            std::ptr::from_ref(registers) as usize,
        )
    }
}

/// The signal mask of a stopped thread.
pub fn mask(tid: i32) -> std::io::Result<u64> {
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes.
    unsafe { ptrace(libc::PTRACE_GETSIGMASK, tid, MASK, (&raw mut mask) as usize)? };
    Ok(mask)
}

/// Sets it.
pub fn set_mask(tid: i32, mask: u64) -> std::io::Result<()> {
    // SAFETY: the kernel reads eight bytes.
    unsafe {
        ptrace(
            libc::PTRACE_SETSIGMASK,
            tid,
            MASK,
            (&raw const mask) as usize,
        )
    }
}

/// Number of the set of all vector registers (`NT_X86_XSTATE`).
const VECTORS: usize = 0x202;
/// Largest size of the set in bytes; AMX has the most.
const MOST_VECTORS: usize = 1 << 14;

/// The vector registers of a stopped thread.
pub fn vectors(tid: i32) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; MOST_VECTORS];
    let mut place = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most the buffer's length, and the length into the structure.
    unsafe {
        ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            VECTORS,
            (&raw mut place) as usize,
        )?
    };
    bytes.truncate(place.iov_len);
    Ok(bytes)
}

/// Sets them.
pub fn set_vectors(tid: i32, bytes: &[u8]) -> std::io::Result<()> {
    let place = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel reads the bytes.
    unsafe {
        ptrace(
            libc::PTRACE_SETREGSET,
            tid,
            VECTORS,
            (&raw const place) as usize,
        )
    }
}

/// Lets stopped threads run for a time, while the other threads of their process are stopped.
pub fn run_for(pid: i32, threads: &[i32], time: Duration) -> Result<()> {
    let start = Instant::now();
    let wanted = processor_time(pid) + time * threads.len() as u32;
    for tid in threads {
        // One that has ended is noticed by the wait.
        resume(*tid, How::Freely, 0).unwrap_or_default();
    }
    let runs = |tid: &i32| proc_stat::state_of(*tid as u32) == Some('R');
    // A thread that is interrupted before it gets a processor does not move.
    while processor_time(pid) < wanted && start.elapsed() < LONGEST_TURN {
        pause(start.elapsed());
        if start.elapsed() > SHORT && !threads.iter().any(runs) {
            break;
        }
    }
    threads.iter().for_each(|tid| interrupt(*tid));
    wait_for_traps(threads).map(|_| ())
}

/// Processor time that a process has used; 0 if it has ended.
fn processor_time(pid: i32) -> Duration {
    /// The kernel's clock of a process's processor time.
    const SCHEDULED: i32 = 2;
    let clock = (!pid << 3) | SCHEDULED;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes into the structure.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Duration::new(time.tv_sec as u64, time.tv_nsec as u32),
        _ => Duration::ZERO,
    }
}

/// Waits a little in a wait that has taken a time: most things happen at once.
pub fn pause(waited: Duration) {
    if waited < SHORT {
        std::thread::yield_now();
    } else {
        sleep(PAUSE.max(waited / 64).min(LONGEST));
    }
}

/// Waits until a thread stops or ends. `None` if it does not do so in time.
pub fn wait(tid: i32, patience: Duration) -> Option<Stop> {
    let start = Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes the status.
        match unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) } {
            0 if start.elapsed() < patience => pause(start.elapsed()),
            0 => return None,
            -1 => return Some(Stop::Ended),
            _ => return Some(stop(tid, status)),
        }
    }
}

fn stop(tid: i32, status: i32) -> Stop {
    const OF_CALL: i32 = libc::SIGTRAP | 0x80;
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
        libc::PTRACE_EVENT_STOP => Stop::Group,
        0 if signal == OF_CALL => Stop::Call,
        0 => Stop::Signal(signal),
        _ => {
            let mut child = 0usize;
            // SAFETY: the kernel writes a word.
            let told =
                unsafe { ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, (&raw mut child) as usize) };
            Stop::Child(told.map_or(0, |()| child as i32))
        }
    }
}

/// System calls that end with EINTR at any interruption, even if no handler runs. They can be made again.
const INTERRUPTED: [i64; 14] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];
/// The kernel's answer inside of a system call that is made again unless a handler runs, when it is EINTR.
const RESTART_WITHOUT_HANDLER: i64 = -514;

/// Has a stopped thread make its system call again if it was interrupted for this command alone.
fn keep_call(tid: i32) {
    // A thread that has ended is noticed at the next call.
    let Ok(mut registers) = registers(tid) else {
        return;
    };
    let is_interrupted = registers.rax as i64 == -i64::from(libc::EINTR);
    if is_interrupted && INTERRUPTED.contains(&(registers.orig_rax as i64)) {
        registers.rax = RESTART_WITHOUT_HANDLER as u64;
        set_registers(tid, &registers).unwrap_or_default();
    }
}

/// Waits for the trap of a thread that was interrupted. False if it has ended.
pub fn wait_for_trap(tid: i32) -> Result<bool> {
    Ok(wait_for_traps(&[tid])?.is_empty())
}

/// Waits for the traps of threads that were interrupted, in the order in which they come: if this command ended before it has
/// kept a thread's system call, the thread would notice. The threads that have ended.
fn wait_for_traps(threads: &[i32]) -> Result<Vec<i32>> {
    let mut ended = Vec::new();
    let mut waiting = threads.to_vec();
    let mut start = Instant::now();
    while let Some(first) = waiting.first() {
        if start.elapsed() > PATIENCE {
            let reason = format!("the thread {first} waits in the kernel and cannot be stopped");
            return Err(Error::new(DOING, reason).advice("try again later"));
        }
        let before = waiting.len();
        let mut still = Vec::new();
        for tid in waiting {
            match is_at_trap(tid)? {
                Some(true) => {}
                Some(false) => ended.push(tid),
                None => still.push(tid),
            }
        }
        waiting = still;
        if waiting.len() < before {
            start = Instant::now();
        } else {
            pause(start.elapsed());
        }
    }
    Ok(ended)
}

/// True if a thread that was interrupted is at the trap, false if it has ended, and `None` if it still runs.
fn is_at_trap(tid: i32) -> Result<Option<bool>> {
    let signal = match wait(tid, Duration::ZERO) {
        None => return Ok(None),
        Some(Stop::Trap) => {
            keep_call(tid);
            return Ok(Some(true));
        }
        Some(Stop::Ended) => return Ok(Some(false)),
        Some(Stop::Group) => {
            return Err(
                Error::new(DOING, "it is stopped").advice("continue it first: kill -CONT PID")
            );
        }
        Some(Stop::Signal(signal)) => signal,
        Some(Stop::Call | Stop::Child(_)) => 0,
    };
    // Another stop takes the wish back.
    interrupt(tid);
    let is_there = resume(tid, How::Freely, signal).is_ok();
    Ok((!is_there).then_some(false))
}

/// How often in a row a list of threads has to have no new one.
const QUIET: u32 = 4;

/// The threads of a process, all stopped.
pub struct Threads {
    /// The process.
    pid: i32,
    /// Their numbers in the order in which they were found.
    pub all: Vec<i32>,
}

/// The threads of a process that have not ended.
fn tasks(pid: i32) -> Vec<i32> {
    let found = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let numbers = found.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_alive = |tid: &i32| {
        let state = proc_stat::state_of(*tid as u32);
        state.is_some_and(|state| state != 'Z' && state != 'X')
    };
    numbers.filter(is_alive).collect()
}

impl Threads {
    /// Stops all threads of a process.
    pub fn stop(pid: i32) -> Result<Self> {
        let mut threads = Self::none(pid);
        threads.stop_new()?;
        if threads.all.is_empty() {
            return Err(Error::new(DOING, format!("there is no process {pid}")));
        }
        Ok(threads)
    }

    fn none(pid: i32) -> Self {
        Self {
            pid,
            all: Vec::new(),
        }
    }

    /// Stops the threads that are not stopped yet. A thread that runs for a while may start others.
    pub fn stop_new(&mut self) -> Result<()> {
        let mut quiet = 0;
        // A list that the kernel gives while a thread ends may end there.
        while quiet < QUIET {
            let new: Vec<i32> = tasks(self.pid)
                .into_iter()
                .filter(|tid| !self.all.contains(tid))
                .collect();
            quiet = if new.is_empty() { quiet + 1 } else { 0 };
            let from = self.all.len();
            for tid in new {
                match seize(tid) {
                    Ok(()) => {
                        self.all.push(tid);
                        interrupt(tid);
                    }
                    // A thread that ends is not there any more, or may not be seized.
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) && !self.all.is_empty() => {}
                    Err(e) => return Err(refused(self.pid, system(e))),
                }
            }
            let ended = wait_for_traps(&self.all[from..])?;
            self.all.retain(|tid| !ended.contains(tid));
        }
        Ok(())
    }

    /// Stops one thread of a process.
    pub fn stop_one(pid: i32) -> Result<Self> {
        let failed = |tid| seize(tid).err();
        let mut last = None;
        // The first one is on the stack that the kernel made.
        for tid in tasks(pid) {
            last = failed(tid);
            if last.is_none() {
                let mut threads = Self::none(pid);
                threads.all.push(tid);
                interrupt(tid);
                if wait_for_trap(tid)? {
                    return Ok(threads);
                }
            }
        }
        Err(last.map_or_else(
            || Error::new(DOING, format!("there is no process {pid}")),
            |e| refused(pid, system(e)),
        ))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.all.iter().for_each(|tid| detach(*tid));
    }
}

fn system(e: std::io::Error) -> Error {
    Error::new(DOING, e)
}

/// An error if there is no such process, or no more.
pub fn gone(pid: i32) -> Option<Error> {
    let is_there = fs::metadata(format!("/proc/{pid}")).is_ok();
    (!is_there).then(|| Error::new(DOING, format!("there is no process {pid}")))
}

/// Why a process cannot be looked at or seized, which has failed so.
pub fn refused(pid: i32, e: Error) -> Error {
    let fail = |reason: String, advice: &str| Error::new(DOING, reason).advice(advice);
    if let Some(gone) = gone(pid) {
        return gone;
    }
    if e.kind != ErrorKind::System {
        return e;
    }
    let field = |name: &str| {
        let numbers = proc_stat::status(pid as u32, name);
        numbers.split_whitespace().next()?.parse::<u32>().ok()
    };
    // SAFETY: a system call without effects.
    let user = unsafe { libc::geteuid() };
    if let Some(tracer) = field("TracerPid").filter(|tracer| *tracer != 0) {
        return fail(
            format!("the process {tracer} traces {pid} already"),
            "end that debugger or tracer first",
        );
    }
    if user != 0 && field("Uid").is_some_and(|owner| owner != user) {
        return fail(
            format!("{pid} is another user's process"),
            "attach as that user, or as root",
        );
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !["", "0"].contains(&scope.trim()) {
        return fail(
            format!(
                "the system forbids it (kernel.yama.ptrace_scope is {})",
                scope.trim()
            ),
            "attach as root, or set it: sysctl kernel.yama.ptrace_scope=0; \
             a program that was started by `atom run --off` needs none of that: `atom ctl PID on`",
        );
    }
    fail(
        format!("the system does not permit to trace {pid}"),
        "a container needs the capability SYS_PTRACE for that; \
         a program that was started by `atom run --off` needs none: `atom ctl PID on`",
    )
}
