//! The cost of measuring, and the clock.
//!
//! Empty executions are measured when the program starts (`calibrate`). Each measures two costs. The *own* cost is the value
//! of an empty execution, from the reading at its beginning to the reading at its end; it is subtracted from the
//! value of each execution. The *whole* cost is the amount that an empty execution adds to the execution that
//! encloses it; it is subtracted there. Events that instrumentation counts have no cost, because
//! analysis routines are not counted.

use std::arch::x86_64::{__cpuid, __rdtscp};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use atom_tool::clocks;

/// Number of measures: the clock and the events.
pub const MEASURES: usize = 1 + events::MOST;

/// Stands for an unknown processor.
pub const UNKNOWN: u32 = 0xfff;

static HAS_RDTSCP: AtomicBool = AtomicBool::new(false);

/// The time stamp and the number of the processor, read by one instruction if possible.
#[inline(always)]
pub fn now() -> (u64, u32) {
    if !HAS_RDTSCP.load(Relaxed) {
        return (clocks::time_stamp(), UNKNOWN);
    }
    let mut aux = 0;
    // SAFETY: the processor has the instruction rdtscp, which was checked.
    let ticks = unsafe { __rdtscp(&raw mut aux) };
    // Linux stores the processor's number in the lowest 12 bits, and the number of the NUMA node above.
    (ticks, aux & 0xfff)
}

/// Values that were read at a point.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time stamp as it was read.
    pub stamp: u64,
    /// Number of the processor, or [`UNKNOWN`].
    pub processor: u32,
    /// The clock, then the events in the order of the set. The amounts that the tool itself used between notes
    /// are subtracted.
    pub values: [u64; MEASURES],
}

/// Costs of one measured execution, for the clock and each event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Costs {
    /// Amount in the value of the execution.
    pub own: [u64; MEASURES],
    /// Amount in the value of the enclosing execution.
    pub whole: [u64; MEASURES],
    /// Median of the ticks of an empty execution that remain after the own cost is subtracted.
    pub residual: u64,
}

static COSTS: OnceLock<Costs> = OnceLock::new();

/// Looks which instruction reads the time stamp.
pub fn find_clock() {
    HAS_RDTSCP.store(has_rdtscp(), Relaxed);
}

fn has_rdtscp() -> bool {
    const EXTENDED: u32 = 0x8000_0000;
    __cpuid(EXTENDED).eax > EXTENDED && __cpuid(EXTENDED + 1).edx & 1 << 27 != 0
}

/// Stores the costs that were measured at the program's start.
pub fn store(costs: Costs) {
    let _ = COSTS.set(costs);
}

/// The stored costs.
pub fn costs() -> Costs {
    COSTS.get().copied().unwrap_or_default()
}
