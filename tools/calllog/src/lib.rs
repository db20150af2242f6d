//! A log of the entries and exits of procedures, each with a clock value.
//!
//! `docs/tools/calllog.md` describes options and output. The way of an event:
//! a routine of a few instructions notes a point in its thread's buffer (here);
//! a full buffer is turned into events that pair, and these into bytes
//! (`thread`); the bytes of all threads go to the file (`sink`).

use atom_tool::clocks;
use atom_tool::prelude::*;
use call_log::balance::Seen;
use call_log::clock::Clock;
use call_log::exercise::MOST_PROCEDURES;

mod settings;
mod sink;
mod thread;

use settings::{Settings, SettingsData};

/// What a point is, as part of a call's constant argument.
const ENTRY: u32 = 0;
const EXIT: u32 = 1;
const HERE: u32 = 2;

/// A point as it is noted: what and which procedure (never 0 as a whole, which
/// marks a place that is reserved and not yet written), clock, stack pointer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Note {
    word: u64,
    clock: u64,
    sp: u64,
}

const NOTE: u64 = size_of::<Note>() as u64;
const NOTED: u64 = 1 << 63;

impl Note {
    fn seen(&self) -> Seen {
        match self.word as u32 & 3 {
            ENTRY => Seen::Entry,
            EXIT => Seen::Exit,
            _ => Seen::Here,
        }
    }

    fn proc(&self) -> u32 {
        (self.word & !NOTED) as u32 >> 2
    }
}

thread_state! {
    /// A thread's buffer of notes.
    struct Buffer {
        /// Where the next note goes.
        cursor: ThreadCell<u64>,
        /// Address of a word with the buffer's end, which is 0 in a forked child that
        /// has not noted anything yet; 0 before there is a buffer.
        limit: ThreadCell<u64>,
        /// The thread that the notes are of.
        thread: ThreadCell<u32>,
        /// Address of its `thread::State`.
        state: ThreadCell<u64>,
    }
}

#[analysis]
fn by_counter(buffer: PerThread<Buffer>, word: u32, sp: RegV) {
    note(buffer, word, sp.0, clocks::time_stamp());
}

#[analysis]
fn by_clock(buffer: PerThread<Buffer>, word: u32, sp: RegV, clock: u32) {
    note(buffer, word, sp.0, settings::read(clock));
}

#[inline(always)]
fn note(buffer: PerThread<Buffer>, word: u32, sp: u64, clock: u64) {
    let word = u64::from(word) | NOTED;
    let note = Note { word, clock, sp };
    // The clock has been read before this: what a signal handler notes in between is later and comes later.
    let at = buffer.cursor.fetch_add(NOTE);
    let limit = buffer.limit.get() as *const u64;
    // SAFETY: null or the address of a word that stays.
    let limit = unsafe { limit.as_ref() }.copied().unwrap_or(0);
    if at < limit && buffer.thread.get() == buffer.thread_number() {
        // SAFETY: what `fetch_add` gave is this note's own, and the limit is the buffer's.
        unsafe { (at as *mut Note).write(note) };
    } else {
        thread::slow(buffer, at, note);
    }
}

#[analysis(uninterrupted)]
fn begin(settings: Record<SettingsData>, texts: Strings, procs: Sites) {
    settings::begin(&settings, texts, procs);
}

#[analysis(uninterrupted)]
fn end(all: AllThreads<Buffer>) {
    thread::end(all);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let settings = Settings::from_options(&options, program)?;
    options.finish()?;

    let mut procs = SiteList::new();
    let buffer = program.thread_data(Buffer {
        cursor: ThreadCell::new(0),
        limit: ThreadCell::new(0),
        thread: ThreadCell::new(0),
        state: ThreadCell::new(0),
    });
    let clock = settings.clock;
    macro_rules! add {
        ($at:expr, $place:expr, $word:expr) => {
            match clock {
                Clock::Tsc => $at.add_call($place, by_counter, (buffer, $word, Reg::Rsp)),
                _ => $at.add_call($place, by_clock, (buffer, $word, Reg::Rsp, clock as u32)),
            }
        };
    }
    for proc in program.procs() {
        if proc.first_block().is_none() || proc.is_stub() {
            continue;
        }
        if proc.is_selected() {
            let number = procs.push_proc(proc) as u32;
            add!(proc, Before, number << 2 | ENTRY);
            add!(proc, After, number << 2 | EXIT);
        }
        for landing in proc.landings() {
            match clock {
                Clock::Tsc => landing.add_call(by_counter, (buffer, HERE, Reg::Rsp)),
                _ => landing.add_call(by_clock, (buffer, HERE, Reg::Rsp, clock as u32)),
            }
        }
    }
    if procs.is_empty() {
        return Err("there is no procedure to log".into());
    }
    if settings.is_exercise && procs.len() > MOST_PROCEDURES {
        return Err(format!(
            "the format `exercise` has numbers for {MOST_PROCEDURES} procedures, and {} are chosen; \
             choose fewer with --only and --skip, or use --format compact",
            procs.len()
        )
        .into());
    }
    let mut texts = StringList::new();
    let data = settings.to_data(&mut texts);
    program.add_call(Before, begin, (&data, &texts, &procs));
    program.add_call(After, end, (buffer,));
    Ok(())
}

atom_tool::tool!(instrument);
