//! Stacks of the runtime's own, for work that needs more room than the program's stack may have.
//!
//! The program may run on a stack of a few kilobytes: a thread's or coroutine's, the alternate stack of a signal
//! handler, the stack of a child of `posix_spawn`. Its rsp may even lead to data. So what needs more than
//! a few hundred bytes goes to a stack from this pool.
//!
//! Signals wait meanwhile: a handler of the program must find the program's stack below it, since a garbage
//! collector looks there for pointers, and a handler may never return.
//!
//! A stack belongs to whoever took it, not to a thread: a child in its parent's memory has its parent's thread
//! pointer, and may run at the same time. Who dies with a stack costs its address space and nothing else.

use core::arch::{asm, naked_asm};
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sys::call::syscall;
use crate::sys::memory::{map, pages, unmap};

/// Size of a stack in bytes. Pages that are not used take no memory.
const SIZE: usize = 1 << 20;
/// Number of stacks that are kept for the next user.
const KEPT: usize = 64;

/// The stacks that are kept, by their lowest addresses, with [`TAKEN`] while in use; 0 for a place without a stack.
/// Those in use are at the front, as far as there are others.
static STACKS: [AtomicUsize; KEPT] = [const { AtomicUsize::new(0) }; KEPT];
/// Bit that marks a stack in use. Stacks begin at pages.
const TAKEN: usize = 1;

/// True while a task wants to stop another one that is on none of these stacks.
static IS_LEAVING_AWAITED: AtomicBool = AtomicBool::new(false);

/// What runs on another stack.
pub(crate) type Work = unsafe extern "C" fn(*mut c_void);

/// Calls a function with an argument on the stack that ends at `top`, a multiple of 16. `atom` knows this function, as what
/// runs there needs nothing of the caller's stack.
///
/// # Safety
/// As for the work; the stack is the caller's alone.
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(top: usize, work: Work, argument: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// A stack in use.
struct Stack {
    start: usize,
    size: usize,
    /// Its place in [`STACKS`], if it has one.
    kept: Option<&'static AtomicUsize>,
}

impl Stack {
    /// Takes a stack of the usual size. `None` if there is no memory.
    fn take() -> Option<Self> {
        let taken = |kept: &'static AtomicUsize, start| Self {
            start,
            size: SIZE,
            kept: Some(kept),
        };
        for kept in &STACKS {
            let start = kept.load(Ordering::Relaxed);
            if start == 0 {
                let mut fresh = Self::map(SIZE)?;
                let free = kept.compare_exchange(
                    0,
                    fresh.start | TAKEN,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                // Where another thread was faster, the stack is not kept.
                fresh.kept = free.is_ok().then_some(kept);
                return Some(fresh);
            }
            let wanted = start & TAKEN == 0;
            if wanted
                && kept
                    .compare_exchange(start, start | TAKEN, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return Some(taken(kept, start));
            }
        }
        Self::map(SIZE)
    }

    /// Maps a stack that is not kept.
    fn map(size: usize) -> Option<Self> {
        let start = map(size) as usize;
        (start != 0).then_some(Self {
            start,
            size,
            kept: None,
        })
    }

    /// # Safety
    /// As for the work.
    unsafe fn call(&self, work: Work, argument: *mut c_void) {
        // SAFETY: the caller's promise; the stack is this caller's alone.
        unsafe { call_on(self.start + self.size, work, argument) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        match self.kept {
            Some(kept) => kept.store(self.start, Ordering::Release),
            // SAFETY: the stack was mapped for this use, which has ended.
            None => unsafe { unmap(self.start as *mut u8, pages(self.size)) },
        }
    }
}

/// At the start: has a stack ready, as the program may forbid itself the system call that makes one.
pub(crate) fn begin() {
    drop(Stack::take());
}

/// True on one of the stacks that are kept.
pub(crate) fn is_own() -> bool {
    let at: usize;
    // SAFETY: reads the stack pointer.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    is_own_at(at as u64)
}

/// As [`is_own`], for a stack pointer.
pub(crate) fn is_own_at(stack_pointer: u64) -> bool {
    let at = stack_pointer as usize;
    STACKS
        .iter()
        .map(|kept| kept.load(Ordering::Relaxed))
        .take_while(|start| *start != 0)
        .any(|start| start & TAKEN != 0 && at.wrapping_sub(start & !TAKEN) <= SIZE)
}

/// Says whether a task wants to stop another one that is on none of these stacks.
pub(crate) fn await_leaving(is_awaited: bool) {
    IS_LEAVING_AWAITED.store(is_awaited, Ordering::Release);
}

/// After work on such a stack: waits for as long as a task wants to stop this one here, for at most a second, since
/// that task may have ended.
pub(crate) fn left() {
    for _ in 0..MOST_PAUSES {
        if !IS_LEAVING_AWAITED.load(Ordering::Acquire) {
            return;
        }
        pause();
    }
    await_leaving(false);
}

/// Largest number of pauses while one task waits for another: about a second.
pub(crate) const MOST_PAUSES: usize = 10_000;

/// Waits for 100 microseconds.
pub(crate) fn pause() {
    sleep(100_000);
}

/// Waits for a number of nanoseconds, less than a second.
pub(crate) fn sleep(nanoseconds: i64) {
    let time = [0, nanoseconds];
    // SAFETY: the kernel reads seconds and nanoseconds.
    unsafe { syscall!(libc::SYS_nanosleep, time.as_ptr(), 0) };
}

/// Does work on a stack of the usual size; on the present one if there is no memory. Signals must be blocked.
///
/// # Safety
/// As for the work.
#[inline(never)]
pub(crate) unsafe fn call(work: Work, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        match Stack::take() {
            Some(stack) => stack.call(work, argument),
            None => work(argument),
        }
    }
}

/// As [`call`], on a stack of `size` bytes if there is memory for it.
///
/// # Safety
/// As for the work.
#[inline(never)]
pub(crate) unsafe fn call_with(size: usize, work: Work, argument: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe {
        match Stack::map(size) {
            Some(stack) => stack.call(work, argument),
            None => call(work, argument),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn look(found: *mut c_void) {
        // SAFETY: the tests pass these two.
        let found = unsafe { &mut *found.cast::<(bool, usize)>() };
        *found = (is_own(), &raw const *found as usize);
    }

    #[test]
    fn work_runs_elsewhere_and_stacks_are_used_again() {
        let work = || {
            for _ in 0..1000 {
                let mut found = (false, 0usize);
                // SAFETY: `look` gets what it expects.
                unsafe { call(look, (&raw mut found).cast()) };
                assert!(found.0 && !is_own());
                // SAFETY: as above.
                unsafe { call_with(8 * SIZE, look, (&raw mut found).cast()) };
                assert!(!found.0);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
        // Other tests take stacks, too.
        let kept = STACKS.iter().filter(|s| s.load(Ordering::Relaxed) != 0);
        assert!((1..KEPT).contains(&kept.count()));
    }
}
