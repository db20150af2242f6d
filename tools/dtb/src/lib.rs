//! Misses of a data translation buffer, which is fully associative and evicts the least recently used entry.
//!
//! The low bits of a page's number are its place in a table, where the time of each reference is
//! stored. The oldest entry is looked for only at a miss. `docs/tools/dtb.md` describes the model,
//! options and output.

use atom_tool::prelude::*;
use atom_tool::report::Column;
use atom_tool::sampling::Figure;
use atom_tool::simulate::groups::{self, Member};
use atom_tool::simulate::{LookUp, Simulation, SiteReferences, Timed};

mod buffer;
mod entries;

use buffer::{Buffer, MAX_ENTRIES, Shape};
use entries::{look_up_slow, touch};

/// One reference through other registers than rsp and the frame pointer.
#[analysis]
#[rustfmt::skip]
fn refer(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>) {
    if !buffer.refer(Shape(shape), number, address, size) {
        look_up_slow::<false>(&buffer, shape, address, size, count);
    }
}

/// One reference through rsp or the frame pointer.
#[analysis]
#[rustfmt::skip]
fn refer_to_stack(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>) {
    if !buffer.refer_to_stack(Shape(shape), number, address, size) {
        look_up_slow::<true>(&buffer, shape, address, size, count);
    }
}

/// A group of references through other registers than rsp and the frame pointer.
#[analysis]
#[rustfmt::skip]
fn group(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>, members: Array<Member>) {
    if !buffer.refer(Shape(shape), number, address, size) {
        look_up_each::<false>(&buffer, shape, address, count, members);
    }
}

/// A group of references through rsp or the frame pointer.
#[analysis]
#[rustfmt::skip]
fn group_on_stack(buffer: PerThread<Buffer>, shape: u64, number: u64, address: u64, size: u64, count: Counter<2>, members: Array<Member>) {
    if !buffer.refer_to_stack(Shape(shape), number, address, size) {
        look_up_each::<true>(&buffer, shape, address, count, members);
    }
}

/// Advances the clock where control may come from an instruction with a higher number.
#[analysis]
fn step(buffer: PerThread<Buffer>) {
    buffer.step();
}

/// Looks up the references of a group one by one.
#[cold]
#[inline(never)]
#[rustfmt::skip]
fn look_up_each<const STACK: bool>(buffer: &Buffer, shape: u64, address: u64, count: Counter<2>, members: Array<Member>) {
    groups::each(address, members, count, |address, size, count| {
        look_up_slow::<STACK>(buffer, shape, address, size, count);
    });
}

/// Size of a page in bytes.
fn page(shape: u64) -> u64 {
    Shape(shape).page()
}

atom_tool::simulator!(Buffer, touch, page);

#[analysis]
#[rustfmt::skip]
fn report(files: Files, program: Str, buffer: Str, counts: Counters<2>, executed: Counters, references: Array<SiteReferences>, sites: Sites) {
    let mut report = Report::new("dtb", &program);
    let [[total, misses], _] = report.simulated(counts, executed, references, sites);
    report
        .fact("buffer", buffer.as_str())
        .typed_fact(Column::count("references", "references"), total)
        .interval(Figure::References, None)
        .typed_fact(Column::count("hits", "hits"), total - misses)
        .typed_fact(Column::count("misses", "misses"), misses)
        .interval(Figure::Misses, None)
        .typed_fact(Column::percent_of("miss %", "misses", "references"), Cell::percent(misses, total))
        .interval(Figure::Misses, Some(Figure::References));
    report.write(files);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let entries = options.size("--entries")?;
    let page = options.size("--page")?;
    options.finish()?;
    if entries > MAX_ENTRIES as u64 {
        return Err(WrongOption::new(format!(
            "a buffer has at most {MAX_ENTRIES} entries, not {entries}"
        ))
        .into());
    }
    if !page.is_power_of_two() || page < 1024 {
        return Err(WrongOption::new(format!(
            "a page is a power of two of at least 1024 bytes, not {page}"
        ))
        .into());
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
    let description = format!("{entries} entries, pages of {page} bytes");
    all.report_at_end(program, report, &files, description);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "dtb.out" }
