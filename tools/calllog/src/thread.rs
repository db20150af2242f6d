//! Turns the notes of a thread into entries and exits that pair.

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
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
struct State {
    run: &'static Run,
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
        if notes::make_room(buffer, SIZE, Some(at), || State::new(run)) {
            let first = buffer.reserve(NOTE) as *mut Note;
            // SAFETY: the space of the buffer's first note, which has just been reserved.
            unsafe { first.write(note) };
        } else if !buffer.is_attached() {
            notes::report_lack("calllog: no memory for a thread's log");
        }
    })
}

impl Consume<3> for State {
    fn take(&mut self, notes: Taken<3>) {
        let run = self.run;
        self.consume(notes, |events, event| events.push(run, event));
        self.hand_over();
    }

    fn take_inherited(&mut self, notes: Taken<3>) {
        // The parent reports its own notes. Here they only tell which executions are open.
        self.consume(notes, |_, _| {});
        self.balancer.fork();
        (self.events, self.lost) = (Events::default(), 0);
        settings::in_child(self.run);
        // The thread that forked continues in the child with another id.
        self.tid = gettid() as u32;
    }

    fn change_thread(&mut self) {
        let tid = gettid() as u32;
        if self.tid != tid {
            self.end_thread();
        }
        self.tid = tid;
    }
}

impl State {
    fn new(run: &'static Run) -> Self {
        Self {
            run,
            tid: gettid() as u32,
            balancer: Balancer::new(),
            events: Events::default(),
            lost: 0,
        }
    }

    fn consume(&mut self, notes: Taken<3>, mut out: impl FnMut(&mut Events, Event)) {
        let (events, lost) = (&mut self.events, &mut self.lost);
        for [word, clock, sp] in notes {
            if word == 0 || word == notes::GIVEN_UP {
                *lost += u64::from(word == 0);
                continue;
            }
            let note = Note { word, clock, sp };
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

    fn hand_over(&mut self) {
        if let Some(mut sink) = sink::lock() {
            sink.take(&mut self.events, self.tid);
        }
    }

    /// Closes the executions of a thread that has ended, because another thread uses this state now.
    fn end_thread(&mut self) {
        let (run, events) = (self.run, &mut self.events);
        let clock = self.balancer.last_clock();
        self.balancer
            .end(clock, &mut |event| events.push(run, event));
        self.hand_over();
        self.events.number = None;
    }
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
    let mut each = |state: &mut State| {
        let goes_on =
            state.tid == me || run.settings.clock.is_shared() && forks::is_alive(state.tid);
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
    };
    // A process that only reports the state of another one has none of the bytes that are on their way to the log.
    if !forks::is_snapshot() {
        let left_out = notes::at_end(all, &mut each);
        tail.lost += left_out;
    }
    if let Some(mut sink) = sink::lock() {
        Sink::finish(&mut sink, tail);
    }
    sums
}
