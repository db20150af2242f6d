//! The environment of analysis routines: a view of the initial one.
//!
//! Reading shares the kernel's original strings; the first change copies the
//! array of pointers to the private heap, so the application never sees it.

use core::ffi::c_char;
use core::ptr::{self, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::c::string::{memchr, strlen, strncmp};
use crate::heap::alloc::alloc;
use crate::threads::current::set_errno;

/// The variable `environ`, which `std` reads; `std` has a lock of its own around all uses.
pub(crate) static ENVIRON: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());
/// True once the array of pointers is a copy on the private heap.
static IS_OURS: AtomicBool = AtomicBool::new(false);

/// Notes the initial environment.
pub(crate) fn set_environment(envp: *const *const c_char) {
    ENVIRON.store(envp.cast_mut(), Ordering::Release);
}

/// The array's entry for the variable whose name is the `len` bytes at `name`.
///
/// # Safety
/// `name` is readable for `len` bytes.
unsafe fn find(name: *const c_char, len: usize) -> Option<*mut *const c_char> {
    let mut at = ENVIRON.load(Ordering::Acquire);
    // SAFETY: the array ends with a null; its strings are null-terminated.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            if strncmp(*at, name, len) == 0 && *(*at).add(len) == b'=' as c_char {
                return Some(at);
            }
            at = at.add(1);
        }
    }
    None
}

pub(crate) unsafe extern "C" fn getenv(name: *const c_char) -> *const c_char {
    // SAFETY: C's contract: a string.
    unsafe {
        let len = strlen(name);
        find(name, len).map_or(ptr::null(), |at| (*at).add(len + 1))
    }
}

/// Whether POSIX allows the name: not empty, no `=`.
///
/// # Safety
/// `name` is null or a string.
unsafe fn valid(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        !name.is_null() && *name != 0 && memchr(name.cast(), b'=' as i32, strlen(name)).is_null()
    }
}

/// Makes the array a private copy, with room for `extra` more entries. False if there is no memory.
///
/// # Safety
/// The caller holds `std`'s lock of the environment.
unsafe fn own(extra: usize) -> bool {
    if extra == 0 && IS_OURS.load(Ordering::Relaxed) {
        return true;
    }
    let old = ENVIRON.load(Ordering::Acquire);
    let mut n = 0;
    // SAFETY: the array ends with a null. A private array that is replaced is
    // not freed: another thread may still be reading it.
    unsafe {
        while !old.is_null() && !(*old.add(n)).is_null() {
            n += 1;
        }
        let new = alloc((n + 1 + extra) * 8).cast::<*const c_char>();
        if new.is_null() {
            return false;
        }
        ptr::copy_nonoverlapping(old, new, n);
        for i in n..n + 1 + extra {
            new.add(i).write(ptr::null());
        }
        ENVIRON.store(new, Ordering::Release);
    }
    IS_OURS.store(true, Ordering::Relaxed);
    true
}

pub(crate) unsafe extern "C" fn setenv(
    name: *const c_char,
    value: *const c_char,
    overwrite: i32,
) -> i32 {
    // SAFETY: C's contract: two strings.
    unsafe {
        if !valid(name) {
            set_errno(libc::EINVAL);
            return -1;
        }
        let (n, v) = (strlen(name), strlen(value));
        let exists = find(name, n).is_some();
        if exists && overwrite == 0 {
            return 0;
        }
        let text = alloc(n + v + 2).cast::<c_char>();
        if text.is_null() || !own(usize::from(!exists)) {
            set_errno(libc::ENOMEM);
            return -1;
        }
        ptr::copy_nonoverlapping(name, text, n);
        text.add(n).write(b'=' as c_char);
        ptr::copy_nonoverlapping(value, text.add(n + 1), v + 1);
        let at = match find(name, n) {
            Some(at) => at,
            None => {
                let mut at = ENVIRON.load(Ordering::Acquire);
                while !(*at).is_null() {
                    at = at.add(1);
                }
                at
            }
        };
        at.write(text);
    }
    0
}

pub(crate) unsafe extern "C" fn unsetenv(name: *const c_char) -> i32 {
    // SAFETY: C's contract: a string. Later entries move down over the removed one.
    unsafe {
        if !valid(name) {
            set_errno(libc::EINVAL);
            return -1;
        }
        if !own(0) {
            set_errno(libc::ENOMEM);
            return -1;
        }
        while let Some(mut at) = find(name, strlen(name)) {
            while !(*at).is_null() {
                *at = *at.add(1);
                at = at.add(1);
            }
        }
    }
    0
}
