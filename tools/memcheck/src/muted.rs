//! Threads that have asked that their errors are not reported.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

unsafe extern "C" {
    fn gettid() -> i32;
}

/// For each thread whose errors are not reported, how often it has asked for that.
static MUTED: Mutex<BTreeMap<i32, u64>> = Mutex::new(BTreeMap::new());
/// The number of these threads.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn with_muted<R>(work: impl FnOnce(&mut u64) -> R) -> R {
    let mut muted = MUTED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: it always succeeds.
    let thread = unsafe { gettid() };
    let level = muted.entry(thread).or_default();
    let result = work(level);
    if *level == 0 {
        muted.remove(&thread);
    }
    COUNT.store(muted.len(), Relaxed);
    result
}

/// The thread's errors are reported no more, or (with -1) again.
pub fn mute(change: u64) {
    with_muted(|level| {
        *level = match change {
            1 => *level + 1,
            _ => level.saturating_sub(1),
        };
    });
}

/// True if errors of the running thread are not reported.
pub fn is_muted() -> bool {
    COUNT.load(Relaxed) != 0 && with_muted(|level| *level != 0)
}
