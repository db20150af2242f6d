//! A look at some system calls of a process that is instrumented as a whole, just before they are made.
//!
//! The program interpreter opens libraries by their usual paths, so all that it decides and remembers of
//! paths is as in the original process. Here the path of an object's original file is replaced by the path
//! of the instrumented file; the object is known by device, inode, size and time of modification. A link that
//! leads to the running program is read as the original's. Calls on what signals do go to
//! [`super::dispositions`], calls that map files to [`mapping`], those that execute a program to [`super::follow`].

use core::ffi::c_char;
use core::mem::MaybeUninit;

use atom_abi::{ObjectInfo, ProcessInfo, SystemCall};

use crate::c::string::bytes;
use crate::lifecycle::actions::Context;
use crate::lifecycle::{dispositions, follow, handlers, last_stack, late};
use crate::process::{
    dispatch, filters, limits, mapping, objects, own_file, table, text, told, traced, twins,
};
use crate::sys::call::{getpid, syscall};
use crate::sys::{broker, sandbox};
use crate::threads::data;

/// Paths by which a process names its own program.
const OWN_PROGRAM: [&[u8]; 2] = [b"/proc/self/exe", b"/proc/thread-self/exe"];

/// Looks at a system call before it is made, and may change its arguments.
///
/// # Safety
/// Called by inserted code, with the arguments of a system call that is made next.
pub unsafe extern "C" fn system_call(call: *mut SystemCall) {
    // SAFETY: the caller's promise.
    let call = unsafe { &mut *call };
    if dispatch::is_emulated() {
        return;
    }
    dispatch::look(call);
    limits::look(call);
    let [first, second, third, fourth, ..] = call.arguments;
    // SAFETY: the caller's promise.
    unsafe {
        match call.number as i64 {
            libc::SYS_execve => return follow::execve(original(first), second, third),
            libc::SYS_execveat => return follow::execveat(call.arguments),
            libc::SYS_prctl | libc::SYS_seccomp => return filters::look(call),
            libc::SYS_landlock_restrict_self => return broker::start(),
            libc::SYS_rt_sigaction => {
                if dispositions::sigaction(first, second, third, fourth) {
                    // The call that is left asks nothing, and answers 0.
                    (call.arguments[1], call.arguments[2]) = (0, 0);
                }
                return;
            }
            libc::SYS_rt_sigreturn => return handlers::returning(call.stack as *mut Context),
            _ => {}
        }
    }
    // SAFETY: the caller's promise.
    unsafe { own_file::protect(call) };
    text::look(call);
    twins::look(call);
    traced::look(call);
    if call.number as i64 == libc::SYS_exit {
        data::ending();
    }
    last_stack::look(call);
    let link = match call.number as i64 {
        libc::SYS_readlink => Some((first, &mut call.arguments[0])),
        libc::SYS_readlinkat => Some((second, &mut call.arguments[1])),
        _ => None,
    };
    if let Some((name, argument)) = link {
        // SAFETY: as for the functions.
        if let Some(original) = link_to_original()
            && unsafe { is_own_program(name) }
        {
            *argument = original as usize;
        }
        return;
    }
    let Some(process) = table::process() else {
        return;
    };
    if call.number as i64 == libc::SYS_mmap {
        if let Some(object) = mapping::mapped(process, call) {
            text::mapped(object);
        }
        return;
    }
    if call.number as i64 == libc::SYS_munmap {
        return mapping::unmapped(process, call);
    }
    let (folder, path) = match call.number as i64 {
        libc::SYS_open => (libc::AT_FDCWD as usize, 0),
        libc::SYS_openat => (first, 1),
        _ => return,
    };
    let name = [first, second][path];
    let flags = [second, third][path];
    // Objects are only read.
    if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
        return;
    }
    // SAFETY: as for the functions.
    if let Some(object) = unsafe { object(folder, name) } {
        call.arguments[path] = object.instrumented.ptr as usize;
    }
}

/// Path of a link that leads to the original program, if there is one.
fn link_to_original() -> Option<*const u8> {
    match table::process() {
        Some(process) => Some(process.link.ptr),
        None => told::link(),
    }
}

/// Returns the path to execute. A path that is a link to the running program becomes the original program's
/// path.
///
/// # Safety
/// As for [`is_own_program`].
unsafe fn original(path: usize) -> usize {
    match table::process() {
        // SAFETY: the caller's promise; `atom` wrote the table, with the program first.
        Some(process) if unsafe { is_own_program(path) } => unsafe {
            (*process.objects).path.ptr as usize
        },
        _ => path,
    }
}

/// True if a path is a name of the running program's own link.
///
/// # Safety
/// The application passes the path to the kernel next; a bad pointer is its own mistake, at which the
/// kernel looks first.
unsafe fn is_own_program(path: usize) -> bool {
    if !sandbox::is_allowed(libc::SYS_access) {
        return false;
    }
    // The kernel says whether the string can be read.
    // SAFETY: the kernel answers EFAULT to a bad path.
    let readable = unsafe { syscall!(libc::SYS_access, path, libc::F_OK) };
    if readable == -(libc::EFAULT as isize) {
        return false;
    }
    let is = |name: &[u8]| {
        let bytes = (path as *const u8, name.len());
        // SAFETY: the string ends with a zero, at which the comparison stops.
        name.iter()
            .enumerate()
            .all(|(i, b)| unsafe { *bytes.0.add(i) } == *b)
            && unsafe { *bytes.0.add(bytes.1) } == 0
    };
    if OWN_PROGRAM.iter().any(|name| is(name)) {
        return true;
    }
    // `/proc/PID/exe`, to which `realpath` of the others leads.
    let mut numbered = [0; MOST_NUMBERED];
    is(numbered_name(getpid(), &mut numbered))
}

/// Largest length of `/proc/PID/exe`: a number of 32 bits has ten digits.
const MOST_NUMBERED: usize = b"/proc/".len() + 10 + b"/exe".len();

/// Writes `/proc/PID/exe` at the end of a buffer.
fn numbered_name(pid: u32, buffer: &mut [u8; MOST_NUMBERED]) -> &[u8] {
    let mut at = buffer.len();
    let mut put = |byte: u8| {
        at -= 1;
        buffer[at] = byte;
    };
    b"/exe".iter().rev().for_each(|b| put(*b));
    let mut rest = pid;
    loop {
        put(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    b"/proc/".iter().rev().for_each(|b| put(*b));
    &buffer[at..]
}

/// Asks the kernel about the file to which a path leads.
///
/// # Safety
/// As for [`is_own_program`].
unsafe fn stat(folder: usize, path: usize) -> Option<libc::stat> {
    if !sandbox::is_allowed(libc::SYS_newfstatat) {
        return None;
    }
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel reads the path and writes the structure, or answers with an error.
    unsafe {
        let answer = syscall!(libc::SYS_newfstatat, folder, path, stat.as_mut_ptr(), 0);
        (answer == 0).then(|| stat.assume_init())
    }
}

/// The object whose original file a path leads to. A library that is no object yet may become one.
///
/// # Safety
/// As for [`is_own_program`].
unsafe fn object(folder: usize, path: usize) -> Option<&'static ObjectInfo> {
    // SAFETY: the caller's promise.
    let stat = unsafe { stat(folder, path) }?;
    let process = table::process()?;
    let found = known(process, &stat);
    if found.is_some() || stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return found;
    }
    let path = path as *const c_char;
    // SAFETY: the kernel has read the path just now.
    let path = unsafe { bytes(path) };
    let is_modified = |o: &ObjectInfo| {
        let is_it = (o.device, o.inode) == (stat.st_dev, stat.st_ino) || objects::path(o) == path;
        is_it && o.instrumented.len != 0
    };
    if table::objects(process).iter().any(is_modified) {
        objects::warn_of_modified(path);
    } else if folder == libc::AT_FDCWD as usize || path.starts_with(b"/") {
        // SAFETY: the interpreter opens the file next; a null is after the path.
        if unsafe { late::add(path, stat.st_ino) }
            && let Some(found) = known(table::process()?, &stat)
        {
            return Some(found);
        }
    }
    objects::note_unknown(path);
    None
}

/// The object with this original file, which the interpreter opens next.
fn known(process: &'static ProcessInfo, stat: &libc::stat) -> Option<&'static ObjectInfo> {
    let is = |o: &ObjectInfo| {
        (o.device, o.inode, o.size) == (stat.st_dev, stat.st_ino, stat.st_size as u64)
            && (o.modified, o.modified_nanoseconds)
                == (stat.st_mtime as u64, stat.st_mtime_nsec as u64)
            && o.instrumented.len != 0
    };
    let objects = table::objects(process);
    let found = objects.iter().position(is)?;
    mapping::opened(process, found);
    objects.get(found)
}
