//! The application's system calls on the limits of its memory, and the one that locks all of it, just before they are
//! made; see [`limit`].

use core::ptr;

use atom_abi::SystemCall;

use crate::process::copy::copy_words;
use crate::process::maps::{Line, Maps};
use crate::process::{info, table};
use crate::sys::call::{getpid, syscall};
use crate::sys::limit::{self, Limit};
use crate::sys::sandbox;

/// A limit that nobody but a privileged process may set, and that is above any other.
static REFUSED: Limit = [0, libc::RLIM_INFINITY];

/// Where the kernel writes a limit that nobody reads.
static mut UNUSED: Limit = [0; 2];

/// Looks at a system call before it is made. If it is on one of the limits, makes it, and leaves one that changes nothing and answers
/// the same.
pub(crate) fn look(call: &mut SystemCall) {
    limit::stay();
    let [first, second, third, fourth, ..] = call.arguments;
    let (resource, new, old) = match call.number as i64 {
        libc::SYS_mlockall => return lock_all(call),
        libc::SYS_prlimit64 if first == 0 || first as u32 == getpid() => (second, third, fourth),
        libc::SYS_setrlimit => (first, second, 0),
        libc::SYS_getrlimit => (first, 0, second),
        _ => return,
    };
    let kind = match resource as u32 {
        libc::RLIMIT_AS => &limit::ADDRESSES,
        libc::RLIMIT_DATA => &limit::DATA,
        _ => return,
    };
    if !sandbox::is_allowed(libc::SYS_prlimit64) {
        return;
    }
    let shown = kind.shown();
    if new == 0 && shown.is_none() {
        return;
    }
    let Some(before) = shown.or_else(|| kind.now()) else {
        return;
    };
    let mut left = [0, (&raw mut UNUSED).expose_provenance()];
    if new != 0 {
        let mut wanted = [0; 2];
        // The application's own call fails.
        if !copy_words(new, &mut wanted) || wanted[0] > wanted[1] {
            return;
        }
        if !kind.are_images_known() {
            let is_data = ptr::eq(kind, &limit::DATA);
            let known = Maps::read().and_then(|maps| images(&maps, is_data));
            kind.note_images(known.unwrap_or(0));
        }
        if !kind.set(wanted) {
            left = [(&raw const REFUSED).expose_provenance(), 0];
        }
    }
    if old != 0 && left[0] == 0 {
        // SAFETY: the kernel checks the application's pointer, and has written there if it does not complain.
        unsafe {
            if syscall!(libc::SYS_prlimit64, 0, resource, 0, old) == 0 {
                (old as *mut Limit).write_unaligned(before);
            } else {
                left[1] = old;
            }
        }
    }
    leave(call, resource, left);
}

/// Has the kernel answer a system call on a limit in place of the application's: with `[0, place]` it changes nothing, and
/// writes the limit to the place.
fn leave(call: &mut SystemCall, resource: usize, [new, old]: [usize; 2]) {
    call.number = libc::SYS_prlimit64 as usize;
    call.arguments = [0, resource, new, old, 0, 0];
}

/// Locks the memory of the process (`mlockall`). Pages are locked when they are touched, as the tool may have reserved more
/// addresses than there is memory. Where the kernel refuses because of what the original does not have, nothing is locked, and
/// the application is told that its memory is.
fn lock_all(call: &mut SystemCall) {
    let what = (libc::MCL_CURRENT | libc::MCL_FUTURE) as usize;
    let on_fault = libc::MCL_ONFAULT as usize;
    let flags = call.arguments[0];
    // The application's own call fails.
    if flags & !(what | on_fault) != 0 || flags & what == 0 {
        return;
    }
    call.arguments[0] = flags | on_fault;
    if !sandbox::is_allowed(libc::SYS_prlimit64) {
        return;
    }
    // SAFETY: the call changes where the kernel keeps pages, and nothing that a program can read.
    let answer = unsafe { syscall!(libc::SYS_mlockall, call.arguments[0]) };
    let has_room = || size().is_some_and(|own| own <= limit::LOCKED.soft());
    if answer == 0 || answer == -(libc::ENOMEM as isize) && has_room() {
        let unused = (&raw mut UNUSED).expose_provenance();
        leave(call, libc::RLIMIT_MEMLOCK as usize, [0, unused]);
    }
}

/// Bytes that the application has mapped. `None` if the process may not ask.
fn size() -> Option<u64> {
    let maps = Maps::read()?;
    let all: u64 = maps.lines().map(|l| l.end - l.start).sum();
    Some(all.saturating_sub(limit::mapped() + images(&maps, false)?))
}

/// Bytes of the mappings of instrumented files, and of the area, that the originals do not have: what is new in a file is after
/// the original's bytes. `data`: of those to write. `None` if it is not known where the tool's code is.
fn images(maps: &Maps, data: bool) -> Option<u64> {
    let info = info::get()?;
    let known = if info.code.is_null() {
        ptr::from_ref(info).addr()
    } else {
        info.code.addr()
    } as u64;
    // The file with the tool's code, where what is new begins with it.
    let tool = maps.lines().find(|l| (l.start..l.end).contains(&known))?;
    let objects = table::process().map_or(&[][..], table::objects);
    let is_new = |line: &Line| {
        if line.path.is_empty() || data && !line.is_writable {
            return false;
        }
        let object = table::object_at(line.start).map(|(object, _)| &objects[object]);
        line.path == tool.path && line.offset >= tool.offset
            || object.is_some_and(|object| line.offset >= object.size)
    };
    Some(maps.lines().filter(is_new).map(|l| l.end - l.start).sum())
}
