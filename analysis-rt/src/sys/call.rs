//! Raw system calls.
//!
//! ABI: the number goes into rax, arguments into rdi, rsi, rdx, r10, r8, r9;
//! the kernel destroys rcx and r11 and answers in rax, where -4095 to -1 are
//! negated error numbers. Arguments that are `int` in C may carry rubbish in
//! their upper halves: the kernel truncates them itself.

use core::arch::asm;
use core::mem;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crate::sys::sandbox;

/// The largest error number of the kernel.
const MAX_ERRNO: isize = 4095;

/// Makes a system call with all six arguments; unused ones may have any value. A call at which a filter of the
/// application's ends the process is not made, and fails with EPERM.
///
/// # Safety
/// Whatever the call does to memory must be sound for the caller.
#[inline(always)]
pub(crate) unsafe fn call6(n: usize, a: [usize; 6]) -> isize {
    if sandbox::is_denied(n as i64) {
        return -(libc::EPERM as isize);
    }
    let around = AROUND.load(Ordering::Relaxed);
    let answer = if around.is_null() {
        // SAFETY: the caller's promise.
        unsafe { make(n, a) }
    } else {
        // SAFETY: only `set_around` writes it, always with an `Around`.
        let around: Around = unsafe { mem::transmute(around) };
        // SAFETY: the caller's promise.
        around(&mut || unsafe { make(n, a) })
    };
    if is_error(answer) {
        failed(n, a, answer)
    } else {
        answer
    }
}

/// Says what a system call of the runtime's answers that has failed.
#[cold]
fn failed(n: usize, a: [usize; 6], answer: isize) -> isize {
    let on_error = ON_ERROR.load(Ordering::Relaxed);
    if on_error.is_null() {
        return answer;
    }
    // SAFETY: only `set_on_error` writes it, always with an `OnError`.
    let on_error: OnError = unsafe { mem::transmute(on_error) };
    on_error(n, a, answer)
}

/// What may replace the answer of a system call of the runtime's that has failed: it gets the number, the arguments and the
/// answer.
pub(crate) type OnError = fn(usize, [usize; 6], isize) -> isize;

/// The [`OnError`], or null.
static ON_ERROR: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Has a function look at all system calls that fail from now on.
pub(crate) fn set_on_error(on_error: OnError) {
    ON_ERROR.store(on_error as *mut (), Ordering::Relaxed);
}

/// What is done around each system call of the runtime's; it makes the call that it is given.
pub(crate) type Around = fn(&mut dyn FnMut() -> isize) -> isize;

/// The [`Around`], or null.
static AROUND: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Has something done around all system calls from now on.
pub(crate) fn set_around(around: Around) {
    AROUND.store(around as *mut (), Ordering::Relaxed);
}

/// Makes a system call.
///
/// # Safety
/// As for [`call6`].
#[inline(always)]
unsafe fn make(n: usize, a: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the kernel preserves all registers but rax, rcx and r11; the
    // effect on memory is the caller's promise.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") n as isize => ret,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

/// `syscall!(number, arguments...)`: the kernel's answer, errors negative. Each argument is converted
/// to `usize`, negative ones with their sign; missing ones are 0.
macro_rules! syscall {
    (@pad $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(, $z:expr)*) => {
        $crate::sys::call::call6($n as usize, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize])
    };
    ($n:expr $(, $a:expr)*) => { $crate::sys::call::syscall!(@pad $n; $($a,)* 0, 0, 0, 0, 0, 0) };
}
pub(crate) use syscall;

/// Whether a kernel's answer is a negated error number.
#[inline]
pub(crate) fn is_error(answer: isize) -> bool {
    (-MAX_ERRNO..0).contains(&answer)
}

/// The calling thread's number in the system; the process's number where a filter forbids the call.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no effect on memory.
    let answer = unsafe { syscall!(libc::SYS_gettid) };
    match u32::try_from(answer) {
        Ok(number) => number,
        Err(_) => system_pid(),
    }
}

/// Process number of the watcher (see `lifecycle::watcher`); 0 if there is none.
pub(crate) static WATCHER: AtomicU32 = AtomicU32::new(0);
/// Process number of the application that the watcher watches.
pub(crate) static WATCHED: AtomicU32 = AtomicU32::new(0);

/// Process number of the application as the kernel has said it last.
static LAST_PID: AtomicU32 = AtomicU32::new(0);

/// The process number that the kernel answers; the last one where a filter forbids the call.
pub(crate) fn system_pid() -> u32 {
    // SAFETY: no effect on memory.
    let answer = unsafe { syscall!(libc::SYS_getpid) };
    u32::try_from(answer).unwrap_or_else(|_| LAST_PID.load(Ordering::Relaxed))
}

/// Notes the process number of the application, before it may forbid itself to ask for it.
pub(crate) fn note_pid() {
    LAST_PID.store(system_pid(), Ordering::Relaxed);
}

/// The process number, asked anew each time: a cached one would be wrong after fork. The watcher acts for
/// the application and has its number.
pub(crate) fn getpid() -> u32 {
    let own = system_pid();
    match WATCHER.load(Ordering::Relaxed) {
        watcher if watcher == own => WATCHED.load(Ordering::Relaxed),
        _ => own,
    }
}

/// True once a task was started in this memory that has the thread pointer of another one (`clone` with CLONE_VM, without
/// CLONE_SETTLS). It may be a process of its own.
pub(crate) static HAS_TWINS: AtomicBool = AtomicBool::new(false);

/// Whether there is a thread with that number in this process, or in another one that may share its memory; no thread has
/// number 0.
pub(crate) fn is_thread_alive(tid: u32) -> bool {
    const NO_SIGNAL: usize = 0;
    if tid == 0 {
        return false;
    }
    // A call that fails with EPERM says nothing.
    const MAYBE: [isize; 2] = [0, -(libc::EPERM as isize)];
    // SAFETY: signal 0 is not sent; the kernel only checks that the thread exists.
    unsafe {
        MAYBE.contains(&syscall!(libc::SYS_tgkill, getpid(), tid, NO_SIGNAL))
            || HAS_TWINS.load(Ordering::Relaxed)
                && syscall!(libc::SYS_kill, tid, NO_SIGNAL) != -(libc::ESRCH as isize)
    }
}

/// Whether any process has a thread with that number.
pub(crate) fn exists(tid: u32) -> bool {
    const NO_SIGNAL: usize = 0;
    // SAFETY: signal 0 is not sent; the kernel only checks that the thread exists.
    let answer = unsafe { syscall!(libc::SYS_kill, tid, NO_SIGNAL) };
    answer != -(libc::ESRCH as isize)
}

/// Lets other threads run.
pub(crate) fn yield_now() {
    // SAFETY: no effect on memory.
    unsafe { syscall!(libc::SYS_sched_yield) };
}
