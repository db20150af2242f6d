//! Reuse distances: how many different lines of memory a thread touches between two touches of a line.
//!
//! All references are noted (`atom_tool::simulate::batched`) and looked at when the thread's buffer is full (`thread`), by
//! an exact LRU stack (`stack`). What they touch are variables (`data`) and blocks of the heap (`heap`). `docs/tools/reuse.md` describes options and output.

mod allocators;
mod data;
mod heap;
mod histogram;
mod report;
mod stack;
mod thread;

use atom_tool::Object;
use atom_tool::allocations;
use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::simulate::batched::{Batched, Noted};
use atom_tool::simulate::batches::Item;
use atom_tool::simulate::geometry::{MOST_SIZES, Sizes, short_size};

use data::{Image, Memory, Variable};
use thread::Run;

/// Largest size of a line in bytes.
const MOST_LINE: u64 = 4096;

plain_data! {
    /// References that are noted together.
    pub struct Group {
        /// Number of its first part; the next group's is after its last one.
        first: u32,
        /// Number of its procedure's site.
        site: u32,
        /// 1 for a repeated instruction.
        is_repeated: u32,
    }

    /// A reference of a group.
    pub struct Part {
        /// Distance in bytes from its value.
        offset: i64,
        /// In bytes.
        size: u32,
        /// Number of the value from which its address counts.
        source: u32,
    }

    /// The options.
    pub struct Settings {
        /// Binary logarithm of a line's size.
        line: u32,
        /// Key of the text that names the sizes of caches and says what they come from.
        origin: u32,
        sample: u64,
        interval: u64,
        /// Address of the program's first byte in its file.
        start: u64,
        /// Size of the program in memory.
        size: u64,
        /// Sizes of caches in bytes, 0 after the last one.
        caches: [u64; MOST_SIZES],
        /// The calls of an allocator are seen.
        sees_heap: bool,
        /// What libraries allocate is not seen.
        has_unseen: bool,
        _unused_too: [u8; 6],
    }
}

atom_tool::batched_references!(thread::slow);

/// A cache for whose misses the tables by procedure and by data have a column.
pub struct Cache {
    /// Its size in bytes.
    pub bytes: u64,
    /// The column's name.
    pub name: &'static str,
}

impl Cache {
    /// A cache of this size.
    pub fn of(bytes: u64) -> Self {
        // There are few, and they live to the end of the process.
        let name = format!("misses {}", short_size(bytes)).leak();
        Self { bytes, name }
    }
}

#[analysis(uninterrupted)]
fn begin(
    settings: Record<Settings>,
    loaded: u64,
    groups: Array<Group>,
    parts: Array<Part>,
    variables: Array<Variable>,
) {
    thread::begin(Run {
        groups,
        parts,
        memory: Memory {
            variables,
            program: Image {
                start: loaded,
                size: settings.size,
                in_file: settings.start,
            },
            stack: data::stack(),
        },
        line: settings.line,
        sample: settings.sample,
        interval: settings.interval,
        caches: settings
            .caches
            .iter()
            .filter(|size| **size != 0)
            .map(|size| Cache::of(*size))
            .collect(),
    });
}

/// `places` are procedures and calls of call paths.
#[analysis(uninterrupted)]
#[rustfmt::skip]
fn report(files: Files, program: Str, settings: Record<Settings>, all: AllThreads<NoteBuffer>, sites: Sites, procs: Sites, calls: Sites, names: Strings) {
    let Some(run) = thread::run() else { return };
    let unseen = match (settings.sees_heap, settings.has_unseen) {
        (false, _) => "calls of allocators: the program calls none by a name that is known (see --alloc)",
        (true, true) => "what libraries allocate for themselves, and their references: `atom run` sees them",
        (true, false) => "",
    };
    let caches = names.get(settings.origin).to_owned();
    let places = report::Places { sites, procs, calls, names };
    let facts = [("caches", caches), ("not seen", unseen.to_owned())];
    report::write(files, &program, run, all, &places, facts);
}

/// A name as reports have it: with the object in front, unless it is the program.
fn name_in(object: Option<Object<'_>>, name: &str) -> String {
    match object.filter(|object| !object.is_program()) {
        Some(object) => format!("{}:{name}", object.name()),
        None => name.to_owned(),
    }
}

/// The variables of the symbol tables in the order of their addresses, without overlaps. What is between them belongs to
/// sections.
fn variables(program: &Program, names: &mut StringList) -> Vec<Variable> {
    let mut symbols = program.data_symbols();
    symbols.retain(|symbol| symbol.size != 0);
    // Of several symbols for one place the largest one stands for all.
    symbols.sort_by_key(|symbol| (symbol.address, u64::MAX - symbol.size));
    let mut found: Vec<Variable> = Vec::new();
    let mut end = 0;
    for symbol in symbols {
        if symbol.address < end {
            continue;
        }
        end = symbol.address + symbol.size;
        found.push(Variable {
            start: symbol.address,
            size: u32::try_from(symbol.size).unwrap_or(u32::MAX),
            name: names.push(&name_in(program.object_at(symbol.address), symbol.name)),
        });
    }
    let mut gaps = Vec::new();
    for object in program.objects() {
        // Storage of threads has addresses here at which it is never.
        let sections = object.sections();
        for section in sections.iter().filter(|s| s.flags & SHF_TLS == 0) {
            let name = names.intern(&name_in(Some(object), section.name));
            gaps_in(&found, section.address, section.size, |start, size| {
                gaps.push(Variable { start, size, name });
            });
        }
    }
    found.extend(gaps);
    found.sort_by_key(|variable| variable.start);
    found
}

/// The flag of a section with variables of which each thread has its own.
const SHF_TLS: u64 = 1 << 10;

/// Gives the parts of a section to `each` that are no variable's, with their sizes.
fn gaps_in(variables: &[Variable], start: u64, size: u64, mut each: impl FnMut(u64, u32)) {
    let end = start + size;
    let mut at = start;
    let first = variables.partition_point(|v| v.start + u64::from(v.size) <= start);
    let inside = variables[first..].iter().take_while(|v| v.start < end);
    let starts = inside.map(|v| (v.start, v.start + u64::from(v.size)));
    for (next, behind) in starts.chain([(end, end)]) {
        if at < next {
            each(at, u32::try_from(next - at).unwrap_or(u32::MAX));
        }
        at = at.max(behind);
    }
}

fn part(item: &Item) -> Option<Part> {
    match *item {
        Item::Executed { .. } => None,
        Item::Reference {
            source,
            offset,
            size,
            ..
        } => Some(Part {
            offset,
            size: size as u32,
            source: source.into(),
        }),
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let line = options.size("--line")?;
    let sample = options.size("--sample")?;
    let interval = options.given_size("--interval")?.unwrap_or(0);
    let callers = options.size("--callers")?;
    let caches = Sizes::from_options(&options)?;
    let named = allocations::named(&options.values("--alloc")?, &options.values("--free")?)?;
    options.finish()?;
    if !line.is_power_of_two() || line > MOST_LINE {
        let reason = format!("a power of two of at most {MOST_LINE} bytes");
        return Err(WrongOption::new(format!("a line is {reason}, not {line}")).into());
    }

    let (mut groups, mut parts) = (Vec::new(), Vec::new());
    let mut sites = SiteList::new();
    let noted = Batched::new(program, routines(), false);
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        let site = sites.push_proc(proc) as u32;
        noted.add_proc(proc, &mut |batch: &Noted<'_>| {
            groups.push(Group {
                first: parts.len() as u32,
                site,
                is_repeated: batch.is_repeated.into(),
            });
            parts.extend(batch.items.iter().filter_map(part));
            groups.len() as u32 - 1
        });
    }
    groups.push(Group {
        first: parts.len() as u32,
        site: 0,
        is_repeated: 0,
    });
    let heap = allocators::add(program, noted.buffer, &named, callers)?;
    let mut names = StringList::new();
    let short: Vec<String> = caches.bytes.iter().map(|size| short_size(*size)).collect();
    let origin = names.push(&format!("{}: {}", short.join(", "), caches.origin));
    let mut sizes = [0; MOST_SIZES];
    sizes
        .iter_mut()
        .zip(&caches.bytes)
        .for_each(|(to, from)| *to = *from);
    let variables = variables(program, &mut names);
    let program_range = program.objects().next().map(|object| object.range());
    let range = program_range.unwrap_or_default();
    let settings = Settings {
        line: line.trailing_zeros(),
        origin,
        sample,
        interval,
        start: range.start,
        size: range.end - range.start,
        caches: sizes,
        sees_heap: heap.is_known,
        has_unseen: heap.has_unseen,
        _unused_too: [0; 6],
    };
    let loaded = ImageAddress(range.start);
    let args = (&settings, loaded, &groups, &parts, &variables);
    // The tables are looked into for each note.
    program.tables_may_grow();
    program.add_call(Before, begin, args);
    let name = program.name();
    let (procs, calls) = (&heap.procs, &heap.calls);
    let args = (
        &files,
        name,
        &settings,
        noted.buffer,
        &sites,
        procs,
        calls,
        &names,
    );
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "reuse.out" }
