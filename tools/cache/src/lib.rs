//! Misses of a data cache, and of an instruction cache, by instruction, line and procedure.
//!
//! The hot path of a reference compares only the most recently used line of its set; the rest
//! is on the cold path. `docs/tools/cache.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::sampling::Figure;
use atom_tool::simulate::cache::{MAX_LINES, Shape};
use atom_tool::simulate::geometry::Geometry;
use atom_tool::simulate::groups::{self, Member};
use atom_tool::simulate::{LookUp, Seen, Simulation, SiteReferences};

mod lines;
mod second;

use lines::{Cache, DEFAULT, look_up_each_default, look_up_fast, look_up_slow, touch};
use second::Caches;

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
        look_up_each_default(&cache, address, count, members);
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

/// Adds the description of the caches.
fn describe(report: &mut Report, texts: Strings) {
    for (name, text) in ["geometry", "cache", "second level"]
        .iter()
        .zip(texts.iter())
    {
        if !text.is_empty() {
            report.fact(name, text);
        }
    }
}

fn references(report: &mut Report, [references, misses]: [u64; 2]) {
    report
        .typed_fact(Column::count("references", "references"), references)
        .interval(Figure::References, None)
        .typed_fact(Column::count("misses", "misses"), misses)
        .interval(Figure::Misses, None)
        .typed_fact(
            Column::percent_of("miss %", "misses", "references"),
            Cell::percent(misses, references),
        )
        .interval(Figure::Misses, Some(Figure::References));
}

#[analysis]
#[rustfmt::skip]
fn report(files: Files, program: Str, texts: Strings, counts: Counters<2>, executed: Counters, sites: Array<SiteReferences>, places: Sites) {
    let mut report = Report::new("cache", &program);
    let [data, code] = report.simulated(counts, executed, sites, places);
    describe(&mut report, texts);
    references(&mut report, data);
    if code[0] != 0 {
        report
            .typed_fact(Column::count("fetches", "fetches"), code[0])
            .interval(Figure::Fetches, None)
            .typed_fact(Column::count("fetch misses", "misses"), code[1])
            .interval(Figure::More, None)
            .typed_fact(Column::percent_of("fetch miss %", "fetch misses", "fetches"), Cell::percent(code[1], code[0]))
            .interval(Figure::More, Some(Figure::Fetches));
    }
    report.write(files);
}

/// The report of two levels.
#[analysis]
#[rustfmt::skip]
fn report_twice(files: Files, program: Str, texts: Strings, counts: Counters<3>, executed: Counters, sites: Array<SiteReferences>, places: Sites) {
    let mut report = Report::new("cache", &program);
    let columns = ["references", "misses", "miss %"];
    let of = |cells: [u64; second::CELLS], n: u64| {
        let references = n.wrapping_add(cells[Seen::Extra as usize]);
        [references, cells[Seen::Misses as usize], cells[second::SECOND]]
    };
    let parts = (counts, executed, sites, places);
    let [[all, misses, beyond], _] = report.simulated_with(columns, &["L2 misses"], parts, of);
    describe(&mut report, texts);
    references(&mut report, [all, misses]);
    report
        .typed_fact(Column::count("L2 misses", "misses"), beyond)
        .interval(Figure::More, None)
        .typed_fact(Column::percent_of("L2 miss %", "L2 misses", "misses"), Cell::percent(beyond, misses))
        .interval(Figure::More, Some(Figure::Misses));
    if second::had_no_memory() {
        report.fact("second level failed", "no memory: its references count as misses");
    }
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let with_code = options.flag("--icache");
    let geometry = Geometry::from_options(&options, !with_code)?;
    options.finish()?;
    let shape = geometry.first;
    let line = shape.line();
    let mut texts = StringList::new();
    for text in [
        &geometry.origin,
        &geometry.first_text,
        &geometry.second_text,
    ] {
        texts.push(text);
    }
    let name = program.name();
    if let Some(second) = geometry.second {
        if with_code {
            let message = "a second level is simulated for data only: leave out --icache or --l2";
            return Err(WrongOption::new(message).into());
        }
        let caches = program.thread_data(Caches::new());
        program.add_call(Before, second::begin(), (caches, second.0));
        let simulator = second::simulator(line / 2);
        let all = Simulation::new(program, &simulator, shape.0, caches, None);
        let (sites, places) = (&all.references, &all.sites);
        let args = (
            &files,
            name,
            &texts,
            all.counts,
            all.executed,
            sites,
            places,
        );
        program.add_call(After, report_twice, args);
        return Ok(());
    }
    let simulator = if shape == DEFAULT {
        simulator(LookUp::Grouped(refer_default(), group_default(), line / 2))
    } else {
        simulator(LookUp::Grouped(refer(), group(), line / 2))
    };
    let cache = || program.thread_data(Cache::new());
    let code = with_code.then(|| (cache(), line));
    let all = Simulation::new(program, &simulator, shape.0, cache(), code);
    let (sites, places) = (&all.references, &all.sites);
    let args = (
        &files,
        name,
        &texts,
        all.counts,
        all.executed,
        sites,
        places,
    );
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "cache.out" }
