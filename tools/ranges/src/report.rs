//! The report: ranges, and the code that touched them.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::LineProcs;
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers};

use crate::html::Page;
use crate::live::{self, Range};
use crate::model::{self, AllRows, OperandTag};
use crate::points::{CodeSite, Operand};
use crate::sums::{Sum, Sums, grouped};
use crate::{TOLD, Told, tally};

/// Number of ranges, which does not grow with the number of runs.
const RANGES: Column = Column::count("data ranges", "ranges").sum(atom_tool::report::Sum::Max);

/// The columns of [`Sum::cells`].
const MEASURES: [Column; 4] = [
    Column::count("loads", "references"),
    Column::count("stores", "references"),
    Column::bytes("bytes"),
    Column::count("misses", "misses"),
];

/// Adds up the counts of all threads, by range and number of the instruction.
fn sums(rows: AllRows, operands: &[Operand]) -> Sums {
    let sets = live::sets();
    let mut all: HashMap<(u32, u32), tally::Tally> = HashMap::new();
    for (operand, set, tally) in tally::all() {
        let sum = all.entry((operand, set)).or_default();
        sum.references += tally.references;
        sum.bytes += tally.bytes;
        sum.misses += tally.misses;
    }
    for thread in rows.iter() {
        for (number, row) in thread.iter().enumerate() {
            let (window, n) = model::word(row[model::WORD].get());
            let misses = row[model::WINDOW_MISSES].get();
            if (n != 0 || misses != 0)
                && let Some(set) = live::set_of(window)
                && let Some(operand) = operands.get(number)
            {
                let sum = all.entry((number as u32, set.id)).or_default();
                sum.references += n;
                sum.bytes += n * u64::from(operand.size);
                sum.misses += misses;
            }
        }
    }
    let mut sums = Sums::new();
    for ((number, set), tally) in all {
        let (Some(operand), Some(set)) = (operands.get(number as usize), sets.get(&set)) else {
            continue;
        };
        let has = |flag: u64| u64::from(u64::from(operand.access) & flag != 0);
        let (loads, stores) = (has(OperandTag::LOADS), has(OperandTag::STORES));
        let sum = Sum {
            loads: tally.references * loads,
            stores: tally.references * stores,
            bytes: tally.bytes * (loads + stores),
            misses: tally.misses,
        };
        for range in &set.ranges {
            sums.entry((*range, operand.site)).or_default().add(sum);
        }
    }
    sums
}

/// The address of a range's first byte as the report shows it: of the file, or at run time. `None` if the
/// range appeared at several places.
fn shown_start(range: &Range) -> Option<u64> {
    let once = || range.times.load(Relaxed) == 1;
    let at_run_time = || once().then(|| range.last.load(Relaxed));
    range.in_file.or(range.fixed).or_else(at_run_time)
}

/// The lowest and the highest address of a range that was touched.
fn touched(range: &Range) -> [Cell; 2] {
    let (low, high) = (range.low.load(Relaxed), range.high.load(Relaxed));
    if low >= high {
        return [Cell::Empty, Cell::Empty];
    }
    let start = shown_start(range);
    [low, high - 1].map(|offset| match start {
        Some(start) => Cell::Address(start.wrapping_add(offset)),
        None => Cell::Text(format!("+{offset:#x}").into()),
    })
}

/// Start and end of a range; empty if it appeared at several places.
fn bounds(range: &Range) -> [Cell; 2] {
    let Some(start) = shown_start(range) else {
        return [Cell::Empty, Cell::Empty];
    };
    let end = start.wrapping_add(range.size.load(Relaxed));
    [Cell::Address(start), Cell::Address(end)]
}

#[analysis]
pub fn report(
    files: Files,
    rows: AllRows,
    executed: Counters,
    operands: Array<Operand>,
    codes: Array<CodeSite>,
    sites: Sites,
) {
    let Some(told) = TOLD.get() else { return };
    let (setup, text) = (told.setup, |key: u32| told.texts.get(key));
    let names: Vec<&'static str> = told.names.iter().collect();
    let ranges = live::ranges();
    let (names, code_names) = names.split_at(ranges.len().min(names.len()));
    let sums = sums(rows, &operands);

    let mut report = Report::new("ranges", text(setup.program));
    report.fact("geometry", text(setup.geometry).to_owned());
    report.fact("cache", text(setup.cache).to_owned());
    let seen = everything(rows, executed, &operands);
    let total = |of: &dyn Fn(&[u64; 2]) -> u64| seen.values().map(of).sum::<u64>();
    report
        .typed_fact(Column::count("references", "references"), total(&|s| s[0]))
        .typed_fact(Column::count("misses", "misses"), total(&|s| s[1]))
        .typed_fact(RANGES, ranges.len() as u64);
    if setup.has_unseen_libraries && !ranges.is_empty() {
        let note =
            "what libraries load and store (memcpy and its like) is not seen; `atom run` sees it";
        report.fact("libraries", note);
    }
    let lost = tally::LOST.load(Relaxed);
    if lost != 0 {
        report.fact("not counted for want of memory", lost);
    }
    whole(&mut report, ranges, names, &sums);
    by_code(&mut report, [names, code_names], &codes, &sums, &seen);
    by_place(&mut report, names, sites, &sums);
    report.write(files);
    files_of_their_own(told, names, sites, &sums);
}

/// Writes the file of comma-separated values and the page with pictures, where they are wanted.
fn files_of_their_own(told: &Told, names: &[&'static str], sites: Sites, sums: &Sums) {
    let write = |name: &str, result: io::Result<()>| {
        if let Err(e) = result {
            output::cannot_write("ranges", format!("{name}: {e}"));
        }
    };
    let text = |key: u32| told.texts.get(key);
    let (csv, page) = (text(told.setup.csv), text(told.setup.html));
    if !csv.is_empty() {
        write(csv, write_csv(csv, names, sites, sums));
    }
    if !page.is_empty() {
        let ranges = live::ranges();
        let content = Page {
            program: text(told.setup.program),
            names,
            ranges,
            totals: &totals(ranges.len(), sums),
        };
        write(page, content.write(page, sites, sums));
    }
}

fn totals(ranges: usize, sums: &Sums) -> Vec<Sum> {
    let mut totals = vec![Sum::default(); ranges];
    for ((range, _), sum) in sums {
        if let Some(total) = totals.get_mut(*range as usize) {
            total.add(*sum);
        }
    }
    totals
}

fn whole(report: &mut Report, ranges: &[Range], names: &[&'static str], sums: &Sums) {
    if ranges.is_empty() {
        return;
    }
    let totals = totals(ranges.len(), sums);
    // Places in memory may differ in each run.
    let columns = MEASURES.into_iter().chain([
        Column::bytes("size").label(),
        Column::count("times", "times"),
        Column::address("start").label(),
        Column::address("end").label(),
        Column::bytes("start offset").label(),
        Column::bytes("end offset").label(),
        Column::address("first").label(),
        Column::address("last").label(),
        Column::text("range").key(),
    ]);
    let table = report.typed_table(By::Data, "data ranges", columns);
    for ((range, name), sum) in ranges.iter().zip(names).zip(totals) {
        let [loads, stores, bytes, misses] = sum.cells();
        let [start, end] = bounds(range);
        let [first, last] = touched(range);
        let (size, times) = (range.size.load(Relaxed), range.times.load(Relaxed));
        table.row([
            loads,
            stores,
            bytes,
            misses,
            size.into(),
            times.into(),
            start,
            end,
            0.into(),
            0.into(),
            first,
            last,
            (*name).into(),
        ]);
    }
}

/// References and misses of each instruction, to data of any kind.
fn everything(rows: AllRows, executed: Counters, operands: &[Operand]) -> BTreeMap<u32, [u64; 2]> {
    let mut seen: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    for operand in operands {
        let [times] = executed.at(operand.block as usize).get();
        let sum = seen.entry(operand.site).or_default();
        sum[0] = sum[0].wrapping_add(times * u64::from(operand.each));
    }
    for thread in rows.iter() {
        for (row, operand) in thread.iter().zip(operands) {
            let sum = seen.entry(operand.site).or_default();
            sum[0] = sum[0].wrapping_add(row[model::EXTRA].get());
            sum[1] += row[model::MISSES].get();
        }
    }
    seen
}

fn by_code(
    report: &mut Report,
    [names, code_names]: [&[&'static str]; 2],
    codes: &[CodeSite],
    sums: &Sums,
    seen: &BTreeMap<u32, [u64; 2]>,
) {
    if code_names.is_empty() {
        return;
    }
    let mut of_site: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut all = vec![[0u64; 2]; code_names.len()];
    for CodeSite { site, code } in codes {
        of_site.entry(*site).or_default().push(*code);
        if let (Some(sum), Some(n)) = (all.get_mut(*code as usize), seen.get(site)) {
            *sum = [sum[0] + n[0], sum[1] + n[1]];
        }
    }
    let columns = [
        Column::count("references", "references"),
        Column::count("misses", "misses"),
        Column::percent_of("miss %", "misses", "references"),
        Column::text("code").key(),
    ];
    let table = report.typed_table(By::Other, "code ranges", columns);
    for (n, name) in all.iter().zip(code_names) {
        table.row([
            n[0].into(),
            n[1].into(),
            Cell::percent(n[1], n[0]),
            (*name).into(),
        ]);
    }
    if names.is_empty() {
        return;
    }
    let mut both: BTreeMap<(u32, u32), Sum> = BTreeMap::new();
    for ((range, site), sum) in sums {
        for code in of_site.get(site).into_iter().flatten() {
            both.entry((*range, *code)).or_default().add(*sum);
        }
    }
    let keys = [Column::text("code").key(), Column::text("range").key()];
    let columns = MEASURES.into_iter().chain(keys);
    let table = report.typed_table(By::Other, "data in code", columns);
    for ((range, code), sum) in both {
        let [loads, stores, bytes, misses] = sum.cells();
        let name = |names: &[&'static str], i: u32| names.get(i as usize).copied().unwrap_or("");
        let (code, range) = (name(code_names, code), name(names, range));
        table.row([loads, stores, bytes, misses, code.into(), range.into()]);
    }
}

fn by_place(report: &mut Report, names: &[&'static str], sites: Sites, sums: &Sums) {
    let name = |range: u32| names.get(range as usize).copied().unwrap_or("");
    let (range, pc) = (Column::text("range").key(), Column::address("pc"));
    let proc = Column::text("procedure");
    let columns = MEASURES.into_iter().chain([range, pc, proc]);
    let table = report.typed_table(By::Procedure, "procedures", columns);
    for (range, pc, site, sum) in grouped(sums, sites, |site| Some(site.proc_pc)) {
        let [loads, stores, bytes, misses] = sum.cells();
        let (pc, proc) = (Cell::Address(pc), site.proc.into());
        table.row([loads, stores, bytes, misses, name(range).into(), pc, proc]);
    }
    let lines = grouped(sums, sites, |site| {
        let object = Address(site.proc_pc).object_number();
        (site.line != 0).then_some((site.file, site.line, object))
    });
    if !lines.is_empty() {
        let line = Column::place("line").key();
        let columns = MEASURES.into_iter().chain([range, line, proc]);
        let mut procs: BTreeMap<u32, LineProcs> = BTreeMap::new();
        for (range, site) in sums.keys() {
            if let Some(site) = sites.get(*site as usize) {
                procs.entry(*range).or_default().add(&site);
            }
        }
        let table = report.typed_table(By::Line, "lines", columns);
        for (range, _, site, sum) in lines {
            let [loads, stores, bytes, misses] = sum.cells();
            let (line, proc) = (site.place(), Cell::Text(procs[&range].label(&site)));
            table.row([loads, stores, bytes, misses, name(range).into(), line, proc]);
        }
    }
    let columns = MEASURES.into_iter().chain([range, pc]);
    let table = report.typed_table(By::Instruction, "instructions", columns);
    table.readers(Readers::Programs);
    for (range, pc, _, sum) in grouped(sums, sites, |site| Some(site.pc)) {
        let [loads, stores, bytes, misses] = sum.cells();
        table.row([
            loads,
            stores,
            bytes,
            misses,
            name(range).into(),
            Cell::Address(pc),
        ]);
    }
}

/// Writes one line for each range at each instruction, which other programs can add up.
fn write_csv(name: &str, names: &[&'static str], sites: Sites, sums: &Sums) -> io::Result<()> {
    let mut file: Box<dyn Write> = match name {
        "-" => Box::new(io::stdout().lock()),
        _ => Box::new(output::create(name)?),
    };
    writeln!(
        file,
        "range,procedure,file,line,pc,loads,stores,bytes,misses"
    )?;
    for (range, pc, site, sum) in grouped(sums, sites, |site| Some(site.pc)) {
        let range = names.get(range as usize).copied().unwrap_or("");
        let words = [range, site.proc, site.file].map(quoted);
        let (
            line,
            Sum {
                loads,
                stores,
                bytes,
                misses,
            },
        ) = (site.line, sum);
        let (words, pc) = (words.join(","), Address(pc));
        writeln!(
            file,
            "{words},{line},{pc},{loads},{stores},{bytes},{misses}"
        )?;
    }
    file.flush()
}

/// A text as a field of comma-separated values, quoted if necessary.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
