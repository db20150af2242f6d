//! Time and up to eight events around each execution of chosen procedures.
//!
//! `docs/tools/counters.md` describes options and output. Events that instrumentation counts are in a
//! few cells of each thread (`tally`, `model`). Events that the kernel counts are read from the kernel
//! (`meters`). A measurement has three steps:
//!
//! - Where a procedure begins or ends, a routine notes clock, stack pointer and counters in its
//!   thread's buffer (this module).
//! - A full buffer is turned into executions that begin and end (`thread`, `book`).
//! - Executions become sums for the report (`summary`) and rows of files (`rows`).

use atom_tool::notes::{self, NoteBuffer};
use atom_tool::prelude::*;

mod book;
mod calibrate;
mod cost;
mod derived;
mod energy;
mod flow;
mod found;
mod meters;
mod model;
mod rows;
mod settings;
mod summary;
mod tally;
mod thread;

use meters::MOST;
use settings::{Settings, SettingsKeys};

/// Kinds of points, as part of a call's constant argument: the entry of a procedure, its exit, and a
/// landing pad or another place to which control comes back.
const ENTRY: u32 = 0;
const EXIT: u32 = 1;
const HERE: u32 = 2;

/// Indices of a note's words: kind of point and procedure (see [`notes::word`]), clock, stack pointer, then the counters.
const WORD: usize = 0;
const CLOCK: usize = 1;
const SP: usize = 2;
const VALUES: usize = 3;
/// Lowest bit of the processor's number in the first word.
const PROCESSOR: u32 = 40;

/// Cells of a thread's counters: at most eight, in rows of two.
const ROW: usize = 2;
/// Number of copies of the rows. Blocks take turns with the copies, whose sum is the count.
const REPLICAS: usize = 4;

/// Values of the counters in a note, cells first, then meters.
type Values = [u64; MOST];

/// Notes a point if all events are counted in cells.
#[analysis]
fn by_cells(buffer: PerThread<NoteBuffer>, word: u32, sp: RegV, cells: Counters<ROW>) {
    note(&buffer, buffer.thread_number(), word, sp.0, cells, false);
}

/// Notes a point if the kernel counts some of the events.
#[analysis]
fn by_all(buffer: PerThread<NoteBuffer>, word: u32, sp: RegV, cells: Counters<ROW>) {
    note(&buffer, buffer.thread_number(), word, sp.0, cells, true);
}

#[inline(always)]
fn note(
    buffer: &NoteBuffer,
    thread: u32,
    word: u32,
    sp: u64,
    cells: Counters<ROW>,
    has_meters: bool,
) {
    let mut values: Values = [0; MOST];
    let own = cells.len() / REPLICAS * ROW;
    let mut count = own;
    sum_cells(cells, &mut values);
    let limit = buffer.limit();
    if has_meters {
        count += meters::wanted();
        // In a forked child the meters still belong to the parent. The limit is 0 there.
        if limit != 0 {
            thread::read_meters(buffer, &mut values[own..]);
        }
    }
    let (clock, processor) = cost::now();
    // All values are read before the space is reserved. So the notes of a signal handler that runs after the
    // reservation have later values, and they are after this note.
    let size = (VALUES + count) as u64 * 8;
    let at = buffer.reserve(size);
    let word = notes::word(word) | u64::from(processor) << PROCESSOR;
    if at.saturating_add(size) <= limit && buffer.thread() == thread {
        let to = at as *mut u64;
        // SAFETY: the reserved space belongs to this note only and ends before the limit.
        // The first word is written last: while it is 0, the note is incomplete.
        unsafe {
            to.add(CLOCK).write(clock);
            to.add(SP).write(sp);
            for (i, value) in values.iter().take(count).enumerate() {
                to.add(VALUES + i).write(*value);
            }
            to.add(WORD).write_volatile(word);
        }
    } else {
        thread::slow(buffer, thread, at, [word, clock, sp], &values, own);
    }
}

/// Sums the copies of each cell of a thread into `to`.
#[inline(always)]
fn sum_cells(cells: Counters<ROW>, to: &mut [u64]) {
    let rows = cells.len() / REPLICAS;
    for (i, value) in to.chunks_exact_mut(ROW).take(rows).enumerate() {
        for replica in 0..REPLICAS {
            let row = cells.at(replica * rows + i).get();
            value[0] = value[0].wrapping_add(row[0]);
            value[1] = value[1].wrapping_add(row[1]);
        }
    }
}

#[analysis(uninterrupted)]
fn begin(
    keys: Record<SettingsKeys>,
    texts: Strings,
    procs: Sites,
    files: Strings,
    cells: Counters<ROW>,
) {
    let own = cells.len() / REPLICAS * ROW;
    settings::begin(&keys, texts, procs, files, own);
    let Some(run) = settings::run() else { return };
    meters::begin(&run.settings);
    rows::begin();
    calibrate::calibrate(cells);
}

#[analysis(uninterrupted)]
fn end(files: Files, all: AllThreads<NoteBuffer>, cells: Counters<ROW>) {
    thread::end(files, all, cells);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let report = ReportFiles::from_options(&options)?;
    let mut settings = Settings::from_options(&options, program)?;
    let patterns = options.values("--proc")?;
    let models = model::Options::from_options(&options)?;
    options.finish()?;
    for line in settings.warnings() {
        eprintln!("counters: warning: {line}");
    }

    let mut chosen = vec![patterns.is_empty(); program.procs().len()];
    for pattern in patterns {
        for proc in program.procs_matching(pattern)? {
            chosen[proc.index()] = true;
        }
    }
    let cells = settings.place_cells();
    let cells = program.counters::<ROW>(cells.div_ceil(ROW) * REPLICAS);
    let buffer = program.thread_data(NoteBuffer::new());
    let mut procs = SiteList::new();
    let mut stems = rows::Stems::default();
    let has_meters = settings.has_meters();
    macro_rules! add {
        ($point:expr, [$($place:expr)?], $word:expr) => {
            match has_meters {
                false => $point.add_call($($place,)? by_cells, (buffer, $word, Reg::Rsp, cells)),
                true => $point.add_call($($place,)? by_all, (buffer, $word, Reg::Rsp, cells)),
            }
        };
    }
    for proc in program.procs() {
        if proc.first_block().is_none() || proc.is_stub() {
            continue;
        }
        if chosen[proc.index()] && proc.is_selected() {
            let number = procs.push_proc(proc) as u32;
            stems.push(proc.name(), proc.pc());
            add!(proc, [Before], notes::kind_and_number(ENTRY, number));
            add!(proc, [After], notes::kind_and_number(EXIT, number));
        }
        for landing in proc.landings() {
            add!(landing, [], HERE);
        }
    }
    if procs.is_empty() {
        return Err("there is no procedure to measure".into());
    }
    tally::add(program, &settings, cells);
    model::add(program, &settings, &models, cells);
    let mut texts = StringList::new();
    let keys = settings.to_keys(&mut texts);
    let begins = (&keys, &texts, &procs, stems.names(), cells);
    // Procedures are looked up as they come.
    program.tables_may_grow();
    program.add_call(Before, begin, begins);
    program.add_call(After, end, (&report, buffer, cells));
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "counters.out" }
