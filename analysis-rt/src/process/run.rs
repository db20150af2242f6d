//! The run to which the process belongs: which `atom run` waits for it.
//!
//! The program that `atom run` starts is its child. A program that the process executes later may have any
//! parent. `atom run --children` executes it by the path `/proc/NUMBER/../../PATH`, where NUMBER is the
//! process number of the `atom run` that waits and PATH the absolute path of the instrumented file. The
//! kernel hands that path over in the auxiliary vector (AT_EXECFN), so nothing is added to the environment
//! or the arguments.
//!
//! The path that the program itself would see there is known to `atom` when it writes the program, but for
//! scripts, where it is the script's, and for static programs. Then PATH leads through a folder `at`, and
//! beside that is a symbolic link `path` whose text is the path to be seen.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering};

use crate::process::info;
use crate::sys::call::syscall;
use crate::sys::decimal;

/// What the path starts with, before and after the number.
const BEFORE: &[u8] = b"/proc/";
const BEHIND: &[u8] = b"/../../";

/// Number of the process that waits: `atom run` if the process was started by one.
static WAITER: AtomicU32 = AtomicU32::new(0);
/// True if the process ran already when it was instrumented.
static IS_ATTACHED: AtomicBool = AtomicBool::new(false);
/// Path of the folder for reports of such a process, with a null after it; null if it has no name there.
static ATTACHED_FOLDER: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// File name of an executed program, and its length; null for the program that `atom run` started.
static NAME: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);

/// Folder after which the path to be seen is not the one that `atom` has written, and name of the link that
/// has it, as seen from that folder.
const FOLDER: &[u8] = b"/at/";
const LINK: &[u8] = b"/path";

/// Size in bytes of the longest path, with its null.
const MOST: usize = libc::PATH_MAX as usize;

/// The path that the program sees as its own, with a null after it; empty if it is another one.
static SEEN: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];

/// At the start, before the auxiliary vector is changed: reads the path.
///
/// # Safety
/// The auxiliary vector is known, and is the kernel's.
pub(crate) unsafe fn begin() {
    let attached_by = info::getauxval(atom_abi::ATTACHED_BY);
    if attached_by != 0 {
        IS_ATTACHED.store(true, Ordering::Relaxed);
        let folder = info::getauxval(libc::AT_EXECFN as usize) as *mut u8;
        ATTACHED_FOLDER.store(folder, Ordering::Relaxed);
        return WAITER.store(attached_by as u32, Ordering::Relaxed);
    }
    // SAFETY: a system call without effects.
    let parent = unsafe { syscall!(libc::SYS_getppid) };
    WAITER.store(parent as u32, Ordering::Relaxed);
    let path = info::getauxval(libc::AT_EXECFN as usize) as *const u8;
    if path.is_null() {
        return;
    }
    // SAFETY: the kernel's string, which stays on the process stack.
    let path = unsafe {
        let mut len = 0;
        while *path.add(len) != 0 {
            len += 1;
        }
        core::slice::from_raw_parts(path, len)
    };
    let Some(number) = waiter_of(path) else {
        return;
    };
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    read_seen(&path[..path.len() - name.len()]);
    WAITER.store(number, Ordering::Relaxed);
    NAME.store(name.as_ptr().cast_mut(), Ordering::Relaxed);
    NAME_LEN.store(name.len(), Ordering::Relaxed);
}

/// Reads the path to be seen. `folder` is the one of the executed file, with a slash at its end.
fn read_seen(folder: &[u8]) {
    let mut link = [0; MOST];
    let Some(start) = folder.strip_suffix(FOLDER) else {
        return;
    };
    let len = start.len() + LINK.len();
    if len >= MOST {
        return;
    }
    link[..start.len()].copy_from_slice(start);
    link[start.len()..len].copy_from_slice(LINK);
    // SAFETY: the link's path ends with a null; the last byte of the buffer stays null.
    unsafe { syscall!(libc::SYS_readlink, link.as_ptr(), SEEN.as_ptr(), MOST - 1) };
}

/// True if the process ran already when it was instrumented.
pub fn is_attached() -> bool {
    IS_ATTACHED.load(Ordering::Relaxed)
}

/// The folder for reports of such a process, with no null at its end; `None` if it has no name there, and relative paths are right where
/// reports are written.
pub fn attached_folder() -> Option<&'static [u8]> {
    let folder = ATTACHED_FOLDER.load(Ordering::Relaxed);
    if folder.is_null() {
        return None;
    }
    // SAFETY: `atom attach` wrote the text, which ends with a null and stays until the last report.
    let path = unsafe { core::ffi::CStr::from_ptr(folder.cast()) };
    Some(path.to_bytes()).filter(|path| !path.is_empty())
}

/// At the start: gives the program the path that it sees as its own, if that is not the one that `atom` has
/// written.
///
/// # Safety
/// As for [`info::replace_auxval`].
pub(crate) unsafe fn show_path() {
    if SEEN[0].load(Ordering::Relaxed) != 0 {
        // SAFETY: the caller's promise; the text stays and ends with a null.
        unsafe { info::replace_auxval(libc::AT_EXECFN as usize, SEEN.as_ptr() as usize) };
    }
}

/// The process number in the path by which an executed program was started.
fn waiter_of(path: &[u8]) -> Option<u32> {
    let rest = path.strip_prefix(BEFORE)?;
    let (number, digits) = decimal::parse(rest);
    let is_one = digits != 0 && rest[digits..].starts_with(BEHIND);
    u32::try_from(number).ok().filter(|_| is_one)
}

/// Number of the process that waits for the program: an `atom run`, or else the parent at the start; 0
/// before the start.
pub fn waiter() -> u32 {
    WAITER.load(Ordering::Relaxed)
}

/// File name of the program if another instrumented program executed it; `None` for the first program of a
/// run.
pub fn executed() -> Option<&'static str> {
    let name = NAME.load(Ordering::Relaxed);
    if name.is_null() {
        return None;
    }
    // SAFETY: part of the kernel's string, which stays in place.
    let name = unsafe { core::slice::from_raw_parts(name, NAME_LEN.load(Ordering::Relaxed)) };
    Some(core::str::from_utf8(name).unwrap_or("program"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_read_from_the_path() {
        assert_eq!(waiter_of(b"/proc/17/../../cache/make"), Some(17));
        for other in [
            "/proc/17/exe",
            "/proc//../../x",
            "/usr/bin/make",
            "",
            "/proc/99999999999/../../x",
        ] {
            assert_eq!(waiter_of(other.as_bytes()), None, "{other}");
        }
    }
}
