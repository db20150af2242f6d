//! Turns the notes of a thread into entries and exits that pair.

use atom_tool::notes::{self, NoteBuffer, Notes};
use atom_tool::{AllThreads, PerThread, Uninterrupted, forks, stack_around};
use call_log::Event;
use call_log::account::Figures;
use call_log::balance::{Balancer, Point};
use call_log::compact::Tail;

use crate::events::Events;
use crate::settings::{self, Run};
use crate::sink::{self, Sink};
use crate::{NOTE, Note};

/// Size of a thread's buffer of notes in bytes.
const SIZE: usize = 2720 * NOTE as usize;

unsafe extern "C" {
    safe fn gettid() -> i32;
}

/// State of a thread that is kept from one buffer to the next.
pub struct State {
    /// The buffer; its lock is held while this state is used.
    notes: Notes,
    /// The thread's id in the system.
    tid: u32,
    balancer: Balancer,
    events: Events,
    /// Number of notes that were begun and never written.
    lost: u64,
}

/// Writes a note that does not simply go to the buffer: there is no buffer, it is full, the
/// process has forked or the thread is another one. `at` is the address that the note reserved.
#[cold]
#[inline(never)]
pub fn slow(buffer: PerThread<NoteBuffer>, at: u64, note: Note) {
    Uninterrupted::run(|_| {
        // Code that runs before the program's start is not logged.
        let Some(run) = settings::run() else { return };
        if !make(&buffer) {
            return;
        }
        // SAFETY: `make` has stored the address of a state, which is never freed.
        let state = unsafe { &mut *buffer.state::<State>() };
        if !state.notes.lock.try_lock() {
            // The process ends, and another thread processes this state.
            return;
        }
        let noted = state.notes.end(&buffer);
        if state.notes.is_inherited() {
            // This is a forked child. The parent reports its own notes. Here they only tell which executions
            // are open.
            state.consume(noted, at, |_, _| {});
            state.balancer.fork();
            (state.events, state.lost) = (Events::default(), 0);
            settings::in_child(run);
            // The thread that forked continues in the child with another id.
            state.tid = gettid() as u32;
            buffer.set_thread(buffer.thread_number());
            state.notes.renew();
        } else {
            state.flush(run, noted, at);
        }
        if buffer.thread() != buffer.thread_number() || state.tid == 0 {
            if state.tid != 0 && state.tid != gettid() as u32 {
                state.end_thread(run);
            }
            buffer.set_thread(buffer.thread_number());
            state.tid = gettid() as u32;
        }
        let first = state.notes.reserve_first(&buffer);
        // SAFETY: the space of the buffer's first note, which has just been reserved.
        unsafe { (first as *mut Note).write(note) };
        state.notes.lock.unlock();
    })
}

impl State {
    /// Processes the notes up to `noted`; the note at `own` is reserved and not written.
    fn consume(&mut self, noted: u64, own: u64, mut out: impl FnMut(&mut Events, Event)) {
        let (events, lost) = (&mut self.events, &mut self.lost);
        for at in self.notes.addresses(noted) {
            // SAFETY: a note in the buffer, all bytes of which are initialised. The accesses are volatile, because
            // the thread may write to it while another thread ends the process.
            let note = unsafe {
                let note = (at as *const Note).read_volatile();
                (at as *mut u64).write_volatile(0);
                note
            };
            if note.word == 0 {
                *lost += u64::from(at != own);
                continue;
            }
            let point = Point {
                seen: note.seen(),
                proc: notes::number(note.word),
                sp: note.sp,
                clock: note.clock,
            };
            self.balancer
                .point(point, &mut stack_around, &mut |event| out(events, event));
        }
    }

    fn flush(&mut self, run: &Run, noted: u64, own: u64) {
        self.consume(noted, own, |events, event| events.push(run, event));
        self.hand_over();
    }

    fn hand_over(&mut self) {
        if let Some(mut sink) = sink::lock() {
            sink.take(&mut self.events, self.tid);
        }
    }

    /// Closes the executions of a thread that has ended, because another thread uses this state now.
    fn end_thread(&mut self, run: &Run) {
        let events = &mut self.events;
        let clock = self.balancer.last_clock();
        self.balancer
            .end(clock, &mut |event| events.push(run, event));
        self.hand_over();
        self.events.number = None;
    }
}

/// Gives the thread a buffer if it has none. False if there is no memory.
fn make(buffer: &NoteBuffer) -> bool {
    if buffer.is_attached() {
        return true;
    }
    let Some(notes) = Notes::new(NOTE as usize, SIZE) else {
        notes::report_lack("calllog: no memory for a thread's log");
        return false;
    };
    let state = Box::leak(Box::new(State {
        notes,
        tid: 0,
        balancer: Balancer::new(),
        events: Events::default(),
        lost: 0,
    }));
    let at = std::ptr::from_mut(state);
    state.notes.attach(buffer, at);
    true
}

/// Writes the log when the process ends or calls `exec`. If it continues because the `exec` fails, later events are
/// appended. Returns the sums of all threads by procedure.
pub fn end(run: &'static Run, all: AllThreads<NoteBuffer>) -> Vec<Figures> {
    let mut sums: Vec<Figures> = vec![Figures::default(); run.procs.len()];
    let now = settings::now(run.settings.clock).0;
    let me = gettid() as u32;
    let mut tail = Tail {
        end: now,
        ..Tail::default()
    };
    for buffer in all.iter() {
        // The limit is 0 without a buffer, and in a forked child unless the thread has made a note there.
        if buffer.limit() == 0 {
            continue;
        }
        // SAFETY: a thread with a buffer has a state.
        let state = unsafe { &mut *buffer.state::<State>() };
        if !state.notes.lock_at_end() {
            tail.lost += 1;
            continue;
        }
        state.flush(run, state.notes.end(buffer), 0);
        state.notes.rewind(buffer);
        let is_me = state.tid == me;
        let goes_on = is_me || run.settings.clock.is_shared() && forks::is_alive(state.tid);
        let clock = if goes_on { now } else { 0 };
        let events = &mut state.events;
        state
            .balancer
            .suspend(clock, &mut |event| events.push(run, event));
        state.hand_over();
        for (sum, figures) in sums.iter_mut().zip(state.events.tally.figures()) {
            sum.add(figures);
        }
        let oddities = state.balancer.oddities();
        tail.unmatched += oddities.unmatched;
        tail.left += oddities.left;
        tail.lost += state.lost;
        state.notes.lock.unlock();
    }
    if let Some(mut sink) = sink::lock() {
        Sink::finish(&mut sink, tail);
    }
    sums
}
