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

/// The object of a process in whose image a run-time address is, with its new segments, and the object's
/// load bias. `None` for an address of no object, and for a program alone.
pub fn object_at(address: u64) -> Option<(usize, u64)> {
    let all = objects(process()?);
    // New segments of the program are far after its image, so the others come first.
    (0..all.len()).rev().find_map(|i| {
        let bias = load_bias(i)?;
        let in_file = address.wrapping_sub(bias);
        (all[i].base..all[i].end)
            .contains(&in_file)
            .then_some((i, bias))
    })
}

/// The object that makes a call, and the address in its file to which the original call returns, given the return
/// address of the call in the instrumented program. The address is that of no call if none returns there. `None` in code of
/// no object, or if the tool has not asked for the tables of return addresses; see [`ProcessInfo::returns`].
pub fn original_return(address: u64) -> Option<(usize, u64)> {
    let (object, bias, map, image) = match process() {
        Some(process) => {
            let (object, bias) = object_at(address)?;
            if process.returns.is_null() {
                return None;
            }
            // SAFETY: the table has an entry for each object.
            let map = unsafe { *process.returns.add(object) };
            if map == 0 {
                return None;
            }
            (
                object,
                bias,
                map.wrapping_add(bias),
                objects(process)[object].base,
            )
        }
        None => {
            let info = info::get().filter(|info| !info.returns.is_null())?;
            let bias = load_bias(PROGRAM)?;
            (PROGRAM, bias, info.returns.addr() as u64, info.image)
        }
    };
    let table = core::ptr::with_exposed_provenance::<u32>(map as usize);
    // SAFETY: `atom` wrote the table, with the number of its entries in front.
    let entries = unsafe {
        let first = table.add(2).cast::<[u32; 2]>();
        core::slice::from_raw_parts(first, table.read() as usize)
    };
    let offset = address.wrapping_sub(map) as i64;
    let found = i32::try_from(offset).ok().and_then(|offset| {
        entries
            .binary_search_by_key(&offset, |entry| entry[0] as i32)
            .ok()
    });
    Some(match found {
        Some(i) => (object, image + u64::from(entries[i][1])),
        None => (object, address.wrapping_sub(bias)),
    })
}
