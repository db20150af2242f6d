//! The fork server.
//!
//! Protocol: the fuzzer passes two descriptors. The server announces itself on [`STATUS`]. Then each word that it reads
//! from [`CONTROL`] asks for a run: the server forks, and answers with the child's process number and, when the child
//! has ended or stopped, with its status as `wait` gives it. The word is not 0 if the fuzzer has killed the child that
//! was there before. A child that stops itself has finished a cycle of a persistent process, and continues for the next
//! run.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::{Marks, forks};

use super::input::Source;
use super::map::Map;
use super::sys::{self, syscall};
use super::{ANY_PROTOCOL, compare};

/// The descriptor on which the fuzzer asks.
const CONTROL: c_int = 198;
/// The descriptor on which the server answers.
const STATUS: c_int = 199;

/// Announcement in the first form: the word has options.
const OPTIONS: u32 = 0x8000_0001;
/// The size of the map is in bits 1 to 23.
const HAS_MAP_SIZE: u32 = 0x4000_0000;
/// The program logs comparisons in the present form.
const HAS_COMPARISONS: u32 = 0x0200_0000;
/// The program takes test cases from shared memory. The fuzzer's first word is the answer, if it agrees.
const HAS_INPUT: u32 = 0x0100_0000;
const OPTIONS_MASK: u32 = 0xff00_0001;
/// Announcement in the second form: letters and version.
const VERSION_1: u32 = 0x4146_4c01;
/// An option of the second form: the size of the map follows.
const MAP_SIZE_FOLLOWS: u32 = 1;
/// An option of the second form: test cases are taken from shared memory.
const TAKES_INPUT: u32 = 2;

/// True in a fork server and its children.
static IS_SERVED: AtomicBool = AtomicBool::new(false);

/// True in a process that a fork server has made.
pub fn is_child() -> bool {
    IS_SERVED.load(Ordering::Relaxed)
}

/// Attaches the shared memory and serves, at the first call. Returns in children, and in the process itself if no
/// fuzzer is there. `done` are the marks of the sites that log comparisons.
pub fn begin(map: Map, done: Marks, protocol: u32, input: Option<&Source>) {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let own_protocol = compare::begin(done);
    match map.attach() {
        Ok(false) => return,
        Ok(true) => {}
        Err(message) => {
            eprintln!("afl: {message}");
            sys::exit(1);
        }
    }
    let what = Announcement {
        map_size: map.size as u32,
        has_comparisons: !done.is_empty(),
        has_input: input.is_some_and(Source::is_shared),
    };
    let protocol = match protocol {
        ANY_PROTOCOL => own_protocol.unwrap_or(0),
        given => given,
    };
    let first = match protocol {
        0 => what.announce(),
        _ => what.announce_version_1().then_some(None),
    };
    if let Some(first) = first {
        serve(first);
    }
}

/// What the server tells the fuzzer.
struct Announcement {
    map_size: u32,
    has_comparisons: bool,
    has_input: bool,
}

impl Announcement {
    /// Tells it in the first form. `None` if there is no fuzzer; else the fuzzer's first word, if it has been read and is
    /// no answer: it asks for a run.
    fn announce(&self) -> Option<Option<u32>> {
        let mut word = OPTIONS | HAS_MAP_SIZE | (self.map_size - 1) << 1;
        if self.has_comparisons {
            word |= HAS_COMPARISONS;
        }
        if self.has_input {
            word |= HAS_INPUT;
        }
        if !sys::write_word(STATUS, word) {
            return None;
        }
        if !self.has_input {
            return Some(None);
        }
        let Some(first) = sys::read_word(CONTROL) else {
            sys::exit(0)
        };
        let is_answer = first & OPTIONS_MASK == OPTIONS | HAS_INPUT;
        Some((!is_answer).then_some(first))
    }

    /// Tells it in the second form. False if there is no fuzzer.
    fn announce_version_1(&self) -> bool {
        if !sys::write_word(STATUS, VERSION_1) {
            return false;
        }
        let answer = sys::read_word(CONTROL);
        if answer != Some(!VERSION_1) {
            eprintln!("afl: the fuzzer does not know version 1 of the protocol: use --protocol 0");
            sys::exit(1);
        }
        let options = if self.has_input {
            MAP_SIZE_FOLLOWS | TAKES_INPUT
        } else {
            MAP_SIZE_FOLLOWS
        };
        [options, self.map_size, VERSION_1]
            .into_iter()
            .all(|word| sys::write_word(STATUS, word))
    }
}

/// Forks a child for each run; returns in the children. `asked` is the first question, if it has been read.
fn serve(mut asked: Option<u32>) {
    // What is stored here and not in the children costs no copy of a page for each of them.
    IS_SERVED.store(true, Ordering::Relaxed);
    forks::end_without_report();
    // The program's handlers are not for the server's children, and the fuzzer ends the server by SIGTERM.
    let signals = [libc::SIGCHLD, libc::SIGTERM];
    let before = signals.map(|signal| sys::set_disposition(signal, sys::Disposition::default()));
    let thread = Thread::current();
    let mut stopped: Option<u32> = None;
    loop {
        // The fuzzer has gone.
        let Some(was_killed) = asked.take().or_else(|| sys::read_word(CONTROL)) else {
            sys::exit(0)
        };
        if let Some(child) = stopped
            && was_killed != 0
        {
            wait(child);
            stopped = None;
        }
        let child = match stopped {
            Some(child) => {
                // SAFETY: no effect on memory.
                unsafe { syscall(libc::SYS_kill, child, libc::SIGCONT) };
                child
            }
            None => match thread.fork() {
                None => {
                    eprintln!("afl: cannot fork");
                    sys::exit(1)
                }
                Some(0) => {
                    for (signal, before) in signals.into_iter().zip(before) {
                        sys::set_disposition(signal, before);
                    }
                    sys::close(CONTROL);
                    sys::close(STATUS);
                    return;
                }
                Some(child) => child,
            },
        };
        let mut is_answered = sys::write_word(STATUS, child);
        let status = wait(child);
        stopped = is_stopped(status).then_some(child);
        is_answered &= sys::write_word(STATUS, status);
        if !is_answered {
            sys::exit(1);
        }
    }
}

/// True if a status from `wait` says that the child has stopped and may continue.
fn is_stopped(status: u32) -> bool {
    libc::WIFSTOPPED(status as i32)
}

/// Waits until a child ends or stops.
fn wait(child: u32) -> u32 {
    let mut status = 0u32;
    // SAFETY: the kernel writes a word. A signal may interrupt the call, which is then made again.
    while unsafe { syscall(libc::SYS_wait4, child, &raw mut status, libc::WUNTRACED, 0) }
        != child.into()
    {
        // SAFETY: no effect on memory; signal 0 only asks whether the child exists.
        if unsafe { syscall(libc::SYS_kill, child, 0) } != 0 {
            break;
        }
    }
    status
}

/// What a C library keeps of the calling thread's number: it must be the new one in a child.
struct Thread {
    /// Address at which the kernel writes 0 when the thread ends; 0 if there is none.
    cleared: usize,
    /// Flags of `clone`.
    flags: usize,
    /// Address of a further copy of the thread's number; 0 if there is none.
    copy: usize,
}

impl Thread {
    fn current() -> Self {
        const GET_TID_ADDRESS: c_long = libc::PR_GET_TID_ADDRESS as c_long;
        const CHILD_SETTID: usize = libc::CLONE_CHILD_SETTID as usize;
        const CHILD_CLEARTID: usize = libc::CLONE_CHILD_CLEARTID as usize;
        /// Distance of the number from musl's thread pointer.
        const IN_MUSL: usize = 48;
        let number = sys::gettid();
        let mut cleared = 0usize;
        const GET_FS: c_long = 0x1003;
        let mut thread = 0usize;
        // SAFETY: the kernel writes two addresses, or nothing.
        unsafe {
            syscall(libc::SYS_prctl, GET_TID_ADDRESS, &raw mut cleared);
            syscall(libc::SYS_arch_prctl, GET_FS, &raw mut thread);
        }
        let is_number = |at: usize| {
            // SAFETY: addresses in the C library's description of the thread, which stays while the thread does.
            at != 0
                && unsafe { std::ptr::with_exposed_provenance::<u32>(at).read_unaligned() }
                    == number
        };
        let mut flags = libc::SIGCHLD as usize;
        if cleared != 0 {
            flags |= CHILD_CLEARTID;
        }
        if is_number(cleared) {
            // glibc: one address for both.
            flags |= CHILD_SETTID;
        }
        let copy = match thread {
            0 => 0,
            _ => thread + IN_MUSL,
        };
        let is_copy = flags & CHILD_SETTID == 0 && is_number(copy);
        Self {
            cleared,
            flags,
            copy: if is_copy { copy } else { 0 },
        }
    }

    /// Forks. Returns the child's number, 0 in the child, and `None` after an error.
    fn fork(&self) -> Option<u32> {
        // SAFETY: without a new stack and without shared memory `clone` is a fork. The addresses are the C library's.
        let child = unsafe { syscall(libc::SYS_clone, self.flags, 0, 0, self.cleared, 0) };
        if child == 0 && self.copy != 0 {
            let number = sys::gettid();
            // SAFETY: checked above to have the thread's number.
            unsafe {
                std::ptr::with_exposed_provenance_mut::<u32>(self.copy).write_unaligned(number)
            };
        }
        u32::try_from(child).ok()
    }
}
