//! Files: system calls with C's way to report errors.
//!
//! A new descriptor is moved to a high number at once. Programs expect the lowest free
//! number from `open`, name descriptors by number (shells, `dup2`), and close
//! ranges of them; the tool's files should not be in the way.

use core::ffi::c_char;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::c::errno::check;
use crate::sys::call::{call6, syscall};
use crate::sys::limit;
use crate::sys::memory::{hint, pages};
use crate::sys::signals::without_write_signals;

/// The directory argument that stands for the current directory.
const CURRENT: isize = libc::AT_FDCWD as isize;

/// Lowest number of the runtime's descriptors; 0 until it is known.
static HIGH: AtomicUsize = AtomicUsize::new(0);

/// Lowest number of the runtime's descriptors. It is near the limit, but not above 4095: the kernel's table
/// of descriptors is as long as the highest number in use, and each fork copies it.
fn high() -> usize {
    const ROOM: usize = 128;
    const LARGEST: usize = 4096;
    let known = HIGH.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut limit = [256usize; 2];
    // SAFETY: the kernel writes the soft and the hard limit.
    unsafe {
        syscall!(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            0,
            limit.as_mut_ptr()
        )
    };
    let lowest = limit[0].min(LARGEST).saturating_sub(ROOM).max(3);
    HIGH.store(lowest, Ordering::Relaxed);
    lowest
}

/// Moves a new descriptor out of the application's way; keeps it if that fails.
pub(crate) fn out_of_the_way(fd: isize) -> isize {
    if fd < 0 || fd as usize >= high() {
        return fd;
    }
    // SAFETY: no effect on memory; the descriptor was made for the tool just now.
    unsafe {
        let moved = syscall!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, high());
        if moved < 0 {
            return fd;
        }
        syscall!(libc::SYS_close, fd);
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
        syscall!(libc::SYS_openat, dir, path, flags, mode)
    }))
}

/// # Safety
/// As C's `open`.
pub(crate) unsafe extern "C" fn open(path: *const c_char, flags: usize, mode: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { openat(CURRENT, path, flags, mode) }
}

/// # Safety
/// As C's `creat`.
pub(crate) unsafe extern "C" fn creat(path: *const c_char, mode: usize) -> isize {
    const FLAGS: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;
    // SAFETY: the caller's promise.
    unsafe { openat(CURRENT, path, FLAGS as usize, mode) }
}

/// # Safety
/// As C's `fcntl`.
pub(crate) unsafe extern "C" fn fcntl(fd: usize, command: i32, arg: usize) -> isize {
    // SAFETY: the caller's promise.
    let r = unsafe { syscall!(libc::SYS_fcntl, fd, command, arg) };
    check(
        if command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC {
            out_of_the_way(r)
        } else {
            r
        },
    )
}

/// # Safety
/// None; `extern "C"` for the table.
pub(crate) unsafe extern "C" fn isatty(fd: usize) -> i32 {
    let mut termios = [0u32; 16];
    // SAFETY: the kernel writes its termios, 36 bytes.
    i32::from(
        check(unsafe { syscall!(libc::SYS_ioctl, fd, libc::TCGETS, termios.as_mut_ptr()) }) == 0,
    )
}

/// The stat family: the kernel's structure is C's on x86-64.
///
/// # Safety
/// As C's `fstatat`.
unsafe fn newfstatat(dir: isize, path: *const c_char, out: usize, flags: usize) -> isize {
    // SAFETY: the caller's promise.
    check(unsafe { syscall!(libc::SYS_newfstatat, dir, path, out, flags) })
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn stat(path: *const c_char, out: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { newfstatat(CURRENT, path, out, 0) }
}

/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn lstat(path: *const c_char, out: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { newfstatat(CURRENT, path, out, libc::AT_SYMLINK_NOFOLLOW as usize) }
}

/// `stat` as glibc before 2.33 has it: the first argument is the version of the structure, of which x86-64 has one.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn xstat(_: i32, path: *const c_char, out: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { stat(path, out) }
}

/// # Safety
/// As C's function; see [`xstat`].
pub(crate) unsafe extern "C" fn lxstat(_: i32, path: *const c_char, out: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { lstat(path, out) }
}

/// # Safety
/// As C's function; see [`xstat`].
pub(crate) unsafe extern "C" fn fxstat(_: i32, file: i32, out: usize) -> isize {
    // SAFETY: the caller's promise. The system call looks at two arguments.
    unsafe { fstat(file as usize, out, 0, 0, 0, 0) }
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
    const PERMISSIONS: usize = 0o7777;
    let mode = libc::S_IFIFO as usize | (mode & PERMISSIONS);
    // SAFETY: the caller's promise.
    check(unsafe { syscall!(libc::SYS_mknod, path, mode) })
}

/// Standard error. A failed write to it is reported as EBADF: Rust's library takes it for closed then and
/// continues. With any other error it would panic, which ends the application.
const STDERR: usize = libc::STDERR_FILENO as usize;

/// Functions that make one system call, whose signals the application does not get. Each with the number of bytes that its
/// arguments name.
macro_rules! writing {
    ($($name:ident = $number:ident, |$c:ident, $d:ident, $e:ident| $wanted:expr;)*) => { $(
        /// # Safety
        /// As C's function of this name.
        pub(crate) unsafe extern "C" fn $name(a: usize, b: usize, $c: usize, $d: usize, $e: usize, f: usize) -> isize {
            // SAFETY: the caller's promise.
            let result = without_write_signals($wanted, || unsafe { call6(libc::$number as usize, [a, b, $c, $d, $e, f]) });
            check(if result < 0 && a == STDERR { -(libc::EBADF as isize) } else { result })
        }
    )* };
}

writing! {
    write = SYS_write, |c, d, e| c;
    pwrite = SYS_pwrite64, |c, d, e| c;
    // The sum of the parts is not looked up.
    writev = SYS_writev, |c, d, e| usize::MAX;
    pwritev = SYS_pwritev, |c, d, e| usize::MAX;
    sendfile = SYS_sendfile, |c, d, e| d;
    truncate = SYS_truncate, |c, d, e| 0;
    ftruncate = SYS_ftruncate, |c, d, e| 0;
    splice = SYS_splice, |c, d, e| e;
    copy_file_range = SYS_copy_file_range, |c, d, e| e;
}

/// Functions that make one system call and nothing else.
macro_rules! passed_on {
    ($($name:ident = $number:ident;)*) => { $(
        /// # Safety
        /// As C's function of this name.
        pub(crate) unsafe extern "C" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            // SAFETY: the caller's promise. Arguments that the function does not
            // have are undefined, and the kernel does not read them.
            check(unsafe { call6(libc::$number as usize, [a, b, c, d, e, f]) })
        }
    )* };
}

/// C's `mmap`. A mapping without a wanted address goes where the runtime's own ones are, so that
/// the application's mappings get the addresses that they would get without it.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn mmap(
    address: usize,
    len: usize,
    protection: usize,
    flags: usize,
    file: usize,
    offset: usize,
) -> isize {
    let address = match (address, flags & libc::MAP_FIXED as usize) {
        (0, 0) => hint(len),
        _ => address,
    };
    let arguments = [address, len, protection, flags, file, offset];
    // SAFETY: the caller's promise; without MAP_FIXED an address is only a hint.
    let map = || unsafe { call6(libc::SYS_mmap as usize, arguments) };
    check(limit::mapping(pages(len), map))
}

/// C's `munmap`.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn munmap(address: usize, len: usize) -> isize {
    // SAFETY: the caller's promise.
    let answer = unsafe { syscall!(libc::SYS_munmap, address, len) };
    if answer == 0 {
        limit::unmapped(pages(len));
    }
    check(answer)
}

passed_on! {
    read = SYS_read;
    pread = SYS_pread64;
    readv = SYS_readv;
    preadv = SYS_preadv;
    close = SYS_close;
    fstat = SYS_fstat;
    poll = SYS_poll;
    lseek = SYS_lseek;
    mprotect = SYS_mprotect;
    ioctl = SYS_ioctl;
    madvise = SYS_madvise;
    getppid = SYS_getppid;
    flock = SYS_flock;
    fsync = SYS_fsync;
    fdatasync = SYS_fdatasync;
    rename = SYS_rename;
    mkdir = SYS_mkdir;
    rmdir = SYS_rmdir;
    link = SYS_link;
    unlink = SYS_unlink;
    symlink = SYS_symlink;
    readlink = SYS_readlink;
    readlinkat = SYS_readlinkat;
    chmod = SYS_chmod;
    fchmod = SYS_fchmod;
    fchmodat = SYS_fchmodat;
    chown = SYS_chown;
    fchown = SYS_fchown;
    lchown = SYS_lchown;
    getuid = SYS_getuid;
    geteuid = SYS_geteuid;
    getgid = SYS_getgid;
    getegid = SYS_getegid;
    getrusage = SYS_getrusage;
    uname = SYS_uname;
    access = SYS_access;
    mkdirat = SYS_mkdirat;
    unlinkat = SYS_unlinkat;
    renameat = SYS_renameat;
    linkat = SYS_linkat;
    symlinkat = SYS_symlinkat;
    utimensat = SYS_utimensat;
    statx = SYS_statx;
    getrandom = SYS_getrandom;
    prlimit = SYS_prlimit64;
    getrlimit = SYS_getrlimit;
    clock_getres = SYS_clock_getres;
}

/// `futimens`, by `utimensat` without a path.
///
/// # Safety
/// As C's function.
pub(crate) unsafe extern "C" fn futimens(fd: usize, times: usize) -> isize {
    // SAFETY: the caller's promise.
    check(unsafe { syscall!(libc::SYS_utimensat, fd, 0, times, 0) })
}

/// `sched_getcpu`.
pub(crate) extern "C" fn sched_getcpu() -> isize {
    let mut cpu = 0u32;
    // SAFETY: the kernel writes the one word.
    let r = check(unsafe { syscall!(libc::SYS_getcpu, &raw mut cpu) });
    if r < 0 { r } else { cpu as isize }
}
