//! Turns the notes of a thread into executions of procedures.

use atom_tool::notes::{self, NoteBuffer, Notes};
use atom_tool::{AllThreads, Counters, Files, Uninterrupted, forks, stack_around};
use call_log::balance::{Balancer, Point, Seen};

use crate::book::{Book, Row};
use crate::cost::{self, MEASURES, Moment};
use crate::found::Found;
use crate::meters::{self, MOST, Meters};
use crate::settings::{self, Run};
use crate::{CLOCK, ENTRY, EXIT, PROCESSOR, ROW, SP, VALUES, Values, WORD};
use crate::{rows, summary};

/// Size of a thread's buffer of notes in bytes.
const SIZE: usize = 64 << 10;

unsafe extern "C" {
    safe fn gettid() -> i32;
}

/// State of a thread that is kept from one buffer to the next.
pub struct State {
    /// The buffer; its lock is held while this state is used.
    notes: Notes,
    /// The thread's id in the system.
    tid: u32,
    meters: Meters,
    /// Ticks of the clock, and counts of the meters, while the tool processed full buffers.
    taken: (u64, Values),
    balancer: Balancer,
    book: Book,
    rows: Vec<Row>,
    /// The values of the last note.
    last: Option<Moment>,
    /// Number of notes that were begun and never written.
    lost: u64,
}

/// Reads the meters of the thread, which must have a buffer.
#[inline]
pub fn read_meters(buffer: &NoteBuffer, to: &mut [u64]) {
    // SAFETY: a thread with a buffer has a state. Its meters change only in `slow`, which runs in the
    // same thread with signals blocked.
    let state = unsafe { &*buffer.state::<State>() };
    state.meters.read(to);
}

/// Writes a note that does not simply go to the buffer: there is no buffer, it is full, the
/// process has forked or the thread is another one. `at` is the address that the note reserved, `head` its
/// first words, `own` the number of cells among `values`.
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
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is not measured.
        let Some(run) = settings::run() else { return };
        if !buffer.is_attached() && !make(run, buffer) {
            return;
        }
        // SAFETY: `make` has stored the address of a state, which is never freed.
        let state = unsafe { &mut *buffer.state::<State>() };
        if !state.notes.lock.try_lock() {
            // The process ends, and another thread processes this state.
            return;
        }
        let noted = state.notes.end(buffer);
        let is_child = state.notes.is_inherited();
        let is_new = state.tid == 0;
        if is_child {
            // The parent reports its own notes. Here they only tell which executions are open.
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
        // Time and events since the values were read are the tool's own.
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
        // SAFETY: the space of the buffer's first note, which has just been reserved.
        unsafe {
            to.add(CLOCK).write(stamp);
            to.add(SP).write(head[SP]);
            for (i, value) in now.iter().take(count).enumerate() {
                to.add(VALUES + i).write(*value);
            }
            to.add(WORD).write_volatile(word);
        }
        state.notes.lock.unlock();
    })
}

impl State {
    /// A state with a buffer. `None` if there is no memory.
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

    /// Attaches this state's buffer of notes to `buffer`, for calibration.
    pub fn lend(&mut self, buffer: &NoteBuffer) {
        self.meters = Meters::open();
        let at = std::ptr::from_mut(self);
        self.notes.attach(buffer, at);
    }

    /// Empties the buffer.
    pub fn rewind(&self, buffer: &NoteBuffer) {
        self.notes.rewind(buffer);
    }

    /// The values of each note in the buffer.
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
        // SAFETY: a note in the buffer, all bytes of which are initialised. The read is volatile, because
        // the thread may write to it while another thread ends the process.
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

    /// Processes the notes up to `noted`; the note at `own` is reserved and not written. Executions are recorded if
    /// `is_kept`.
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
            // A signal handler may have run between the reading and the noting of the values, so that its notes,
            // which are before this one, have larger values.
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

    /// Closes the open executions with the values of `moment`. `ends` is true if the thread has ended.
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
        if ends {
            self.balancer.end(clock, &mut out)
        } else {
            self.balancer.suspend(clock, &mut out)
        }
        self.hand_over();
    }

    /// Closes the executions of a thread that has ended, because another thread uses this state now.
    fn end_thread(&mut self, run: &Run) {
        if let Some(last) = self.last.take() {
            self.close(run, &last, true);
        }
    }

    /// The current values of the thread, given its cells; `is_me` is true in the thread itself. `None` if it has no notes.
    fn present(&self, run: &Run, cells: &[u64], is_me: bool) -> Option<Moment> {
        let mut moment = self.last?;
        let mut meters = [0; MOST];
        // Index in the set of the event that a meter counts.
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
        notes::report_lack("counters: no memory for a thread's notes");
        return false;
    };
    let state = Box::leak(Box::new(state));
    let at = std::ptr::from_mut(state);
    state.notes.attach(buffer, at);
    true
}

/// Writes the report when the process ends or calls `exec`.
pub fn end(files: Files, all: AllThreads<NoteBuffer>, cells: Counters<ROW>) {
    let Some(run) = settings::run() else { return };
    let me = gettid() as u32;
    let mut totals: Values = [0; MOST];
    crate::sum_cells(cells, &mut totals);
    let mut found = Found::new(run, &totals[..run.cells]);
    for (buffer, cells) in all.iter().zip(cells.of_threads(all)) {
        // The limit is 0 without a buffer, and in a forked child unless the thread has made a note there.
        if buffer.limit() == 0 {
            continue;
        }
        // SAFETY: a thread with a buffer has a state.
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
