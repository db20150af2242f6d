//! Executed programs are instrumented too: `atom run --children`.
//!
//! Inserted code calls [`execve`] and [`execveat`] before the application's own call. If the kernel would
//! execute the file, and it is one that can be instrumented, the runtime executes `atom` in its place, with
//! the path, the arguments and the environment as arguments: `atom` instruments the file, or finds it
//! instrumented, and executes that. In every other case the application's own call is made, so that its
//! error numbers are the kernel's.
//!
//! The process may be a child in its parent's memory (`vfork`, `posix_spawn`). So nothing is changed in
//! memory but the stack, and for very long arguments a mapping (see `arguments`).

mod arguments;
mod file;

use core::ffi::c_char;

use crate::c::string::bytes;
use crate::lifecycle::{deferred, exec};
use crate::process::{note, told, traced};
use crate::sys::call::{getpid, syscall};
use crate::sys::decimal::Decimal;
use crate::sys::limit;
use file::Verdict;

/// Asks `execveat` whether it would execute the file, permissions and size of the arguments included
/// (since Linux 6.14).
const AT_EXECVE_CHECK: usize = 0x10000;

/// Paths below these may lead to another file in another process, or after the descriptors that are closed
/// by `exec` are gone.
const OF_THIS_PROCESS: [&[u8]; 3] = [b"/proc/", b"/dev/fd/", b"/dev/std"];

/// Letters of the entries in the record: a program that runs as it is, and an entry that is taken back.
const UNSEEN: u8 = b'N';
const TAKEN_BACK: u8 = b'U';

/// Executes the instrumented program in the place of `execve(path, argv, envp)`. Returns if the application
/// has to make its own call.
///
/// # Safety
/// Called by inserted code after the start, with the arguments of an `execve` that is made next.
pub(crate) unsafe fn execve(path: usize, argv: usize, envp: usize) {
    let Some(words) = told::follow() else {
        return;
    };
    // SAFETY: the caller's promise.
    unsafe {
        if !is_permitted(path, argv, envp) {
            return;
        }
        let call = [libc::SYS_execve as usize, path, argv, envp, 0, 0];
        let verdict = match () {
            () if OF_THIS_PROCESS
                .iter()
                .any(|p| bytes(path as *const c_char).starts_with(p)) =>
            {
                Verdict::Unseen("its path is one in /proc")
            }
            // Its parent decodes the file, and counts its stops.
            () if traced::is_traced() => {
                Verdict::Unseen("its parent traces it, as a debugger does")
            }
            () if has_little_space() => Verdict::Unseen("its address space is limited"),
            () => file::judge(path as *const u8),
        };
        match verdict {
            Verdict::Unknown => {}
            Verdict::Unseen(reason) => run_as_it_is(reason, bytes(path as *const c_char), call),
            Verdict::Followed => {
                exec::prepare();
                deferred::leave();
                arguments::execute(words, [path, argv, envp]);
                limit::stay();
                deferred::stay();
                // The arguments may be too long for more words.
                run_as_it_is(
                    "atom cannot be executed in its place",
                    bytes(path as *const c_char),
                    call,
                );
            }
        }
    }
}

/// As [`execve`], for `execveat`. A program that is named by a descriptor runs as it is.
///
/// # Safety
/// As for [`execve`].
pub(crate) unsafe fn execveat(arguments: [usize; 6]) {
    let [folder, path, argv, envp, flags, _] = arguments;
    if flags & AT_EXECVE_CHECK != 0 || told::follow().is_none() {
        return;
    }
    // SAFETY: the caller's promise; the kernel answers EFAULT to a bad path, which is read after that.
    unsafe {
        let check = flags | AT_EXECVE_CHECK;
        if syscall!(libc::SYS_execveat, folder, path, argv, envp, check) != 0 {
            return;
        }
        let is_usual = folder as i32 == libc::AT_FDCWD || *(path as *const u8) == b'/';
        if is_usual && flags == 0 {
            return execve(path, argv, envp);
        }
        let call = [libc::SYS_execveat as usize, folder, path, argv, envp, flags];
        let mut buffer = [0; 512];
        let name = match bytes(path as *const c_char) {
            [] => file_of(folder, &mut buffer),
            path => path,
        };
        run_as_it_is("it is executed by a descriptor", name, call);
    }
}

/// Whether the kernel permits to execute the file, if it has the format of a program.
///
/// # Safety
/// The kernel reads the path, and answers EFAULT to a bad pointer.
unsafe fn is_permitted(path: usize, argv: usize, envp: usize) -> bool {
    let folder = libc::AT_FDCWD;
    // SAFETY: the kernel only reads what the pointers lead to, and checks them.
    unsafe {
        match syscall!(
            libc::SYS_execveat,
            folder,
            path,
            argv,
            envp,
            AT_EXECVE_CHECK
        ) {
            0 => true,
            // An older kernel. A file that is being written (ETXTBSY) is not noticed.
            error if error == -(libc::EINVAL as isize) || error == -(libc::ENOSYS as isize) => {
                syscall!(libc::SYS_faccessat, folder, path, libc::X_OK) == 0
            }
            _ => false,
        }
    }
}

/// True if the address space is limited (`ulimit -v`) to less than an instrumented program may reserve.
pub(crate) fn has_little_space() -> bool {
    const NEEDED: u64 = 4 << 30;
    limit::ADDRESSES.soft() < NEEDED
}

/// Notes that a program runs as it is, and makes the application's call. If that fails, the note is taken
/// back; the application's own call fails in the same way then.
///
/// # Safety
/// The call is the one that the application makes next.
unsafe fn run_as_it_is(reason: &str, name: &[u8], call: [usize; 6]) {
    // SAFETY: the caller's promise.
    unsafe {
        note::leave_of_process(UNSEEN, &[reason.as_bytes(), b"\t", name]);
        exec::prepare();
        deferred::leave();
        let [code, a, b, c, d, e] = call;
        syscall!(code, a, b, c, d, e);
        limit::stay();
        deferred::stay();
        note::leave(TAKEN_BACK, &[Decimal::new(getpid().into()).digits()]);
    }
}

/// The file of a descriptor, as far as it fits.
fn file_of(descriptor: usize, buffer: &mut [u8]) -> &[u8] {
    const FOLDER: &[u8] = b"/proc/self/fd/";
    let number = Decimal::new(descriptor as u32 as u64);
    let mut link = [0u8; 40];
    link[..FOLDER.len()].copy_from_slice(FOLDER);
    let digits = number.digits();
    link[FOLDER.len()..FOLDER.len() + digits.len()].copy_from_slice(digits);
    // SAFETY: the link's path ends with a null; the kernel writes at most the buffer's length.
    let len = unsafe {
        syscall!(
            libc::SYS_readlink,
            link.as_ptr(),
            buffer.as_mut_ptr(),
            buffer.len()
        )
    };
    match len {
        1.. => &buffer[..len as usize],
        _ => b"?",
    }
}
