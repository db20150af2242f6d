//! Misses of a data cache, and of an instruction cache, by instruction, line and procedure.
//!
//! The hot path of a reference compares only the most recently used line of its set; the rest
//! is on the cold path. `docs/tools/cache.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::simulate::cache::{MAX_LINES, Shape};
use atom_tool::simulate::groups::{self, Member};
use atom_tool::simulate::{LookUp, Simulation, SiteReferences};

mod lines;

use lines::{Cache, DEFAULT, look_up_fast, look_up_slow, touch};

/// One reference to a cache of the default shape, which is a constant here.
#[analysis]
fn refer_default(cache: PerThread<Cache>, _: u64, address: u64, size: u64, count: Counter<2>) {
    if !look_up_fast(&cache, address, size, count) {
        look_up_slow(&cache, DEFAULT, address, size, count);
    }
}

/// A group of references to a cache of the default shape.
#[analysis]
#[rustfmt::skip]
fn group_default(cache: PerThread<Cache>, _: u64, address: u64, size: u64, count: Counter<2>, members: Array<Member>) {
    if !look_up_fast(&cache, address, size, count) {
        look_up_each(&cache, DEFAULT, address, count, members);
    }
}

/// One reference to a cache of any shape.
#[analysis]
fn refer(cache: PerThread<Cache>, shape: u64, address: u64, size: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let line = cache.lines[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        look_up_slow(&cache, shape, address, size, count);
    }
}

/// A group of references to a cache of any shape.
#[analysis]
#[rustfmt::skip]
fn group(cache: PerThread<Cache>, shape: u64, address: u64, size: u64, count: Counter<2>, members: Array<Member>) {
    let shape = Shape(shape);
    let line = cache.lines[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        look_up_each(&cache, shape, address, count, members);
    }
}

/// Looks up the references of a group one by one.
#[cold]
#[inline(never)]
fn look_up_each(
    cache: &Cache,
    shape: Shape,
    address: u64,
    count: Counter<2>,
    members: Array<Member>,
) {
    groups::each(address, members, count, |address, size, count| {
        look_up_slow(cache, shape, address, size, count);
    });
}

/// Size of a line in bytes.
fn line(shape: u64) -> u64 {
    Shape(shape).line()
}

atom_tool::simulator!(Cache, touch, line);

#[analysis]
#[rustfmt::skip]
fn report(files: Files, program: Str, cache: Str, counts: Counters<2>, executed: Counters, references: Array<SiteReferences>, sites: Sites) {
    let mut report = Report::new("cache", &program);
    let [data, code] = report.simulated(counts, executed, references, sites);
    report
        .fact("cache", cache.as_str())
        .typed_fact(Column::count("references", "references"), data[0])
        .typed_fact(Column::count("misses", "misses"), data[1])
        .typed_fact(Column::percent_of("miss %", "misses", "references"), Cell::percent(data[1], data[0]));
    if code[0] != 0 {
        report
            .typed_fact(Column::count("fetches", "fetches"), code[0])
            .typed_fact(Column::count("fetch misses", "misses"), code[1])
            .typed_fact(Column::percent_of("fetch miss %", "fetch misses", "fetches"), Cell::percent(code[1], code[0]));
    }
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "cache.out")?;
    let with_code = options.flag("--icache");
    let (shape, description) = Shape::from_options(&options)?;
    options.finish()?;
    let line = shape.line();
    let simulator = if shape == DEFAULT {
        simulator(LookUp::Grouped(refer_default(), group_default(), line / 2))
    } else {
        simulator(LookUp::Grouped(refer(), group(), line / 2))
    };
    let cache = || program.thread_data(Cache::new());
    let code = with_code.then(|| (cache(), line));
    let all = Simulation::new(program, &simulator, shape.0, cache(), code);
    all.report_at_end(program, report, &files, description);
    Ok(())
}

atom_tool::tool!(instrument, help = include_str!("help.txt"));
