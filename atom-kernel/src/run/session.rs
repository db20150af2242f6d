//! The recording as a whole: how it starts, threads that come, and how it ends.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use arp::{
    DataType, Format, Kind, Meter, Mode, Problem, Section, Session, Sid, Step, ThreadRecorder, Tid,
};
use atom_tool::output;

use super::meters::{Callbacks, Cost, Measure, Place, Played, Reading};
use super::open::{Open, Row};

/// What the instrument routine has decided.
pub struct Settings {
    pub mode: Mode,
    pub format: Format,
    pub file: &'static str,
    pub program: &'static str,
    pub measures: Vec<Measure>,
    pub data_type: DataType,
    pub callbacks: [usize; 3],
}

/// All sections.
pub struct Table {
    pub rows: Vec<Row>,
    pub sections: Vec<Section>,
}

/// What there is once in a process.
pub struct Whole {
    pub table: Table,
    pub settings: Settings,
    session: OnceLock<Session>,
    costs: OnceLock<Vec<Cost>>,
    /// 1, but 0 in a child after fork: the kernel clears the page then.
    mark: AtomicPtr<AtomicU64>,
    next_tid: AtomicU64,
    problems: Mutex<Vec<(&'static str, u64)>>,
}

static WHOLE: OnceLock<Whole> = OnceLock::new();

/// Nothing is recorded any more.
pub static ENDED: AtomicBool = AtomicBool::new(false);

/// A thread's sections, which lie where they are until the process ends.
pub struct ThreadEntry {
    pub open: *mut Open,
}

// SAFETY: what it points to is used by its thread, and at the end, when no thread
// uses it any more, by the one that ends the process.
unsafe impl Send for ThreadEntry {}

/// All threads that have entered a section.
pub static THREADS: Mutex<Vec<ThreadEntry>> = Mutex::new(Vec::new());

/// Threads that are being made: where the new thread's number will stand, and what is open.
pub static SPAWNED: Mutex<Vec<Spawned>> = Mutex::new(Vec::new());

/// A thread that is being made or was made.
pub struct Spawned {
    /// Where its maker finds its number.
    pub place: usize,
    /// Its number, once its maker knows it.
    pub number: usize,
    /// Who makes it.
    pub maker: u32,
    /// What its maker has open.
    pub context: Vec<Step>,
}

/// Locks, whatever happened to another thread that held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The whole, once it has begun.
#[inline]
pub fn whole() -> Option<&'static Whole> {
    WHOLE.get()
}

/// Executions that are measured at the start, of which the best is taken.
const TRIALS: usize = 400;
/// Sections in one of them.
const INNER: u64 = 16;

impl Whole {
    /// Starts recording. A message says why that is not possible.
    pub fn begin(table: Table, settings: Settings) -> Result<(), String> {
        let whole = WHOLE.get_or_init(|| Self {
            table,
            settings,
            session: OnceLock::new(),
            costs: OnceLock::new(),
            mark: AtomicPtr::new(std::ptr::null_mut()),
            next_tid: AtomicU64::new(1),
            problems: Mutex::new(Vec::new()),
        });
        whole.mark.store(fork_mark(), Ordering::Relaxed);
        let mut builder = Session::builder(whole.settings.mode)
            .file(output::path(whole.settings.file))
            .format(whole.settings.format)
            .info("program", whole.settings.program)
            .fold_recursion(true)
            .on_problem(|problem| {
                if let Some(whole) = WHOLE.get() {
                    whole.note(problem);
                }
            });
        for section in &whole.table.sections {
            builder = builder.section(section.clone());
        }
        if whole.settings.mode != Mode::Playback {
            let costs = whole.calibrate();
            for (measure, (cost, spread)) in whole.settings.measures.iter().zip(&costs) {
                if *cost != Cost::default() {
                    let text = format!(
                        "{} for an execution, {} around one, {} around a section that is not measured",
                        cost.own, cost.measured, cost.plain
                    );
                    builder = builder
                        .info(&format!("{} subtracted", measure.name()), &text)
                        .info(
                            &format!("{} left in an empty section", measure.name()),
                            &format!("{spread} in the middle, as measured at the start"),
                        );
                }
            }
            if whole.settings.measures.contains(&Measure::Cycles) {
                builder = builder.info("cycles per second", &frequency().to_string());
            }
            let _ = whole.costs.set(costs.into_iter().map(|c| c.0).collect());
        }
        for i in 0..whole.settings.measures.len() {
            builder = whole.with_meter(builder, i, None);
        }
        let session = builder.start().map_err(|e| e.to_string())?;
        let _ = whole.session.set(session);
        Ok(())
    }

    fn with_meter(
        &'static self,
        builder: arp::SessionBuilder,
        i: usize,
        fixed: Option<Cost>,
    ) -> arp::SessionBuilder {
        let measure = self.settings.measures[i];
        let name = measure.name();
        let data_type = match measure {
            Measure::Callbacks => self.settings.data_type,
            _ => DataType::ULong,
        };
        if measure == Measure::Callbacks {
            let [enter, leave, context] = self.settings.callbacks;
            return builder.meter(data_type, name, move |_| Callbacks {
                enter,
                leave,
                context,
            });
        }
        if self.settings.mode == Mode::Playback {
            return builder.meter(data_type, name, move |_| Played {
                data_type,
                sums: Default::default(),
            });
        }
        builder.meter(data_type, name, move |_| {
            let known = || self.costs.get().and_then(|c| c.get(i).copied());
            Reading {
                measure,
                cost: fixed.or_else(known).unwrap_or_default(),
                place: HERE.with(std::cell::Cell::get),
            }
        })
    }

    /// Measures nothing, to learn what measuring costs: for each measure that,
    /// and what is left of an empty section's value in the middle.
    fn calibrate(&'static self) -> Vec<(Cost, u64)> {
        let measures = self.settings.measures.iter().enumerate();
        measures
            .map(|(i, measure)| match measure {
                Measure::Cycles | Measure::CpuTime => self.cost_of(i),
                _ => (Cost::default(), 0),
            })
            .collect()
    }

    fn cost_of(&'static self, i: usize) -> (Cost, u64) {
        let measure = self.settings.measures[i];
        let mut builder = Session::builder(Mode::RecordAverage).on_problem(|_| {});
        for k in 0..self.settings.measures.len() {
            builder = self.with_meter(builder, k, Some(Cost::default()));
        }
        let Ok(session) = builder.start() else {
            return (Cost::default(), 0);
        };
        let mut recorder = session.thread(Tid(0));
        let place = HERE.with(std::cell::Cell::get);
        let (section, other) = (Sid(1), Sid(2));
        let mut own: Vec<u64> = Vec::with_capacity(TRIALS);
        let (mut plain, mut measured) = (u64::MAX, u64::MAX);
        let mut pass = |kind: Kind, sid: Sid| {
            let before = measure.now_at(&place);
            for _ in 0..INNER {
                recorder.enter(kind, sid, 0);
                recorder.leave(kind, sid);
            }
            measure.now_at(&place).wrapping_sub(before) / INNER
        };
        for _ in 0..TRIALS {
            plain = plain.min(pass(Kind::Plain, other));
            measured = measured.min(pass(Kind::Kernel, section));
        }
        // What lies between two readings: the other measures, too.
        let all = self.settings.measures.iter();
        let mut readings: Vec<Reading> = all
            .filter(|m| **m != Measure::Callbacks)
            .map(|measure| Reading {
                measure: *measure,
                cost: Cost::default(),
                place,
            })
            .collect();
        let mut areas = vec![arp::Area::default(); readings.len()];
        let which = readings.iter().position(|r| r.measure == measure);
        for _ in 0..TRIALS {
            let readings = std::hint::black_box(&mut readings);
            for (reading, area) in readings.iter_mut().zip(&mut areas) {
                reading.enter(section, area);
            }
            for (reading, area) in readings.iter_mut().zip(&mut areas) {
                reading.leave(section, area);
            }
            own.push(which.map_or(0, |i| areas[i].word()));
        }
        own.sort_unstable();
        let best = own[TRIALS / 20];
        let cost = Cost {
            own: best,
            plain,
            measured,
        };
        (cost, own[TRIALS / 2].saturating_sub(best))
    }

    fn note(&self, problem: &Problem) {
        let what = match problem {
            Problem::NestedKernel { .. } => {
                "executions of kernels inside of other kernels are not recorded: make the outer ones profiled sections"
            }
            Problem::TooDeep { .. } => "sections are not recorded: too many were open",
            Problem::NotRecorded { .. } => "executions have no value in the data file",
            Problem::File { message, .. } => {
                eprintln!("kernel: {message}");
                return;
            }
            _ => return,
        };
        let mut problems = lock(&self.problems);
        match problems.iter_mut().find(|p| p.0 == what) {
            Some(known) => known.1 += 1,
            None => problems.push((what, 1)),
        }
    }

    /// The recorder of a thread that begins.
    pub fn recorder(&self, place: Place, context: &[Step]) -> Option<ThreadRecorder> {
        let session = self.session.get()?;
        let tid = self.next_tid.fetch_add(1, Ordering::Relaxed);
        HERE.with(|here| here.set(place));
        let mut recorder = session.thread(Tid(tid as u32));
        if !context.is_empty() {
            recorder.restart(context);
        }
        Some(recorder)
    }

    /// True if the process is a child that has not been here yet.
    #[inline]
    pub fn is_forked(&self) -> bool {
        let mark = self.mark.load(Ordering::Relaxed);
        // SAFETY: null or a page that stays.
        unsafe { mark.as_ref() }.is_some_and(|m| m.load(Ordering::Relaxed) == 0)
    }

    /// The process is a child: what its parent has recorded is the parent's. The
    /// parent's other threads are not here.
    #[cold]
    pub fn forked(&self, own: *mut Open) {
        let mark = self.mark.load(Ordering::Relaxed);
        // SAFETY: as above.
        if let Some(mark) = unsafe { mark.as_ref() } {
            mark.store(1, Ordering::Relaxed);
        }
        if let Some(session) = self.session.get() {
            session.forked(output::path(self.settings.file));
        }
        let mut threads = lock(&THREADS);
        for entry in threads.iter() {
            // SAFETY: the only thread of the process is here.
            unsafe { (*entry.open).forked() };
        }
        threads.retain(|entry| entry.open == own);
    }

    /// Completes the data file; the messages that the user should get.
    pub fn finish(&self) -> Vec<String> {
        let mut messages = Vec::new();
        if let Some(Err(error)) = self.session.get().map(Session::finish) {
            messages.push(error.to_string());
        }
        for (what, count) in lock(&self.problems).iter() {
            messages.push(format!("{count} {what}"));
        }
        messages
    }
}

std::thread_local! {
    /// Where the numbers of the thread are whose recorder is being made.
    static HERE: std::cell::Cell<Place> = const { std::cell::Cell::new(Place {
        instructions: &raw const NONE,
        events: &raw const NO_EVENTS,
    }) };
}

static NONE: AtomicU64 = AtomicU64::new(0);
static NO_EVENTS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// A word in a page that the kernel clears in a child; null if it cannot.
fn fork_mark() -> *mut AtomicU64 {
    // SAFETY: a fresh page of its own, which stays.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED || libc::madvise(page, 4096, libc::MADV_WIPEONFORK) != 0 {
            return std::ptr::null_mut();
        }
        let mark = page.cast::<AtomicU64>();
        (*mark).store(1, Ordering::Relaxed);
        mark
    }
}

/// How often the time-stamp counter counts in a second.
fn frequency() -> u64 {
    let (start, from) = (Instant::now(), tsc());
    while start.elapsed().as_micros() < 1000 {}
    let (time, ticks) = (start.elapsed(), tsc().wrapping_sub(from));
    (ticks as f64 / time.as_secs_f64()) as u64
}

fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}
