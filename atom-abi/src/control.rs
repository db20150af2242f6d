//! What decides between the two versions of the text while a process runs.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// A page of this begins the decision: inserted code compares its first word. The page is the process's own where the
/// program itself begins and ends windows. Otherwise `atom run` makes a file of one page, which all processes of the run
/// map in its place, so one store switches all of them.
///
/// All times are nanoseconds of `CLOCK_MONOTONIC`. All zeros are a valid state: nothing is measured, and there was no window.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Control {
    /// Not 0 while calls are made.
    pub is_on: AtomicU32,
    /// Number of windows that began. In a run that is sampled, the windows are the bursts of all threads.
    pub windows: AtomicU32,
    /// When the window that is open began.
    pub since: AtomicU64,
    /// Time in all windows that have ended.
    pub measured: AtomicU64,
    /// When the run began.
    pub began: AtomicU64,
    /// 1 for a file that processes map in the place of their own page, 0 for one in which they only add up.
    pub is_shared: AtomicU32,
    /// 1 if nothing is to be measured any more.
    pub is_detached: AtomicU32,
    /// 1 if `atom ctl` may detach even where the program itself begins and ends windows, as an attached process is left then.
    pub can_be_left: AtomicU32,
    /// Number of reports that were asked for, and how many of them `atom run` has passed on.
    pub asked: AtomicU32,
    /// See `asked`.
    pub answered: AtomicU32,
    /// Length of a burst, in tests that a thread passes; 0 if the run is not sampled.
    pub burst: AtomicU32,
    /// Number of tests for which the calls are made before a burst, to warm up what the tool simulates. What they count is
    /// not in the results. [`Self::WARM_UP_OF_TOOL`] until the tool has said it.
    pub warm_up: AtomicU32,
    /// Mean number of tests from the end of a burst to the next one's begin.
    pub gap: AtomicU32,
    /// Where the random numbers begin; 0: somewhere else in each process.
    pub seed: AtomicU64,
    /// Number of tests that threads have passed in bursts, and in all, where the run is sampled.
    pub tests: [AtomicU64; 2],
}

/// What follows the name of the run's record in the name of the file.
pub const CONTROL_SUFFIX: &str = ".control";

impl Control {
    /// Value of [`Self::warm_up`] where the tool is to choose it.
    pub const WARM_UP_OF_TOOL: u32 = u32::MAX;

    /// Begins a window at a time, or ends it, unless that was done; returns true if this call did it. Threads and processes
    /// may do so at once.
    pub fn set(&self, is_on: bool, now: u64) -> bool {
        use core::sync::atomic::Ordering::{AcqRel, Relaxed};
        if is_on {
            if self.is_detached.load(Relaxed) != 0 || self.is_on.swap(1, AcqRel) != 0 {
                return false;
            }
            self.since.store(now, Relaxed);
            self.windows.fetch_add(1, Relaxed);
        } else {
            if self.is_on.swap(0, AcqRel) == 0 {
                return false;
            }
            let since = self.since.load(Relaxed);
            self.measured.fetch_add(now.saturating_sub(since), Relaxed);
        }
        true
    }

    /// Time in windows until now, the one that is open included.
    pub fn measured_until(&self, now: u64) -> u64 {
        use core::sync::atomic::Ordering::{Acquire, Relaxed};
        let ended = self.measured.load(Relaxed);
        if self.is_on.load(Acquire) == 0 {
            return ended;
        }
        ended + now.saturating_sub(self.since.load(Relaxed))
    }
}
