//! Errors of heap memory in a whole process: accesses outside of blocks and of blocks that were freed, wrong frees, leaks.
//!
//! The program's allocators are replaced (`calls`) by one whose blocks have redzones and that keeps freed blocks for a while
//! (`heap`). Shadow memory (`shadow`) tells which bytes are addressable, and each reference that may be to the heap is
//! checked (`check`). `docs/tools/memcheck.md` describes options and output.

mod caches;
mod calls;
mod check;
mod custom;
mod death;
mod errors;
mod fatal;
mod functions;
mod given;
mod heap;
mod leaks;
mod memory;
mod muted;
mod names;
mod options;
mod out;
mod requests;
mod shadow;
mod slots;
mod suppressions;
mod symbols;
mod threads;
mod told;
mod traces;
mod xml;

use atom_tool::prelude::*;
use atom_tool::stacks::CallStacks;
use atom_tool::{Uninterrupted, forks};

use caches::Cache;
use check::Checked;
use given::Given;
use leaks::Detail;
use options::Settings;

/// `names` is what [`Given`] reads.
#[analysis(uninterrupted)]
fn begin(
    settings: Record<Settings>,
    detail: Record<Detail>,
    names: Strings,
    calls: Sites,
    accesses: Sites,
    checked: Array<Checked>,
    rows: Array<symbols::Row>,
    strings: Strings,
) {
    let settings = settings.get();
    // The first thread has the first number.
    threads::number();
    if !shadow::begin() || !slots::begin() {
        eprintln!("memcheck: the process has no room for shadow memory");
        std::process::exit(1);
    }
    caches::begin(settings.quarantine);
    traces::begin(settings.callers.into());
    heap::begin(settings.fill);
    errors::begin(calls, accesses, settings.limits);
    symbols::begin(rows, strings);
    check::begin(checked, settings.partly);
    leaks::begin(*detail.get());
    let given = Given::read(names);
    if let Err(error) = suppressions::begin(&given.suppressions) {
        eprintln!("memcheck: {error}");
        std::process::exit(1);
    }
    out::begin(settings.manner, given);
    forks::in_child(|| {
        caches::in_child();
        errors::in_child();
        traces::in_child();
        custom::in_child();
        out::in_child();
    });
}

#[analysis]
fn end(detail: Record<Detail>, exit_code: i32, caches: AllThreads<Cache>) {
    if !out::has_stopped() {
        Uninterrupted::run(|_| report(*detail.get(), exit_code, caches));
    }
}

/// Tells the signal by which the process ends, leaks and sums.
fn report(detail: Detail, exit_code: i32, caches: AllThreads<Cache>) {
    death::tell();
    let leaks = leaks::report(detail, caches);
    let sum = errors::sum();
    let errors = sum.errors + leaks.errors;
    let [all, places, suppressed, suppressed_places] = [
        errors,
        sum.places + leaks.places,
        sum.suppressed + leaks.suppressed,
        sum.suppressed_places + leaks.suppressed_places,
    ];
    out::note(&format!(
        "ERROR SUMMARY: {all} errors from {places} contexts (suppressed: {suppressed} from {suppressed_places})"
    ));
    out::end();
    if errors != 0 && exit_code != 0 {
        std::process::exit(exit_code);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = options::read(args)?;
    if let Some(name) = calls::sanitizer(program) {
        return Err(format!(
            "the program was built with {name}, which has an allocator of its own; build it without"
        )
        .into());
    }
    let cache = program.thread_data(Cache::zero());
    if calls::replace(program, cache)? == 0 {
        return Err(
            "the program has no allocator by a name that is known; run it with `atom run`".into(),
        );
    }
    let stacks = CallStacks::add(program);
    let references = check::add(program, cache, options.is_told);
    functions::add(program, &stacks);
    leaks::add(program);
    let symbols = symbols::Symbols::of(program);
    program.tables_may_grow();
    let args = (
        &options.settings,
        &options.detail,
        &options.names,
        &stacks.calls,
        &references.sites,
        &references.checked,
        &symbols.rows,
        &symbols.strings,
    );
    program.add_call(Before, begin, args);
    let args = (&options.detail, options.exit_code, cache);
    program.add_call(After, end, args);
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
