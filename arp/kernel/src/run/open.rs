//! The sections that are open in one thread, and when they end.
//!
//! A section that begins is pushed on a stack of its thread, with the program's stack pointer.
//! Ends come in the opposite order as long as procedures return. If one does not (longjmp, an
//! exception, a tail call), the next begin or end finds entries whose stack pointer is below the
//! program's. Their procedures are gone, so these entries are closed and not recorded.

use std::sync::atomic::AtomicU64;

use arp::{Section, SectionKind, Session, Sid, Step, ThreadRecorder};

use super::meters::{Events, ThreadNumbers};
use super::{MARKER, TAIL};

/// Stack pointers that are further apart (in bytes) belong to different stacks.
const ONE_STACK: u64 = 64 << 20;
/// Most sections that can be open in a thread.
const MOST_OPEN: usize = 1 << 20;

/// A section that was begun and has not ended.
#[derive(Clone, Copy)]
struct Entry {
    section: u32,
    rsp: u64,
    /// Numbers of events before it began.
    events: [u64; 2],
}

/// Counts of a thread that are not in the data file.
#[derive(Clone, Default)]
pub struct Facts {
    /// Number of executions of each section.
    pub counts: Vec<u64>,
    /// Number of sections that were closed because their procedures were gone.
    pub closed: u64,
    /// Number of ends of sections that were not open.
    pub unmatched: u64,
    /// Number of sections that were open at the end.
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
    /// Number of sections that the thread's maker had open when the thread began.
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

    /// Another thread takes over the state of this one, which has ended.
    pub fn take_over(&mut self, owner: u32, inherited: usize, recorder: ThreadRecorder) {
        self.finish();
        (self.owner, self.inherited) = (owner, inherited);
        self.recorder = recorder;
    }

    /// Saves the state; records of executions that have ended go to the session.
    pub fn save(&mut self) -> SavedOpen {
        SavedOpen {
            recorder: self.recorder.save(),
            stack: self.stack.clone(),
            events: self.events.counted(),
            left_open: self.facts.left_open,
        }
    }

    /// Restores a saved state after [`finish`](Self::finish), as the process continues.
    pub fn restore(&mut self, saved: SavedOpen) {
        self.recorder.restore(saved.recorder);
        self.stack = saved.stack;
        self.events.set(saved.events);
        self.facts.left_open = saved.left_open;
    }

    /// Ends the recording, as the thread has ended or the process ends.
    pub fn finish(&mut self) {
        self.facts.left_open += self.stack.len() as u64;
        while let Some(entry) = self.stack.pop() {
            self.end(entry);
        }
        self.recorder.leave_all();
        self.recorder.finish();
    }

    /// The process is a forked child, which records into a session of its own; the records so far
    /// belong to its parent.
    pub fn forked(&mut self, session: &Session) {
        self.recorder.move_to(session);
        self.facts.counts.fill(0);
        self.facts.closed = 0;
        self.facts.unmatched = 0;
    }

    /// Number of open sections.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    fn has(&self, section: u32, flag: u8) -> bool {
        let row = self.table.rows.get(section as usize);
        row.is_some_and(|r| r.flags & flag != 0)
    }

    /// Closes all entries of the stack from `place` on, without recording them.
    fn close_above(&mut self, place: usize) {
        if self.stack.len() <= place {
            return;
        }
        while self.stack.len() > place {
            let entry = self.stack.pop();
            // A jump to another procedure commonly ends in this way.
            let ends_so = entry.is_none_or(|e| self.has(e.section, TAIL));
            self.facts.closed += u64::from(!ends_so);
        }
        self.recorder.unwind_to_depth(self.inherited + place);
    }

    /// Closes the sections of procedures that are gone.
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
        // The section begins again in the same frame without an end: `setjmp` returned once more.
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

    /// The addresses of a thread's numbers.
    pub fn place_of(events: &Events, instructions: *const AtomicU64) -> ThreadNumbers {
        ThreadNumbers {
            instructions,
            events,
        }
    }

    /// Whether a jump out of a procedure, whose end is not seen, can be a section. It can if the
    /// call that entered the procedure is a section, or another such jump; it ends with that call.
    /// In a cycle of such jumps, the sections since the last round end.
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

    /// True if the section is the innermost one and was begun in this frame.
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

    /// Index in the stack of the section that ends now.
    fn find(&self, section: u32, rsp: u64) -> Option<usize> {
        let mut other = None;
        for (i, entry) in self.stack.iter().enumerate().rev() {
            if entry.section == section {
                if entry.rsp == rsp {
                    return Some(i);
                }
                other = other.or(Some(i));
            }
            // Sections that callers began do not end here.
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

    /// The open sections, as the context of a thread that begins now.
    pub fn context(&self) -> Vec<Step> {
        self.recorder.stack()
    }
}

/// A section in the table.
#[derive(Clone)]
pub struct Row {
    pub sid: Sid,
    pub kind: SectionKind,
    pub flags: u8,
}

/// All sections.
pub struct Table {
    pub rows: Vec<Row>,
    pub sections: Vec<Section>,
}
