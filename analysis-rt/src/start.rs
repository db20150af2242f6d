//! Start and end of the runtime in a process.
//!
//! ABI: `start` is called once, before any code of the application, with the
//! kernel's process stack (argc, argv, null, environment, null, auxiliary
//! vector); the thread pointer may still be 0. `finish` is called wherever the
//! process may end, also more than once, from any thread, and in forked
//! children, which end on their own account.
//!
//! Whether this process is the one that started, a forked child with memory of
//! its own, or a child that still shares its parent's memory (vfork,
//! posix_spawn) is told by a page that the kernel wipes in forked children:
//! wiped means forked; not wiped with a foreign process number means shared,
//! and then ending is the parent's business.

use core::ffi::{c_char, c_void};
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use atom_abi::StartInfo;

use crate::sys::{self, nr, syscall};
use crate::{data, env, tls, totals};

static INFO: AtomicPtr<StartInfo> = AtomicPtr::new(null_mut());
static AUXV: AtomicPtr<[usize; 2]> = AtomicPtr::new(null_mut());
static FLUSH: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static START_PID: AtomicU32 = AtomicU32::new(0);
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
static WIPED_ON_FORK: AtomicBool = AtomicBool::new(false);

/// State of one process; lives in the wiped page.
struct Process {
    /// Process number; 0 in a child that has not been seen yet.
    pid: AtomicU32,
    /// [`RUNNING`], [`ENDING`] or [`ENDED`].
    state: AtomicU32,
    /// The thread that ends the process.
    ender: AtomicU32,
}

const RUNNING: u32 = 0;
const ENDING: u32 = 1;
const ENDED: u32 = 2;

/// What `atom` told the runtime, once it has started.
pub(crate) fn info() -> Option<&'static StartInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { INFO.load(Ordering::Acquire).as_ref() }
}

/// The number of the process in which the program started.
pub fn start_pid() -> u32 {
    START_PID.load(Ordering::Relaxed)
}

/// The number of this process: differs from [`start_pid`] in a forked child.
pub fn pid() -> u32 {
    sys::getpid()
}

/// Sets what runs after the ProgramAfter calls, such as flushing `std`'s stdout.
pub fn set_flush_hook(hook: fn()) {
    FLUSH.store(hook as *mut c_void, Ordering::Release);
}

/// An entry of the auxiliary vector; 0 if absent.
pub(crate) extern "C" fn getauxval(kind: usize) -> usize {
    let mut entry = AUXV.load(Ordering::Acquire).cast_const();
    if entry.is_null() {
        return 0;
    }
    // SAFETY: the kernel's vector ends with an entry of kind 0.
    unsafe {
        while (*entry)[0] != 0 {
            if (*entry)[0] == kind {
                return (*entry)[1];
            }
            entry = entry.add(1);
        }
    }
    0
}

/// Starts the runtime; see [`atom_abi::ToolHeader::start`].
///
/// # Safety
/// Called by the instrumented program's start stub, once, before any other
/// analysis code, with `info` as described there and `stack` pointing to the
/// argument count on the process's initial stack.
pub unsafe extern "C" fn start(info: *const StartInfo, stack: *const usize) {
    const AT_HWCAP2: usize = 26;
    const HWCAP2_FSGSBASE: usize = 2;
    if !INFO.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: the caller's promise about both pointers; the stack's layout is the kernel's ABI.
    unsafe {
        let argc = *stack;
        let argv = stack.add(1);
        let envp = argv.add(argc + 1).cast::<*const c_char>();
        let mut end = envp;
        while !(*end).is_null() {
            end = end.add(1);
        }
        AUXV.store(end.add(1).cast_mut().cast(), Ordering::Release);
        tls::FSGSBASE.store(
            getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE != 0,
            Ordering::Relaxed,
        );
        INFO.store(info.cast_mut(), Ordering::Release);
        env::set_environment(envp);
        START_PID.store(sys::getpid(), Ordering::Relaxed);
        make_process_page();
        data::begin();

        let info = &*info;
        for i in 0..info.init_count {
            let function = *info.init_array.add(i);
            // The array may hold 0 and -1 as markers, as the ABI for it says.
            if function != 0 && function != usize::MAX {
                type Init = extern "C" fn(usize, *const usize, *const *const c_char);
                let function: Init = core::mem::transmute(function);
                function(argc, argv, envp);
            }
        }
        (info.program_before)();
    }
}

fn make_process_page() {
    const MADV_WIPEONFORK: usize = 18;
    static FALLBACK: Process = Process {
        pid: AtomicU32::new(0),
        state: AtomicU32::new(0),
        ender: AtomicU32::new(0),
    };
    let page = sys::map(sys::PAGE);
    let mut process = ptr::from_ref(&FALLBACK).cast_mut();
    if !page.is_null() {
        process = page.cast();
        // SAFETY: advice about the page that was mapped just now.
        let r = unsafe { syscall!(nr::MADVISE, page, sys::PAGE, MADV_WIPEONFORK) };
        WIPED_ON_FORK.store(r == 0, Ordering::Relaxed);
    }
    PROCESS.store(process, Ordering::Release);
    // SAFETY: zeroed memory is a valid `Process`, and it is never unmapped.
    unsafe { (*process).pid.store(sys::getpid(), Ordering::Release) };
}

/// The state of this process, or `None` before the start and in a child that
/// shares its parent's memory.
fn process() -> Option<&'static Process> {
    // SAFETY: null, or a page that stays mapped.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref()? };
    let pid = sys::getpid();
    let had = process.pid.load(Ordering::Acquire);
    if had == pid {
        return Some(process);
    }
    if had != 0 {
        if WIPED_ON_FORK.load(Ordering::Relaxed) {
            return None;
        }
        // An old kernel: take any other process for a forked child.
        process.state.store(RUNNING, Ordering::Release);
    }
    process.pid.store(pid, Ordering::Release);
    Some(process)
}

/// What kind of process this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The one that started.
    Original,
    /// A forked child, with memory of its own.
    Forked,
    /// A child in its parent's memory, or the start has not happened.
    Other,
}

pub(crate) fn kind() -> Kind {
    match process() {
        None => Kind::Other,
        Some(p) if p.pid.load(Ordering::Acquire) == start_pid() => Kind::Original,
        Some(_) => Kind::Forked,
    }
}

/// Runs the ProgramAfter calls and flushes, once for each process.
///
/// A second thread that ends the process meanwhile waits for the first, for
/// up to half a minute; the ending thread itself passes through.
///
/// # Safety
/// Called by the instrumented program after [`start`], where it may end.
pub unsafe extern "C" fn finish() {
    // SAFETY: the caller's promise.
    unsafe { end(ENDED) }
}

/// The same where the process goes on if it does not end after all; then it is
/// done again.
///
/// # Safety
/// As for [`finish`].
pub(crate) unsafe fn finish_for_now() {
    // SAFETY: the caller's promise.
    unsafe { end(RUNNING) }
}

/// Ends, and leaves the process in a state.
unsafe fn end(then: u32) {
    let Some(process) = process() else { return };
    let tid = sys::gettid();
    let first =
        process
            .state
            .compare_exchange(RUNNING, ENDING, Ordering::AcqRel, Ordering::Acquire);
    match first {
        Ok(_) => process.ender.store(tid, Ordering::Release),
        Err(ENDING) => {
            let mut rounds = 0;
            while process.state.load(Ordering::Acquire) == ENDING
                && process.ender.load(Ordering::Acquire) != tid
                && rounds < 30_000
            {
                let pause: [usize; 2] = [0, 1_000_000];
                // SAFETY: reads the two words.
                unsafe { syscall!(nr::NANOSLEEP, pause.as_ptr(), 0) };
                rounds += 1;
            }
            return;
        }
        Err(_) => return,
    }
    data::gather();
    if let Some(info) = info() {
        // SAFETY: `atom` wrote the table, and a function.
        unsafe {
            totals::settle(info);
            (info.program_after)();
        }
    }
    let flush = FLUSH.load(Ordering::Acquire);
    if !flush.is_null() {
        // SAFETY: only `set_flush_hook` writes it, always with a `fn()`.
        let flush: fn() = unsafe { core::mem::transmute(flush) };
        flush();
    }
    process.state.store(then, Ordering::Release);
}
