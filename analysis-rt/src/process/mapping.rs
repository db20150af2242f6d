//! Load biases of libraries, noted when the program interpreter maps them.
//!
//! A program interpreter opens a library, reads its headers, and maps the whole address range of the image
//! by one `mmap` of the file; segments are then mapped over parts of this range. Inserted code in the
//! interpreter shows each `mmap` to [`mapped`] before it is made. A call is the first one of an object if
//! its length is the length of the object's image and its descriptor is the object's instrumented file,
//! which [`opened`] has noted. The address is the kernel's choice, so the runtime makes the call in the
//! interpreter's place, and the interpreter's own call maps the same again at the same address.
//!
//! Until its last segment is mapped, an object is not complete: what the file has at one of its addresses may be
//! elsewhere, or nothing of it. Meanwhile the interpreter already maps zeros over parts of it, where a segment of data is
//! in front of others.
//!
//! If an object is mapped more than once (`dlclose` and `dlopen`, `dlmopen`), the last mapping counts. An
//! object that has been unmapped keeps its load bias, for addresses that were noted before, until another
//! object is mapped there.
//!
//! ABI: arguments of `mmap` are address, length, protection, flags, descriptor, offset; `munmap` has the first
//! two.

use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use atom_abi::{ObjectInfo, ProcessInfo, SystemCall};

use crate::process::table::{load_bias, note_bias, objects};
use crate::sys::call::{is_error, syscall};

const PAGE: u64 = 4096;

/// A function that is called with the number of an object, and true when the object has been mapped, or
/// false when it is about to be unmapped.
pub type MappingHook = fn(usize, bool);

/// The tool's function of this type; null if there is none.
static HOOK: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Sets the function that is called when an object is mapped or unmapped. It runs in the program
/// interpreter, as an analysis routine does. When an object has been mapped, its load bias is known and the
/// object is not relocated yet.
pub fn set_mapping_hook(hook: MappingHook) {
    HOOK.store(hook as *mut (), Ordering::Release);
}

/// Calls the tool's function.
fn tell(object: usize, is_mapped: bool) {
    let hook = HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: `set_mapping_hook` stored a function of this type.
        let hook: MappingHook = unsafe { core::mem::transmute(hook) };
        hook(object, is_mapped);
    }
}

/// Number of the object whose segments are being mapped. The interpreter maps one object at a time.
static INCOMPLETE: AtomicUsize = AtomicUsize::new(NONE);

/// No object's number.
const NONE: usize = usize::MAX;

/// Device and inode of a file by the kernel's answer to a call that fills a `stat`.
fn identity(fill: impl FnOnce(*mut libc::stat) -> isize) -> Option<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    if fill(stat.as_mut_ptr()) != 0 {
        return None;
    }
    // SAFETY: the kernel has written the structure.
    let stat = unsafe { stat.assume_init() };
    Some((stat.st_dev, stat.st_ino))
}

/// Notes the instrumented file of an object that the interpreter opens next.
pub(crate) fn opened(process: &ProcessInfo, object: usize) {
    let Some(facts) = objects(process).get(object) else {
        return;
    };
    let path = facts.instrumented.ptr;
    let file = identity(|stat| {
        // SAFETY: a null follows the path; the kernel writes the structure.
        unsafe { syscall!(libc::SYS_newfstatat, libc::AT_FDCWD, path, stat, 0) }
    });
    let Some((device, inode)) = file else {
        return;
    };
    // SAFETY: `atom` wrote the table; it has an entry for each object.
    let noted = unsafe { &*process.identities.add(object) };
    noted.device.store(device, Ordering::Relaxed);
    noted.inode.store(inode, Ordering::Relaxed);
}

/// True if an object's load bias is known, all of its segments are mapped, and it was not unmapped since.
pub(crate) fn is_mapped(process: &ProcessInfo, object: usize) -> bool {
    let is_library = objects(process)[object].instrumented.len != 0;
    let is_there = || noted(process, object).1 != 0 && INCOMPLETE.load(Ordering::Relaxed) != object;
    load_bias(object).is_some() && (!is_library || is_there())
}

/// True if a descriptor is open on the instrumented file of an object.
pub(crate) fn is_object(process: &ProcessInfo, descriptor: usize) -> bool {
    let file = identity(|stat| {
        // SAFETY: the kernel writes the structure.
        unsafe { syscall!(libc::SYS_fstat, descriptor, stat) }
    });
    file.is_some_and(|file| (0..process.object_count).any(|i| noted(process, i) == file))
}

/// True if the interpreter has opened the instrumented file of an object, which it may have closed since.
pub(crate) fn was_opened(process: &ProcessInfo, object: usize) -> bool {
    noted(process, object).0 != 0
}

/// Device and inode of an object's instrumented file; zeros if they are not known.
fn noted(process: &ProcessInfo, object: usize) -> (u64, u64) {
    // SAFETY: `atom` wrote the table; it has an entry for each object.
    let noted = unsafe { &*process.identities.add(object) };
    let [device, inode] = [&noted.device, &noted.inode].map(|cell| cell.load(Ordering::Relaxed));
    (device, inode)
}

/// Number of bytes that the first `mmap` of an object asks for, in whole pages.
fn span(object: &ObjectInfo) -> u64 {
    object.end.next_multiple_of(PAGE) - object.base / PAGE * PAGE
}

/// Looks at an `mmap` before it is made. For the first one of an object, notes the load bias,
/// and returns the object's number.
pub(crate) fn mapped(process: &ProcessInfo, call: &mut SystemCall) -> Option<usize> {
    let [address, length, _, flags, descriptor, _] = call.arguments;
    let length = (length as u64).checked_next_multiple_of(PAGE);
    note_complete(process, address as u64, length.unwrap_or(0));
    if flags as i32 & libc::MAP_ANONYMOUS != 0 || length.is_none() {
        return None;
    }
    let fits = |o: &ObjectInfo| o.instrumented.len != 0 && Some(span(o)) == length;
    let all = objects(process);
    if !all.iter().any(fits) {
        return None;
    }
    let file = identity(|stat| {
        // SAFETY: the kernel writes the structure.
        unsafe { syscall!(libc::SYS_fstat, descriptor, stat) }
    });
    let is_file = |object: usize| file == Some(noted(process, object));
    let object = (0..all.len()).find(|i| fits(&all[*i]) && is_file(*i))?;
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the interpreter's own call, with the same effect.
    let address = unsafe { syscall!(libc::SYS_mmap, a, b, c, d, e, f) };
    if is_error(address) {
        // The interpreter's call fails in the same way.
        return None;
    }
    call.arguments[0] = address as usize;
    let without = flags & !(libc::MAP_FIXED_NOREPLACE as usize);
    call.arguments[3] = without | libc::MAP_FIXED as usize;
    forget_replaced(process, address as u64, span(&all[object]));
    let bias = (address as u64).wrapping_sub(all[object].base / PAGE * PAGE);
    note_bias(process, object, bias);
    INCOMPLETE.store(object, Ordering::Relaxed);
    tell(object, true);
    Some(object)
}

/// Notes that an object is complete when its last segment is mapped, which ends where the object ends.
fn note_complete(process: &ProcessInfo, address: u64, length: u64) {
    let object = INCOMPLETE.load(Ordering::Relaxed);
    let Some(facts) = objects(process).get(object) else {
        return;
    };
    let end = start(object, facts).map(|start| start.wrapping_add(span(facts)));
    if end.is_none_or(|end| address < end && end <= address.wrapping_add(length)) {
        INCOMPLETE.store(NONE, Ordering::Relaxed);
    }
}

/// Address of the first page of a library's image; `None` if it is not known.
fn start(object: usize, facts: &ObjectInfo) -> Option<u64> {
    let bias = load_bias(object).filter(|_| facts.instrumented.len != 0)?;
    Some(bias.wrapping_add(facts.base / PAGE * PAGE))
}

/// Forgets the load biases of libraries that were unmapped, where an object of `length` bytes is mapped now.
fn forget_replaced(process: &ProcessInfo, address: u64, length: u64) {
    for (object, facts) in objects(process).iter().enumerate() {
        let Some(start) = start(object, facts) else {
            continue;
        };
        let overlaps = start.wrapping_sub(address) < length;
        if overlaps || address.wrapping_sub(start) < span(facts) {
            note_bias(process, object, UNKNOWN);
        }
    }
}

/// Load bias of an object that is not mapped.
const UNKNOWN: u64 = 0;

/// Looks at a `munmap` before it is made, and tells of the object whose image begins there.
pub(crate) fn unmapped(process: &ProcessInfo, call: &SystemCall) {
    let [start, length, ..] = call.arguments.map(|word| word as u64);
    let is_there = |(i, o): &(usize, &ObjectInfo)| {
        self::start(*i, o).is_some_and(|at| at.wrapping_sub(start) < length)
    };
    let found = objects(process).iter().enumerate().find(is_there);
    if let Some((object, _)) = found {
        // SAFETY: `atom` wrote the table; it has an entry for each object.
        let noted = unsafe { &*process.identities.add(object) };
        noted.inode.store(0, Ordering::Relaxed);
        tell(object, false);
    }
}
