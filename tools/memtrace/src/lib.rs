//! A trace of every load and store.
//!
//! A reference goes to the file in three steps:
//!
//! - A routine of a few instructions notes the addresses of a batch of references in its thread's buffer
//!   (`atom_tool::simulate::batched`). What belongs to a batch is known beforehand (`batches`).
//! - A full buffer is turned into entries of a chunk (`thread`).
//! - The chunks of all threads go to the file (`sink`).

use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::simulate::batched::{Batched, Noted};

mod batches;
mod filter;
mod phases;
mod sink;
mod spans;
mod thread;
mod window;

use batches::{BatchList, Description};
use phases::Windows;
use sink::Run;
use spans::Addresses;

atom_tool::batched_references!(thread::slow);

#[analysis(uninterrupted)]
#[rustfmt::skip]
fn begin(buffers: AllThreads<NoteBuffer>, files: Files, windows: Record<Windows>, addresses: Array<Addresses>, texts: Strings, objects: Strings, bytes: Array<u8>, descriptions: Array<Description>) {
    atom_tool::notes::tell_threads_apart(buffers);
    sink::begin(Run {
        file: texts.get(0),
        program: texts.get(1),
        objects,
        bytes,
        descriptions,
        addresses: addresses.as_slice(),
        has_profile: files.has_profile(),
        windows: windows.get(),
    });
}

#[analysis(uninterrupted)]
fn end(all: AllThreads<NoteBuffer>, files: Files) {
    let Some(run) = sink::run() else { return };
    // A report of a process that continues: the process itself writes the trace.
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
    let file = options.value("--output")?.unwrap_or_default();
    if file == "-" {
        let text = "the trace cannot go to standard output, which belongs to the program: name a file by --output";
        return Err(text.into());
    }
    let patterns = options.values("--proc")?;
    let has_instructions = options.flag("--instructions");
    let windows = Windows::from_options(&options)?;
    let addresses = filter::from_options(&options)?;
    let files = ReportFiles::beside(&options, file, "--profile")?;
    options.finish()?;

    let routines = match windows {
        Some(_) => routines_at_times(),
        None => routines(),
    };
    let noted = Batched::new(program, routines, has_instructions);
    if windows.is_some() {
        window::add(program, noted.buffer);
    }
    let mut list = BatchList::new();
    let mut push = |batch: &Noted<'_>| list.push(batch);
    if patterns.is_empty() {
        program
            .procs()
            .for_each(|proc| noted.add_proc(proc, &mut push))
    } else {
        let mut procs = Vec::new();
        for pattern in patterns {
            procs.extend(program.procs_matching(pattern)?);
        }
        procs.sort_by_key(|proc| proc.index());
        procs.dedup_by_key(|proc| proc.index());
        procs
            .into_iter()
            .for_each(|proc| noted.add_proc(proc, &mut push));
    }
    let mut objects = StringList::new();
    for object in program.objects() {
        let build_id = object.build_id().unwrap_or_default();
        let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        for text in [object.name(), object.path(), &build_id] {
            objects.push(text);
        }
    }
    let mut texts = StringList::new();
    texts.push(file);
    texts.push(program.name());
    let args = (
        noted.buffer,
        &files,
        &windows.unwrap_or_default(),
        &addresses,
        &texts,
        &objects,
        &list.bytes,
        &list.descriptions,
    );
    // Numbers of batches are looked up as they come.
    program.tables_may_grow();
    program.add_call(Before, begin, args);
    program.add_call(After, end, (noted.buffer, &files));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
