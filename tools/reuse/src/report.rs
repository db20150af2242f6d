//! The report: miss ratios, procedures, data, working sets, and the histogram itself.

use std::collections::BTreeMap;

use atom_tool::notes::NoteBuffer;
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers, Sum};
use atom_tool::{AllThreads, PathNames};

use crate::Cache;
use crate::data::{ELSEWHERE, Numbered, STACK, UNNAMED};
use crate::heap::{self, Origin};
use crate::histogram::{self, BINS, Histogram};
use crate::thread::{self, Counts, Interval, PARTS, Run};

/// An interval of a thread.
struct Set {
    thread: u64,
    /// Number of the thread's references before it.
    start: u64,
    interval: Interval,
}

/// Names of procedures and variables.
pub struct Places {
    pub sites: Sites,
    /// The procedures and calls of call paths.
    pub procs: Sites,
    pub calls: Sites,
    pub names: Strings,
}

/// Writes all files. `facts_known` are names and texts of facts that are known beforehand; empty ones are left out.
pub fn write(
    files: Files,
    program: &str,
    run: &Run,
    all: AllThreads<NoteBuffer>,
    places: &Places,
    facts_known: [(&'static str, String); 2],
) {
    let mut counts = Counts::new();
    let mut rows = Vec::new();
    let mut threads = 0;
    thread::end(all, |own, current| {
        threads += 1;
        counts.merge(own);
        let last = Some(current).filter(|last| last.lines != 0);
        for (number, interval) in own.intervals.iter().copied().chain(last).enumerate() {
            rows.push(Set {
                thread: threads,
                start: number as u64 * run.interval,
                interval,
            });
        }
    });
    let mut report = Report::new("reuse", program);
    facts(&mut report, run, &counts, threads);
    for (name, text) in facts_known.into_iter().filter(|fact| !fact.1.is_empty()) {
        report.fact(name, text);
    }
    ratios(&mut report, run, &counts);
    procedures(&mut report, run, &counts, places.sites);
    data(&mut report, run, &counts, places);
    if run.interval != 0 {
        working_sets(&mut report, run, &rows);
    }
    distances(&mut report, run, &counts.all);
    report.write(files);
}

fn facts(report: &mut Report, run: &Run, counts: &Counts, threads: u64) {
    let line = 1u64 << run.line;
    report
        .typed_fact(Column::count("references", "references"), counts.references)
        .typed_fact(
            Column::count("lines", "lines").sum(Sum::None),
            counts.lines * run.sample,
        )
        .typed_fact(
            Column::bytes("footprint").sum(Sum::None),
            counts.lines * run.sample * line,
        )
        .typed_fact(Column::bytes("line").sum(Sum::Max), line)
        .typed_fact(Column::count("threads", "threads"), threads);
    if run.sample != 1 {
        report
            .typed_fact(Column::count("sample", "lines").sum(Sum::Max), run.sample)
            .typed_fact(
                Column::count("references in the sample", "references"),
                counts.all.references(),
            );
    }
    if counts.lost != 0 {
        report.typed_fact(Column::count("lost", "notes"), counts.lost);
    }
}

/// Percentage of the run's references that miss a cache of `lines` lines, of which `misses` are in the histogram.
/// Each reference of a sample stands for [`Run::sample`] references. The divisor is the number of all references, which
/// is known exactly: so a line with a large share of the references, nearly all of them hits, changes the ratio little
/// whether the sample has the line or not.
fn miss_ratio(misses: f64, run: &Run, counts: &Counts) -> f64 {
    match counts.references {
        0 => 0.0,
        all => misses * run.sample as f64 * 100.0 / all as f64,
    }
}

/// Standard error of the misses in the sample, from its two causes: which references the sample has, and how well
/// distances are known.
fn error(run: &Run, counts: &Counts, lines: u64) -> f64 {
    let of_references = error_of_references(&counts.sampled, lines);
    of_references.hypot(error_of_distances(&counts.all, run.sample, lines))
}

/// The first part of [`error`], by the differences of the parts of the sample: each part is a sample by itself.
fn error_of_references(parts: &[Histogram], lines: u64) -> f64 {
    let misses = || parts.iter().map(|part| part.misses(lines) as f64);
    let number = PARTS as f64;
    let mean = misses().sum::<f64>() / number;
    let squares: f64 = misses().map(|misses| (misses - mean).powi(2)).sum();
    (squares * number / (number - 1.0)).sqrt()
}

/// The second part of [`error`]. Of `lines` lines the sample has `lines / sample` in the mean; how many it has in truth
/// is distributed binomially. Each relative error of the distances moves the references that are as near to the limit.
fn error_of_distances(histogram: &Histogram, sample: u64, lines: u64) -> f64 {
    let relative = (sample.saturating_sub(1) as f64 / lines as f64).sqrt();
    let around = |factor: f64| histogram::bin((lines as f64 * factor) as u64);
    // At least the bins on both sides of the limit.
    let at = histogram::bin(lines);
    let first = around(1.0 / (1.0 + relative)).min(at.saturating_sub(1));
    let last = around(1.0 + relative).max(at);
    let near: u64 = histogram.bins[first..=last].iter().sum();
    let width = histogram::start(last + 1) as f64 / histogram::start(first).max(1) as f64;
    near as f64 / width.ln() * relative
}

/// Miss ratios of fully associative caches by size.
fn ratios(report: &mut Report, run: &Run, counts: &Counts) {
    let is_sample = run.sample != 1;
    let mut columns = vec![
        Column::bytes("cache").key(),
        Column::count("lines", "lines").sum(Sum::Max),
        Column::count("misses", "references"),
        Column::ratio("miss %"),
    ];
    if is_sample {
        columns.push(Column::ratio("error %"));
    }
    let table = report.typed_table(By::Other, "miss ratios", columns);
    for power in 0..histogram_powers(&counts.all) {
        let lines = 1u64 << power;
        let mut row = vec![
            Cell::Number(lines << run.line),
            lines.into(),
            counts.all.misses(lines).into(),
            Cell::Ratio(miss_ratio(counts.all.misses(lines) as f64, run, counts)),
        ];
        if is_sample {
            let error = error(run, counts, lines);
            row.push(Cell::Ratio(miss_ratio(error, run, counts)));
        }
        table.row_of(row);
    }
}

/// Number of powers of two until only first touches miss.
fn histogram_powers(histogram: &Histogram) -> u32 {
    let last = histogram.bins.iter().rposition(|n| *n != 0).unwrap_or(0);
    histogram::start(last)
        .checked_ilog2()
        .map_or(1, |power| power + 2)
}

/// The columns of tables by procedure and by data.
fn columns(run: &Run) -> Vec<Column> {
    // The first one is the measure by which rows are ranked.
    let caches = run.caches.iter();
    let misses = caches.map(|cache| Column::count(cache.name, "references"));
    misses
        .chain([
            Column::count("references", "references"),
            Column::share("%", "references"),
            Column::count("first touches", "references"),
        ])
        .collect()
}

fn cells(histogram: &Histogram, run: &Run, total: u64) -> Vec<Cell> {
    let references = histogram.references();
    let misses = |cache: &Cache| histogram.misses((cache.bytes >> run.line).max(1));
    let caches = run.caches.iter().map(|cache| misses(cache).into());
    caches
        .chain([
            references.into(),
            Cell::percent(references, total),
            histogram.first.into(),
        ])
        .collect()
}

fn procedures(report: &mut Report, run: &Run, counts: &Counts, sites: Sites) {
    let mut columns = columns(run);
    columns.extend([
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ]);
    let total = counts.all.references();
    let table = report.typed_table(By::Procedure, "procedures", columns);
    for (number, histogram) in counts.procs.iter() {
        let Some(site) = sites.get(number as usize) else {
            continue;
        };
        let mut row = cells(histogram, run, total);
        row.extend([Cell::Address(site.pc), site.place(), site.proc.into()]);
        table.row_of(row);
    }
    // By misses of the smallest cache, and where those are equal by references.
    table.sort(run.caches.len()).sort(0);
    let all = counts.procs.iter().filter_map(|(number, histogram)| {
        let site = sites.get(number as usize)?;
        Some((site.proc_of_process().into_owned(), histogram))
    });
    by_distance(report, "distances by procedure", "procedure", all);
}

/// What an allocation's callers are called: `insert (tree.c:17) < main (tree.c:40)`.
fn origin_name(origin: &Origin, places: &Places) -> String {
    let site = |sites: &Sites, number: u32| sites.get((number as usize).checked_sub(1)?);
    let mut names = PathNames::default();
    let mut caller = |[call, proc]: &[u32; 2]| {
        let proc = site(&places.procs, *proc);
        let name = names.next(proc.as_ref());
        let name = name.unwrap_or_else(|| "(start)".to_owned());
        let Some(call) = site(&places.calls, *call) else {
            return name;
        };
        let address = || format!("{:#x}", Address(call.pc).in_file());
        format!("{name} ({})", call.short_line().unwrap_or_else(address))
    };
    // What calls `main` is of no interest.
    let is_main = |proc: u32| site(&places.procs, proc).is_some_and(|proc| proc.proc == "main");
    let callers = &origin.key.callers;
    let main = callers.iter().position(|[_, proc]| is_main(*proc));
    let callers = &callers[..main.map_or(callers.len(), |main| main + 1)];
    let mut callers: Vec<String> = callers.iter().map(&mut caller).collect();
    // The start of a thread has called nothing that is of interest.
    if callers.len() > 1 && callers.last().is_some_and(|last| last == "(start)") {
        callers.pop();
    }
    let kind = if origin.key.is_mapping {
        "mapped"
    } else {
        "heap"
    };
    if callers.is_empty() {
        format!("{kind}: (Go's runtime)")
    } else {
        format!("{kind}: {}", callers.join(" < "))
    }
}

/// A row of the table of data.
struct Row {
    histogram: Histogram,
    /// Number of blocks, if it has any.
    blocks: Option<u64>,
    /// Size in bytes, of all blocks together, if it is known.
    bytes: Option<u64>,
}

/// The rows of the table of data by their names. Origins of the same name, such as two calls in a line, are one.
fn rows_of_data(run: &Run, counts: &Counts, places: &Places) -> BTreeMap<String, Row> {
    let mut origins = Vec::new();
    heap::origins(|origin| {
        let name = origin_name(origin, places);
        origins.push((name, Some(origin.blocks), Some(origin.bytes)));
    });
    let named = |number: u32| {
        let name = match number {
            ELSEWHERE => "(other memory)",
            UNNAMED => "(data without a symbol)",
            STACK => "(stack of the first thread)",
            number => {
                return match Numbered::of(number) {
                    Numbered::Origin(place) => origins.get(place).cloned(),
                    Numbered::Variable(place) => run.memory.variables.get(place).map(|variable| {
                        let name = places.names.get(variable.name).to_owned();
                        (name, None, Some(variable.size.into()))
                    }),
                };
            }
        };
        Some((name.to_owned(), None, None))
    };
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (number, histogram) in counts.data.iter() {
        let Some((name, blocks, bytes)) = named(number) else {
            continue;
        };
        let histogram = || histogram.clone();
        rows.entry(name)
            .and_modify(|row| {
                row.histogram.merge(&histogram());
                let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
                (row.blocks, row.bytes) = (sum(row.blocks, blocks), sum(row.bytes, bytes));
            })
            .or_insert_with(|| Row {
                histogram: histogram(),
                blocks,
                bytes,
            });
    }
    rows
}

fn data(report: &mut Report, run: &Run, counts: &Counts, places: &Places) {
    let mut columns = columns(run);
    columns.extend([
        Column::count("blocks", "blocks"),
        Column::bytes("size"),
        Column::text("data").key(),
    ]);
    let total = counts.all.references();
    let table = report.typed_table(By::Data, "data", columns);
    let cell = |number: Option<u64>| number.map_or(Cell::Empty, Cell::Number);
    let rows = rows_of_data(run, counts, places);
    for (name, row) in &rows {
        let mut cells = cells(&row.histogram, run, total);
        cells.extend([cell(row.blocks), cell(row.bytes), name.clone().into()]);
        table.row_of(cells);
    }
    // By misses of the smallest cache, and where those are equal by references.
    table.sort(run.caches.len()).sort(0);
    let all = rows
        .iter()
        .map(|(name, row)| (name.clone(), &row.histogram));
    by_distance(report, "distances by data", "data", all);
}

fn working_sets(report: &mut Report, run: &Run, rows: &[Set]) {
    let columns = [
        Column::count("thread", "threads").sum(Sum::None),
        Column::count("from reference", "references").sum(Sum::None),
        Column::count("lines", "lines").sum(Sum::None),
        Column::bytes("bytes").sum(Sum::None),
        Column::count("new lines", "lines").sum(Sum::None),
    ];
    let table = report.typed_table(By::Other, "working set", columns);
    for row in rows {
        let lines = row.interval.lines * run.sample;
        table.row([
            row.thread.into(),
            row.start.into(),
            lines.into(),
            (lines << run.line).into(),
            (row.interval.new * run.sample).into(),
        ]);
    }
}

/// The histogram: bins that are not empty, then first touches.
fn distances(report: &mut Report, run: &Run, histogram: &Histogram) {
    let columns = [
        Column::text("distance").key(),
        Column::bytes("bytes").sum(Sum::Max),
        Column::count("references", "references"),
        Column::share("%", "references"),
    ];
    let total = histogram.references();
    let table = report.typed_table(By::Other, "distances", columns);
    for (bin, count) in histogram.bins.iter().enumerate().filter(|(_, n)| **n != 0) {
        let start = histogram::start(bin);
        table.row([
            start.to_string().into(),
            (start << run.line).into(),
            (*count).into(),
            Cell::percent(*count, total),
        ]);
    }
    if histogram.first != 0 {
        let share = Cell::percent(histogram.first, total);
        table.row([
            "first touch".into(),
            Cell::Empty,
            histogram.first.into(),
            share,
        ]);
    }
}

/// For programs: the histogram of each procedure or variable.
fn by_distance<'a>(
    report: &mut Report,
    title: &'static str,
    what: &'static str,
    all: impl Iterator<Item = (String, &'a Histogram)>,
) {
    let columns = [
        Column::text(what).key(),
        Column::text("distance").key(),
        Column::count("references", "references"),
    ];
    let table = report.typed_table(By::Other, title, columns);
    table.readers(Readers::Programs);
    for (name, histogram) in all {
        for bin in (0..BINS).filter(|bin| histogram.bins[*bin] != 0) {
            table.row([
                name.clone().into(),
                histogram::start(bin).to_string().into(),
                histogram.bins[bin].into(),
            ]);
        }
        if histogram.first != 0 {
            let first = Cell::Number(histogram.first);
            table.row([name.into(), "first touch".into(), first]);
        }
    }
}
