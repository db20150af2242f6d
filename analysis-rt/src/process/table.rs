//! The table of the objects of a process, which `atom` wrote, and their load biases, which the runtime notes.

use core::sync::atomic::Ordering;

use atom_abi::{ObjectInfo, ProcessInfo};

use crate::process::info;

/// Number of the program among the objects.
pub(crate) const PROGRAM: usize = 0;

/// The facts of a process whose objects are all instrumented; `None` for a program alone, and before the
/// start.
pub(crate) fn process() -> Option<&'static ProcessInfo> {
    // SAFETY: null, or in the area, which stays mapped.
    unsafe { info::get()?.process.as_ref() }
}

/// The objects of a process.
pub(crate) fn objects(process: &ProcessInfo) -> &[ObjectInfo] {
    // SAFETY: `atom` wrote the table, which stays mapped.
    unsafe { core::slice::from_raw_parts(process.objects, process.object_count) }
}

/// Notes an object's load bias.
pub(crate) fn note_bias(process: &ProcessInfo, object: usize, bias: u64) {
    // SAFETY: `atom` wrote the table; it has an entry for each object.
    unsafe { (*process.biases.add(object)).store(bias, Ordering::Release) };
}

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
    let all = objects(process()?);
    // New segments of the program lie far behind its image, so the others come first.
    (0..all.len()).rev().find_map(|i| {
        let bias = load_bias(i)?;
        let in_file = address.wrapping_sub(bias);
        (all[i].base..all[i].end)
            .contains(&in_file)
            .then_some((i, bias))
    })
}
