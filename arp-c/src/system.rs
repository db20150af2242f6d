//! What is asked of the system beside `std`.
use std::arch::asm;
use std::ffi::c_int;

/// A number that no other running thread of this process has, in one instruction.
///
/// On x86-64 Linux the word at fs:0 is the thread pointer itself; every libc sets it up before a
/// thread's first instruction of its own.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads one word that is always there, as said above.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// The kernel's number of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process is there.
pub(crate) fn is_alive(thread: i32) -> bool {
    // SAFETY: signal 0 is not sent, only checked.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    if answer != 0 {
        return false;
    }
    // A main thread that has ended stays, as a zombie, until the others have.
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    let stat = stat.unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    !matches!(state, Some('Z' | 'X'))
}

const REGISTER: c_int = 1 << 4;
const EXPEDITED: c_int = 1 << 3;

/// Makes [`fence_all_threads`] fast from now on.
pub(crate) fn prepare_fences() {
    // SAFETY: the call has no memory arguments. Where the kernel does not know it, nothing happens.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER, 0, 0) };
}

/// Each running thread passes a full memory barrier before this returns. So a thread
/// that stores, then loads, with only the compiler kept from swapping the two, has either stored what the
/// caller sees after this, or will load what the caller stored before.
pub(crate) fn fence_all_threads() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    // SAFETY: as above.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, EXPEDITED, 0, 0) };
    if answer != 0 {
        // Stores become visible in far less time than this.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// While it lives, `pthread_cancel` does not take effect in the calling thread: its stack has
/// frames that cancellation must not unwind, and locks may be held.
pub(crate) struct NoCancel(c_int);

impl NoCancel {
    /// PTHREAD_CANCEL_DISABLE.
    const DISABLE: c_int = 1;

    pub fn new() -> Self {
        let mut old = 0;
        // SAFETY: `old` is a valid place.
        unsafe { pthread_setcancelstate(Self::DISABLE, &mut old) };
        Self(old)
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: `old` is a valid place and the state is one that there was before.
        unsafe { pthread_setcancelstate(self.0, &mut old) };
    }
}
