//! Files: system calls with C's way to report errors.
//!
//! A new descriptor is moved high up at once. Programs expect the lowest free
//! number from `open`, name descriptors by number (shells, `dup2`), and close
//! ranges of them; the tool's files should not be in the way.

use core::ffi::c_char;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::signals::without_write_signals;
use crate::sys::{AT_FDCWD, call6, check, errno, hint, nr, syscall};

/// The lowest number for our descriptors; 0 until it is known.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Near the limit, but not above 4095: the kernel's table of descriptors is as
/// long as the highest in use, and each fork copies it.
fn high() -> usize {
    const RLIMIT_NOFILE: usize = 7;
    const ROOM: usize = 128;
    let known = HIGH.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut limit = [256usize; 2];
    // SAFETY: writes the two words.
    unsafe { syscall!(nr::PRLIMIT64, 0, RLIMIT_NOFILE, 0, limit.as_mut_ptr()) };
    let lowest = limit[0].min(4096).saturating_sub(ROOM).max(3);
    HIGH.store(lowest, Ordering::Relaxed);
    lowest
}

/// Moves a new descriptor out of the application's way; keeps it if that fails.
pub(crate) fn out_of_the_way(fd: isize) -> isize {
    const F_DUPFD_CLOEXEC: usize = 1030;
    if fd < 0 || fd as usize >= high() {
        return fd;
    }
    // SAFETY: descriptors are plain numbers; this one is ours.
    unsafe {
        let moved = syscall!(nr::FCNTL, fd, F_DUPFD_CLOEXEC, high());
        if moved < 0 {
            return fd;
        }
        syscall!(nr::CLOSE, fd);
        moved
    }
}

/// # Safety
/// As C's `openat`; `mode` is rubbish when `flags` do not ask for it.
pub(crate) unsafe extern "C" fn openat(
    dir: isize,
    path: *const c_char,
    flags: usize,
    mode: usize,
) -> isize {
    // SAFETY: the caller's promise.
    check(out_of_the_way(unsafe {
        syscall!(nr::OPENAT, dir, path, flags, mode)
    }))
}

/// # Safety
/// As C's `open`.
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: usize, mode: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { openat(AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As C's `creat`.
pub(crate) unsafe extern "C" fn creat(path: *const c_char, mode: usize) -> isize {
    const WRONLY_CREAT_TRUNC: usize = 0o1101;
    // SAFETY: the caller's promise.
    unsafe { openat(AT_FDCWD, path, WRONLY_CREAT_TRUNC, mode) }
}

/// # Safety
/// As C's `fcntl`.
pub(crate) unsafe extern "C" fn fcntl(fd: usize, command: i32, arg: usize) -> isize {
    const F_DUPFD: i32 = 0;
    const F_DUPFD_CLOEXEC: i32 = 1030;
    // SAFETY: the caller's promise.
    let r = unsafe { syscall!(nr::FCNTL, fd, command, arg) };
    check(if command == F_DUPFD || command == F_DUPFD_CLOEXEC {
        out_of_the_way(r)
    } else {
        r
    })
}

/// # Safety
/// None; `extern "C"` for the table.
pub(crate) unsafe extern "C" fn isatty(fd: usize) -> i32 {
    const TCGETS: usize = 0x5401;
    let mut termios = [0u32; 16];
    // SAFETY: the kernel's termios has 36 bytes.
    i32::from(check(unsafe { syscall!(nr::IOCTL, fd, TCGETS, termios.as_mut_ptr()) }) == 0)
}

/// The stat family: the kernel's structure is C's on x86-64.
unsafe fn newfstatat(dir: isize, path: *const c_char, out: usize, flags: usize) -> isize {
    // SAFETY: the caller's promise.
    check(unsafe { syscall!(nr::NEWFSTATAT, dir, path, out, flags) })
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn stat(path: *const c_char, out: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { newfstatat(AT_FDCWD, path, out, 0) }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn lstat(path: *const c_char, out: usize) -> isize {
    const AT_SYMLINK_NOFOLLOW: usize = 0x100;
    // SAFETY: the caller's promise.
    unsafe { newfstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW) }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn fstatat(
    dir: isize,
    path: *const c_char,
    out: usize,
    flags: usize,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe { newfstatat(dir, path, out, flags) }
}

/// `mkfifo`, by `mknod`.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn mkfifo(path: *const c_char, mode: usize) -> isize {
    const MKNOD: usize = 133;
    const S_IFIFO: usize = 0o010000;
    // SAFETY: the caller's promise.
    check(unsafe {
        call6(
            MKNOD,
            [path as usize, S_IFIFO | (mode & 0o7777), 0, 0, 0, 0],
        )
    })
}

/// What cannot be told here cannot be told at all: to Rust's library it is closed then, which
/// is no error. Any other would be a panic, and the end of the application.
const STDERR: usize = 2;

/// Functions that are their system call, and whose signals the application does not get.
macro_rules! writing {
    ($($name:ident = $number:literal;)*) => { $(
        /// # Safety
        /// As C's function of this name.
        pub(crate) unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            // SAFETY: the caller's promise.
            let result = without_write_signals(|| unsafe { call6($number, [a, b, c, d, e, f]) });
            check(if result < 0 && a == STDERR { -(errno::EBADF as isize) } else { result })
        }
    )* };
}

writing! {
    write = 1;
    pwrite = 18;
    writev = 20;
    pwritev = 296;
    sendfile = 40;
    truncate = 76;
    ftruncate = 77;
    splice = 275;
    copy_file_range = 326;
}

/// Functions that are their system call and nothing else.
macro_rules! passed_on {
    ($($name:ident = $number:literal;)*) => { $(
        /// # Safety
        /// As C's function of this name.
        pub(crate) unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            // SAFETY: the caller's promise. Arguments that the function does not
            // have are rubbish that the kernel does not look at.
            check(unsafe { call6($number, [a, b, c, d, e, f]) })
        }
    )* };
}

/// C's `mmap`. Memory for which no place is asked goes where the runtime's own is, so that
/// the application's mappings get the addresses that they would get without it.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn mmap(
    place: usize,
    len: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> isize {
    const FIXED: usize = 0x10;
    let place = match (place, flags & FIXED) {
        (0, 0) => hint(len),
        _ => place,
    };
    // SAFETY: the caller's promise; without MAP_FIXED a place is only a hint.
    check(unsafe { call6(MMAP, [place, len, protection, flags, file, offset]) })
}

const MMAP: usize = 9;

passed_on! {
    read = 0;
    pread = 17;
    readv = 19;
    preadv = 295;
    close = 3;
    fstat = 5;
    poll = 7;
    lseek = 8;
    mprotect = 10;
    munmap = 11;
    ioctl = 16;
    madvise = 28;
    getppid = 110;
    flock = 73;
    fsync = 74;
    fdatasync = 75;
    rename = 82;
    mkdir = 83;
    rmdir = 84;
    link = 86;
    unlink = 87;
    symlink = 88;
    readlink = 89;
    readlinkat = 267;
    chmod = 90;
    fchmod = 91;
    fchmodat = 268;
    chown = 92;
    fchown = 93;
    lchown = 94;
    getuid = 102;
    geteuid = 107;
    getgid = 104;
    getegid = 108;
    getrusage = 98;
    uname = 63;
    access = 21;
    mkdirat = 258;
    unlinkat = 263;
    renameat = 264;
    linkat = 265;
    symlinkat = 266;
    utimensat = 280;
    statx = 332;
    getrandom = 318;
    prlimit = 302;
    getrlimit = 97;
    clock_getres = 229;
}

/// `futimens`, by `utimensat` without a path.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn futimens(fd: usize, times: usize) -> isize {
    const UTIMENSAT: usize = 280;
    // SAFETY: the caller's promise.
    check(unsafe { call6(UTIMENSAT, [fd, 0, times, 0, 0, 0]) })
}

/// `sched_getcpu`.
pub(crate) extern "C" fn sched_getcpu() -> isize {
    const GETCPU: usize = 309;
    let mut cpu = 0u32;
    // SAFETY: writes the one word.
    let r = check(unsafe { call6(GETCPU, [&raw mut cpu as usize, 0, 0, 0, 0, 0]) });
    if r < 0 { r } else { cpu as isize }
}
