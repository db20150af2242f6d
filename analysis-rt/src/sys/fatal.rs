//! Messages of the runtime itself, and the end of the process where it cannot continue.

use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::call::{getpid, gettid, syscall};
use crate::sys::masks::{KERNEL_SIGSET_SIZE, bit};

/// Exit code of a process that SIGABRT ended, as shells report it.
const ABORTED: i32 = 128 + libc::SIGABRT;

/// Writes a warning to standard error.
#[cold]
pub(crate) fn warn(what: &str) {
    warn_of(&[], what);
}

/// Writes a warning that begins with a file's path.
#[cold]
pub(crate) fn warn_of(path: &[u8], what: &str) {
    let parts = [b"analysis runtime: ", path, what.as_bytes(), b"\n"];
    for p in parts {
        // SAFETY: the kernel reads `p` only.
        unsafe { syscall!(libc::SYS_write, libc::STDERR_FILENO, p.as_ptr(), p.len()) };
    }
}

/// Ends the process with a message about misuse or exhaustion.
#[cold]
pub(crate) fn fatal(what: &str) -> ! {
    warn(what);
    abort()
}

/// `_exit`: ends the process at once, without the ProgramAfter calls.
pub(crate) extern "C" fn exit_now(code: i32) -> ! {
    loop {
        // SAFETY: ends the process.
        unsafe {
            syscall!(libc::SYS_exit_group, code);
            // The strict mode of seccomp allows this one only.
            syscall!(libc::SYS_exit, code);
        }
    }
}

/// What is told before the process ends by [`abort`]; null before the start.
static LAST_WORDS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Sets what is called before the process ends by [`abort`], also by several threads, and again if it fails itself.
pub(crate) fn set_last_words(tell: fn()) {
    LAST_WORDS.store(tell as *mut c_void, Ordering::Release);
}

fn last_words() {
    let tell = LAST_WORDS.load(Ordering::Acquire);
    if !tell.is_null() {
        // SAFETY: only `set_last_words` writes it, always with a `fn()`.
        let tell: fn() = unsafe { core::mem::transmute(tell) };
        tell();
    }
}

/// Ends the process by SIGABRT, even if the application handles, ignores or blocks it.
pub(crate) extern "C" fn abort() -> ! {
    last_words();
    // The kernel's action is {handler, flags, restorer, mask}: all zero is the default.
    let default = [0usize; 4];
    let set = bit(libc::SIGABRT);
    // SAFETY: the kernel reads action and mask, which live; the process ends here, so that its
    // handlers are not needed any more.
    unsafe {
        syscall!(
            libc::SYS_rt_sigaction,
            libc::SIGABRT,
            default.as_ptr(),
            0,
            KERNEL_SIGSET_SIZE
        );
        syscall!(
            libc::SYS_rt_sigprocmask,
            libc::SIG_UNBLOCK,
            &raw const set,
            0,
            KERNEL_SIGSET_SIZE
        );
        syscall!(libc::SYS_tgkill, getpid(), gettid(), libc::SIGABRT);
    }
    exit_now(ABORTED)
}
