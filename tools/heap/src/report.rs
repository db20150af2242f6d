//! The tables.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers, Sum};

use crate::Settings;
use crate::exports;
use crate::found::{Found, Path, sum};

/// Largest number of procedures of a path that the tables for people show.
const SHOWN: usize = 8;

/// Writes the report and the other files.
pub fn write(found: &Found<'_>, files: Files, settings: &Settings, texts: Strings) {
    let mut texts = texts.iter();
    let program = texts.next().unwrap_or_default();
    let paths = found.paths();
    let names: Vec<&str> = texts.collect();
    exports::write(found, &paths, program, settings.measure as usize, &names);

    let mut report = Report::new("heap", program);
    let bad_frees = paths.values().map(|path| path.bad_frees).sum();
    facts(&mut report, found, settings, bad_frees);
    tables(&mut report, found, &found.by_text(&paths, SHOWN));
    procedures(&mut report, found, &paths);
    timeline(&mut report, found);
    report.write(files);
}

fn facts(report: &mut Report, found: &Found<'_>, settings: &Settings, bad_frees: u64) {
    let totals = &found.heap.totals;
    let blocks = |name| Column::count(name, "blocks");
    let most = |column: Column| column.sum(Sum::Max);
    report
        .typed_fact(blocks("allocations"), totals.allocations)
        .typed_fact(
            Column::count("reallocations", "calls"),
            totals.reallocations,
        )
        .typed_fact(Column::count("frees", "calls"), totals.frees)
        .typed_fact(Column::bytes("bytes allocated"), totals.bytes)
        .typed_fact(most(Column::bytes("bytes at the peak")), totals.peak[1])
        .typed_fact(most(blocks("blocks at the peak")), totals.peak[0])
        .typed_fact(
            Column::seconds("time of the peak").sum(Sum::None),
            Cell::Ratio(found.ms(totals.peak_time) / 1000.0),
        )
        .typed_fact(Column::bytes("bytes never freed"), totals.live[1])
        .typed_fact(blocks("blocks never freed"), totals.live[0])
        .typed_fact(Column::count("bad frees", "calls"), bad_frees)
        .typed_fact(Column::count("failed allocations", "calls"), totals.failed);
    if totals.unseen_frees != 0 {
        report.typed_fact(
            blocks("blocks whose free was not seen"),
            totals.unseen_frees,
        );
    }
    if totals.inherited != 0 {
        report.typed_fact(
            blocks("blocks of the parent that were freed"),
            totals.inherited,
        );
    }
    if settings.has_unseen {
        report.fact(
            "not seen",
            "what libraries allocate and free; frees of their blocks are bad frees here (not with `atom run`)",
        );
    }
}

fn tables(report: &mut Report, found: &Found<'_>, paths: &[(String, Path)]) {
    let totals = &found.heap.totals;
    let ms = |path: &Path| match path.freed {
        0 => Cell::Empty,
        freed => Cell::Ratio(path.lifetimes as f64 / freed as f64 / found.ticks_per_ms),
    };
    let columns = [
        Column::bytes("bytes"),
        Column::share("%", "bytes"),
        Column::count("allocations", "blocks"),
        Column::bytes("largest").sum(Sum::Max),
        Column::bytes("peak").sum(Sum::Max),
        Column::bytes("never freed"),
        Column::ratio("lifetime ms"),
        Column::text("path").key(),
    ];
    let table = report.typed_table(By::Other, "allocations by call path", columns);
    let mut order: Vec<&(String, Path)> =
        paths.iter().filter(|(_, p)| p.allocations != 0).collect();
    order.sort_by_key(|(_, path)| Reverse(path.bytes));
    for (text, path) in order {
        table.row([
            path.bytes.into(),
            Cell::percent(path.bytes, totals.bytes),
            path.allocations.into(),
            path.largest.into(),
            path.peak[1].into(),
            path.end[1].into(),
            ms(path),
            text.clone().into(),
        ]);
    }
    type Of = fn(&Path) -> [u64; 2];
    let more: [(&'static str, u64, Of); 2] = [
        ("live at the peak", totals.peak[1], |path| path.peak),
        ("never freed", totals.live[1], |path| path.end),
    ];
    for (title, whole, of) in more {
        let columns = [
            Column::bytes("bytes"),
            Column::share("%", "bytes"),
            Column::count("blocks", "blocks"),
            Column::text("path"),
        ];
        let table = report
            .typed_table(By::Other, title, columns)
            .readers(Readers::People);
        for (text, path) in paths.iter().filter(|(_, path)| of(path)[0] != 0) {
            let [blocks, bytes] = of(path);
            let text = text.clone().into();
            table.row([
                bytes.into(),
                Cell::percent(bytes, whole),
                blocks.into(),
                text,
            ]);
        }
        table.sort(0);
    }
    if paths.iter().any(|(_, path)| path.bad_frees != 0) {
        let columns = [
            Column::count("bad frees", "calls"),
            Column::text("path").key(),
        ];
        let table = report.typed_table(By::Other, "frees of no live block", columns);
        for (text, path) in paths.iter().filter(|(_, path)| path.bad_frees != 0) {
            table.row([path.bad_frees.into(), text.clone().into()]);
        }
        table.sort(0);
    }
}

/// The procedures that allocate: the first ones outside of the allocator and of what allocates for its callers.
fn procedures(report: &mut Report, found: &Found<'_>, paths: &BTreeMap<usize, Path>) {
    let mut procs: BTreeMap<u64, (Site, Path)> = BTreeMap::new();
    for (node, path) in paths {
        let caller = found.tree.nodes[found.outside(*node)].parent;
        let Some(site) = found.sites.proc(&found.tree.nodes[caller]) else {
            continue;
        };
        let of_proc = &mut procs.entry(site.pc).or_insert((site, Path::default())).1;
        of_proc.bytes += path.bytes;
        of_proc.allocations += path.allocations;
        of_proc.peak = sum(of_proc.peak, path.peak);
        of_proc.end = sum(of_proc.end, path.end);
    }
    let columns = [
        Column::bytes("bytes"),
        Column::share("%", "bytes"),
        Column::count("allocations", "blocks"),
        Column::bytes("peak").sum(Sum::Max),
        Column::bytes("never freed"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Procedure, "procedures", columns);
    for (site, path) in procs
        .into_values()
        .filter(|(_, path)| path.allocations != 0)
    {
        table.row([
            path.bytes.into(),
            Cell::percent(path.bytes, found.heap.totals.bytes),
            path.allocations.into(),
            path.peak[1].into(),
            path.end[1].into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
}

/// Live bytes over time, for programs.
fn timeline(report: &mut Report, found: &Found<'_>) {
    let columns = [
        Column::count("microseconds", "").key(),
        Column::bytes("live").sum(Sum::None),
    ];
    let table = report
        .typed_table(By::Other, "live bytes over time", columns)
        .readers(Readers::Programs);
    for (time, bytes) in &found.heap.timeline.samples {
        let microseconds = (found.ms(*time) * 1000.0) as u64;
        table.row([microseconds.into(), (*bytes).into()]);
    }
}
