//! System calls and processor features beyond `std`.
use std::arch::asm;
use std::ffi::c_int;

/// The thread pointer: unique among the running threads of this process, read by one instruction.
///
/// On x86-64 Linux the word at fs:0 is the thread pointer itself; every libc sets it up before a
/// thread's first instruction of its own.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: reads one word that is always mapped, see above.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// The kernel's thread id of the calling thread.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process still runs.
pub(crate) fn is_alive(thread: i32) -> bool {
    // SAFETY: signal 0 is not sent, only checked.
    let answer = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    if answer != 0 {
        return false;
    }
    // A main thread that has ended stays as a zombie until all others have ended.
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

/// Registers the process so that [`fence_all_threads`] is fast.
pub(crate) fn prepare_fences() {
    // SAFETY: the call has no memory arguments. A kernel that does not know it returns an error.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER, 0, 0) };
}

/// Makes each running thread pass a full memory barrier before this returns. Consider a thread that stores and
/// then loads, with only a compiler barrier in between. Either the caller sees its store after this call, or the
/// thread's load sees what the caller stored before this call.
pub(crate) fn fence_all_threads() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    // SAFETY: the call has no memory arguments.
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
        // SAFETY: `old` is a valid place to write to.
        unsafe { pthread_setcancelstate(Self::DISABLE, &mut old) };
        Self(old)
    }
}

impl Drop for NoCancel {
    fn drop(&mut self) {
        let mut old = 0;
        // SAFETY: `old` is a valid place to write to, and the state is an earlier one.
        unsafe { pthread_setcancelstate(self.0, &mut old) };
    }
}
