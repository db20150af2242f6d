//! The report: by procedure, line and instruction, the best model of each kind first.

use std::collections::BTreeMap;

use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers};
use atom_tool::{Address, Counters, LineProcs};

use crate::returns::{OUTSIDE, WRONG};
use crate::thread::{BranchCounts, Counts, GSHARE, JumpCounts, MODELS, TAGE, TWO_BIT};

/// Names of the models of conditional branches.
const NAMES: [&str; MODELS] = ["2-bit", "gshare", "tage"];

/// What the report is made of. Sites are conditional branches, then jumps through pointers, then returns.
pub struct Parts {
    pub counts: Counts,
    /// Bit set of the models that were simulated.
    pub models: u32,
    pub sites: Sites,
    pub returns: Counters,
    pub wrong: Counters<2>,
}

/// Sums of a part of the program.
#[derive(Clone, Copy, Default)]
struct Sums {
    branches: BranchCounts,
    jumps: JumpCounts,
    returns: u64,
    wrong_returns: u64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.branches.executed += other.branches.executed;
        self.branches.taken += other.branches.taken;
        for model in 0..MODELS {
            self.branches.wrong[model] += other.branches.wrong[model];
        }
        self.jumps.executed += other.jumps.executed;
        self.jumps.buffer += other.jumps.buffer;
        self.jumps.path += other.jumps.path;
        self.returns += other.returns;
        self.wrong_returns += other.wrong_returns;
    }

    fn executed(&self) -> u64 {
        self.branches.executed + self.jumps.executed + self.returns
    }

    /// Wrong predictions of the best models.
    fn wrong(&self, best: Option<usize>) -> u64 {
        let branches = best.map_or(0, |model| self.branches.wrong[model]);
        branches + self.jumps.path + self.wrong_returns
    }
}

impl Parts {
    /// The models that were simulated.
    fn models(&self) -> impl Iterator<Item = usize> {
        let models = self.models;
        [TWO_BIT, GSHARE, TAGE]
            .into_iter()
            .filter(move |model| models >> model & 1 != 0)
    }

    /// The model that stands for conditional branches in sums.
    fn best(&self) -> Option<usize> {
        self.models().last()
    }

    /// All sites that were reached, with their sums.
    fn reached(&self) -> Vec<(Site, Sums)> {
        let (branches, jumps) = (&self.counts.branches, &self.counts.jumps);
        let of = |number: usize| {
            let mut sums = Sums::default();
            if let Some(branch) = branches.get(number) {
                sums.branches = *branch;
            } else if let Some(jump) = jumps.get(number - branches.len()) {
                sums.jumps = *jump;
            } else {
                let number = number - branches.len() - jumps.len();
                let counted = self.wrong.at(number).get();
                let [executed] = self.returns.at(number).get();
                // Returns to code that is not instrumented are not predicted.
                sums.returns = executed.saturating_sub(counted[OUTSIDE]);
                sums.wrong_returns = counted[WRONG];
            }
            (sums.executed() != 0).then_some(sums)
        };
        self.sites.with(of).collect()
    }
}

/// Writes all files.
pub fn write(files: Files, program: &str, parts: &Parts) {
    let reached = parts.reached();
    let mut all = Sums::default();
    reached.iter().for_each(|(_, sums)| all.add(sums));
    let mut report = Report::new("predict", program);
    facts(&mut report, parts, &all);
    let by_proc = |site: &Site| Some((site.proc_pc, "", 0));
    places(
        &mut report,
        parts,
        &reached,
        (By::Procedure, "procedures"),
        by_proc,
    );
    let by_line = |site: &Site| {
        let object = Address(site.proc_pc).object_number() as u64;
        (site.line != 0).then_some((object, site.file, site.line))
    };
    places(&mut report, parts, &reached, (By::Line, "lines"), by_line);
    branches(&mut report, parts, &reached);
    jumps(&mut report, &reached);
    returns(&mut report, &reached);
    instructions(&mut report, parts, &reached);
    report.write(files);
}

fn facts(report: &mut Report, parts: &Parts, all: &Sums) {
    let branches = all.branches;
    report.typed_fact(Column::count("branches", "branches"), branches.executed);
    const WRONG_OF: [[&str; 2]; MODELS] = [
        ["2-bit wrong", "2-bit wrong %"],
        ["gshare wrong", "gshare wrong %"],
        ["tage wrong", "tage wrong %"],
    ];
    for model in parts.models() {
        let [name, share] = WRONG_OF[model];
        let wrong = branches.wrong[model];
        ratio(
            report,
            [name, share, "branches"],
            [wrong, branches.executed],
        );
    }
    let jumps = all.jumps;
    report.typed_fact(Column::count("jumps", "jumps"), jumps.executed);
    let whole = "jumps";
    ratio(
        report,
        ["buffer wrong", "buffer wrong %", whole],
        [jumps.buffer, jumps.executed],
    );
    ratio(
        report,
        ["path wrong", "path wrong %", whole],
        [jumps.path, jumps.executed],
    );
    report.typed_fact(Column::count("executed returns", "returns"), all.returns);
    let names = ["returns wrong", "returns wrong %", "executed returns"];
    ratio(report, names, [all.wrong_returns, all.returns]);
}

/// Adds a number of wrong predictions, and its share.
fn ratio(report: &mut Report, names: [&'static str; 3], [wrong, all]: [u64; 2]) {
    let [name, share, whole] = names;
    report
        .typed_fact(Column::count(name, "mispredictions"), wrong)
        .typed_fact(
            Column::percent_of(share, name, whole),
            Cell::percent(wrong, all),
        );
}

/// Adds a table by procedure or by line; `key` tells what sites have in common.
fn places<'a>(
    report: &mut Report,
    parts: &Parts,
    reached: &'a [(Site, Sums)],
    (by, title): (By, &'static str),
    key: impl Fn(&'a Site) -> Option<(u64, &'static str, u32)>,
) {
    let mut sums: BTreeMap<(u64, &str, u32), (Site, Sums)> = BTreeMap::new();
    for (site, counts) in reached {
        if let Some(key) = key(site) {
            let entry = sums.entry(key).or_insert((*site, Sums::default()));
            entry.1.add(counts);
        }
    }
    if sums.is_empty() && by == By::Line {
        return;
    }
    let best = parts.best();
    let total: u64 = sums.values().map(|(_, sums)| sums.wrong(best)).sum();
    let mut columns = vec![
        Column::count("mispredicted", "mispredictions"),
        Column::share("%", "mispredicted"),
        Column::count("executed", "branches"),
        Column::percent_of("wrong %", "mispredicted", "executed"),
    ];
    columns.extend(
        parts
            .models()
            .map(|model| Column::count(NAMES[model], "mispredictions")),
    );
    columns.push(Column::count("indirect", "mispredictions"));
    columns.push(Column::count("returns", "mispredictions"));
    match by {
        By::Line => columns.push(Column::place("line").key()),
        _ => columns.push(Column::address("pc")),
    }
    columns.push(Column::text("procedure"));
    let mut procs = LineProcs::default();
    reached.iter().for_each(|(site, _)| procs.add(site));
    let table = report.typed_table(by, title, columns);
    for (site, sums) in sums.into_values() {
        let (wrong, executed) = (sums.wrong(best), sums.executed());
        let mut row = vec![
            wrong.into(),
            Cell::percent(wrong, total),
            executed.into(),
            Cell::percent(wrong, executed),
        ];
        row.extend(
            parts
                .models()
                .map(|model| Cell::Number(sums.branches.wrong[model])),
        );
        row.push(sums.jumps.path.into());
        row.push(sums.wrong_returns.into());
        match by {
            By::Line => row.extend([site.place(), Cell::Text(procs.label(&site))]),
            _ => row.extend([Cell::Address(site.proc_pc), site.proc.into()]),
        }
        table.row_of(row);
    }
    table.sort(2).sort(0);
}

fn branches(report: &mut Report, parts: &Parts, reached: &[(Site, Sums)]) {
    let mut columns = vec![
        Column::count("executed", "branches"),
        Column::count("taken", "branches"),
        Column::count("not taken", "branches"),
    ];
    columns.extend(
        parts
            .models()
            .map(|model| Column::count(NAMES[model], "mispredictions")),
    );
    let best = parts.best();
    if let Some(best) = best {
        columns.push(Column::percent_of("wrong %", NAMES[best], "executed"));
    }
    columns.extend([
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ]);
    let table = report.typed_table(By::Branch, "conditional branches", columns);
    for (site, sums) in reached
        .iter()
        .filter(|(_, sums)| sums.branches.executed != 0)
    {
        let counts = sums.branches;
        let mut row = vec![
            counts.executed.into(),
            counts.taken.into(),
            (counts.executed - counts.taken).into(),
        ];
        row.extend(
            parts
                .models()
                .map(|model| Cell::Number(counts.wrong[model])),
        );
        if let Some(best) = best {
            row.push(Cell::percent(counts.wrong[best], counts.executed));
        }
        row.extend([Cell::Address(site.pc), site.place(), site.proc.into()]);
        table.row_of(row);
    }
    table.sort(0);
    if best.is_some() {
        // After the three counts are the models; the last one is the best.
        table.sort(2 + parts.models().count());
    }
}

fn jumps(report: &mut Report, reached: &[(Site, Sums)]) {
    let columns = [
        Column::count("executed", "jumps"),
        Column::count("buffer", "mispredictions"),
        Column::count("path", "mispredictions"),
        Column::percent_of("wrong %", "path", "executed"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Other, "indirect jumps and calls", columns);
    for (site, sums) in reached.iter().filter(|(_, sums)| sums.jumps.executed != 0) {
        let counts = sums.jumps;
        table.row([
            counts.executed.into(),
            counts.buffer.into(),
            counts.path.into(),
            Cell::percent(counts.path, counts.executed),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0).sort(2);
}

fn returns(report: &mut Report, reached: &[(Site, Sums)]) {
    let columns = [
        Column::count("executed", "returns"),
        Column::count("mispredicted", "mispredictions"),
        Column::percent_of("wrong %", "mispredicted", "executed"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Other, "returns", columns);
    for (site, sums) in reached.iter().filter(|(_, sums)| sums.returns != 0) {
        table.row([
            sums.returns.into(),
            sums.wrong_returns.into(),
            Cell::percent(sums.wrong_returns, sums.returns),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0).sort(1);
}

/// What `atom annotate` shows beside the code.
fn instructions(report: &mut Report, parts: &Parts, reached: &[(Site, Sums)]) {
    let columns = [
        Column::count("mispredicted", "mispredictions"),
        Column::count("executed", "branches"),
        Column::address("pc"),
    ];
    let table = report.typed_table(By::Instruction, "instructions", columns);
    table.readers(Readers::Programs);
    for (site, sums) in reached {
        let wrong = sums.wrong(parts.best());
        table.row([wrong.into(), sums.executed().into(), Cell::Address(site.pc)]);
    }
}
