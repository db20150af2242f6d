//! Misses of a data translation buffer: fully associative, least recently used out first.
//!
//! References to the page of the last one change nothing. For others a small table tells
//! where the page was found last, and the time of its use is noted; the oldest is looked for
//! only at a miss. `docs/tools/dtb.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::simulate::{Comparison, Seen, Simulation, Simulator, begin, end};
use atom_tool::{ThreadCell, repeated, thread_state};

/// Entries that a buffer may have.
const MAX_ENTRIES: usize = 1 << 10;
/// Places of the table that tells where a page was found last.
const HINTS: usize = 256;
/// A page that no program has.
const NONE: u64 = 1 << 63;

thread_state! {
    struct Buffer {
        /// The page of the last reference, as the address of its first byte.
        last: ThreadCell<u64>,
        /// The time: page changes so far.
        now: ThreadCell<u64>,
        /// By the low bits of a page's number, where it may be.
        hints: [ThreadCell<u64>; HINTS],
        pages: [ThreadCell<u64>; MAX_ENTRIES],
        /// When each was used last; 0 if never.
        times: [ThreadCell<u64>; MAX_ENTRIES],
        comparison: Comparison,
    }
}

/// Number of entries, logarithm of a page's size; as one argument.
#[derive(Clone, Copy)]
struct Shape(u64);

impl Shape {
    const fn page(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    const fn hint(self, address: u64) -> usize {
        (address >> (self.0 & 0xff)) as usize % HINTS
    }
}

#[analysis]
fn refer(buffer: PerThread<Buffer>, shape: u64, address: u64, size: u64, count: Counter<2>) {
    let shape = Shape(shape);
    if address.wrapping_sub(buffer.last.get()) <= shape.page() - size {
        return;
    }
    // Another page than the last.
    let entry = buffer.hints[shape.hint(address)].get() as usize % MAX_ENTRIES;
    let page = buffer.pages[entry].get();
    if address.wrapping_sub(page) <= shape.page() - size {
        used(&buffer, entry, page);
    } else {
        missing(&buffer, shape, address, size, count);
    }
}

/// A page that is not where it was last, or two pages.
#[cold]
#[inline(never)]
fn missing(buffer: &Buffer, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    touch(buffer, shape, address, size, 1, count);
    // The first is counted by its block.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

#[inline(always)]
fn used(buffer: &Buffer, entry: usize, page: u64) {
    let now = buffer.now.get() + 1;
    buffer.now.set(now);
    buffer.times[entry].set(now);
    buffer.last.set(page);
}

/// A reference, `times` times in turn: one for each page that it touches.
#[cold]
#[inline(never)]
fn touch(buffer: &Buffer, shape: Shape, address: u64, size: u64, times: u64, count: Counter<2>) {
    let entries = (shape.0 >> 8) as usize;
    let mut page = address & !(shape.page() - 1);
    while page < address.saturating_add(size) {
        let mut found = buffer.pages.iter().take(entries);
        let entry = found
            .position(|other| other.get() == page)
            .unwrap_or_else(|| {
                count.add_to(Seen::Misses as usize, times);
                let times = buffer.times.iter().take(entries).map(ThreadCell::get);
                let (_, oldest) = times.zip(0..).min().unwrap_or_default();
                buffer.pages[oldest].set(page);
                oldest
            });
        buffer.hints[shape.hint(page)].set(entry as u64);
        used(buffer, entry, page);
        count.add_to(Seen::Extra as usize, times);
        page += shape.page();
    }
}

/// References of a repeated instruction, `times` times.
fn again(
    (buffer, shape): (&Buffer, u64),
    at: [u64; 2],
    times: u64,
    (flags, size): (u64, u64),
    count: Counter<2>,
) {
    let shape = Shape(shape);
    repeated(at, times, size, flags, shape.page(), |address, n| {
        touch(buffer, shape, address, size, n, count);
    });
}

#[analysis]
#[rustfmt::skip]
fn repeat(buffer: PerThread<Buffer>, shape: u64, a: u64, b: u64, times: u64, flags: u64, size: u64, count: Counter<2>) {
    again((&buffer, shape), [a, b], times, (flags, size), count);
}

#[analysis]
fn compare(buffer: PerThread<Buffer>, a: u64, b: u64, times: u64) {
    begin(&buffer.comparison, [a, b, times]);
}

#[analysis]
#[rustfmt::skip]
fn compared(buffer: PerThread<Buffer>, shape: u64, rcx: u64, flags: u64, size: u64, count: Counter<2>) {
    let (at, times) = end(&buffer.comparison, rcx);
    again((&buffer, shape), at, times, (flags, size), count);
}

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
    let simulator = Simulator {
        refer: refer(),
        repeat: repeat(),
        compare: compare(),
        compared: compared(),
    };
    let zero = || ThreadCell::new(0);
    let buffer = program.thread_data(Buffer {
        last: ThreadCell::new(NONE),
        now: zero(),
        hints: std::array::from_fn(|_| zero()),
        pages: std::array::from_fn(|_| ThreadCell::new(NONE)),
        times: std::array::from_fn(|_| zero()),
        comparison: std::array::from_fn(|_| zero()),
    });
    let all = Simulation::new(program, &simulator, shape, buffer, None);
    let text = format!(
        "{}\n{entries} entries, pages of {page} bytes",
        program.name()
    );
    let args = (
        &files,
        text,
        all.counts,
        all.executed,
        &all.blocks,
        &all.sites,
    );
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool!(instrument);
