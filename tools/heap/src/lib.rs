//! Allocations of a program by call path.
//!
//! The call path is kept by `atom_tool::paths`. A routine notes each allocation and each free in its thread's buffer
//! (`calls`), at the points that `points` finds. Full buffers are taken by `live`, which knows the live blocks and the figures of
//! each call path. `docs/tools/heap.md` describes options and output.

mod calls;
mod exports;
mod found;
mod live;
mod note;
mod points;
mod report;
mod sites;
mod table;
mod time;

use std::sync::OnceLock;

use atom_tool::ThreadState;
use atom_tool::allocations;
use atom_tool::notes::{self, NoteBuffer};
use atom_tool::paths::{self, CallPaths, PathOptions, PathState};
use atom_tool::prelude::*;

use calls::Open;
use points::States;

/// The options that name files, in the order of the strings.
const FILES: [&str; 4] = ["--massif", "--folded", "--speedscope", "--html"];

plain_data! {
    /// What the report is told.
    struct Settings {
        /// Number of the measure of folded stacks.
        measure: u32,
        /// The allocator of some library is not seen.
        has_unseen: bool,
        _unused: [u8; 3],
    }
}

/// Time of the start in nanoseconds.
static START: OnceLock<u64> = OnceLock::new();

#[analysis(uninterrupted)]
fn begin() {
    let _ = START.set(atom_tool::clocks::monotonic());
    live::begin();
    calls::begin();
    paths::in_child(live::in_child);
}

/// `texts` has the program's name and the files of [`FILES`].
#[analysis(uninterrupted)]
fn end(
    states: AllThreads<PathState>,
    buffers: AllThreads<NoteBuffer>,
    files: Files,
    settings: Record<Settings>,
    texts: Strings,
    procs: Sites,
    calls: Sites,
    wrappers: Array<u32>,
) {
    notes::at_end(buffers, |_: &mut live::Thread| {});
    let mut heap = live::lock();
    let Some(heap) = heap.as_mut() else { return };
    heap.end();
    let tree = paths::Tree::merged(states);
    let since = START.get().copied().unwrap_or_default();
    let nanoseconds = atom_tool::clocks::monotonic().saturating_sub(since).max(1);
    let ticks = atom_tool::clocks::time_stamp()
        .saturating_sub(heap.origin)
        .max(1);
    let found = found::Found {
        heap,
        tree,
        sites: sites::Places { procs, calls },
        wrappers: allocations::Wrappers(wrappers),
        ticks_per_ms: (ticks as f64 * 1e6 / nanoseconds as f64).max(1.0),
    };
    report::write(&found, files, &settings, texts);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let mut texts = StringList::new();
    texts.push(program.name());
    for option in FILES {
        texts.push(options.value(option)?.unwrap_or_default());
    }
    let measures = [("allocated", 0), ("peak", 2), ("end", 3)];
    let measure = options.choice("--measure", &measures)?;
    let named = allocations::named(&options.values("--alloc")?, &options.values("--free")?)?;
    options.finish()?;

    let path_options = PathOptions {
        by_site: true,
        ..PathOptions::default()
    };
    let allocators = allocations::find(program, &named, false)?;
    if allocators.is_empty() {
        let message = "the program calls no allocator by a name that is known; what libraries allocate is seen with \
                       `atom run` only, and the allocator of a static program without symbols only with --alloc";
        return Err(message.into());
    }
    let procs: Vec<Proc<'_>> = allocators.iter().map(|(proc, _)| *proc).collect();
    let leading = paths::leading_to(program, &procs);
    let mut paths = CallPaths::add_for(program, path_options, &|proc| {
        leading.contains(&proc.index())
    });
    let states = States {
        open: program.thread_data(Open::zero()),
        buffer: program.thread_data(NoteBuffer::new()),
    };
    points::add(program, &mut paths, states, &allocators);
    let wrappers = allocations::wrappers(program, &allocators, &paths);
    let settings = Settings {
        measure,
        has_unseen: procs.iter().any(Proc::is_stub),
        _unused: [0; 3],
    };
    // Call paths look their call sites up.
    program.tables_may_grow();
    program.add_call(Before, begin, ());
    let buffer = states.buffer;
    let args = (
        paths.state,
        buffer,
        &files,
        &settings,
        &texts,
        &paths.procs,
        &paths.calls,
        &wrappers,
    );
    program.add_call(After, end, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "heap.out" }
