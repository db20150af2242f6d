//! A trace of every load and store.
//!
//! A reference goes to the file in three steps:
//!
//! - A routine of a few instructions notes the address of a group of references in its thread's buffer (this module). What
//!   belongs to a group is known beforehand (`groups`).
//! - A full buffer is turned into entries of a chunk (`thread`).
//! - The chunks of all threads go to the file (`sink`).

use atom_tool::notes::{self, NoteBuffer};
use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::simulate::{self, Comparison};

mod groups;
mod sink;
mod thread;

use groups::GroupList;
use sink::Run;

/// Kinds of notes: the address of a group; of a repeated instruction the first address, the second one, and
/// twice the number of repetitions, plus 1 if addresses go down.
const GROUP: u32 = 0;
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const TIMES: u32 = 3;

/// A note: its kind and the number of its group (see [`notes::word`]), and a value.
#[repr(C)]
#[derive(Clone, Copy)]
struct Note {
    word: u64,
    value: u64,
}

/// Largest number of signal handlers that interrupt each other between a look at the room and a reservation.
const HANDLERS: u64 = 256;

/// Size of a note in bytes.
const NOTE: u64 = size_of::<Note>() as u64;

thread_state! {
    /// What is known before a comparison that may end early.
    struct Compared {
        comparison: Comparison,
    }
}

#[inline(always)]
fn note(buffer: PerThread<NoteBuffer>, word: u32, value: u64) {
    // Nothing is stored before this decision, so that the routine can be inlined. A signal handler that runs
    // behind it asks for as much room, so each level of handlers takes one note of what was asked for.
    if buffer.has_room(HANDLERS * NOTE) && buffer.thread() == buffer.thread_number() {
        let word = notes::word(word);
        let at = buffer.reserve(NOTE);
        // SAFETY: the reserved space belongs to this note only and lies before the limit.
        unsafe { (at as *mut Note).write(Note { word, value }) };
    } else {
        thread::slow(buffer, word, value);
    }
}

/// Notes a group of references that are made once.
#[analysis]
fn refer(buffer: PerThread<NoteBuffer>, word: u32, address: u64) {
    note(buffer, word, address);
}

/// Notes a repeated instruction, or an element of a vector.
#[analysis]
fn repeat(buffer: PerThread<NoteBuffer>, word: u32, a: u64, b: u64, times: u64, down: u64) {
    note(buffer, word | FIRST, a);
    note(buffer, word | SECOND, b);
    note(buffer, word | TIMES, times << 1 | u64::from(down != 0));
}

/// Keeps what is known before a comparison.
#[analysis]
fn compare(state: PerThread<Compared>, a: u64, b: u64, times: u64) {
    simulate::begin(&state.comparison, [a, b, times]);
}

/// Notes a comparison after its end, where rcx tells the number of repetitions.
#[analysis]
#[rustfmt::skip]
fn compared(buffer: PerThread<NoteBuffer>, state: PerThread<Compared>, word: u32, rcx: u64, down: u64) {
    let ([a, b], times) = simulate::end(&state.comparison, rcx);
    note(buffer, word | FIRST, a);
    note(buffer, word | SECOND, b);
    note(buffer, word | TIMES, times << 1 | u64::from(down != 0));
}

#[analysis(uninterrupted)]
fn begin(file: Str, program: Str, objects: Strings, descriptions: Array<u8>, starts: Array<u32>) {
    sink::begin(Run {
        file: file.as_str(),
        program: program.as_str(),
        objects,
        descriptions: descriptions.as_slice(),
        starts: starts.as_slice(),
    });
}

#[analysis(uninterrupted)]
fn end(all: AllThreads<NoteBuffer>, files: Files) {
    let Some(run) = sink::run() else { return };
    // A report of a process that goes on: the process itself writes the trace.
    if atom_tool::forks::is_snapshot() {
        return;
    }
    let Some(totals) = thread::end(run, all) else {
        return;
    };
    if files.has_profile() {
        let mut report = Report::new("memtrace", run.program);
        report
            .typed_fact(Column::count("references", "references"), totals.references)
            .typed_fact(Column::count("entries", "entries"), totals.entries)
            .typed_fact(Column::count("lost", "entries"), totals.lost)
            .typed_fact(Column::count("threads", "threads"), totals.threads)
            .typed_fact(Column::bytes("file"), totals.bytes);
        report.write(files);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("memtrace.trace");
    let patterns = options.values("--proc")?;
    let files = ReportFiles::beside(&options, file, "--profile")?;
    options.finish()?;

    let mut list = GroupList::new(program);
    match patterns.is_empty() {
        true => program.procs().for_each(|proc| list.add_proc(proc)),
        false => {
            let mut procs = Vec::new();
            for pattern in patterns {
                procs.extend(program.procs_matching(pattern)?);
            }
            procs.sort_by_key(|proc| proc.index());
            procs.dedup_by_key(|proc| proc.index());
            procs.into_iter().for_each(|proc| list.add_proc(proc));
        }
    }
    let mut objects = StringList::new();
    for object in program.objects() {
        objects.push(object.name());
    }
    let args = (
        file,
        program.name(),
        &objects,
        &list.descriptions,
        &list.starts,
    );
    program.add_call(Before, begin, args);
    program.add_call(After, end, (list.buffer, &files));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
