//! The objects of a process that is instrumented as a whole: their names, their load biases, and which
//! files the program interpreter opened that are none of them.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use atom_abi::{ObjectInfo, ProcessInfo};

use crate::process::table::PROGRAM;
use crate::process::{info, table};
use crate::sys::fatal::warn_of;

/// At the start: notes where the program and its interpreter are, and gives the program the name that the
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
        table::note_bias(process, PROGRAM, bias);
        let interpreter = process.interpreter;
        if let Some(object) = table::objects(process).get(interpreter) {
            table::note_bias(
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

/// Bytes for the paths of objects that are not instrumented.
const ROOM: usize = 1 << 14;

/// Paths of files that the interpreter opened and that are no objects known beforehand, each with a null
/// after it.
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

/// Warns of a library that has been modified since it was instrumented: it runs as it is, and if it is the one that
/// ends the process there is no report that says so.
pub(crate) fn warn_of_modified(path: &[u8]) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        warn_of(
            path,
            " was modified after it was instrumented; it runs as it is and is not seen. Instrument the program again",
        );
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

/// The path of an object's original file.
pub(crate) fn path(object: &ObjectInfo) -> &'static [u8] {
    // SAFETY: `atom` wrote the table and the paths, which nobody changes.
    unsafe { core::slice::from_raw_parts(object.path.ptr, object.path.len) }
}

/// The file name of an object of the process; `None` for a program alone, and before the start.
pub fn object_name(object: usize) -> Option<&'static str> {
    let process = table::process()?;
    let path = table::objects(process).get(object).map(path)?;
    let name = path.rsplit(|b| *b == b'/').next()?;
    core::str::from_utf8(name).ok()
}
