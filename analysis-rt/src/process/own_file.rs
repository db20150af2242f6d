//! The program's own file cannot be changed while it runs: the kernel answers ETXTBSY to who opens it for writing
//! or cuts it off. Under `atom run` the process runs from another file, so the kernel would permit that, and the
//! user's program would be lost. A system call that would change the original is therefore led to the file from which the
//! process does run, where the kernel's answer is the same.

use core::mem::MaybeUninit;

use atom_abi::SystemCall;

use crate::process::copy::copy_words;
use crate::process::{table, text, told};
use crate::sys::call::syscall;
use crate::sys::sandbox;

/// The file from which the process runs; a null follows.
const RUNNING: &[u8] = b"/proc/self/exe\0";

/// Flags of `open` of which one is set where the file may be changed.
const TO_BE_CHANGED: usize = (libc::O_ACCMODE | libc::O_TRUNC) as usize;

/// Leads a system call that would change the original file of the running program to the file from which it
/// runs. Calls that the kernel refuses for want of permission stay as they are.
///
/// # Safety
/// As for [`crate::lifecycle::system_call::system_call`].
pub(crate) unsafe fn protect(call: &mut SystemCall) {
    let [first, second, third, ..] = call.arguments;
    let at_working_folder = libc::AT_FDCWD as usize;
    let (folder, path, flags) = match call.number as i64 {
        libc::SYS_open => (at_working_folder, 0, second),
        libc::SYS_creat | libc::SYS_truncate => (at_working_folder, 0, libc::O_WRONLY as usize),
        libc::SYS_openat => (first, 1, third),
        libc::SYS_openat2 => {
            // `struct open_how` begins with the flags.
            let mut how = [0];
            if !copy_words(third, &mut how) {
                return;
            }
            (first, 1, how[0] as usize)
        }
        _ => return,
    };
    if flags & TO_BE_CHANGED == 0 || flags & libc::O_PATH as usize != 0 {
        return;
    }
    // SAFETY: the caller's promise.
    if unsafe { is_memory([first, second][path]) } {
        return text::memory_file_opened();
    }
    let follows = flags & libc::O_NOFOLLOW as usize == 0;
    let name = [first, second][path];
    // SAFETY: the caller's promise.
    if unsafe { is_original(folder, name, follows) } && may_write(folder, name) {
        call.arguments[path] = RUNNING.as_ptr() as usize;
        // The name of the running file is a link.
        match call.number as i64 {
            libc::SYS_open => call.arguments[1] &= !(libc::O_NOFOLLOW as usize),
            libc::SYS_openat => call.arguments[2] &= !(libc::O_NOFOLLOW as usize),
            _ => {}
        }
    }
}

/// True if a path leads to the original file of the running program.
///
/// # Safety
/// The application passes the path to the kernel next.
unsafe fn is_original(folder: usize, path: usize, follows: bool) -> bool {
    let original = match table::process() {
        Some(process) => table::objects(process)
            .get(table::PROGRAM)
            .map(|program| [program.device, program.inode]),
        None => told::original(),
    };
    let Some(original) = original.filter(|_| sandbox::is_allowed(libc::SYS_newfstatat)) else {
        return false;
    };
    let flags = if follows {
        0
    } else {
        libc::AT_SYMLINK_NOFOLLOW
    };
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel reads the path and writes the structure, or answers with an error.
    unsafe {
        syscall!(libc::SYS_newfstatat, folder, path, stat.as_mut_ptr(), flags) == 0 && {
            let stat = stat.assume_init();
            [stat.st_dev, stat.st_ino] == original
        }
    }
}

/// True if a path may lead to the memory of a process.
///
/// # Safety
/// As for [`is_original`].
unsafe fn is_memory(path: usize) -> bool {
    const START: [u8; 8] = *b"/proc/se";
    const THREAD: [u8; 8] = *b"/proc/th";
    const NUMBERED: [u8; 6] = *b"/proc/";
    let mut word = [0];
    if !copy_words(path, &mut word) {
        return false;
    }
    let start = word[0].to_le_bytes();
    start == START || start == THREAD || start.starts_with(&NUMBERED) && start[6].is_ascii_digit()
}

/// True if the process may write to the file at a path, as far as permissions go. Where that cannot be asked, the
/// answer is true.
fn may_write(folder: usize, path: usize) -> bool {
    if !sandbox::is_allowed(libc::SYS_faccessat2) {
        return true;
    }
    // SAFETY: the kernel reads the path, which it has read just now.
    let answer = unsafe {
        syscall!(
            libc::SYS_faccessat2,
            folder,
            path,
            libc::W_OK,
            libc::AT_EACCESS
        )
    };
    // Older kernels do not know the call.
    answer == 0 || answer == -(libc::ENOSYS as isize)
}
