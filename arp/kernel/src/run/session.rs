//! The recording as a whole: how it starts, threads that come, and how it ends.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arp::{
    Area, DataType, Mark, Meter, Mode, Problem, Session, Sid, Step, ThreadRecorder, Tid, Value,
};
use atom_tool::output;

use super::meters::{Cost, HERE, Measure, Reading, Sums, ThreadNumbers};
use super::open::{Open, Table};
use super::settings::Settings;
use super::{calibrate, clock};

/// `void (*)(arp_tid, void **contextp)`.
type ThreadCallback = unsafe extern "C" fn(u16, *mut usize);

impl Settings {
    /// Calls a callback for threads, which may change the thread's context.
    fn tell(&self, address: usize, tid: Tid, context: &AtomicUsize) {
        if address != 0 {
            let mut value = context.load(Ordering::Relaxed);
            // SAFETY: `atom` gave the run-time address of the function that the user named.
            unsafe {
                let callback: ThreadCallback = std::mem::transmute(address);
                callback(tid.0 as u16, &raw mut value);
            }
            context.store(value, Ordering::Relaxed);
        }
    }

    /// A thread begins; for the first thread nothing is done.
    fn spawned(&self, tid: Tid, context: &Arc<AtomicUsize>) {
        let [spawn, join] = self.thread_callbacks;
        if tid == FIRST || (spawn, join) == (0, 0) {
            return;
        }
        self.tell(spawn, tid, context);
        if let Some(here) = here() {
            // SAFETY: a system call without effect on memory.
            let system = unsafe { libc::syscall(libc::SYS_gettid) };
            lock(&here.contexts).push(ThreadContext {
                tid,
                system,
                context: Arc::clone(context),
            });
        }
    }
}

/// The number of the first thread.
const FIRST: Tid = Tid(1);

/// The context of a thread's callbacks, kept until the thread is known to have ended.
struct ThreadContext {
    tid: Tid,
    /// The thread's number in the system.
    system: libc::c_long,
    context: Arc<AtomicUsize>,
}

impl ThreadContext {
    fn has_ended(&self) -> bool {
        // SAFETY: signal 0 is not delivered; the call only tells whether the thread exists.
        let r = unsafe {
            let process = libc::syscall(libc::SYS_getpid);
            libc::syscall(libc::SYS_tgkill, process, self.system, 0usize)
        };
        r != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }
}

/// State that is decided once, at the start.
pub struct Whole {
    pub table: Table,
    pub settings: Settings,
    /// The cost of each measure.
    costs: Vec<Cost>,
    /// Key and text of each fact about the recording in the data file.
    notes: Vec<(String, String)>,
    /// A word that is 1, and 0 in a forked child, for which the kernel clears its page.
    mark: AtomicPtr<AtomicU64>,
    here: AtomicPtr<Process>,
}

static WHOLE: OnceLock<Whole> = OnceLock::new();

/// State that exists once in a process. A forked child gets a new one, as locks of its parent's
/// state may be held, or data half changed, by threads that the child does not have.
#[derive(Default)]
pub struct Process {
    session: Option<Session>,
    /// The recording has ended.
    pub ended: AtomicBool,
    /// All threads that have entered a section.
    pub threads: Mutex<Vec<ThreadEntry>>,
    /// Threads that are being made.
    pub spawned: Mutex<Vec<Spawned>>,
    /// Values that were played back in each thread.
    pub played: Mutex<Vec<Arc<Mutex<Sums>>>>,
    /// State of the recording at its last end, needed to continue.
    end: Mutex<Option<End>>,
    /// Address of the block of the thread that ended the recording.
    pub ender: AtomicUsize,
    contexts: Mutex<Vec<ThreadContext>>,
    next_tid: AtomicU64,
    problems: Mutex<Vec<(&'static str, u64)>>,
}

/// State that is needed to continue after an end.
struct End {
    mark: Mark,
    problems: Vec<(&'static str, u64)>,
}

/// A thread's sections, which keep their address until the process ends.
pub struct ThreadEntry {
    pub open: *mut Open,
}

// SAFETY: what it points to is used by its thread, and at the end, when no thread
// uses it any more, by the one that ends the process.
unsafe impl Send for ThreadEntry {}

/// A thread that is being made or was made.
pub struct Spawned {
    /// Address at which its maker finds its number.
    pub place: usize,
    /// Its number, once its maker knows it.
    pub number: usize,
    /// Number of the thread that makes it.
    pub maker: u32,
    /// The sections that its maker has open.
    pub context: Vec<Step>,
}

/// Locks, also if a thread panicked while it held the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recording's state, once it has begun.
#[inline]
pub fn whole() -> Option<&'static Whole> {
    WHOLE.get()
}

/// The state of this process.
#[inline]
pub fn here() -> Option<&'static Process> {
    WHOLE.get().map(Whole::here)
}

impl Whole {
    /// Starts recording.
    ///
    /// # Errors
    /// A message that says why that is not possible.
    pub fn begin(table: Table, mut settings: Settings) -> Result<(), String> {
        let mut notes = vec![("program".to_owned(), settings.program.to_owned())];
        clock::prepare(&mut settings.measures, &mut notes);
        let costs = match settings.mode {
            Mode::Playback => Vec::new(),
            _ => calibrate::costs(&settings, &mut notes),
        };
        let whole = WHOLE.get_or_init(|| Self {
            table,
            settings,
            costs,
            notes,
            mark: AtomicPtr::new(fork_mark()),
            here: AtomicPtr::new(std::ptr::from_mut(Box::leak(Box::default()))),
        });
        let file = output::path(whole.settings.file);
        let session = whole.session(file, false).map_err(|e| e.to_string())?;
        whole.set(Process::of(session));
        Ok(())
    }

    /// The state of this process.
    #[inline]
    pub fn here(&self) -> &'static Process {
        // SAFETY: set to values that are never dropped.
        unsafe { &*self.here.load(Ordering::Acquire) }
    }

    fn set(&self, process: Process) {
        let process = std::ptr::from_mut(Box::leak(Box::new(process)));
        self.here.store(process, Ordering::Release);
    }

    /// A session that writes to `file`. A `late` one creates the file when it has something to
    /// write.
    fn session(&'static self, file: PathBuf, late: bool) -> arp::Result<Session> {
        if self.settings.mode != Mode::Playback {
            output::make_room(&file);
        }
        let mut builder = Session::builder(self.settings.mode)
            .file(file)
            .format(self.settings.format)
            .late(late)
            .fold_recursion(true)
            .on_problem(|problem| {
                if let Some(here) = here() {
                    here.note(problem);
                }
            });
        for (key, value) in &self.notes {
            builder = builder.info(key, value);
        }
        for section in &self.table.sections {
            builder = builder.section(section.clone());
        }
        for (i, measure) in self.settings.measures.iter().enumerate() {
            let cost = self.costs.get(i).copied().unwrap_or_default();
            let settings = &self.settings;
            let data_type = settings.data_type_of(*measure);
            let name = measure.name();
            let place = || HERE.with(std::cell::Cell::get);
            builder = match (*measure, settings.mode) {
                (Measure::Callbacks, _) => builder.meter(data_type, name, move |tid| {
                    let callbacks = settings.callbacks(cost, place());
                    settings.spawned(tid, &callbacks.context);
                    callbacks
                }),
                (_, Mode::Playback) => builder.meter(data_type, name, move |_| Played {
                    data_type,
                    sums: Arc::default(),
                    process: std::ptr::null(),
                }),
                (measure, _) => builder.meter(data_type, name, move |_| Reading {
                    measure,
                    cost,
                    place: place(),
                }),
            };
        }
        builder.start()
    }

    /// The recorder of a thread that begins.
    pub fn recorder(&self, place: ThreadNumbers, context: &[Step]) -> Option<ThreadRecorder> {
        let here = self.here();
        let session = here.session.as_ref()?;
        let tid = here.next_tid.fetch_add(1, Ordering::Relaxed);
        HERE.with(|here| here.set(place));
        let mut recorder = session.thread(Tid(tid as u32));
        if !context.is_empty() {
            recorder.restart(context);
        }
        Some(recorder)
    }

    /// Calls the callback for threads that have ended.
    pub fn join_ended(&self) {
        let join = self.settings.thread_callbacks[1];
        if join != 0 {
            let ended: Vec<_> = {
                let mut all = lock(&self.here().contexts);
                all.extract_if(.., |thread| thread.has_ended()).collect()
            };
            for thread in ended {
                self.settings.tell(join, thread.tid, &thread.context);
            }
        }
    }

    /// True if the process is a forked child that has not called [`forked`](Self::forked) yet.
    #[inline]
    pub fn is_forked(&self) -> bool {
        let mark = self.mark.load(Ordering::Relaxed);
        // SAFETY: null or a page that stays.
        unsafe { mark.as_ref() }.is_some_and(|m| m.load(Ordering::Relaxed) == 0)
    }

    /// Begins anew in a forked child, whose only thread this is. `open` are its sections; null if it
    /// has entered none. Records so far belong to the parent.
    #[cold]
    pub fn forked(&'static self, open: *mut Open) {
        let mark = self.mark.load(Ordering::Relaxed);
        // SAFETY: as above.
        if let Some(mark) = unsafe { mark.as_ref() } {
            mark.store(1, Ordering::Relaxed);
        }
        let old = self.here();
        // In playback nothing is written, and the values to play are read already.
        let session = match (&old.session, self.settings.mode) {
            (Some(session), Mode::Playback) => Some(session.clone()),
            (Some(_), _) => match self.session(output::path(self.settings.file), true) {
                Ok(session) => Some(session),
                Err(error) => {
                    eprintln!("kernel: nothing is recorded in this child: {error}");
                    None
                }
            },
            (None, _) => None,
        };
        let process = Process {
            next_tid: AtomicU64::new(old.next_tid.load(Ordering::Relaxed)),
            session,
            ..Process::default()
        };
        // SAFETY: its own thread is here, between two uses.
        if let Some(sections) = unsafe { open.as_mut() } {
            match &process.session {
                Some(session) => {
                    sections.forked(session);
                    lock(&process.threads).push(ThreadEntry { open });
                }
                None => process.ended.store(true, Ordering::Relaxed),
            }
        }
        self.set(process);
    }
}

impl Process {
    fn of(session: Session) -> Self {
        Self {
            session: Some(session),
            next_tid: AtomicU64::new(FIRST.0.into()),
            ..Self::default()
        }
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

    /// Completes the data file; returns messages for the user. Nothing is recorded afterwards,
    /// unless the process [continues](Self::goes_on).
    pub fn finish(&self, threads: &mut [&mut Open]) -> Vec<String> {
        let Some(session) = &self.session else {
            return Vec::new();
        };
        let saved: Vec<_> = threads.iter_mut().map(|open| open.save()).collect();
        *lock(&self.end) = Some(End {
            mark: session.mark(),
            problems: lock(&self.problems).clone(),
        });
        threads.iter_mut().for_each(|open| open.finish());
        let mut messages = Vec::new();
        if let Err(error) = session.finish() {
            messages.push(error.to_string());
        }
        for (what, count) in lock(&self.problems).iter() {
            messages.push(format!("{count} {what}"));
        }
        for (open, saved) in threads.iter_mut().zip(saved) {
            open.restore(saved);
        }
        messages
    }

    /// Goes on with recording, as an `exec` of the process failed.
    #[cold]
    pub fn goes_on(&self) {
        if let (Some(end), Some(session)) = (lock(&self.end).take(), &self.session) {
            session.go_on(end.mark);
            *lock(&self.problems) = end.problems;
        }
        self.ended.store(false, Ordering::SeqCst);
    }

    /// Number and sum of values that were played back, by section.
    pub fn played(&self) -> Sums {
        let mut all = Sums::new();
        for sums in lock(&self.played).iter() {
            for (sid, (count, sum)) in lock(sums).iter() {
                let entry = all.entry(*sid).or_default();
                entry.0 += count;
                entry.1 += sum;
            }
        }
        all
    }
}

/// Adds up the values that are played back from the data file.
struct Played {
    /// Type of the values.
    data_type: DataType,
    /// Number and sum, by section.
    sums: Arc<Mutex<Sums>>,
    /// The process in whose list these sums are.
    process: *const Process,
}

// SAFETY: the address is only compared.
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

/// A word in a page that the kernel clears in a forked child; null if it cannot.
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
