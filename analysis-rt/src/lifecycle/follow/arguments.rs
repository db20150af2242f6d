//! The command line by which `atom` executes a program in the application's place.
//!
//! Its words are: those that `atom` wrote into the program; the number of the process that waits; the number
//! of the application's arguments; the path; the arguments; the environment. The environment is an argument
//! too, so that variables for the loader (LD_PRELOAD) have no effect on `atom`.
//!
//! ABI: the kernel reads an array of pointers to strings that ends with a null pointer. A null in place of
//! an array stands for an empty one.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::process::copy::copy_words;
use crate::process::run;
use crate::sys::call::syscall;
use crate::sys::decimal::Decimal;
use crate::sys::memory::{self, PAGE};

/// Number of pointers that are put on the stack, which may have 5 KB in all (musl's `posix_spawn`); more are put into a mapping.
const ON_STACK: usize = 96;
/// Number of pointers that are read at once.
const AT_ONCE: usize = 64;
/// Number of pointers that no kernel accepts.
const TOO_MANY: usize = 1 << 24;

/// Number of mappings that may be there at the same time.
const MAPPINGS: usize = 16;

/// Mappings for long arguments that the process, or children in its memory, used last; the first word of each is its
/// size. A child in its parent's memory cannot unmap it after a successful call, so the call does that gets the same place,
/// after as many others as there are places. If the kernel is still reading the array then, for another thread, that thread's call
/// fails (EFAULT), and the application's own call follows.
static LAST: [AtomicPtr<usize>; MAPPINGS] = [const { AtomicPtr::new(null_mut()) }; MAPPINGS];

/// Number of calls that have got a place so far.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Executes the words with path, arguments and environment after them. Returns if that fails.
///
/// # Safety
/// `call` has the arguments of the application's `execve`, whose path is a string.
pub(super) unsafe fn execute(words: &[u8], call: [usize; 3]) {
    let [_, argv, envp] = call;
    let counts = (
        words.iter().filter(|b| **b == 0).count(),
        count(argv),
        count(envp),
    );
    let (known, Some(argc), Some(envc)) = counts else {
        return;
    };
    // Two numbers, the path and the null at the end.
    let all = known + argc + envc + 4;
    let waiter = Decimal::new(run::waiter().into());
    let argument_count = Decimal::new(argc as u64);
    let numbers = [waiter.string() as usize, argument_count.string() as usize];
    if all <= ON_STACK {
        let mut array = [0; ON_STACK];
        fill_and_execute(&mut array, words, numbers, call);
        return;
    }
    let size = memory::pages((all + 1) * size_of::<usize>());
    let mapping = memory::map(size).cast::<usize>();
    if mapping.is_null() {
        return;
    }
    let last = &LAST[CALLS.fetch_add(1, Ordering::Relaxed) % MAPPINGS];
    // SAFETY: the mapping was made just now, with this size, for this call. The previous one is not in use,
    // but for the case that `LAST` tells of.
    unsafe {
        *mapping = size;
        let array = core::slice::from_raw_parts_mut(mapping.add(1), all);
        free(last.swap(null_mut(), Ordering::AcqRel));
        if !fill(array, words, numbers, call) {
            return free(mapping);
        }
        free(last.swap(mapping, Ordering::AcqRel));
        let array = mapping.add(1).cast_const();
        execute_array(array);
        if last
            .compare_exchange(mapping, null_mut(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            free(mapping);
        }
    }
}

/// Unmaps the mapping of an earlier call.
///
/// # Safety
/// Null, or a mapping of [`execute`] that nobody fills.
unsafe fn free(mapping: *mut usize) {
    if !mapping.is_null() {
        // SAFETY: the first word is the size; the caller's promise.
        unsafe { memory::unmap(mapping.cast(), *mapping) };
    }
}

/// A function of its own, so that the array is on the stack of this call only.
#[inline(never)]
fn fill_and_execute(array: &mut [usize], words: &[u8], numbers: [usize; 2], call: [usize; 3]) {
    if fill(array, words, numbers, call) {
        // SAFETY: the array ends with a null.
        unsafe { execute_array(array.as_ptr()) };
    }
}

/// Makes the system call, with an empty environment.
///
/// # Safety
/// The array ends with a null; its first pointer leads to the path of `atom`.
unsafe fn execute_array(array: *const usize) {
    let nothing: [usize; 1] = [0];
    // SAFETY: the caller's promise; the kernel checks all pointers.
    unsafe { syscall!(libc::SYS_execve, *array, array, nothing.as_ptr()) };
}

/// Writes the pointers and a null after them. False if there are more than were counted.
fn fill(array: &mut [usize], words: &[u8], numbers: [usize; 2], call: [usize; 3]) -> bool {
    let [path, argv, envp] = call;
    let mut places = array.iter_mut();
    let mut put = |pointer: usize| match places.next() {
        Some(place) => {
            *place = pointer;
            true
        }
        None => false,
    };
    let mut start = 0;
    for (at, _) in words.iter().enumerate().filter(|(_, b)| **b == 0) {
        put(words[start..].as_ptr() as usize);
        start = at + 1;
    }
    put(numbers[0])
        && put(numbers[1])
        && put(path)
        && each(argv, &mut put)
        && each(envp, &mut put)
        && put(0)
}

/// Number of pointers in an array; `None` if it cannot be read.
fn count(array: usize) -> Option<usize> {
    let mut count = 0;
    let mut more = |_| {
        count += 1;
        count < TOO_MANY
    };
    each(array, &mut more).then_some(count)
}

/// Calls `act` with each pointer of an array, until it answers false. True if the end was reached.
fn each(array: usize, act: &mut dyn FnMut(usize) -> bool) -> bool {
    let mut at = array;
    if at == 0 {
        return true;
    }
    loop {
        let mut some = [0u64; AT_ONCE];
        // A page that can be read may be followed by one that cannot.
        let left = (PAGE - at % PAGE).div_ceil(size_of::<usize>());
        let some = &mut some[..left.min(AT_ONCE)];
        if !copy_words(at, some) {
            return false;
        }
        for pointer in some.iter() {
            if *pointer == 0 {
                return true;
            }
            if !act(*pointer as usize) {
                return false;
            }
        }
        at += size_of_val(some);
    }
}
