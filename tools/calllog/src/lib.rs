//! A log of the entries and exits of procedures, each with a clock value.
//!
//! `docs/tools/calllog.md` describes options and output. An event is logged in three steps:
//!
//! - A routine of a few instructions notes a point in its thread's buffer (this module).
//! - A full buffer is turned into entries and exits that pair, and these into bytes (`thread`).
//! - The bytes of all threads go to the file (`sink`).

use atom_tool::clocks;
use atom_tool::notes::{self, NoteBuffer};
use atom_tool::prelude::*;
use atom_tool::report::{By, Column};
use call_log::account::Figures;
use call_log::balance::Seen;
use call_log::clock::Clock;
use call_log::exercise::MOST_PROCEDURES;

mod events;
mod settings;
mod sink;
mod thread;

use settings::{Run, Settings, SettingsData};

/// Kinds of points, as part of a call's constant argument: the entry of a procedure, its exit, and a
/// landing pad or another place to which control comes back.
const ENTRY: u32 = 0;
const EXIT: u32 = 1;
const HERE: u32 = 2;

/// A point in a thread's buffer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Note {
    /// Kind of point and number of the procedure, see [`notes::word`].
    word: u64,
    clock: u64,
    sp: u64,
}

/// Size of a note in bytes.
const NOTE: u64 = size_of::<Note>() as u64;

impl Note {
    fn seen(&self) -> Seen {
        match notes::kind(self.word) {
            ENTRY => Seen::Entry,
            EXIT => Seen::Exit,
            _ => Seen::Here,
        }
    }
}

/// Notes a point with the processor's time stamp.
#[analysis]
fn by_counter(buffer: PerThread<NoteBuffer>, word: u32, sp: RegV) {
    note(buffer, word, sp.0, clocks::time_stamp());
}

/// Notes a point with another clock.
#[analysis]
fn by_clock(buffer: PerThread<NoteBuffer>, word: u32, sp: RegV, clock: u32) {
    note(buffer, word, sp.0, settings::read(clock));
}

#[inline(always)]
fn note(buffer: PerThread<NoteBuffer>, word: u32, sp: u64, clock: u64) {
    let word = notes::word(word);
    let note = Note { word, clock, sp };
    // The clock is read before the space is reserved. So the notes of a signal handler that runs after the
    // reservation are later, and they are after this note.
    let at = buffer.reserve(NOTE);
    if at < buffer.limit() && buffer.thread() == buffer.thread_number() {
        // SAFETY: the reserved space belongs to this note only and is before the limit.
        unsafe { (at as *mut Note).write(note) };
    } else {
        thread::slow(buffer, at, note);
    }
}

#[analysis(uninterrupted)]
fn begin(settings: Record<SettingsData>, texts: Strings, procs: Sites, files: Files) {
    settings::begin(&settings, texts, procs, files.has_profile());
    sink::begin();
}

#[analysis(uninterrupted)]
fn end(all: AllThreads<NoteBuffer>, files: Files) {
    let Some(run) = settings::run() else { return };
    let figures = thread::end(run, all);
    if files.has_profile() {
        profile(run, &figures, files);
    }
}

/// Writes the profile: the sums of all threads by procedure.
fn profile(run: &Run, figures: &[Figures], files: Files) {
    let rate = run.ticks_per_second();
    let seconds = |ticks: u64| ticks as f64 / rate;
    let calls: u64 = figures.iter().map(|f| f.calls).sum();
    let own: u64 = figures.iter().map(|f| f.own).sum();
    let mut report = Report::new("calllog", &run.settings.program);
    report
        .typed_fact(Column::count("calls", "calls"), calls)
        .typed_fact(Column::seconds("seconds"), Cell::Ratio(seconds(own)));
    let columns = [
        Column::seconds("own"),
        Column::share("%", "own"),
        Column::seconds("inclusive"),
        Column::count("calls", "calls"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Procedure, "procedures", columns);
    let was_called = |i: usize| figures.get(i).copied().filter(|f| *f != Figures::default());
    for (site, figures) in run.procs.with(was_called) {
        table.row([
            Cell::Ratio(seconds(figures.own)),
            Cell::percent(figures.own, own),
            Cell::Ratio(seconds(figures.inclusive)),
            figures.calls.into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let settings = Settings::from_options(&options, program)?;
    let files = ReportFiles::beside(&options, &settings.file, "--profile")?;
    options.finish()?;

    let mut procs = SiteList::new();
    let buffer = program.thread_data(NoteBuffer::new());
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
            add!(proc, Before, notes::kind_and_number(ENTRY, number));
            add!(proc, After, notes::kind_and_number(EXIT, number));
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
    // The log names procedures as they come.
    program.tables_may_grow();
    program.add_call(Before, begin, (&data, &texts, &procs, &files));
    program.add_call(After, end, (buffer, &files));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
