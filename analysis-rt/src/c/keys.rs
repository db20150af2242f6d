//! `pthread` keys: values of each thread by number.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::threads::current::record;
use crate::threads::record::KEYS;

/// Generation of each key; odd while it is in use. Deleting and creating a key
/// again gives it a new generation, so that old values read as null.
static GENERATIONS: [AtomicUsize; KEYS] = [const { AtomicUsize::new(0) }; KEYS];

/// # Safety
/// As C's `pthread_key_create`. The destructor is never called.
pub(crate) unsafe extern "C" fn key_create(key: *mut u32, _destructor: usize) -> i32 {
    for (i, generation) in GENERATIONS.iter().enumerate() {
        let g = generation.load(Ordering::Relaxed);
        if g % 2 == 0
            && generation
                .compare_exchange(g, g + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            // SAFETY: C's contract.
            unsafe { key.write(i as u32) };
            return 0;
        }
    }
    libc::EAGAIN
}

pub(crate) extern "C" fn key_delete(key: u32) -> i32 {
    match generation(key) {
        Some(g) => {
            GENERATIONS[key as usize].store(g + 1, Ordering::Release);
            0
        }
        None => libc::EINVAL,
    }
}

/// Generation of a key; `None` if it is not in use.
fn generation(key: u32) -> Option<usize> {
    let g = GENERATIONS.get(key as usize)?.load(Ordering::Acquire);
    (g % 2 == 1).then_some(g)
}

pub(crate) extern "C" fn getspecific(key: u32) -> *const c_void {
    let Some(g) = generation(key) else {
        return ptr::null();
    };
    // SAFETY: the record is this thread's own; `generation` has checked the index.
    let (of, value) = unsafe { (&(*record()).values)[key as usize] };
    if of == g { value } else { ptr::null() }
}

pub(crate) extern "C" fn setspecific(key: u32, value: *const c_void) -> i32 {
    let Some(g) = generation(key) else {
        return libc::EINVAL;
    };
    // SAFETY: the record is this thread's own; `generation` has checked the index.
    unsafe { (&mut (*record()).values)[key as usize] = (g, value) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_per_thread_and_die_with_the_key() {
        let mut key = 0;
        assert_eq!(unsafe { key_create(&mut key, 0) }, 0);
        assert_eq!(setspecific(key, 8 as *const c_void), 0);
        std::thread::spawn(move || {
            assert!(getspecific(key).is_null());
            assert_eq!(setspecific(key, 16 as *const c_void), 0);
            assert_eq!(getspecific(key) as usize, 16);
        })
        .join()
        .unwrap();
        assert_eq!(getspecific(key) as usize, 8);
        assert_eq!(key_delete(key), 0);
        assert_eq!(setspecific(key, ptr::null()), libc::EINVAL);
        assert_eq!(unsafe { key_create(&mut key, 0) }, 0);
        assert!(getspecific(key).is_null());
    }
}
