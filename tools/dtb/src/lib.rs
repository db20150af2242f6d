//! Misses of a data translation buffer: fully associative, least recently used out first.
//!
//! A table finds a page by the low bits of its number; there the time of each reference is
//! noted. The oldest is looked for only at a miss. `docs/tools/dtb.md` describes the model,
//! options and output.

use atom_tool::prelude::*;
use atom_tool::simulate::groups::{self, Part};
use atom_tool::simulate::{LookUp, Simulation, Timed};

mod buffer;
mod entries;

use buffer::{Buffer, MAX_ENTRIES, Shape};
use entries::{other, touch};

#[analysis]
#[rustfmt::skip]
fn refer(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>) {
    if !buffer.refer(Shape(shape), number, address, size) {
        other::<false>(&buffer, shape, address, size, count);
    }
}

#[analysis]
#[rustfmt::skip]
fn refer_to_stack(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>) {
    if !buffer.refer_to_stack(Shape(shape), number, address, size) {
        other::<true>(&buffer, shape, address, size, count);
    }
}

/// The same for a group of references.
#[analysis]
#[rustfmt::skip]
fn group(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>, parts: Array<Part>) {
    if !buffer.refer(Shape(shape), number, address, size) {
        others::<false>(&buffer, shape, address, count, parts);
    }
}

#[analysis]
#[rustfmt::skip]
fn group_on_stack(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>, parts: Array<Part>) {
    if !buffer.refer_to_stack(Shape(shape), number, address, size) {
        others::<true>(&buffer, shape, address, count, parts);
    }
}

/// Control may have come another way than from an instruction with a lower number.
#[analysis]
fn step(buffer: PerThread<Buffer>) {
    buffer.step();
}

/// The references of a group one by one.
#[cold]
#[inline(never)]
#[rustfmt::skip]
fn others<const STACK: bool>(buffer: &Buffer, shape: u64, address: u64, count: Counter<2>, parts: Array<Part>) {
    groups::each(address, parts, count, |address, size, count| {
        other::<STACK>(buffer, shape, address, size, count);
    });
}

fn page(shape: u64) -> u64 {
    Shape(shape).page()
}

atom_tool::simulator!(Buffer, touch, page);

#[analysis]
#[rustfmt::skip]
fn report(files: Files, text: Str, counts: Counters<2>, executed: Counters, blocks: Array<[u32; 3]>, sites: Sites) {
    let (program, shape) = text.split_once('\n').unwrap_or(("", ""));
    let mut report = Report::new("dtb", program);
    let [[references, misses], _] = report.simulated(counts, executed, blocks, sites);
    report
        .fact("buffer", shape.to_owned())
        .fact("references", references)
        .fact("hits", references - misses)
        .fact("misses", misses)
        .fact("miss %", Cell::percent(misses, references));
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "dtb.out")?;
    let entries = options.size("--entries", 32)?;
    let page = options.size("--page", 4096)?;
    options.finish()?;
    if entries > MAX_ENTRIES as u64 {
        return Err(format!("a buffer has at most {MAX_ENTRIES} entries, not {entries}").into());
    }
    if !page.is_power_of_two() || page < 1024 {
        return Err(format!("a page is a power of two of at least 1024 bytes, not {page}").into());
    }
    let shape = entries << 8 | u64::from(page.trailing_zeros());
    let buffer = program.thread_data(Buffer::zero());
    let all = Simulation::new(
        program,
        &simulator(LookUp::Timed(Timed {
            step: step(),
            refer: [refer(), refer_to_stack()],
            group: [group(), group_on_stack()],
            unit: page / 8,
        })),
        shape,
        buffer,
        None,
    );
    let text = format!(
        "{}\n{entries} entries, pages of {page} bytes",
        program.name()
    );
    all.report_at_end(program, report, &files, text);
    Ok(())
}

atom_tool::tool!(instrument);
