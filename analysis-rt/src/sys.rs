//! Raw system calls, and memory from the kernel.
//!
//! ABI: the number goes into rax, arguments into rdi, rsi, rdx, r10, r8, r9;
//! the kernel destroys rcx and r11 and answers in rax, where -4095 to -1 are
//! negated error numbers. Arguments that are `int` in C may carry rubbish in
//! their upper halves: the kernel truncates them itself.

use core::arch::asm;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::tls;

/// Numbers of the system calls used by name in this crate.
pub(crate) mod nr {
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGACTION: usize = 13;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const SCHED_YIELD: usize = 24;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const PAUSE: usize = 34;
    pub const NANOSLEEP: usize = 35;
    pub const GETPID: usize = 39;
    pub const FCNTL: usize = 72;
    pub const GETCWD: usize = 79;
    pub const READLINK: usize = 89;
    pub const RT_SIGPENDING: usize = 127;
    pub const RT_SIGTIMEDWAIT: usize = 128;
    pub const ARCH_PRCTL: usize = 158;
    pub const GETTID: usize = 186;
    pub const TIME: usize = 201;
    pub const FUTEX: usize = 202;
    pub const SCHED_GETAFFINITY: usize = 204;
    pub const GETDENTS64: usize = 217;
    pub const CLOCK_GETTIME: usize = 228;
    pub const CLOCK_NANOSLEEP: usize = 230;
    pub const EXIT_GROUP: usize = 231;
    pub const TGKILL: usize = 234;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const PRLIMIT64: usize = 302;
    pub const FACCESSAT: usize = 269;
}

/// Error numbers used by name.
pub(crate) mod errno {
    pub const EPERM: i32 = 1;
    pub const EBADF: i32 = 9;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EINVAL: i32 = 22;
    pub const EFBIG: i32 = 27;
    pub const EPIPE: i32 = 32;
    pub const ERANGE: i32 = 34;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOSYS: i32 = 38;
}

/// The directory file descriptor that stands for the current directory.
pub(crate) const AT_FDCWD: isize = -100;
/// Size of a page; x86-64 has no other base size.
pub(crate) const PAGE: usize = 4096;

/// A system call with all six arguments; fewer are given as zeros.
///
/// # Safety
/// Whatever the call does to memory must be sound for the caller.
#[inline(always)]
pub(crate) unsafe fn call6(n: usize, a: [usize; 6]) -> isize {
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

/// `syscall!(number, arguments...)`: the kernel's answer, errors negative.
macro_rules! syscall {
    (@pad $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr $(, $z:expr)*) => {
        $crate::sys::call6($n, [$a as usize, $b as usize, $c as usize, $d as usize, $e as usize, $f as usize])
    };
    ($n:expr $(, $a:expr)*) => { $crate::sys::syscall!(@pad $n; $($a,)* 0, 0, 0, 0, 0, 0) };
}
pub(crate) use syscall;

/// Turns a kernel answer into C's: -1 and `errno` for an error.
#[inline]
pub(crate) fn check(r: isize) -> isize {
    if (-4095..0).contains(&r) {
        tls::set_errno(-r as i32);
        -1
    } else {
        r
    }
}

/// The calling thread's number.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no effect on memory.
    unsafe { syscall!(nr::GETTID) as u32 }
}

/// The process number, always asked anew: a cached one would be wrong after fork.
pub(crate) fn getpid() -> u32 {
    // SAFETY: no effect on memory.
    unsafe { syscall!(nr::GETPID) as u32 }
}

/// Where the runtime's own mappings go, upwards. The kernel places the
/// application's mappings downwards from the stack, its image and heap from
/// 0x5555_5555_4000 up, linked-in-place programs at the bottom, Go's heap at
/// 0xc0_0000_0000; here nobody else is, so the application's mappings get the
/// very addresses that they would get without us. Programs built with
/// ThreadSanitizer or MemorySanitizer keep most other places for themselves and
/// give up if they find something there; this one belongs to images.
/// Only a hint: an occupied place is no error.
static NEXT_HINT: AtomicUsize = AtomicUsize::new(0x5500_0000_0000);

/// Rounds up to whole pages; saturates.
pub(crate) const fn pages(len: usize) -> usize {
    len.saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// As [`NEXT_HINT`], for what must lie above the image: between the heap of a
/// program that the kernel places at 0x5555_5555_4000 to 0x5655_5555_4000 and the mappings
/// below the stack; the sanitizers' place for images ends at 0x5680_0000_0000.
static NEXT_FAR_HINT: AtomicUsize = AtomicUsize::new(0x5660_0000_0000);

fn hint_near(next: &AtomicUsize, len: usize) -> usize {
    next.fetch_add(pages(len).saturating_add(PAGE), Ordering::Relaxed)
}

/// A place for a mapping of the runtime's user.
pub(crate) fn hint(len: usize) -> usize {
    hint_near(&NEXT_HINT, len)
}

fn map_with(len: usize, protection: usize) -> *mut u8 {
    map_near(&NEXT_HINT, len, protection)
}

fn map_near(next: &AtomicUsize, len: usize, protection: usize) -> *mut u8 {
    const PRIVATE_ANONYMOUS: usize = 0x22;
    let len = pages(len);
    let hint = hint_near(next, len);
    // SAFETY: a new mapping, without MAP_FIXED, replaces nothing.
    let r = unsafe {
        syscall!(
            nr::MMAP,
            hint,
            len,
            protection,
            PRIVATE_ANONYMOUS,
            -1isize,
            0
        )
    };
    if (-4095..0).contains(&r) {
        ptr::null_mut()
    } else {
        r as *mut u8
    }
}

/// Fresh zeroed pages for `len` bytes, or null.
pub(crate) fn map(len: usize) -> *mut u8 {
    map_with(len, 3)
}

/// Fresh zeroed pages away from the application's, `wiped` bytes of which, at the start, are
/// zeros again in a forked child. Null if there are none, or if the kernel cannot do that.
pub fn map_wiped(wiped: usize, len: usize) -> *mut u8 {
    const MADV_WIPEONFORK: usize = 18;
    let memory = map(len);
    if memory.is_null() {
        return memory;
    }
    // SAFETY: advice about pages that were mapped just now; without it they are given back.
    unsafe {
        if syscall!(nr::MADVISE, memory, wiped, MADV_WIPEONFORK) != 0 {
            unmap(memory, pages(len));
            return ptr::null_mut();
        }
    }
    memory
}

/// As [`map`], where no segment base from the image up is negative: the system
/// call that sets one refuses those.
pub(crate) fn map_far(len: usize) -> *mut u8 {
    map_near(&NEXT_FAR_HINT, len, 3)
}

/// Returns pages.
///
/// # Safety
/// `start` and `len` (in whole pages) must be a mapping from [`map`] that nobody uses any more.
pub(crate) unsafe fn unmap(start: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall!(nr::MUNMAP, start, len) };
}

/// Changes the length of a mapping, in place if possible; null if refused,
/// and then nothing has changed.
///
/// # Safety
/// As for [`unmap`]; the old address is invalid if another is returned.
pub(crate) unsafe fn remap(start: *mut u8, old: usize, new: usize) -> *mut u8 {
    const MAYMOVE_FIXED: usize = 1 | 2;
    let ok = |r: isize| !(-4095..0).contains(&r);
    // SAFETY: the range is the caller's; without flags it can only grow into free space.
    let r = unsafe { syscall!(nr::MREMAP, start, old, new, 0) };
    if ok(r) {
        return r as *mut u8;
    }
    let target = map_with(new, 0);
    if target.is_null() {
        return target;
    }
    // SAFETY: the target was reserved just now and holds nothing.
    let r = unsafe { syscall!(nr::MREMAP, start, old, new, MAYMOVE_FIXED, target) };
    if ok(r) {
        return r as *mut u8;
    }
    // SAFETY: as above.
    unsafe { unmap(target, pages(new)) };
    ptr::null_mut()
}

/// Tells of trouble on standard error.
#[cold]
pub(crate) fn warn(what: &str) {
    let parts: [&str; 3] = ["analysis runtime: ", what, "\n"];
    for p in parts {
        // SAFETY: reads `p` only.
        unsafe { syscall!(nr::WRITE, 2, p.as_ptr(), p.len()) };
    }
}

/// Ends the process with a message about misuse or exhaustion.
#[cold]
pub(crate) fn fatal(what: &str) -> ! {
    warn(what);
    crate::process::abort()
}
