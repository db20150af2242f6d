//! Misses of a data cache, and of an instruction cache, by instruction, line and procedure.
//!
//! At a reference only the most recently used line of its set is compared; all else
//! is off the path. `docs/tools/cache.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::simulate::groups::{self, Part};
use atom_tool::simulate::{Comparison, Seen, Simulation};
use atom_tool::{ThreadCell, thread_state};

/// Lines that a cache may have.
const MAX_LINES: usize = 1 << 14;
/// A line of a cache that is larger than this could lie at address 0.
const MAX_LINE: u64 = 4096;

thread_state! {
    /// Sets of lines, in each the most recently used first, as the addresses of their first
    /// bytes, negated: an address is in the line if the sum is small. 0 is no line: no program
    /// accesses the first page.
    struct Cache {
        lines: [ThreadCell<u64>; MAX_LINES],
        comparison: Comparison,
    }
}

/// Sets (a power of two), lines in a set, logarithm of a line's size; as one argument.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape(u64);

impl Shape {
    const fn new(sets: u64, ways: u64, line: u64) -> Self {
        Self(sets << 32 | ways << 8 | line.trailing_zeros() as u64)
    }

    const fn line(self) -> u64 {
        1 << (self.0 & 0xff)
    }

    const fn ways(self) -> u64 {
        self.0 >> 8 & 0xff_ffff
    }

    /// The place of an address's set among the lines.
    const fn set(self, address: u64) -> usize {
        ((address >> (self.0 & 0xff) & ((self.0 >> 32) - 1)) * self.ways()) as usize
    }
}

/// 8 KB, direct mapped, lines of 32 bytes.
const DEFAULT: Shape = Shape::new(256, 1, 32);

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

/// Whether all is in one line; makes that the line of its set.
#[inline(always)]
fn is_quick(cache: &Cache, address: u64, size: u64, count: Counter<2>) -> bool {
    const LINE: u64 = DEFAULT.line();
    let line = &cache.lines[DEFAULT.set(address)];
    if size > LINE || address.wrapping_add(line.get()) > LINE - size {
        if size <= LINE && address % LINE <= LINE - size {
            line.set((address & !(LINE - 1)).wrapping_neg());
            count.add_to(Seen::Misses as usize, 1);
            return true;
        }
        return false;
    }
    true
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

/// Another line than that of its set which was used last, or several lines.
#[cold]
#[inline(never)]
fn other(cache: &Cache, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    if shape.ways() == 1 && size <= shape.line() {
        let last = address + size - 1;
        let mut missed = enter(cache, shape, address);
        if (address ^ last) >= shape.line() {
            missed += enter(cache, shape, last);
            count.add_to(Seen::Extra as usize, 1);
        }
        count.add_to(Seen::Misses as usize, missed);
        return;
    }
    touch(cache, shape.0, address, size, 1, count);
    // The first is counted by its block.
    count.add_to(Seen::Extra as usize, u64::MAX);
}

/// A reference to one line of a direct-mapped cache; whether it missed.
fn enter(cache: &Cache, shape: Shape, address: u64) -> u64 {
    let known = &cache.lines[shape.set(address) % MAX_LINES];
    let line = (address & !(shape.line() - 1)).wrapping_neg();
    let is_new = known.get() != line;
    known.set(line);
    is_new.into()
}

/// A reference, `times` times in turn: one for each line that it touches.
fn touch(cache: &Cache, shape: u64, address: u64, size: u64, times: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let mut line = address & !(shape.line() - 1);
    while line < address.saturating_add(size) {
        let set = shape.set(line);
        let set = cache
            .lines
            .get(set..set + shape.ways() as usize)
            .unwrap_or_default();
        let mut moving = line.wrapping_neg();
        let place = set.iter().position(|other| other.get() == moving);
        for other in set.iter().take(place.map_or(set.len(), |place| place + 1)) {
            let next = other.get();
            other.set(moving);
            moving = next;
        }
        if place.is_none() {
            count.add_to(Seen::Misses as usize, times);
        }
        count.add_to(Seen::Extra as usize, times);
        line += shape.line();
    }
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
    let size = options.size("--size", 8 << 10)?;
    let line = options.size("--line", 32)?;
    let ways = options.size("--ways", 1)?;
    options.finish()?;
    let lines = size / line;
    let sets = lines / ways;
    if !sets.is_power_of_two() || !line.is_power_of_two() || sets * ways * line != size {
        let shape = format!("{ways} lines of {line} bytes");
        return Err(format!("{size} bytes are not a power of two of sets of {shape}").into());
    }
    if lines > MAX_LINES as u64 || line > MAX_LINE {
        let reason = format!("at most {MAX_LINES} lines of at most {MAX_LINE} bytes");
        return Err(format!("a cache has {reason}, not {lines} of {line}").into());
    }
    let shape = Shape::new(sets, ways, line);
    let simulator = if shape == DEFAULT {
        simulator(refer_default(), Some((group_default(), line / 2)))
    } else {
        simulator(refer(), Some((group(), line / 2)))
    };
    let cache = || {
        program.thread_data(Cache {
            lines: std::array::from_fn(|_| ThreadCell::new(0)),
            comparison: std::array::from_fn(|_| ThreadCell::new(0)),
        })
    };
    let code = with_code.then(|| (cache(), line));
    let all = Simulation::new(program, &simulator, shape.0, cache(), code);
    let kind = if ways == 1 {
        "direct mapped".to_owned()
    } else {
        format!("{ways} ways")
    };
    let text = format!(
        "{}\n{size} bytes, {kind}, lines of {line} bytes",
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
