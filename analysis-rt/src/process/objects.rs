//! The objects of a process that is instrumented as a whole: their names, their load biases, and which
//! files the program interpreter opened that are none of them.

use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use atom_abi::ProcessInfo;

use crate::process::{info, mapping};

/// At the start: notes where the program and its interpreter lie, and gives the program the name that the
/// original's would have.
///
/// # Safety
/// The auxiliary vector is known and may be written to.
pub(crate) unsafe fn begin(process: &ProcessInfo) {
    let entry = info::getauxval(libc::AT_ENTRY as usize);
    let base = info::getauxval(libc::AT_BASE as usize);
    // SAFETY: `atom` wrote the table; it has an entry for each object.
    unsafe {
        let bias = entry.wrapping_sub(process.entry as usize) as u64;
        mapping::note(process, PROGRAM, bias);
        let interpreter = process.interpreter;
        if let Some(object) = mapping::objects(process).get(interpreter) {
            mapping::note(
                process,
                interpreter,
                (base as u64).wrapping_sub(object.base),
            );
        }
        if process.named.len != 0 {
            info::replace_auxval(libc::AT_EXECFN as usize, process.named.ptr as usize);
        }
    }
}

/// Number of the program among the objects.
const PROGRAM: usize = 0;

/// Load bias of an object (run-time address minus address in the file); `None` before the object is mapped,
/// for a number that no object has, and before the start. A program alone is object 0.
pub fn load_bias(object: usize) -> Option<u64> {
    let Some(process) = process() else {
        let info = info::get().filter(|_| object == PROGRAM)?;
        let at = core::ptr::from_ref(info).addr() as u64;
        return Some(at.wrapping_sub(info.address));
    };
    if object >= process.object_count {
        return None;
    }
    // SAFETY: `atom` wrote the table; it has an entry for each object.
    let bias = unsafe { (*process.biases.add(object)).load(Ordering::Acquire) };
    // A program at fixed addresses has a bias of 0; nothing else is mapped at address 0.
    (bias != 0 || object == PROGRAM).then_some(bias)
}

/// The object of a process in whose image a run-time address lies, with its new segments, and the object's
/// load bias. `None` for an address of no object, and for a program alone.
pub fn object_at(address: u64) -> Option<(usize, u64)> {
    let all = mapping::objects(process()?);
    // New segments of the program lie far behind its image, so the others come first.
    (0..all.len()).rev().find_map(|i| {
        let bias = load_bias(i)?;
        let in_file = address.wrapping_sub(bias);
        (all[i].base..all[i].end)
            .contains(&in_file)
            .then_some((i, bias))
    })
}

/// Bytes for the paths of objects that are not instrumented.
const ROOM: usize = 1 << 14;

/// Paths of files that the interpreter opened and that are no objects known beforehand, each with a null
/// behind it.
static UNKNOWN: [AtomicU8; ROOM] = [const { AtomicU8::new(0) }; ROOM];

/// Number of bytes of [`UNKNOWN`] in use; more than there are if some did not fit.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Notes the path of a file that the interpreter opens and that is no object known beforehand.
pub(crate) fn note_unknown(path: &[u8]) {
    let at = USED.fetch_add(path.len() + 1, Ordering::Relaxed);
    if let Some(place) = UNKNOWN.get(at..at.saturating_add(path.len())) {
        for (cell, byte) in place.iter().zip(path) {
            cell.store(*byte, Ordering::Relaxed);
        }
    }
}

/// Calls `each` with the path of each file that the program interpreter opened and that is not
/// instrumented: libraries loaded while the program ran, and the interpreter's own files.
pub fn unknown_objects(each: &mut dyn FnMut(&[u8])) {
    let used = USED.load(Ordering::Relaxed).min(ROOM);
    // SAFETY: atomics have the layout of the bytes, and nobody writes to the part in use again.
    let bytes = unsafe { core::slice::from_raw_parts(UNKNOWN.as_ptr().cast::<u8>(), used) };
    bytes
        .split(|b| *b == 0)
        .filter(|p| !p.is_empty())
        .for_each(each);
}

/// The facts of a process whose objects are all instrumented; `None` for a program alone, and before the
/// start.
pub(crate) fn process() -> Option<&'static ProcessInfo> {
    // SAFETY: null, or in the area, which stays mapped.
    unsafe { info::get()?.process.as_ref() }
}

/// The file name of an object of the process; `None` for a program alone, and before the start.
pub fn object_name(object: usize) -> Option<&'static str> {
    let process = process()?;
    if object >= process.object_count {
        return None;
    }
    // SAFETY: `atom` wrote the table, with text in UTF-8 as far as the path is.
    let path = unsafe {
        let path = (*process.objects.add(object)).path;
        core::slice::from_raw_parts(path.ptr, path.len)
    };
    let name = path.rsplit(|b| *b == b'/').next()?;
    core::str::from_utf8(name).ok()
}
