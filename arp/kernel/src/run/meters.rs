//! The measures.
//!
//! Measuring takes time itself. A part of it is between the two readings of a section, and so in
//! the section's value. All of it is in the value of an enclosing section. Both costs are found
//! at the start by measuring empty sections, and are subtracted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arp::{Area, DataType, Meter, Sid};
use atom_tool::plain_data;

plain_data! {
    /// The quantities that can be measured.
    #[derive(PartialEq, Eq, Debug)]
    pub enum Measure {
        /// The time-stamp counter.
        Cycles,
        /// The thread's time on the processor, in nanoseconds.
        CpuTime,
        /// Instructions of the program itself.
        Instructions,
        /// What callbacks of the user measure.
        Callbacks,
    }
}

impl Measure {
    /// Name of its values in data files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuTime => "cpu ns",
            Self::Instructions => "instructions",
            Self::Callbacks => "callback",
        }
    }

    /// The measure's current value.
    #[inline]
    pub fn now_at(self, at: &ThreadNumbers) -> u64 {
        match self {
            // SAFETY: every x86-64 processor has it.
            Self::Cycles => unsafe { core::arch::x86_64::_rdtsc() },
            Self::CpuTime => cpu_time(),
            // SAFETY: the cell is in the thread's block, which lives for ever.
            Self::Instructions => unsafe { (*at.instructions).load(Relaxed) },
            Self::Callbacks => 0,
        }
    }
}

fn cpu_time() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The cost of measuring, in the unit of the measure.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Cost {
    /// Part of a section's own value that is cost.
    pub own: f64,
    /// Cost of the begin and the end of a section that is not measured, in the section around it.
    pub plain: f64,
    /// Cost of the begin and the end of a measured section, in the section around it.
    pub measured: f64,
}

/// Counts of events in a thread, which only the thread writes: begins of sections that are not
/// measured (index 0), and ends of measured sections (index 1).
#[derive(Default)]
pub struct Events {
    /// Events up to now.
    pub now: [AtomicU64; 2],
    /// Events at the begin of the section that ends now.
    pub then: [AtomicU64; 2],
}

impl Events {
    /// Counts of 0.
    pub const fn new() -> Self {
        Self {
            now: [AtomicU64::new(0), AtomicU64::new(0)],
            then: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// The counts up to now.
    #[inline]
    pub fn counted(&self) -> [u64; 2] {
        [self.now[0].load(Relaxed), self.now[1].load(Relaxed)]
    }

    /// Sets the counts to these numbers.
    pub fn set(&self, now: [u64; 2]) {
        self.now[0].store(now[0], Relaxed);
        self.now[1].store(now[1], Relaxed);
    }

    /// Counts one event.
    #[inline]
    pub fn add(&self, measured: bool) {
        let number = &self.now[usize::from(measured)];
        number.store(number.load(Relaxed) + 1, Relaxed);
    }

    /// A section ends; `then` were the counts when it began.
    #[inline]
    pub fn ends(&self, then: [u64; 2]) {
        self.then[0].store(then[0], Relaxed);
        self.then[1].store(then[1], Relaxed);
    }
}

/// Addresses of a thread's counts.
#[derive(Clone, Copy)]
pub struct ThreadNumbers {
    /// Number of instructions executed.
    pub instructions: *const AtomicU64,
    /// Events of sections.
    pub events: *const Events,
}

// SAFETY: both point to atomic numbers that live for ever.
unsafe impl Send for ThreadNumbers {}

impl ThreadNumbers {
    /// Cost of measuring in the section that ends now: its own, and the cost of sections inside it.
    #[inline]
    fn spent(&self, cost: &Cost) -> f64 {
        // SAFETY: the counts live for ever.
        let events = unsafe { &*self.events };
        let number = |i: usize| {
            let then = events.then[i].load(Relaxed);
            events.now[i].load(Relaxed).wrapping_sub(then) as f64
        };
        number(0) * cost.plain + number(1) * cost.measured + cost.own
    }
}

std::thread_local! {
    /// The addresses of the numbers of the thread whose recorder is being made.
    pub static HERE: std::cell::Cell<ThreadNumbers> = const { std::cell::Cell::new(ThreadNumbers {
        instructions: &raw const NONE,
        events: &raw const NO_EVENTS,
    }) };
}

static NONE: AtomicU64 = AtomicU64::new(0);
static NO_EVENTS: Events = Events::new();

/// A measure of this crate, for one thread.
pub struct Reading {
    /// The measure that it reads.
    pub measure: Measure,
    /// The cost that is subtracted.
    pub cost: Cost,
    /// The thread's counts.
    pub place: ThreadNumbers,
}

impl Meter for Reading {
    #[inline]
    fn enter(&mut self, _: Sid, data: &mut Area) {
        data.set_word(self.measure.now_at(&self.place));
    }

    #[inline]
    fn leave(&mut self, _: Sid, data: &mut Area) {
        let now = self.measure.now_at(&self.place);
        let value = now.wrapping_sub(data.word());
        data.set_word(value.saturating_sub(self.place.spent(&self.cost).round() as u64));
    }
}

/// A meter of any type.
pub struct AnyMeter(pub Box<dyn Meter>);

/// Subtracts a cost from a value, down to 0. Negative values are no cost and stay unchanged.
fn less(area: &mut Area, data_type: DataType, cost: f64) {
    if cost == 0.0 {
        return;
    }
    use arp::Value::{Double, Float, LongDouble, Signed, Unsigned};
    let whole = cost.round();
    let value = match area.get(data_type) {
        Signed(n) if n > 0 => Signed(n.saturating_sub(whole as i64).max(0)),
        Unsigned(n) => Unsigned(n.saturating_sub(whole as u64)),
        Float(x) if x > 0.0 => Float((f64::from(x) - cost).max(0.0) as f32),
        Double(x) if x > 0.0 => Double((x - cost).max(0.0)),
        LongDouble(x) if x.to_f64() > 0.0 => Double((x.to_f64() - cost).max(0.0)),
        // The value is no cost.
        _ => return,
    };
    area.set(data_type, value);
}

/// Callbacks in C: `void (*)(arp_sid, void *data, void *context)`.
pub struct Callbacks {
    /// Address of the callback for begins, or 0.
    pub enter: usize,
    /// Address of the callback for ends, or 0.
    pub leave: usize,
    /// Context that both callbacks get.
    pub context: Arc<AtomicUsize>,
    /// Type of their values.
    pub data_type: DataType,
    /// The cost that is subtracted from these values.
    pub cost: Cost,
    /// The thread's counts.
    pub place: ThreadNumbers,
}

type Callback = unsafe extern "C" fn(u16, *mut Area, usize);

impl Callbacks {
    fn call(&self, address: usize, sid: Sid, data: &mut Area) {
        if address != 0 {
            // SAFETY: `atom` gave the run-time address of the function that the
            // user named as a callback; the area has room for every data type.
            unsafe {
                let callback: Callback = std::mem::transmute(address);
                callback(sid.0 as u16, data, self.context.load(Relaxed));
            }
        }
    }
}

impl Meter for Callbacks {
    fn enter(&mut self, sid: Sid, data: &mut Area) {
        self.call(self.enter, sid, data);
    }

    fn leave(&mut self, sid: Sid, data: &mut Area) {
        self.call(self.leave, sid, data);
        if self.cost != Cost::default() {
            less(data, self.data_type, self.place.spent(&self.cost));
        }
    }
}

/// Number and sum of values, by section.
pub type Sums = BTreeMap<Sid, (u64, f64)>;
