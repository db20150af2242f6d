//! What the runtime was told at the start: by `atom` in the file, by the kernel on the stack.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::{StartInfo, ThreadInfo, ThreadRange};

/// An entry of the auxiliary vector: its kind and its value.
type AuxEntry = [usize; 2];

static INFO: AtomicPtr<StartInfo> = AtomicPtr::new(null_mut());
static AUXV: AtomicPtr<AuxEntry> = AtomicPtr::new(null_mut());

/// Notes the auxiliary vector.
///
/// # Safety
/// `auxv` is the kernel's vector, which ends with an entry of kind `AT_NULL` and stays in place.
pub(crate) unsafe fn set_auxv(auxv: *const AuxEntry) {
    AUXV.store(auxv.cast_mut(), Ordering::Release);
}

/// Notes what `atom` wrote; from now on the runtime has started.
///
/// # Safety
/// `info` points into the image, where it stays for the process's life.
pub(crate) unsafe fn set(info: *const StartInfo) {
    INFO.store(info.cast_mut(), Ordering::Release);
}

/// What `atom` wrote into the program for the runtime; `None` before the start.
pub(crate) fn get() -> Option<&'static StartInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { INFO.load(Ordering::Acquire).as_ref() }
}

/// The layout of per-thread data; `None` before the start and where the tool has none.
pub(crate) fn threads() -> Option<&'static ThreadInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { get()?.threads.as_ref() }
}

/// The ranges at `first`.
///
/// # Safety
/// `atom` placed `count` ranges there.
pub(crate) unsafe fn ranges(first: *const ThreadRange, count: usize) -> &'static [ThreadRange] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// `getauxval`: the value of an entry of the auxiliary vector; 0 if there is none.
pub(crate) extern "C" fn getauxval(kind: usize) -> usize {
    let mut entry = AUXV.load(Ordering::Acquire).cast_const();
    if entry.is_null() {
        return 0;
    }
    // SAFETY: the kernel's vector ends with an entry of kind `AT_NULL`.
    unsafe {
        while (*entry)[0] != libc::AT_NULL as usize {
            if (*entry)[0] == kind {
                return (*entry)[1];
            }
            entry = entry.add(1);
        }
    }
    0
}

/// Gives an entry of the auxiliary vector another value.
///
/// # Safety
/// The vector is on the process stack, where the kernel put it, and nobody has read it yet.
pub(crate) unsafe fn replace_auxval(kind: usize, value: usize) {
    let mut entry = AUXV.load(Ordering::Acquire);
    // SAFETY: the kernel's vector ends with an entry of kind `AT_NULL`; the caller's promise.
    unsafe {
        while (*entry)[0] != libc::AT_NULL as usize {
            if (*entry)[0] == kind {
                (*entry)[1] = value;
            }
            entry = entry.add(1);
        }
    }
}
