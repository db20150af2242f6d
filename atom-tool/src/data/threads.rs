//! Begins and ends of the program's threads.

use std::sync::OnceLock;

use atom_abi::ThreadBlock;

use crate::data::thread_data::{PerThread, ThreadState, copy_in, distance_of};

/// What is done with a thread's copy of the state.
type Event = Box<dyn Fn(*mut u8) + Send + Sync>;

/// The distance of each copy from its block, and the functions for begins and for ends.
static EVENTS: OnceLock<(u64, [Event; 2])> = OnceLock::new();

/// Analysis side, to be called once, at ProgramBefore, with the state that the routine gets there: `begin` is called for this
/// thread at once, and for each other one as it begins; `end` is called as a thread ends. Both are called in the thread itself, with its copy of the
/// state, while signals wait.
///
/// ```
/// use atom_tool::prelude::*;
/// use atom_tool::threads;
///
/// thread_state! {
///     struct Calls {
///         count: ThreadCell<u64>,
///     }
/// }
///
/// #[analysis]
/// fn start(calls: PerThread<Calls>) {
///     let begin = |calls: PerThread<Calls>| calls.count.set(0);
///     let end = |calls: PerThread<Calls>| {
///         eprintln!("thread {}: {} calls", calls.thread_number(), calls.count.get());
///     };
///     threads::watch(calls, begin, end);
/// }
/// ```
///
/// A thread begins before its first instruction where its start is instrumented: in whole processes and in static programs. In a program that
/// is instrumented alone it begins when it first runs code of the program, and its end is seen only if the program itself makes the system call. A
/// program that uses the segment gs has its threads begin when a routine first asks for their state; alone, only the first one with each thread
/// pointer.
///
/// Threads that are there when the process ends, the one that ends it among them, do not end before: the calls at ProgramAfter find
/// their state in [`AllThreads`](crate::AllThreads). In a forked child the thread that forked continues. A thread may have the copy of one
/// that has ended, so `begin` sets what is to be fresh.
pub fn watch<T: ThreadState>(state: PerThread<T>, begin: fn(PerThread<T>), end: fn(PerThread<T>)) {
    let events = [begin, end].map(|event| -> Event {
        // SAFETY: what comes is the running thread's copy of the state.
        Box::new(move |copy| event(unsafe { PerThread::from_copy(copy) }))
    });
    // SAFETY: it is a copy of the state.
    unsafe { watch_copies(state.copy(), events) };
    begin(state);
}

/// As [`watch`], for functions of another language that get the address of the thread's copy.
///
/// # Safety
/// `copy` is an argument of type `THREAD`.
#[doc(hidden)]
pub unsafe fn watch_bytes(
    copy: *mut u8,
    begin: extern "C" fn(*mut u8),
    end: extern "C" fn(*mut u8),
) {
    let events = [begin, end].map(|event| -> Event { Box::new(move |copy| event(copy)) });
    // SAFETY: the caller's promise.
    unsafe { watch_copies(copy, events) };
    begin(copy);
}

/// Sets the functions; this thread's begin is not told.
///
/// # Safety
/// As for [`distance_of`].
unsafe fn watch_copies(copy: *const u8, events: [Event; 2]) {
    // SAFETY: the caller's promise.
    let distance = unsafe { distance_of(copy) };
    // A second call is the tool's mistake, and changes nothing.
    let _ = EVENTS.set((distance, events));
    analysis_rt::watch_threads(|block| tell(0, block), |block| tell(1, block));
}

fn tell(event: usize, block: *mut ThreadBlock) {
    if let Some((distance, events)) = EVENTS.get() {
        events[event](copy_in(block, *distance));
    }
}
