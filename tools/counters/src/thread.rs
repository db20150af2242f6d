//! From the notes of a thread to its executions.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::notes::{self, NoteBuffer, Notes};
use atom_tool::{AllThreads, Counters, Files, Uninterrupted, forks};
use call_log::balance::{Balancer, Point, Seen};
use call_log::stack::stack_around;

use crate::book::{Book, Row};
use crate::cost::{self, MEASURES};
use crate::meters::{self, MOST, Meters};
use crate::settings::{self, Run};
use crate::{CLOCK, ENTRY, EXIT, PROCESSOR, ROW, SP, VALUES, Values, WORD};
use crate::{rows, summary};

/// Bytes of notes that a thread collects, at most.
const SIZE: usize = 64 << 10;

unsafe extern "C" {
    safe fn gettid() -> i32;
}

/// What was read at a point: the clock, then the events in the order of the set.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time stamp as it was read.
    pub stamp: u64,
    pub processor: u32,
    /// Without what the tool took for itself between notes.
    pub values: [u64; MEASURES],
}

/// What a thread keeps between two buffers.
pub struct State {
    /// Its lock is held while this state is used.
    notes: Notes,
    /// The thread's number in the system.
    tid: u32,
    meters: Meters,
    /// Ticks, and what meters counted, while the tool worked on full buffers.
    taken: (u64, Values),
    balancer: Balancer,
    book: Book,
    rows: Vec<Row>,
    /// What was noted last.
    last: Option<Moment>,
    /// Notes that were begun and never written.
    lost: u64,
}

/// Reads the meters of the thread; the buffer is there.
#[inline]
pub fn read_meters(buffer: &NoteBuffer, to: &mut [u64]) {
    // SAFETY: where there is a buffer there is a state, whose meters change only while it is
    // busy, which is in the same thread with signals waiting.
    let state = unsafe { &*buffer.state::<State>() };
    state.meters.read(to);
}

/// The note does not simply go to the buffer: there is none, it is full, the
/// process has forked or the thread is another one.
#[cold]
#[inline(never)]
pub fn slow(
    buffer: &NoteBuffer,
    thread: u32,
    at: u64,
    head: [u64; VALUES],
    values: &Values,
    own: usize,
) {
    let _signals_wait = Uninterrupted::begin();
    // What runs before the program does is not measured.
    let Some(run) = settings::run() else { return };
    if !buffer.is_attached() && !make(run, buffer) {
        return;
    }
    // SAFETY: `make` has put a state there, which stays.
    let state = unsafe { &mut *buffer.state::<State>() };
    if !state.notes.lock.try_lock() {
        // The process is just ending.
        return;
    }
    let noted = state.notes.end(buffer);
    let is_child = state.notes.is_inherited();
    let is_new = state.tid == 0;
    if is_child {
        // What its parent has noted, the parent tells of; here it only tells what is open.
        state.consume(run, noted, at, false);
        state.balancer.fork();
        state.forget();
        state.tid = 0;
        state.notes.renew();
    } else {
        state.flush(run, noted, at);
    }
    let me = gettid() as u32;
    let is_other = state.tid != me;
    if is_other {
        if !is_child && !is_new {
            state.end_thread(run);
        }
        state.tid = me;
        state.meters = Meters::open();
    }
    buffer.set_thread(thread);
    // What has passed since the values were read is the tool's.
    let mut now = *values;
    state.meters.read(&mut now[own..]);
    if is_other {
        state.taken = (0, [0; MOST]);
    } else {
        for ((taken, now), then) in state.taken.1.iter_mut().zip(now).zip(values).skip(own) {
            *taken = taken.wrapping_add(now.wrapping_sub(*then));
        }
    }
    let (stamp, processor) = cost::now();
    let since = stamp.wrapping_sub(head[CLOCK]);
    state.taken.0 = state.taken.0.wrapping_add(since);
    let word = head[WORD] & !(u64::from(cost::UNKNOWN) << PROCESSOR);
    let word = word | u64::from(processor) << PROCESSOR;
    let to = state.notes.reserve_first(buffer) as *mut u64;
    let count = state.notes.size() as usize / 8 - VALUES;
    // SAFETY: the buffer's first note, which was reserved just now.
    unsafe {
        to.add(CLOCK).write(stamp);
        to.add(SP).write(head[SP]);
        for (i, value) in now.iter().take(count).enumerate() {
            to.add(VALUES + i).write(*value);
        }
        to.add(WORD).write_volatile(word);
    }
    state.notes.lock.unlock();
}

impl State {
    /// With a buffer and meters for the running thread. None if there is no memory.
    pub fn new(run: &Run) -> Option<Self> {
        let size = (VALUES + run.cells + meters::wanted()) * 8;
        Some(Self {
            notes: Notes::new(size, SIZE)?,
            tid: 0,
            meters: Meters::default(),
            taken: (0, [0; MOST]),
            balancer: Balancer::new(),
            book: Book::default(),
            rows: Vec::new(),
            last: None,
            lost: 0,
        })
    }

    /// For calibrating: makes the buffer write here.
    pub fn lend(&mut self, buffer: &NoteBuffer) {
        self.meters = Meters::open();
        let at = std::ptr::from_mut(self);
        self.notes.attach(buffer, at);
    }

    /// Lets the buffer begin again.
    pub fn rewind(&self, buffer: &NoteBuffer) {
        self.notes.rewind(buffer);
    }

    /// What the buffer has.
    pub fn moments(&self, run: &Run, buffer: &NoteBuffer) -> impl Iterator<Item = Moment> {
        let notes = self.notes.addresses(self.notes.end(buffer));
        notes.map(|at| self.moment(run, at))
    }

    fn forget(&mut self) {
        self.book = Book::default();
        self.rows = Vec::new();
        self.last = None;
        self.lost = 0;
    }

    fn moment(&self, run: &Run, at: u64) -> Moment {
        let note = at as *const u64;
        // SAFETY: a note in the buffer, of which all bytes are initialised. That
        // its thread may write to it at the process's end is why this is volatile.
        let word = |i: usize| unsafe { note.add(i).read_volatile() };
        let mut values = [0; MEASURES];
        values[0] = word(CLOCK).wrapping_sub(self.taken.0);
        let mut meter = run.cells;
        for (slot, value) in run.settings.slots.iter().zip(&mut values[1..]) {
            let from = slot.cell.unwrap_or(meter);
            meter += usize::from(slot.cell.is_none());
            *value = word(VALUES + from).wrapping_sub(self.taken.1[from]);
        }
        Moment {
            stamp: word(CLOCK),
            processor: (word(WORD) >> PROCESSOR) as u32 & cost::UNKNOWN,
            values,
        }
    }

    /// Takes the notes up to `noted`; the place at `own` is reserved and not written.
    fn consume(&mut self, run: &Run, noted: u64, own: u64, is_kept: bool) {
        let costs = cost::costs();
        let with_rows = !run.settings.csv.is_empty();
        for at in self.notes.addresses(noted) {
            // SAFETY: as in `moment`.
            let (word, sp) = unsafe {
                let note = at as *mut u64;
                let word = note.add(WORD).read_volatile();
                note.add(WORD).write_volatile(0);
                (word, note.add(SP).read_volatile())
            };
            if word == 0 {
                self.lost += u64::from(at != own);
                continue;
            }
            let mut moment = self.moment(run, at);
            moment.processor = (word >> PROCESSOR) as u32 & cost::UNKNOWN;
            // A signal handler may have come between the reading of values and the noting of them.
            if let Some(last) = &self.last {
                for (value, last) in moment.values.iter_mut().zip(&last.values) {
                    *value = (*value).max(*last);
                }
            }
            self.last = Some(moment);
            let point = Point {
                seen: match notes::kind(word) {
                    ENTRY => Seen::Entry,
                    EXIT => Seen::Exit,
                    _ => Seen::Here,
                },
                proc: notes::number(word),
                sp,
                clock: moment.values[0],
            };
            let (balancer, book, rows) = (&mut self.balancer, &mut self.book, &mut self.rows);
            balancer.point(point, &mut stack_around, &mut |event| {
                if is_kept {
                    moment.values[0] = event.clock;
                    let row = book.event(event, &moment, &costs);
                    rows.extend(row.filter(|_| with_rows));
                }
            });
        }
    }

    fn flush(&mut self, run: &Run, noted: u64, own: u64) {
        self.consume(run, noted, own, true);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if !self.rows.is_empty() {
            rows::take(&self.rows, self.tid);
            self.rows.clear();
        }
    }

    /// Closes what is open, at the last moment that is known.
    fn close(&mut self, run: &Run, moment: &Moment, ends: bool) {
        let costs = cost::costs();
        let with_rows = !run.settings.csv.is_empty();
        let (book, rows) = (&mut self.book, &mut self.rows);
        let mut moment = *moment;
        let clock = moment.values[0];
        let mut out = |event: call_log::Event| {
            moment.values[0] = event.clock;
            let row = book.event(event, &moment, &costs);
            rows.extend(row.filter(|_| with_rows));
        };
        match ends {
            true => self.balancer.end(clock, &mut out),
            false => self.balancer.suspend(clock, &mut out),
        }
        self.hand_over();
    }

    /// The thread has ended, and another one takes over.
    fn end_thread(&mut self, run: &Run) {
        if let Some(last) = self.last.take() {
            self.close(run, &last, true);
        }
    }

    /// How it is now with a thread that has counted this in its cells.
    fn present(&self, run: &Run, cells: &[u64], is_me: bool) -> Option<Moment> {
        let mut moment = self.last?;
        let mut meters = [0; MOST];
        let in_set = |meter: usize| {
            let kernels = run.settings.slots.iter().enumerate();
            kernels
                .filter(|(_, s)| s.cell.is_none())
                .nth(meter)
                .map(|(i, _)| i)
        };
        for (i, meter) in meters.iter_mut().take(meters::wanted()).enumerate() {
            let taken = self.taken.1[run.cells + i];
            *meter = in_set(i)
                .map_or(0, |i| moment.values[1 + i])
                .wrapping_add(taken);
        }
        self.meters.ask(&mut meters, is_me);
        for (i, meter) in meters.iter().take(meters::wanted()).enumerate() {
            if let Some(place) = in_set(i) {
                let taken = self.taken.1[run.cells + i];
                moment.values[1 + place] = meter.wrapping_sub(taken);
            }
        }
        for (slot, value) in run.settings.slots.iter().zip(&mut moment.values[1..]) {
            if let Some(now) = slot.cell.and_then(|cell| cells.get(cell)) {
                *value = *now;
            }
        }
        if is_me || forks::is_alive(self.tid) {
            (moment.stamp, _) = cost::now();
            moment.values[0] = moment.stamp.wrapping_sub(self.taken.0);
        }
        Some(moment)
    }
}

/// Gives the thread a buffer. False if there is no memory.
fn make(run: &Run, buffer: &NoteBuffer) -> bool {
    let Some(state) = State::new(run) else {
        static TOLD: AtomicBool = AtomicBool::new(false);
        if !TOLD.swap(true, Ordering::Relaxed) {
            eprintln!(
                "counters: no memory for a thread's notes (or a kernel older than Linux 4.14)"
            );
        }
        return false;
    };
    let state = Box::leak(Box::new(state));
    let at = std::ptr::from_mut(state);
    state.notes.attach(buffer, at);
    true
}

/// The process ends, or tries to become another program: writes the report.
pub fn end(files: Files, all: AllThreads<NoteBuffer>, cells: Counters<ROW>) {
    let Some(run) = settings::run() else { return };
    let me = gettid() as u32;
    let mut totals: Values = [0; MOST];
    crate::sum_cells(cells, &mut totals);
    let mut found = summary::Found::new(run, &totals[..run.cells]);
    for (buffer, cells) in all.iter().zip(cells.of_threads(all)) {
        // It is 0 in a forked child if the thread is its parent's, or has noted nothing here.
        if buffer.limit() == 0 {
            continue;
        }
        // SAFETY: where there is a buffer there is a state.
        let state = unsafe { &mut *buffer.state::<State>() };
        if !state.notes.lock_at_end() {
            found.lost += 1;
            continue;
        }
        state.flush(run, state.notes.end(buffer), 0);
        state.notes.rewind(buffer);
        let mut values: Values = [0; MOST];
        crate::sum_cells(cells, &mut values);
        let cells = &values[..run.cells];
        if let Some(moment) = state.present(run, cells, state.tid == me) {
            state.close(run, &moment, false);
        }
        let oddities = state.balancer.oddities();
        found.unmatched += oddities.unmatched;
        found.left += oddities.left;
        found.lost += state.lost;
        found.thread(&state.book.sums, &state.meters);
        state.notes.lock.unlock();
    }
    rows::finish();
    summary::write(files, &found);
}
