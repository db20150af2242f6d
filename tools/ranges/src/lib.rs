//! Loads, stores, bytes and cache misses of data structures: of symbols, members, blocks of the
//! heap, variables on the stack and intervals of addresses, in all of the code or parts of it.
//!
//! Ranges are exact to the byte, and there can be any number. `docs/tools/ranges.md` describes
//! options and output. `live` makes ranges appear and disappear, and marks them in each
//! thread's `cache`; `model` processes a reference.

mod cache;
mod frames;
mod heap;
mod html;
mod live;
mod model;
mod picture;
mod points;
mod report;
mod spec;
mod sums;
mod tally;

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::prelude::*;
use atom_tool::simulate::geometry::Geometry;
use atom_tool::{ImageAddress, ProgramInfo, forks, on_object_event};

use cache::State;
use frames::StackVariable;
use heap::{Calls, Request, RequestSite};
use live::Range;
use model::AllRows;
use picture::Picture;
use points::Simulated;
use spec::{Code, Data, DataPlace};

plain_data! {
    /// The meaning of a range's address.
    #[derive(PartialEq, Eq)]
    enum AddressKind {
        /// An address in the file of the program or, in a whole process, of another object.
        Image,
        /// An address at run time.
        Absolute,
        /// The range appears and disappears at various addresses.
        Moving,
    }

    /// A data range as it crosses to the analysis half.
    struct DataRange {
        address: u64,
        /// In bytes; 0 for blocks of the heap.
        size: u64,
        kind: AddressKind,
        _unused: u32,
    }

    /// The user's choices as they cross to the analysis half.
    struct Setup {
        /// The cache, a [`Shape`](atom_tool::simulate::cache::Shape).
        shape: u64,
        /// Start of the text in the program's file.
        text_start: u64,
        /// Key of the program's name.
        program: u32,
        /// Keys of what the cache's geometry comes from, and of its description.
        geometry: u32,
        cache: u32,
        /// Key of the name of the file of comma-separated values; an empty name for none.
        csv: u32,
        /// Key of the name of the page with pictures; an empty name for none.
        html: u32,
        /// A variable on the stack means the variable of the innermost call only.
        innermost: bool,
        /// See [`model::CHANGING`].
        changing: bool,
        /// The program has libraries that are not instrumented.
        has_unseen_libraries: bool,
        _unused: [u8; 1],
    }
}

/// Arguments of the instrument half that the report needs.
struct Told {
    setup: Record<Setup>,
    texts: Strings,
    /// Names of the data ranges, then those of the code ranges.
    names: Strings,
}

static TOLD: OnceLock<Told> = OnceLock::new();

/// Begins to follow the moving ranges: blocks of the heap, and variables on the stack.
#[analysis]
fn follow(
    setup: Record<Setup>,
    requests: Array<Request>,
    sites: Array<RequestSite>,
    variables: Array<StackVariable>,
) {
    heap::begin(&requests, &sites);
    frames::begin(&variables, setup.innermost);
}

/// The counts of all threads.
static ROWS: OnceLock<Rows> = OnceLock::new();

struct Rows(AllRows);
// SAFETY: threads share only atomic data.
unsafe impl Send for Rows {}
// SAFETY: as above.
unsafe impl Sync for Rows {}

/// Remembers where the counts are, and has them set to 0 in forked children.
#[analysis]
fn remember(rows: AllRows) {
    if ROWS.set(Rows(rows)).is_ok() {
        forks::in_child(|| {
            if let Some(rows) = ROWS.get() {
                model::clear(rows.0);
            }
            tally::clear();
        });
    }
}

/// Begins the analysis at the program's start. `loaded` is the address of the text at run time.
#[analysis]
fn begin(
    states: AllThreads<State>,
    setup: Record<Setup>,
    texts: Strings,
    names: Strings,
    loaded: u64,
    ranges: Array<DataRange>,
) {
    cache::SHAPE.store(setup.shape, Relaxed);
    model::CHANGING.store(setup.changing, Relaxed);
    let program_bias = loaded.wrapping_sub(setup.text_start);
    // Libraries are mapped later.
    let start = |range: &DataRange| match range.kind {
        AddressKind::Image if Address(range.address).object_number() == 0 => {
            Some(range.address.wrapping_add(program_bias))
        }
        AddressKind::Image => Address(range.address).at_run_time(),
        AddressKind::Absolute => Some(range.address),
        AddressKind::Moving => None,
    };
    on_object_event(live::object_moves);
    let has_pictures = !texts.get(setup.html).is_empty();
    let ranges = ranges.iter().map(|range| Range {
        fixed: start(range),
        in_file: match range.kind {
            AddressKind::Image => Some(range.address),
            AddressKind::Absolute | AddressKind::Moving => None,
        },
        size: AtomicU64::new(range.size),
        times: AtomicU64::new(0),
        last: AtomicU64::new(0),
        low: AtomicU64::new(u64::MAX),
        high: AtomicU64::new(0),
        picture: has_pictures.then(Picture::new),
    });
    live::begin(ranges.collect(), states);
    let _ = TOLD.set(Told {
        setup,
        texts,
        names,
    });
}

/// The values of a repeatable option, in which `@FILE` is replaced by the lines of the file.
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
    let files = ReportFiles::from_options(&options)?;
    let csv = options.value("--csv")?.unwrap_or("");
    let html = options.value("--html")?.unwrap_or("");
    let data_words = words(options.values("--data")?)?;
    let code_words = words(options.values("--code")?)?;
    let innermost = options.flag("--innermost");
    let geometry = Geometry::first_level(&options)?;
    let shape = geometry.first;
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
        let message = "say which data with --data, which code with --code, or both: \
                       --data table, --data heap:proc=main, --code 'parse*'";
        return Err(WrongOption::new(message).into());
    }

    let state = program.thread_data(State::zero());
    let calls = program.thread_data(Calls::new());
    let moves = |r: &Data| match r.place {
        DataPlace::Heap(_) | DataPlace::Frame { .. } => true,
        DataPlace::Image { address, .. } => {
            program.object_at(address).is_some_and(|o| o.index() != 0)
        }
        DataPlace::Absolute { .. } => false,
    };
    let is_changing = data.iter().any(moves) && program.may_have_threads();
    let simulated = Simulated {
        shape,
        state,
        is_changing,
    };
    let all = points::AllReferences::add(program, simulated, &codes);
    for (number, code) in codes.iter().enumerate() {
        if !all.codes.iter().any(|site| site.code == number as u32) {
            let name = &code.name;
            return Err(
                format!("no instruction that accesses memory is in the code `{name}`").into(),
            );
        }
    }
    let heap = points::heap(program, &data, calls);
    heap.check(&data)?;
    let variables = points::frames(program, &data, calls)?;

    let mut texts = StringList::new();
    let setup = Setup {
        shape: shape.0,
        text_start: program.info(ProgramInfo::TextStartAddress),
        program: texts.push(program.name()),
        geometry: texts.push(&geometry.origin),
        cache: texts.push(&geometry.first_text),
        csv: texts.push(csv),
        html: texts.push(html),
        innermost,
        changing: is_changing,
        has_unseen_libraries: program.objects().len() == 1
            && !program.section(".interp").is_empty(),
        _unused: [0; 1],
    };
    let mut names = StringList::new();
    data.iter().for_each(|range| _ = names.push(&range.name));
    codes.iter().for_each(|code| _ = names.push(&code.name));
    let ranges: Vec<DataRange> = data.iter().map(Data::as_argument).collect();
    let args = (&setup, &heap.requests, &heap.sites, &variables);
    program.add_call(Before, follow, args);
    program.add_call(Before, remember, (all.rows,));
    let loaded = ImageAddress(setup.text_start);
    let args = (state, &setup, &texts, &names, loaded, &ranges);
    program.add_call(Before, begin, args);
    let (places, codes) = (&all.operands, &all.codes);
    let args = (&files, all.rows, all.executed, places, codes, &all.sites);
    program.add_call(After, report::report, args);
    Ok(())
}

impl Data {
    /// The range as an argument of [`begin`].
    fn as_argument(&self) -> DataRange {
        let (kind, address, size) = match self.place {
            DataPlace::Image { address, size } => (AddressKind::Image, address, size),
            DataPlace::Absolute { address, size } => (AddressKind::Absolute, address, size),
            DataPlace::Heap(_) => (AddressKind::Moving, 0, 0),
            DataPlace::Frame { size, .. } => (AddressKind::Moving, 0, size),
        };
        DataRange {
            address,
            size,
            kind,
            _unused: 0,
        }
    }
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "ranges.out" }
