//! Misses of a data cache, and of an instruction cache, by instruction, line and procedure.
//!
//! At a reference only the most recently used line of its set is compared; all else
//! is off the path. `docs/tools/cache.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::simulate::cache::{MAX_LINES, Shape};
use atom_tool::simulate::groups::{self, Part};
use atom_tool::simulate::{LookUp, Simulation};

mod lines;

use lines::{Cache, DEFAULT, is_quick, other, touch};

/// One reference to a cache of the default shape, which is known when this is compiled.
#[analysis]
fn refer_default(cache: PerThread<Cache>, _: u64, address: u64, size: u64, count: Counter<2>) {
    if !is_quick(&cache, address, size, count) {
        other(&cache, DEFAULT, address, size, count);
    }
}

/// The same for a group of references.
#[analysis]
#[rustfmt::skip]
fn group_default(cache: PerThread<Cache>, _: u64, address: u64, size: u64, count: Counter<2>, parts: Array<Part>) {
    if !is_quick(&cache, address, size, count) {
        others(&cache, DEFAULT, address, count, parts);
    }
}

/// One reference to a cache of any shape.
#[analysis]
fn refer(cache: PerThread<Cache>, shape: u64, address: u64, size: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let line = cache.lines[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        other(&cache, shape, address, size, count);
    }
}

/// A group of references to a cache of any shape.
#[analysis]
#[rustfmt::skip]
fn group(cache: PerThread<Cache>, shape: u64, address: u64, size: u64, count: Counter<2>, parts: Array<Part>) {
    let shape = Shape(shape);
    let line = cache.lines[shape.set(address) % MAX_LINES].get();
    if size > shape.line() || address.wrapping_add(line) > shape.line() - size {
        others(&cache, shape, address, count, parts);
    }
}

/// The references of a group one by one.
#[cold]
#[inline(never)]
fn others(cache: &Cache, shape: Shape, address: u64, count: Counter<2>, parts: Array<Part>) {
    groups::each(address, parts, count, |address, size, count| {
        other(cache, shape, address, size, count);
    });
}

fn line(shape: u64) -> u64 {
    Shape(shape).line()
}

atom_tool::simulator!(Cache, touch, line);

#[analysis]
#[rustfmt::skip]
fn report(files: Files, text: Str, counts: Counters<2>, executed: Counters, blocks: Array<[u32; 3]>, sites: Sites) {
    let (program, shape) = text.split_once('\n').unwrap_or(("", ""));
    let mut report = Report::new("cache", program);
    let [data, code] = report.simulated(counts, executed, blocks, sites);
    report
        .fact("cache", shape.to_owned())
        .fact("references", data[0])
        .fact("misses", data[1])
        .fact("miss %", Cell::percent(data[1], data[0]));
    if code[0] != 0 {
        report
            .fact("fetches", code[0])
            .fact("fetch misses", code[1])
            .fact("fetch miss %", Cell::percent(code[1], code[0]));
    }
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "cache.out")?;
    let with_code = options.flag("--icache");
    let (shape, text) = Shape::from_options(&options)?;
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
    let text = format!("{}\n{text}", program.name());
    all.report_at_end(program, report, &files, text);
    Ok(())
}

atom_tool::tool!(instrument);
