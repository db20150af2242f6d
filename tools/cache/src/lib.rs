//! Misses of a data cache, and of an instruction cache, by instruction, line and procedure.
//!
//! How often a block is executed tells how often its instructions refer to memory, so
//! a counter for each block is enough for that. At a reference only the most
//! recently used line of its set is compared; all else is off the path.
//! `docs/tools/cache.md` describes the model, options and output.

use atom_tool::prelude::*;
use atom_tool::{CounterAt, References, ThreadCell, ThreadData, Times, repeated, thread_state};

/// Lines that a cache may have.
const MAX_LINES: usize = 1 << 14;

thread_state! {
    /// Sets of lines, in each the most recently used first, as the addresses of their first
    /// bytes. 0 is no line: no program accesses the first bytes of memory.
    struct Cache {
        lines: [ThreadCell<u64>; MAX_LINES],
        /// Where a repeated comparison began, and how often it may repeat.
        began: [ThreadCell<u64>; 3],
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

/// Cells of a counter: misses, and references that the counts of blocks do not tell of.
const MISSES: usize = 0;
const EXTRA: usize = 1;

#[analysis]
fn block(counter: Counter) {
    counter.increment();
}

/// One reference to a cache of the default shape.
#[analysis]
fn refer(cache: PerThread<Cache>, address: u64, size: u64, count: Counter<2>) {
    let line = cache.lines[DEFAULT.set(address)].get();
    if size > DEFAULT.line() || address.wrapping_sub(line) > DEFAULT.line() - size {
        slow(&cache, DEFAULT, address, size, count);
    }
}

/// One reference to a cache of any shape.
#[analysis]
fn refer_any(cache: PerThread<Cache>, shape: u64, address: u64, size: u64, count: Counter<2>) {
    let shape = Shape(shape);
    let line = cache
        .lines
        .get(shape.set(address))
        .map_or(0, |line| line.get());
    if size > shape.line() || address.wrapping_sub(line) > shape.line() - size {
        slow(&cache, shape, address, size, count);
    }
}

#[cold]
#[inline(never)]
fn slow(cache: &Cache, shape: Shape, address: u64, size: u64, count: Counter<2>) {
    touch(cache, shape, address, size, 1, count);
    count.add_to(EXTRA, u64::MAX);
}

/// References `times` times; each line that is touched is one. The last is what is known best.
fn touch(cache: &Cache, shape: Shape, address: u64, size: u64, times: u64, count: Counter<2>) {
    let mut line = address & !(shape.line() - 1);
    let end = address.saturating_add(size);
    while line < end {
        let set = shape.set(line);
        let set = cache.lines.get(set..set + shape.ways() as usize);
        let set = set.unwrap_or_default();
        let place = set.iter().position(|other| other.get() == line);
        let mut moving = line;
        for other in set.iter().take(place.map_or(set.len(), |place| place + 1)) {
            let next = other.get();
            other.set(moving);
            moving = next;
        }
        if place.is_none() {
            count.add_to(MISSES, times);
        }
        count.add_to(EXTRA, times);
        line += shape.line();
    }
}

/// The references of a string instruction, or with `times` 1 of an element of a vector.
#[analysis]
fn repeat(
    cache: PerThread<Cache>,
    shape: u64,
    first: u64,
    second: u64,
    times: u64,
    flags: u64,
    size: u64,
    count: Counter<2>,
) {
    let shape = Shape(shape);
    repeated(
        [first, second],
        times,
        size,
        flags,
        shape.line(),
        |address, times| {
            touch(&cache, shape, address, size, times, count);
        },
    );
}

/// Before a string comparison, which may end early.
#[analysis]
fn compare(cache: PerThread<Cache>, first: u64, second: u64, times: u64) {
    for (cell, value) in cache.began.iter().zip([first, second, times]) {
        cell.set(value);
    }
}

/// After it, with what is left in rcx.
#[analysis]
fn compared(
    cache: PerThread<Cache>,
    shape: u64,
    rcx: u64,
    flags: u64,
    size: u64,
    count: Counter<2>,
) {
    let shape = Shape(shape);
    let [first, second, times] = [0, 1, 2].map(|i: usize| cache.began[i].get());
    let times = times.saturating_sub(rcx);
    repeated(
        [first, second],
        times,
        size,
        flags,
        shape.line(),
        |address, times| {
            touch(&cache, shape, address, size, times, count);
        },
    );
}

/// A cache with what the report needs: `blocks` has for each site the number of its
/// block and how many references the count of that block stands for.
#[analysis]
fn report(
    files: Files,
    text: Str,
    counts: Counters<2>,
    blocks: Array<[u32; 2]>,
    executed: Counters,
    sites: Sites,
) {
    let (program, description) = text.split_once('\n').unwrap_or(("", ""));
    let of = |i: usize| {
        let [block, each] = blocks[i];
        let [misses, extra] = counts.at(i).get();
        let [times] = executed.at(block as usize).get();
        [(times * u64::from(each)).wrapping_add(extra), misses]
    };
    let [references, misses] = (0..sites.len())
        .map(of)
        .fold([0, 0], |sum, n| [sum[0] + n[0], sum[1] + n[1]]);
    let mut report = Report::new("cache", program);
    report
        .fact("cache", description.to_owned())
        .fact("references", references)
        .fact("misses", misses)
        .fact("miss %", Cell::percent(misses, references));
    report.places(["references", "misses", "miss %"], sites, of);
    report.write(files);
}

/// Adds the calls for an instruction's references; how many each execution is sure to make.
fn add(inst: Inst<'_>, cache: ThreadData<Cache>, shape: Shape, count: CounterAt<2>) -> u32 {
    let Some(References { operands, times }) = inst.references() else {
        return 0;
    };
    let word = shape.0;
    let size = |operand| AccessSizeOf(operand);
    if times == Times::Once {
        for operand in &operands {
            let address = EffAddrOf(*operand);
            match (shape == DEFAULT, inst.has_access_size(*operand)) {
                (true, true) => {
                    inst.add_call(Before, refer, (cache, address, size(*operand), count));
                }
                (false, true) => {
                    let args = (cache, word, address, size(*operand), count);
                    inst.add_call(Before, refer_any, args);
                }
                (_, false) => inst.add_call(Before, refer_any, (cache, word, address, 1, count)),
            }
        }
        return operands.len() as u32;
    }
    let (first, flags, size) = (operands[0], Reg::Flags, size(operands[0]));
    let a = EffAddrOf(first);
    match (times, operands.get(1)) {
        (Times::Compared, second) => {
            match second {
                Some(b) => inst.add_call(Before, compare, (cache, a, EffAddrOf(*b), RepCount)),
                None => inst.add_call(Before, compare, (cache, a, 0, RepCount)),
            }
            inst.add_call(After, compared, (cache, word, Reg::Rcx, flags, size, count));
        }
        (Times::Elements, _) => {
            inst.add_call(Before, repeat, (cache, word, a, 0, 1, 0, size, count));
        }
        (_, Some(b)) => {
            let b = EffAddrOf(*b);
            inst.add_call(
                Before,
                repeat,
                (cache, word, a, b, RepCount, flags, size, count),
            );
        }
        (_, None) => {
            inst.add_call(
                Before,
                repeat,
                (cache, word, a, 0, RepCount, flags, size, count),
            );
        }
    }
    0
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "cache.out")?;
    let instructions = options.flag("--icache");
    let size = options.size("--size", 8 << 10)?;
    let line = options.size("--line", 32)?;
    let ways = options.size("--ways", 1)?;
    options.finish()?;
    let sets = size.checked_div(line * ways).unwrap_or(0);
    if !sets.is_power_of_two() || !line.is_power_of_two() || sets * ways * line != size {
        return Err(format!(
            "{size} bytes are no power of two of sets of {ways} lines of {line} bytes"
        )
        .into());
    }
    if sets * ways > MAX_LINES as u64 {
        return Err(format!("a cache has at most {MAX_LINES} lines, not {}", sets * ways).into());
    }
    let shape = Shape::new(sets, ways, line);
    let cache = program.thread_data(Cache {
        lines: std::array::from_fn(|_| ThreadCell::new(0)),
        began: std::array::from_fn(|_| ThreadCell::new(0)),
    });

    let executed = program.counters(program.block_count());
    let all = program.procs().flat_map(|proc| proc.blocks());
    let refers = |inst: &Inst| instructions || inst.references().is_some();
    let insts: Vec<Inst> = all.flat_map(|block| block.insts()).filter(refers).collect();
    let counts = program.counters(insts.len());
    let mut sites = SiteList::new();
    let mut blocks: Vec<[u32; 2]> = Vec::new();
    let mut counted = None;
    for (inst, count) in insts.iter().zip(counts.rows()) {
        let number = inst.block().index();
        if counted.replace(number) != Some(number) {
            inst.block().add_call(Before, block, (executed.at(number),));
        }
        let each = add(*inst, cache, shape, count);
        sites.push(*inst);
        blocks.push([number as u32, each]);
    }
    let kind = if ways == 1 {
        "direct mapped".to_owned()
    } else {
        format!("{ways} ways")
    };
    let text = format!(
        "{}\n{size} bytes, {kind}, lines of {line} bytes",
        program.name()
    );
    program.add_call(
        After,
        report,
        (&files, text, counts, &blocks, executed, &sites),
    );
    Ok(())
}

atom_tool::tool!(instrument);
