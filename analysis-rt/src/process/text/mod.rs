//! Code that the process changes: hooks, static keys, breakpoints.
//!
//! The original text holds pads, and its procedures run at other addresses, so what the process writes there would have no
//! effect. Just before a system call that makes text writable, or writes to it, the procedures there are put back in
//! place: the bytes under their pads are restored, and direct calls and jumps in the new text lead to the original
//! entries. Procedures that share code or bytes with them follow. Frames and loops that are in the new text continue there.
//! The code at the new entries stays, so a pad that the process has copied before (as the beginning of the procedure,
//! to call it or to write it back) still leads to the procedure.
//!
//! [`TextTable`] says what there is to know; it is a part of the file that is only read here.

mod work;
mod writer;

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use atom_abi::{SystemCall, TextPlace, TextTable};

use crate::process::copy::copy_words;
use crate::process::{info, mapping, table};
use crate::sys::call::{getpid, is_error, syscall};
use crate::sys::decimal::Decimal;
use crate::sys::memory::{self, PAGE};
use crate::sys::sandbox;
use crate::sys::signals::with_all_blocked;
use crate::sys::spin::SpinLock;
use work::{DONE, Work};

/// Set once the process may have a descriptor by which it writes to its own memory.
static HAS_MEMORY_FILE: AtomicBool = AtomicBool::new(false);

/// One writer at a time.
static LOCK: SpinLock = SpinLock::new();

/// For each object the marks of its procedures (see [`work`]), or null; itself null before the first change. The length
/// is [`object_count`], or [`atom_abi::MOST_OBJECTS`] if that is more.
static MARKS: AtomicPtr<AtomicPtr<u8>> = AtomicPtr::new(null_mut());

/// Number of procedures of all objects that run in place.
static IN_PLACE: AtomicUsize = AtomicUsize::new(0);

/// Most pieces of one call that are looked at.
const PIECES: usize = 16;

/// Notes that the process opens its own memory as a file, to write to it.
pub(crate) fn memory_file_opened() {
    HAS_MEMORY_FILE.store(true, Ordering::Relaxed);
}

/// Looks at a system call before it is made.
pub(crate) fn look(call: &SystemCall) {
    let [first, second, third, fourth, fifth, _] = call.arguments;
    match call.number as i64 {
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if third & libc::PROT_WRITE as usize != 0 => {
            written(first, memory::pages(second));
        }
        libc::SYS_mmap if fourth & libc::MAP_FIXED as usize != 0 => {
            // The program interpreter maps the segments of objects.
            let anonymous = fourth & libc::MAP_ANONYMOUS as usize != 0;
            let is_object = |process| mapping::is_object(process, fifth);
            if anonymous || !table::process().is_some_and(is_object) {
                written(first, memory::pages(second));
            }
        }
        libc::SYS_lseek if is_memory(first) => written(second, PAGE),
        libc::SYS_pwrite64 if is_memory(first) => written(fourth, third),
        libc::SYS_pwritev | libc::SYS_pwritev2 if is_memory(first) => {
            let mut size = 0;
            each_piece(second, third, |_, len| size += len);
            written(fourth, size);
        }
        libc::SYS_process_vm_writev if first as u32 == getpid() => {
            each_piece(fourth, fifth, written);
        }
        // The parent may write breakpoints wherever it likes.
        libc::SYS_ptrace if first as u32 == libc::PTRACE_TRACEME => {
            put_in_place(table::PROGRAM, 0, u64::MAX);
        }
        _ => {}
    }
}

/// Calls `each` with the address and the length of each piece of an array of `struct iovec`.
fn each_piece(array: usize, count: usize, mut each: impl FnMut(usize, usize)) {
    for i in 0..count.min(PIECES) {
        let mut piece = [0; 2];
        if !copy_words(array + i * size_of_val(&piece), &mut piece) {
            return;
        }
        each(piece[0] as usize, piece[1] as usize);
    }
}

/// True if a descriptor leads to the memory of a process, as far as that matters.
fn is_memory(descriptor: usize) -> bool {
    if !HAS_MEMORY_FILE.load(Ordering::Relaxed) || !sandbox::is_allowed(libc::SYS_readlink) {
        return false;
    }
    const FOLDER: &[u8] = b"/proc/self/fd/";
    let mut path = [0u8; 32];
    path[..FOLDER.len()].copy_from_slice(FOLDER);
    let number = Decimal::new(u64::from(descriptor as u32));
    path[FOLDER.len()..FOLDER.len() + number.digits().len()].copy_from_slice(number.digits());
    let mut target = MaybeUninit::<[u8; 64]>::uninit();
    // SAFETY: the path ends with a zero; the kernel writes at most the given number of bytes.
    let target = unsafe {
        let len = syscall!(libc::SYS_readlink, path.as_ptr(), target.as_mut_ptr(), 64);
        if is_error(len) {
            return false;
        }
        slice::from_raw_parts(target.as_ptr().cast::<u8>(), len as usize)
    };
    target.starts_with(b"/proc/") && target.ends_with(b"/mem")
}

/// Puts back what is in a part of memory to which the process is about to write.
fn written(address: usize, len: usize) {
    let (from, to) = (address as u64, address.saturating_add(len) as u64);
    let count = object_count();
    for object in 0..count {
        let place = place_of(object);
        if place.is_some_and(|p| from < p.end && p.start < to) {
            put_in_place(object, from, to);
        }
    }
}

/// Number of objects of the process.
fn object_count() -> usize {
    table::process().map_or(1, |process| process.object_count)
}

/// Where the table of an object is and which procedures it is about, by run-time addresses; `None` if the object is
/// not mapped or nothing in it moved.
fn place_of(object: usize) -> Option<TextPlace> {
    let bias = table::load_bias(object)?;
    let Some(process) = table::process() else {
        // SAFETY: null, or the table in the program's new segment.
        let table = unsafe { info::get()?.text.as_ref()? };
        return Some(TextPlace {
            table: core::ptr::from_ref(table).expose_provenance() as u64,
            start: table.start.wrapping_add(bias),
            end: table.end.wrapping_add(bias),
        });
    };
    // SAFETY: `atom` wrote the array; it has an entry for each object.
    let place = unsafe { &*process.texts.add(object) };
    (place.table != 0 && mapping::is_mapped(process, object)).then(|| TextPlace {
        table: place.table.wrapping_add(bias),
        start: place.start.wrapping_add(bias),
        end: place.end.wrapping_add(bias),
    })
}

/// The table of an object that is mapped, and the object's load bias.
fn table_of(object: usize) -> Option<(&'static TextTable, u64)> {
    let place = place_of(object)?;
    let table = core::ptr::with_exposed_provenance::<TextTable>(place.table as usize);
    // SAFETY: `atom` wrote the table, which is mapped with the object.
    Some((unsafe { &*table }, table::load_bias(object)?))
}

/// Calls `each` with the number of each object that has procedures which run in place, and their number.
pub fn each_in_place(each: &mut dyn FnMut(usize, usize)) {
    if IN_PLACE.load(Ordering::Relaxed) == 0 {
        return;
    }
    for object in 0..object_count() {
        let Some(marks) = marks_of(object) else {
            continue;
        };
        let marks = marks.load(Ordering::Acquire);
        let Some((table, _)) = table_of(object).filter(|_| !marks.is_null()) else {
            continue;
        };
        // SAFETY: the array has a mark for each procedure.
        let marks = unsafe { slice::from_raw_parts(marks, table.procs as usize) };
        match marks.iter().filter(|mark| **mark == DONE).count() {
            0 => {}
            count => each(object, count),
        }
    }
}

/// An object was mapped anew: its procedures run in the new text.
pub(crate) fn mapped(object: usize) {
    if let Some(marks) = marks_of(object) {
        // The memory of the marks before is not used again; another thread may look at it.
        marks.store(null_mut(), Ordering::Release);
    }
}

/// The place of an object's marks; `None` if nothing was put in place so far.
fn marks_of(object: usize) -> Option<&'static AtomicPtr<u8>> {
    let all = MARKS.load(Ordering::Acquire);
    // SAFETY: null, or an array with an entry for each object, which stays.
    (!all.is_null()).then(|| unsafe { &*all.add(object) })
}

/// Puts the procedures of an object in place that are in a range of run-time addresses.
fn put_in_place(object: usize, from: u64, to: u64) {
    let Some((table, bias)) = table_of(object) else {
        return;
    };
    with_all_blocked(|| {
        LOCK.lock_for_process();
        if let Some(work) = Work::new(object, table, bias) {
            work.put_in_place(from.saturating_sub(bias), to.saturating_sub(bias));
        }
        LOCK.unlock();
    });
}
