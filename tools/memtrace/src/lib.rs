//! A trace of every load and store.
//!
//! A reference goes to the file in three steps:
//!
//! - A routine of a few instructions notes the address of a group of references in its thread's buffer
//!   (`atom_tool::simulate::noted`). What belongs to a group is known beforehand (`groups`).
//! - A full buffer is turned into entries of a chunk (`thread`).
//! - The chunks of all threads go to the file (`sink`).

use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::simulate::noted::Noted;

mod groups;
mod sink;
mod thread;

use groups::GroupList;
use sink::Run;

atom_tool::noted_references!(thread::slow);

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

    let noted = Noted::new(program, routines());
    let mut list = GroupList::new();
    let mut push = |is_repeated: bool, members: &[_]| list.push(is_repeated, members);
    match patterns.is_empty() {
        true => program
            .procs()
            .for_each(|proc| noted.add_proc(proc, &mut push)),
        false => {
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
    program.add_call(After, end, (noted.buffer, &files));
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
