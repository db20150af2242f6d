//! Counters of the kernel and of the processor, which each thread opens for itself.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use events::perf::{Counter, Reading};
use events::{Code, Usage};

use crate::settings::Settings;

/// Values of a note: cells of instrumentation (five rows of two), then meters.
pub const MOST: usize = 10 + events::MOST;

/// Type of the kernel's own counters, which need no group: they always count.
const SOFTWARE: u32 = 1;

/// An event that needs a meter.
#[derive(Clone, Copy, Debug)]
struct Want {
    /// Type and configuration for the kernel; none if the kernel does not have the event.
    code: Option<(u32, u64)>,
    usage: Option<Usage>,
}

static WANTED: OnceLock<Vec<Want>> = OnceLock::new();
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Notes the events of the settings that need meters.
pub fn begin(settings: &Settings) {
    let kernels = settings.slots.iter().filter(|slot| slot.cell.is_none());
    let wanted: Vec<Want> = kernels
        .map(|slot| match slot.choice.event.code {
            Code::Perf {
                kind,
                config,
                usage,
            } => Want {
                code: Some((kind, config)),
                usage,
            },
            _ => Want {
                code: None,
                usage: None,
            },
        })
        .collect();
    COUNT.store(wanted.len(), Relaxed);
    let _ = WANTED.set(wanted);
}

/// Number of meters that are wanted.
#[inline(always)]
pub fn wanted() -> usize {
    COUNT.load(Relaxed)
}

/// How an event is read.
#[derive(Debug)]
enum Meter {
    Counter(Counter),
    Usage(Usage),
    Missing,
}

/// The meters of a thread.
#[derive(Debug, Default)]
pub struct Meters {
    all: Vec<Meter>,
}

impl Meters {
    /// Opens the meters of the running thread, which count from now on. Hardware events are in
    /// groups as large as the processor allows, so the events of a group count at the same times.
    pub fn open() -> Self {
        let mut meters = Self::default();
        let mut leader: Option<usize> = None;
        for want in WANTED.get().into_iter().flatten() {
            let opened = want.code.and_then(|(kind, config)| {
                if kind == SOFTWARE {
                    return Counter::open(kind, config, None).ok();
                }
                let group = leader.and_then(|i| match &meters.all[i] {
                    Meter::Counter(counter) => Some(counter),
                    _ => None,
                });
                if group.is_some()
                    && let Ok(counter) = Counter::open(kind, config, group)
                {
                    return Some(counter);
                }
                let counter = Counter::open(kind, config, None).ok()?;
                leader = Some(meters.all.len());
                Some(counter)
            });
            meters.all.push(match (opened, want.usage) {
                (Some(mut counter), _) => {
                    counter.map();
                    Meter::Counter(counter)
                }
                (None, Some(usage)) => Meter::Usage(usage),
                (None, None) => Meter::Missing,
            });
        }
        meters
    }

    /// Reads all meters. The value of a meter that the program has closed is left unchanged.
    #[inline]
    pub fn read(&self, to: &mut [u64]) {
        for (meter, to) in self.all.iter().zip(to) {
            match meter {
                Meter::Counter(counter) => {
                    if let Some(reading) = counter.read() {
                        *to = reading.value;
                    }
                }
                Meter::Usage(usage) => *to = read_usage(*usage),
                Meter::Missing => {}
            }
        }
    }

    /// Reads all meters of any thread, by system calls. Values that only the thread itself can read
    /// are left unchanged unless `is_own` says that it is the running one.
    pub fn ask(&self, to: &mut [u64], is_own: bool) {
        for (meter, to) in self.all.iter().zip(to) {
            match meter {
                Meter::Counter(counter) => {
                    if let Some(reading) = counter.ask() {
                        *to = reading.value;
                    }
                }
                Meter::Usage(usage) if is_own => *to = read_usage(*usage),
                Meter::Usage(_) | Meter::Missing => {}
            }
        }
    }

    /// The times for which each meter was enabled and counted; none for a meter without times.
    pub fn times(&self) -> Vec<Option<Reading>> {
        let of = |meter: &Meter| match meter {
            Meter::Counter(counter) => counter.ask(),
            _ => None,
        };
        self.all.iter().map(of).collect()
    }

    /// How each meter is read, for people.
    pub fn ways(&self) -> Vec<&'static str> {
        let of = |meter: &Meter| match meter {
            Meter::Counter(counter) if counter.is_mapped() => "rdpmc",
            Meter::Counter(_) => "perf_event_open",
            Meter::Usage(Usage::ProcessorTime) => "clock_gettime",
            Meter::Usage(_) => "getrusage",
            Meter::Missing => "",
        };
        self.all.iter().map(of).collect()
    }
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

fn read_usage(usage: Usage) -> u64 {
    const SYS_GETRUSAGE: c_long = 98;
    const RUSAGE_THREAD: c_int = 1;
    // Words of `struct rusage`.
    const MINOR: usize = 8;
    const MAJOR: usize = 9;
    const VOLUNTARY: usize = 16;
    const FORCED: usize = 17;
    if usage == Usage::ProcessorTime {
        return atom_tool::clocks::thread_cpu();
    }
    let mut words = [0u64; 18];
    // SAFETY: the structure has 18 words.
    unsafe { syscall(SYS_GETRUSAGE, RUSAGE_THREAD, words.as_mut_ptr()) };
    match usage {
        Usage::Faults => words[MINOR] + words[MAJOR],
        Usage::MinorFaults => words[MINOR],
        Usage::MajorFaults => words[MAJOR],
        _ => words[VOLUNTARY] + words[FORCED],
    }
}
