//! The sections that are open in one thread, and when they end.
//!
//! A section that is begun is put on its thread's stack with the stack pointer of
//! the program. Ends come in the opposite order, as far as the program returns
//! from what it calls. Where it does not (longjmp, an exception, a tail call), the
//! next begin or end finds entries whose stack pointer lies below the program's:
//! their procedures are gone, and they are closed then, unrecorded.

use std::sync::atomic::AtomicU64;

use arp::{SectionKind, Session, Sid, Step, ThreadRecorder};

use super::meters::{Events, ThreadNumbers};
use super::session::Table;
use super::{MARKER, TAIL};

/// Stack pointers further apart belong to different stacks.
const ONE_STACK: u64 = 64 << 20;
/// So many open sections are the most of a thread.
const MOST_OPEN: usize = 1 << 20;

/// A section that was begun and has not ended.
#[derive(Clone, Copy)]
struct Entry {
    section: u32,
    rsp: u64,
    /// Events before it began.
    events: [u64; 2],
}

/// What a thread has done, beside what is in the data file.
#[derive(Clone, Default)]
pub struct Facts {
    /// Executions of each section.
    pub counts: Vec<u64>,
    /// Closed because their procedures were gone.
    pub closed: u64,
    /// Ends of what was not open.
    pub unmatched: u64,
    /// Open at the end.
    pub left_open: u64,
}

/// See [`Open::save`].
pub struct SavedOpen {
    recorder: arp::Saved,
    stack: Vec<Entry>,
    events: [u64; 2],
    left_open: u64,
}

/// The open sections of a thread.
pub struct Open {
    /// The thread's number, to notice when another has taken its place.
    pub owner: u32,
    pub facts: Facts,
    pub recorder: ThreadRecorder,
    /// Of the maker, when the thread began.
    inherited: usize,
    events: Box<Events>,
    stack: Vec<Entry>,
    table: &'static Table,
}

impl Open {
    pub fn new(
        table: &'static Table,
        owner: u32,
        inherited: usize,
        events: Box<Events>,
        recorder: ThreadRecorder,
    ) -> Self {
        Self {
            owner,
            inherited,
            events,
            facts: Facts {
                counts: vec![0; table.rows.len()],
                ..Facts::default()
            },
            recorder,
            stack: Vec::with_capacity(256),
            table,
        }
    }

    /// Another thread goes on with what this one has left.
    pub fn take_over(&mut self, owner: u32, inherited: usize, recorder: ThreadRecorder) {
        self.finish();
        (self.owner, self.inherited) = (owner, inherited);
        self.recorder = recorder;
    }

    /// What it knows now; records of executions that have ended go to the session.
    pub fn save(&mut self) -> SavedOpen {
        SavedOpen {
            recorder: self.recorder.save(),
            stack: self.stack.clone(),
            events: self.events.counted(),
            left_open: self.facts.left_open,
        }
    }

    /// Goes back to that, after [`finish`](Self::finish): the process goes on.
    pub fn restore(&mut self, saved: SavedOpen) {
        self.recorder.restore(saved.recorder);
        self.stack = saved.stack;
        self.events.set(saved.events);
        self.facts.left_open = saved.left_open;
    }

    /// The thread has ended, or the process does.
    pub fn finish(&mut self) {
        self.facts.left_open += self.stack.len() as u64;
        while let Some(entry) = self.stack.pop() {
            self.end(entry);
        }
        self.recorder.leave_all();
        self.recorder.finish();
    }

    /// The process is a child, which records into a session of its own: what was recorded
    /// is its parent's.
    pub fn forked(&mut self, session: &Session) {
        self.recorder.move_to(session);
        self.facts.counts.fill(0);
        self.facts.closed = 0;
        self.facts.unmatched = 0;
    }

    /// How many sections are open.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    fn has(&self, section: u32, flag: u8) -> bool {
        let row = self.table.rows.get(section as usize);
        row.is_some_and(|r| r.flags & flag != 0)
    }

    /// Closes, unrecorded, what lies on the stack above an entry's place.
    fn close_above(&mut self, place: usize) {
        if self.stack.len() <= place {
            return;
        }
        while self.stack.len() > place {
            let entry = self.stack.pop();
            // Of a jump to another procedure this is the usual end.
            let ends_so = entry.is_none_or(|e| self.has(e.section, TAIL));
            self.facts.closed += u64::from(!ends_so);
        }
        self.recorder.unwind_to_depth(self.inherited + place);
    }

    /// Closes what belongs to procedures that are gone.
    #[inline]
    fn unwind(&mut self, rsp: u64) {
        let mut place = self.stack.len();
        while place > 0 {
            let top = self.stack[place - 1].rsp;
            if top >= rsp || rsp - top >= ONE_STACK {
                break;
            }
            place -= 1;
        }
        if place < self.stack.len() {
            self.close_above(place);
        }
    }

    #[inline]
    pub fn enter(&mut self, section: u32, rsp: u64, start: i64) {
        self.unwind(rsp);
        // Begun again at the same place without an end: by setjmp's second return.
        if self.is_open(section, rsp) {
            self.close_above(self.stack.len() - 1);
        }
        let Some(row) = self.table.rows.get(section as usize) else {
            return;
        };
        if row.flags & TAIL != 0 && !self.makes_room(section, rsp) {
            return;
        }
        if self.stack.len() < MOST_OPEN {
            let events = self.events.counted();
            self.stack.push(Entry {
                section,
                rsp,
                events,
            });
            self.facts.counts[section as usize] += 1;
            self.recorder.enter(row.kind, row.sid, start);
            if !row.kind.is_measured() {
                self.events.add(false);
            }
        }
    }

    /// The numbers of events.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Where the numbers of events are.
    pub fn place_of(events: &Events, instructions: *const AtomicU64) -> ThreadNumbers {
        ThreadNumbers {
            instructions,
            events,
        }
    }

    /// Of a jump out of a procedure, whose end is not seen: true if it can be a
    /// section. It can if the call by which that procedure was entered is one, or
    /// another such jump; with the call it ends. In a circle of such jumps, what
    /// was begun since the last round ends.
    fn makes_room(&mut self, section: u32, rsp: u64) -> bool {
        let mut place = self.stack.len();
        while let Some(below) = place.checked_sub(1).map(|i| self.stack[i]) {
            if below.rsp != rsp || !self.has(below.section, TAIL) {
                return below.rsp == rsp.wrapping_add(8);
            }
            place -= 1;
            if below.section == section {
                self.close_above(place);
            }
        }
        false
    }

    /// True if the section is the innermost, begun in this frame.
    pub fn is_open(&self, section: u32, rsp: u64) -> bool {
        let top = self.stack.last();
        top.is_some_and(|t| t.section == section && t.rsp == rsp)
    }

    /// Begins a section unless it is open.
    pub fn enter_if_closed(&mut self, section: u32, rsp: u64) {
        self.unwind(rsp);
        if !self.is_open(section, rsp) {
            self.enter(section, rsp, 0);
        }
    }

    /// Where the section lies that ends now.
    fn find(&self, section: u32, rsp: u64) -> Option<usize> {
        let mut other = None;
        for (i, entry) in self.stack.iter().enumerate().rev() {
            if entry.section == section {
                if entry.rsp == rsp {
                    return Some(i);
                }
                other = other.or(Some(i));
            }
            // What was begun by callers is not ended here.
            if entry.rsp > rsp && entry.rsp - rsp < ONE_STACK {
                break;
            }
        }
        other
    }

    #[inline]
    pub fn leave(&mut self, section: u32, rsp: u64) {
        if !self.is_open(section, rsp) {
            match self.find(section, rsp) {
                Some(place) => self.close_above(place + 1),
                None => {
                    self.facts.unmatched += 1;
                    return;
                }
            }
        }
        if let Some(entry) = self.stack.pop() {
            self.end(entry);
        }
    }

    #[inline]
    fn end(&mut self, entry: Entry) {
        let row = &self.table.rows[entry.section as usize];
        self.events.ends(entry.events);
        self.recorder.leave(row.kind, row.sid);
        if row.kind.is_measured() {
            self.events.add(true);
        }
    }

    /// Ends a section if it is open.
    pub fn leave_if_open(&mut self, section: u32, rsp: u64) {
        if self.find(section, rsp).is_some() {
            self.leave(section, rsp);
        }
    }

    /// Ends the scope that was begun last.
    pub fn leave_scope(&mut self, rsp: u64) {
        let is_scope = |e: &&Entry| self.has(e.section, MARKER);
        match self.stack.iter().rev().find(is_scope).map(|e| e.section) {
            Some(section) => self.leave(section, rsp),
            None => self.facts.unmatched += 1,
        }
    }

    /// What is open, for a thread that begins now.
    pub fn context(&self) -> Vec<Step> {
        self.recorder.stack()
    }
}

/// A section, as the table has it.
#[derive(Clone)]
pub struct Row {
    pub sid: Sid,
    pub kind: SectionKind,
    pub flags: u8,
}
