//! Loads, stores, bytes and cache misses of data structures: of symbols, members, blocks of the
//! heap, variables on the stack and intervals of addresses, in all of the code or parts of it.
//!
//! Ranges are exact to the byte, and there can be any number. `docs/tools/ranges.md` describes
//! options and output; `model` says how a reference is looked at, `live` how ranges come and go.

mod frames;
mod heap;
mod html;
mod live;
mod map;
mod model;
mod picture;
mod points;
mod report;
mod spec;
mod tally;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;
use atom_tool::{ImageAddress, ProgramInfo};

use heap::Calls;
use live::Range;
use model::{MAX_LINE, MAX_LINES, Shape, State};
use picture::Picture;
use spec::{Code, Data};

/// A range as it crosses to the analysis: how it is found, address, size.
type RangeRow = [u64; 3];
const IMAGE: u64 = 0;
const ABSOLUTE: u64 = 1;
const MOVING: u64 = 2;

/// Bits of the options.
const PICTURES: u64 = 1;
const INNERMOST: u64 = 2;
const CHANGING: u64 = 4;

#[analysis]
#[rustfmt::skip]
#[allow(clippy::too_many_arguments)]
fn begin(states: AllThreads<State>, options: u64, shape: u64, base: u64, loaded: u64, ranges: Array<RangeRow>, wanted: Array<[u64; 5]>, sites: Array<[u32; 2]>, variables: Array<[u64; 4]>) {
    model::SHAPE.store(shape, Relaxed);
    model::CHANGING.store(options & CHANGING != 0, Relaxed);
    heap::begin(&wanted, &sites);
    frames::begin(&variables, options & INNERMOST != 0);
    let ranges = ranges.iter().map(|[kind, address, size]| Range {
        fixed: match *kind {
            IMAGE => Some(address.wrapping_sub(base).wrapping_add(loaded)),
            ABSOLUTE => Some(*address),
            _ => None,
        },
        bias: if *kind == IMAGE { loaded.wrapping_sub(base) } else { 0 },
        size: AtomicU64::new(*size),
        times: AtomicU64::new(0),
        last: AtomicU64::new(0),
        low: AtomicU64::new(u64::MAX),
        high: AtomicU64::new(0),
        picture: (options & PICTURES != 0).then(Picture::new),
    });
    live::begin(ranges.collect(), states);
}

/// What the user wants of the cache, and whether that can be.
fn shape(options: &atom_tool::Options<'_>) -> Result<(Shape, String)> {
    let size = options.size("--size", 8 << 10)?;
    let line = options.size("--line", 32)?;
    let ways = options.size("--ways", 1)?;
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
    let kind = match ways {
        1 => "direct mapped".to_owned(),
        _ => format!("{ways} ways"),
    };
    let text = format!("{size} bytes, {kind}, lines of {line} bytes");
    Ok((Shape::new(sets, ways, line), text))
}

/// The words of an option that may be repeated; `@FILE` stands for the lines of a file.
fn words(given: Vec<&str>) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for word in given {
        let Some(file) = word.strip_prefix('@') else {
            words.push(word.to_owned());
            continue;
        };
        let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        words.extend(lines.map(str::to_owned));
    }
    Ok(words)
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options, "ranges.out")?;
    let csv = options.value("--csv")?.unwrap_or("");
    let html = options.value("--html")?.unwrap_or("");
    let data_words = words(options.values("--data")?)?;
    let code_words = words(options.values("--code")?)?;
    let innermost = options.flag("--innermost");
    let (shape, cache) = shape(&options)?;
    options.finish()?;

    let mut data: Vec<Data> = Vec::new();
    for word in &data_words {
        data.extend(spec::data(program, word)?);
    }
    let codes: Vec<Code> = code_words
        .iter()
        .map(|w| Code::parse(w))
        .collect::<Result<_>>()?;
    if data.is_empty() && codes.is_empty() {
        return Err(
            "say which data with --data, which code with --code, or both: \
                    --data table, --data heap:proc=main, --code 'parse*'"
                .into(),
        );
    }

    let state = program.thread_data(State {
        lines: std::array::from_fn(|_| ThreadCell::new(0)),
        comparison: std::array::from_fn(|_| ThreadCell::new(0)),
    });
    let calls = program.thread_data(Calls::new());
    let moves = |r: &Data| matches!(r.place, spec::Place::Heap(_) | spec::Place::Frame { .. });
    let is_changing = data.iter().any(moves) && program.may_have_threads();
    let all = points::AllReferences::add(program, shape, state, &codes, is_changing);
    for (number, code) in codes.iter().enumerate() {
        if !all.codes.iter().any(|[_, c]| *c == number as u32) {
            let name = &code.name;
            return Err(
                format!("no instruction that accesses memory is in the code `{name}`").into(),
            );
        }
    }
    let heap = points::heap(program, &data, calls);
    for (number, range) in data.iter().enumerate() {
        let wish = heap.wanted.iter().position(|w| w[0] == number as u64);
        if let Some(wish) = wish
            && !heap.sites.iter().any(|[_, w]| *w == wish as u32)
        {
            let (name, calls) = (&range.name, heap.calls);
            let reason = match calls {
                0 => "the program's own code does not call the allocator by a name that is known; what \
                      its libraries allocate is not seen, nor is the allocator in a static program without symbols"
                    .to_owned(),
                _ => format!("none of the {calls} calls of the allocator makes blocks for it"),
            };
            return Err(format!("the range `{name}` has no blocks: {reason}").into());
        }
    }
    let variables = points::frames(program, &data, calls)?;

    let rows: Vec<RangeRow> = data
        .iter()
        .map(|range| match range.place {
            spec::Place::Image { address, size } => [IMAGE, address, size],
            spec::Place::Absolute { address, size } => [ABSOLUTE, address, size],
            spec::Place::Heap(_) => [MOVING, 0, 0],
            spec::Place::Frame { size, .. } => [MOVING, 0, size],
        })
        .collect();
    let flag = |is: bool, bit: u64| if is { bit } else { 0 };
    let bits =
        flag(!html.is_empty(), PICTURES) | flag(innermost, INNERMOST) | flag(is_changing, CHANGING);
    let base = program.info(ProgramInfo::TextStartAddress);
    let loaded = ImageAddress(base);
    let args = (
        state,
        bits,
        shape.0,
        base,
        loaded,
        &rows,
        &heap.wanted,
        &heap.sites,
        &variables,
    );
    program.add_call(Before, begin, args);

    let mut names = StringList::new();
    data.iter().for_each(|range| _ = names.push(&range.name));
    codes.iter().for_each(|code| _ = names.push(&code.name));
    let is_dynamic = !program.section(".interp").is_empty();
    let text = format!(
        "{}\n{cache}\n{csv}\n{html}\n{}",
        program.name(),
        if is_dynamic { "dynamic" } else { "static" }
    );
    let args = (
        &files,
        text,
        all.rows,
        all.executed,
        &all.places,
        &all.codes,
        &all.sites,
        &names,
    );
    program.add_call(After, report::report, args);
    Ok(())
}

atom_tool::tool!(instrument);
