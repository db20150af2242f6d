//! What runs in the program: the sections that are open in each thread.
//!
//! A section that is begun is put on its thread's stack with the stack pointer of
//! the program. Ends come in the opposite order, as far as the program returns
//! from what it calls. Where it does not (longjmp, an exception, a tail call), the
//! next begin or end finds entries whose stack pointer lies below the program's:
//! their procedures are gone, and they are closed then.
//!
//! Nothing here takes a lock but the first call of each thread. A signal handler
//! that interrupts one of these routines and comes to sections of its own finds
//! the thread busy: what it does is left out, begins and ends alike.

use std::io::Write;
use std::sync::{Mutex, OnceLock};

use atom_tool::prelude::*;
use atom_tool::{ThreadCell, thread_state};

thread_state! {
    /// What each thread has.
    pub struct Thread {
        /// Instructions executed.
        pub instructions: ThreadCell<u64>,
        /// Where its [`Open`] lies; 0 before it first enters a section.
        pub open: ThreadCell<usize>,
        /// The program's stack pointer while one of the routines works; else 0.
        pub busy: ThreadCell<u64>,
        /// What was left out because a routine was at work.
        pub missed: ThreadCell<u64>,
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self {
            instructions: ThreadCell::new(0),
            open: ThreadCell::new(0),
            busy: ThreadCell::new(0),
            missed: ThreadCell::new(0),
        }
    }
}

/// Stack pointers further apart belong to different stacks.
const ONE_STACK: u64 = 64 << 20;
/// So many open sections are the most of a thread.
const MOST_OPEN: usize = 1 << 20;

/// A section that was begun and has not ended.
#[derive(Clone, Copy)]
struct Entry {
    section: u32,
    rsp: u64,
}

/// The open sections of a thread.
struct Open {
    /// The thread's number, to notice when another has taken its place.
    owner: u32,
    stack: Vec<Entry>,
    counts: Vec<u64>,
    /// Closed because their procedures were gone.
    closed: u64,
    /// Ends of what was not open.
    unmatched: u64,
}

impl Open {
    /// Closes what lies on the stack above an entry's place.
    fn close_above(&mut self, place: usize) {
        while self.stack.len() > place {
            let entry = self.stack.pop();
            // Of a jump to another procedure this is the usual end.
            let ends_so = entry.is_none_or(|e| has(e.section, TAIL));
            self.closed += u64::from(!ends_so);
        }
    }

    /// Closes what belongs to procedures that are gone.
    fn unwind(&mut self, rsp: u64) {
        while let Some(top) = self.stack.last()
            && top.rsp < rsp
            && rsp - top.rsp < ONE_STACK
        {
            self.close_above(self.stack.len() - 1);
        }
    }

    fn enter(&mut self, section: u32, rsp: u64) {
        self.unwind(rsp);
        // Begun again at the same place without an end: by setjmp's second return.
        if self.is_open(section, rsp) {
            self.close_above(self.stack.len() - 1);
        }
        if self.stack.len() < MOST_OPEN {
            self.stack.push(Entry { section, rsp });
            if let Some(count) = self.counts.get_mut(section as usize) {
                *count += 1;
            }
        }
    }

    fn is_open(&self, section: u32, rsp: u64) -> bool {
        let top = self.stack.last();
        top.is_some_and(|t| t.section == section && t.rsp == rsp)
    }

    /// Where the section lies that ends now.
    fn find(&self, section: u32, rsp: u64) -> Option<usize> {
        let mut other = None;
        for (i, entry) in self.stack.iter().enumerate().rev() {
            if entry.rsp > rsp && entry.rsp - rsp < ONE_STACK && other.is_some() {
                break;
            }
            if entry.section == section {
                if entry.rsp == rsp {
                    return Some(i);
                }
                other = other.or(Some(i));
            }
            if entry.rsp > rsp && entry.rsp - rsp < ONE_STACK {
                break;
            }
        }
        other
    }

    fn leave(&mut self, section: u32, rsp: u64) {
        match self.find(section, rsp) {
            Some(place) => {
                self.close_above(place + 1);
                self.stack.pop();
            }
            None => self.unmatched += 1,
        }
    }
}

/// What the sections are.
struct Sections {
    /// For each [`MARKER`], [`TAIL`].
    flags: Vec<u8>,
}

/// Begun by a marker, so that a scope's end may close it.
pub const MARKER: u8 = 1;
/// A jump to another procedure, whose end is not seen: closed by what comes then.
pub const TAIL: u8 = 2;

fn has(section: u32, flag: u8) -> bool {
    let flags = SECTIONS.get().and_then(|s| s.flags.get(section as usize));
    flags.is_some_and(|f| f & flag != 0)
}

static SECTIONS: OnceLock<Sections> = OnceLock::new();

/// All threads' open sections.
static THREADS: Mutex<Vec<&'static OpenCell>> = Mutex::new(Vec::new());

struct OpenCell(std::cell::UnsafeCell<Open>);

// SAFETY: only its thread touches what is inside while the program runs; at the
// end, the thread that ends the process looks at all.
unsafe impl Sync for OpenCell {}

/// Before the program: what there is.
#[analysis]
pub fn begin(flags: Array<u8>) {
    let _ = SECTIONS.set(Sections {
        flags: flags.to_vec(),
    });
}

/// Does something with the thread's open sections.
#[inline(always)]
fn with(thread: PerThread<Thread>, rsp: u64, act: impl FnOnce(&mut Open)) {
    let busy = thread.busy.get();
    if busy != 0 && rsp < busy {
        thread.missed.add(1);
        return;
    }
    thread.busy.set(rsp);
    let known = thread.open.get() as *mut Open;
    // SAFETY: set below to a value that is never dropped, and used by this thread
    // only, once at a time because of `busy`.
    match unsafe { known.as_mut() } {
        Some(open) if open.owner == thread.owner() => act(open),
        _ => {
            if let Some(open) = first(thread) {
                act(open);
            }
        }
    }
    thread.busy.set(0);
}

/// A thread's first section.
#[cold]
#[inline(never)]
fn first(thread: PerThread<Thread>) -> Option<&'static mut Open> {
    let sections = SECTIONS.get()?;
    let cell: &'static OpenCell = Box::leak(Box::new(OpenCell(std::cell::UnsafeCell::new(Open {
        owner: thread.owner(),
        stack: Vec::with_capacity(64),
        counts: vec![0; sections.flags.len()],
        closed: 0,
        unmatched: 0,
    }))));
    if let Ok(mut threads) = THREADS.lock() {
        threads.push(cell);
    }
    thread.open.set(cell.0.get() as usize);
    // SAFETY: fresh.
    Some(unsafe { &mut *cell.0.get() })
}

/// Adds to the instructions that a thread has executed.
#[analysis]
pub fn count(thread: PerThread<Thread>, n: u64) {
    thread.instructions.add(n);
}

/// A section begins.
#[analysis]
pub fn enter(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, rsp.0, |open| open.enter(section, rsp.0));
}

/// A section ends.
#[analysis]
pub fn leave(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, rsp.0, |open| open.leave(section, rsp.0));
}

/// A section begins, unless it is open.
#[analysis]
pub fn enter_if_closed(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, rsp.0, |open| {
        open.unwind(rsp.0);
        if !open.is_open(section, rsp.0) {
            open.enter(section, rsp.0);
        }
    });
}

/// A section ends, if it is open.
#[analysis]
pub fn leave_if_open(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, rsp.0, |open| {
        if open.find(section, rsp.0).is_some() {
            open.leave(section, rsp.0);
        }
    });
}

/// The scope ends that was begun last.
#[analysis]
pub fn leave_scope(thread: PerThread<Thread>, _section: u32, rsp: RegV) {
    with(thread, rsp.0, |open| {
        let is_scope = |e: &&Entry| has(e.section, MARKER);
        let scope = open.stack.iter().rev().find(is_scope).map(|e| e.section);
        match scope {
            Some(section) => open.leave(section, rsp.0),
            None => open.unmatched += 1,
        }
    });
}

/// A jump through a table crosses a section's border, if it goes to one of these
/// places, which are told by their distance from the jump.
#[analysis]
pub fn table(
    thread: PerThread<Thread>,
    section: u32,
    enters: bool,
    rsp: RegV,
    target: u64,
    pc: RegV,
    places: Array<i64>,
) {
    let distance = target.wrapping_sub(pc.0) as i64;
    if places.iter().any(|p| *p == distance) {
        with(thread, rsp.0, |open| match enters {
            true => open.enter(section, rsp.0),
            false => open.leave(section, rsp.0),
        });
    }
}

/// After the program. `facts` has for each section its id and its kind.
#[analysis]
pub fn end(summary: Str, facts: Array<[u16; 2]>, names: Strings, places: Strings) {
    let Ok(threads) = THREADS.lock() else { return };
    if summary.is_empty() {
        return;
    }
    // SAFETY: the process ends; see `OpenCell`.
    let all: Vec<&Open> = threads.iter().map(|c| unsafe { &*c.0.get() }).collect();
    let written = output::create(&summary).and_then(|mut out| {
        writeln!(out, "count\tkind\tid\tname\tplace")?;
        let described = facts.iter().zip(names.iter()).zip(places.iter());
        for (i, ((facts, name), place)) in described.enumerate() {
            let count: u64 = all.iter().map(|o| o.counts[i]).sum();
            let kind = KINDS[usize::from(facts[1]) % KINDS.len()];
            writeln!(out, "{count}\t{kind}\t{}\t{name}\t{place}", facts[0])?;
        }
        let sum = |of: fn(&Open) -> u64| all.iter().map(|o| of(o)).sum::<u64>();
        writeln!(out, "# threads: {}", all.len())?;
        writeln!(out, "# open at the end: {}", sum(|o| o.stack.len() as u64))?;
        writeln!(
            out,
            "# closed because their procedures were gone: {}",
            sum(|o| o.closed)
        )?;
        writeln!(out, "# ends without a begin: {}", sum(|o| o.unmatched))?;
        out.flush()
    });
    if let Err(e) = written {
        eprintln!("kernel: cannot write {e}");
    }
}

/// The kinds of section, by their numbers.
pub const KINDS: [&str; 3] = ["plain", "kernel", "profile"];
