//! What is measured.
//!
//! Measuring takes time, of which a part lies between the two readings and so in
//! the value, and what is measured inside of a section lies in the section's value
//! as a whole. Both are found at the start by measuring nothing, and subtracted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use arp::{Area, DataType, Meter, Sid, Value};
use atom_tool::plain_data;

use super::calibrate::less;
use super::session::{Process, here, lock};

plain_data! {
    /// What is measured.
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
    /// What its values are called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::CpuTime => "cpu ns",
            Self::Instructions => "instructions",
            Self::Callbacks => "callback",
        }
    }

    /// Reads it.
    #[inline]
    pub fn now_at(self, at: &ThreadNumbers) -> u64 {
        match self {
            // SAFETY: every x86-64 processor has it.
            Self::Cycles => unsafe { core::arch::x86_64::_rdtsc() },
            Self::CpuTime => cpu_time(),
            // SAFETY: the cell lies in the thread's block, which lives for ever.
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

/// What measuring itself costs, in the unit of the measure.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Cost {
    /// Part of a section's own value.
    pub own: f64,
    /// A begin and an end of a section that is not measured, in what is around it.
    pub plain: f64,
    /// A begin and an end of a measured section, in what is around it.
    pub measured: f64,
}

/// Numbers of sections in a thread, of which the thread itself writes: ends of those that
/// are measured, begins of others. Then the same at the begin of the one that ends now.
#[derive(Default)]
pub struct Events {
    /// Up to now.
    pub now: [AtomicU64; 2],
    /// When the section began that ends now.
    pub then: [AtomicU64; 2],
}

impl Events {
    /// None.
    pub const fn new() -> Self {
        Self {
            now: [AtomicU64::new(0), AtomicU64::new(0)],
            then: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// Those up to now.
    #[inline]
    pub fn counted(&self) -> [u64; 2] {
        [self.now[0].load(Relaxed), self.now[1].load(Relaxed)]
    }

    /// Goes back to so many.
    pub fn set(&self, now: [u64; 2]) {
        self.now[0].store(now[0], Relaxed);
        self.now[1].store(now[1], Relaxed);
    }

    /// One more.
    #[inline]
    pub fn add(&self, measured: bool) {
        let number = &self.now[usize::from(measured)];
        number.store(number.load(Relaxed) + 1, Relaxed);
    }

    /// A section ends that began when so many were counted.
    #[inline]
    pub fn ends(&self, then: [u64; 2]) {
        self.then[0].store(then[0], Relaxed);
        self.then[1].store(then[1], Relaxed);
    }
}

/// Where a thread's numbers are found.
#[derive(Clone, Copy)]
pub struct ThreadNumbers {
    /// Instructions executed.
    pub instructions: *const AtomicU64,
    /// Sections.
    pub events: *const Events,
}

// SAFETY: both point to atomic numbers that live for ever.
unsafe impl Send for ThreadNumbers {}

impl ThreadNumbers {
    /// What was spent for measuring within the section that ends now, and for itself.
    #[inline]
    fn spent(&self, cost: &Cost) -> f64 {
        // SAFETY: see above.
        let events = unsafe { &*self.events };
        let number = |i: usize| {
            let then = events.then[i].load(Relaxed);
            events.now[i].load(Relaxed).wrapping_sub(then) as f64
        };
        number(0) * cost.plain + number(1) * cost.measured + cost.own
    }
}

/// A measure of one thread.
pub struct Reading {
    /// What it reads.
    pub measure: Measure,
    /// What is subtracted.
    pub cost: Cost,
    /// The thread's numbers.
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

/// Any of them.
pub struct AnyMeter(pub Box<dyn Meter>);

/// Callbacks in C: `void (*)(arp_sid, void *data, void *context)`.
pub struct Callbacks {
    /// Address of the one for begins, or 0.
    pub enter: usize,
    /// Address of the one for ends, or 0.
    pub leave: usize,
    /// What both get.
    pub context: Arc<AtomicUsize>,
    /// Type of their values.
    pub data_type: DataType,
    /// What is subtracted from these.
    pub cost: Cost,
    /// The thread's numbers.
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

/// Adds up what comes from the data file.
pub struct Played {
    /// Type of the values.
    pub data_type: DataType,
    /// Number and sum, by section.
    pub sums: Arc<Mutex<Sums>>,
    /// The process that knows of these sums.
    pub process: *const Process,
}

// SAFETY: the address is compared only.
unsafe impl Send for Played {}

impl Meter for Played {
    fn enter(&mut self, sid: Sid, data: &mut Area) {
        let value: Value = data.get(self.data_type);
        if let Some(here) = here()
            && !std::ptr::eq(here, self.process)
        {
            self.process = here;
            self.sums = Arc::default();
            lock(&here.played).push(Arc::clone(&self.sums));
        }
        let mut sums = lock(&self.sums);
        let sum = sums.entry(sid).or_default();
        sum.0 += 1;
        sum.1 += value.as_f64();
    }

    fn leave(&mut self, _: Sid, _: &mut Area) {}
}
