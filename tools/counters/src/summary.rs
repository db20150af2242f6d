//! The report: what procedures took and counted, and what follows from it.

use std::io::Write;

use atom_tool::{Cell, Files, Report};
use events::perf::Reading;
use events::{Exact, Model, Source};

use crate::book::Sums;
use crate::cost::{self, MEASURES};
use crate::meters::Meters;
use crate::rows;
use crate::settings::Run;

/// What all threads have found.
pub struct Found {
    run: &'static Run,
    /// What instrumentation has counted in all, by number in the set.
    totals: Vec<Option<u64>>,
    sums: Vec<Option<Sums>>,
    threads: u64,
    pub unmatched: u64,
    pub left: u64,
    pub lost: u64,
    /// Of each meter: nanoseconds wanted, nanoseconds counted, how it is read.
    meters: Vec<(u64, u64, &'static str)>,
}

impl Found {
    pub fn new(run: &'static Run, cells: &[u64]) -> Self {
        // A forked child has its parent's counts among its own.
        let is_first = std::process::id() == run.pid;
        let slots = run.settings.slots.iter();
        Self {
            run,
            totals: slots
                .map(|s| cells.get(s.cell?).copied().filter(|_| is_first))
                .collect(),
            sums: vec![None; run.procs.len()],
            threads: 0,
            unmatched: 0,
            left: 0,
            lost: 0,
            meters: Vec::new(),
        }
    }

    /// Adds what a thread has found.
    pub fn thread(&mut self, sums: &[Sums], meters: &Meters) {
        self.threads += 1;
        let times = meters.times();
        self.meters
            .resize(times.len().max(self.meters.len()), (0, 0, ""));
        for ((sum, reading), way) in self.meters.iter_mut().zip(&times).zip(meters.ways()) {
            let reading = reading.unwrap_or_default();
            sum.0 += reading.enabled;
            sum.1 += reading.running;
            sum.2 = way;
        }
        let kernels = self.run.settings.slots.iter().enumerate();
        let kernels: Vec<(usize, bool)> = kernels
            .filter(|(_, slot)| slot.cell.is_none())
            .map(|(i, slot)| (1 + i, slot.choice.event.source == Source::Hardware))
            .collect();
        for sums in sums {
            let mut sums = sums.clone();
            for ((i, is_hardware), reading) in kernels.iter().zip(&times) {
                // A counter that shares its register is taken to count as fast all the time.
                let is_shared = |r: &Reading| *is_hardware && r.running < r.enabled;
                if let Some(reading) = reading.filter(is_shared) {
                    let whole = |value| Reading { value, ..reading }.scaled();
                    sums.scale(*i, |value| whole(value).unwrap_or(0));
                }
            }
            match self.sums.get_mut(sums.proc as usize) {
                Some(Some(all)) => all.add(&sums),
                Some(none) => *none = Some(sums),
                None => {}
            }
        }
    }

    fn is_missing(&self, event: usize) -> bool {
        self.run.missing.iter().any(|(i, _)| *i == event)
    }
}

/// The title of a table of an event, for as long as the program runs.
fn leak(text: String) -> &'static str {
    text.leak()
}

/// Writes the report and the summary among the rows.
pub fn write(files: Files, found: &Found) {
    let run = found.run;
    let mut report = Report::new("counters", &run.settings.program);
    facts(&mut report, found);
    events_table(&mut report, found);
    procedures(&mut report, found);
    for event in 0..run.settings.slots.len() {
        if !found.is_missing(event) {
            values(&mut report, found, event);
        }
    }
    derived(&mut report, found);
    report.write(files);
    if !run.settings.csv.is_empty()
        && let Err(error) = write_csv(found)
    {
        eprintln!("counters: cannot write {error}");
    }
}

fn facts(report: &mut Report, found: &Found) {
    let (run, costs) = (found.run, cost::costs());
    let nanos = |ticks: u64| Cell::Ratio(ticks as f64 * run.nanos_per_tick());
    let sums = || found.sums.iter().flatten();
    let calls: u64 = sums().map(|s| s.calls).sum();
    report
        .fact("executions", calls)
        .fact("procedures executed", sums().count() as u64)
        .fact("procedures", run.procs.len() as u64)
        .fact("threads", found.threads)
        .fact("cost of a start and stop ns", nanos(costs.whole[0]))
        .fact("of it in the execution's own time ns", nanos(costs.own[0]))
        .fact("left over after subtraction ns", nanos(costs.residual));
    for (name, n) in [
        ("left without an exit", found.left),
        ("exits without an entry", found.unmatched),
        ("notes lost", found.lost),
    ] {
        if n != 0 {
            report.fact(name, n);
        }
    }
}

fn events_table(report: &mut Report, found: &Found) {
    let run = found.run;
    if run.settings.slots.is_empty() {
        return;
    }
    let columns = [
        "event",
        "source",
        "read by",
        "in all",
        "outside",
        "cost",
        "enabled ns",
        "running ns",
        "remark",
    ];
    let costs = cost::costs();
    let table = report.table("events", columns);
    let mut meters = found.meters.iter();
    for (i, slot) in run.settings.slots.iter().enumerate() {
        let meter = match slot.cell {
            None => meters.next(),
            Some(_) => None,
        };
        let attributed: u64 = found
            .sums
            .iter()
            .flatten()
            .map(|s| s.exclusive[1 + i])
            .sum();
        let number = |n: Option<u64>| n.map_or(Cell::Empty, Cell::Number);
        let missing = run.missing.iter().find(|(missing, _)| *missing == i);
        let times = meter.filter(|(enabled, _, _)| *enabled != 0);
        let total = found.totals[i];
        table.row([
            slot.choice.name.clone().into(),
            slot.choice.event.source.word().into(),
            match (meter, slot.cell) {
                (Some((_, _, way)), _) => (*way).into(),
                (None, Some(_)) => "instrumentation".into(),
                (None, None) => Cell::Empty,
            },
            number(total),
            number(total.map(|total| total.saturating_sub(attributed))),
            match missing {
                None => Cell::Number(costs.whole[1 + i]),
                Some(_) => Cell::Empty,
            },
            number(times.map(|t| t.0)),
            number(times.map(|t| t.1)),
            match missing {
                Some((_, message)) => message.clone().into(),
                None if slot.choice.event.source == Source::Hardware
                    && times.is_some_and(|t| t.1 < t.0) =>
                {
                    "shared a counter: scaled".into()
                }
                None => Cell::Empty,
            },
        ]);
    }
}

fn procedures(report: &mut Report, found: &Found) {
    let run = found.run;
    let columns = [
        "calls",
        "time ns",
        "self ns",
        "self %",
        "mean ns",
        "min ns",
        "max ns",
        "pc",
        "procedure",
        "line",
    ];
    let all: u64 = found.sums.iter().flatten().map(|s| s.exclusive[0]).sum();
    let table = report.table("procedures", columns);
    for sums in found.sums.iter().flatten() {
        let Some(site) = run.procs.get(sums.proc as usize) else {
            continue;
        };
        let nanos = |ticks: u64| Cell::Number((ticks as f64 * run.nanos_per_tick()) as u64);
        let [mean, least, most] = spread(sums, 0);
        table.row([
            sums.calls.into(),
            nanos(sums.inclusive[0]),
            nanos(sums.exclusive[0]),
            Cell::percent(sums.exclusive[0], all),
            nanos(mean),
            nanos(least),
            nanos(most),
            Cell::Address(site.pc),
            site.proc.into(),
            site.place(),
        ]);
    }
    table.sort(2);
}

/// Mean, least and most of an execution.
fn spread(sums: &Sums, measure: usize) -> [u64; 3] {
    let mean = sums.each[measure].checked_div(sums.ended).unwrap_or(0);
    let least = match sums.ended {
        0 => 0,
        _ => sums.least[measure],
    };
    [mean, least, sums.most[measure]]
}

fn values(report: &mut Report, found: &Found, event: usize) {
    let run = found.run;
    let columns = [
        "inclusive",
        "self",
        "self %",
        "mean",
        "min",
        "max",
        "procedure",
    ];
    let measure = 1 + event;
    let all: u64 = found
        .sums
        .iter()
        .flatten()
        .map(|s| s.exclusive[measure])
        .sum();
    let table = report.table(run.settings.slots[event].choice.name.clone(), columns);
    for sums in found.sums.iter().flatten() {
        let Some(site) = run.procs.get(sums.proc as usize) else {
            continue;
        };
        let [mean, least, most] = spread(sums, measure);
        table.row([
            sums.inclusive[measure].into(),
            sums.exclusive[measure].into(),
            Cell::percent(sums.exclusive[measure], all),
            mean.into(),
            least.into(),
            most.into(),
            site.proc.into(),
        ]);
    }
    table.sort(1);
}

/// What an event means for derived figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Instructions,
    Cycles,
    References,
    Branches,
    Taken,
    Wrong,
    L1Misses,
    L2Misses,
    LastReferences,
    LastMisses,
    Flops,
}

fn role(slot: &crate::settings::Slot) -> Option<Role> {
    if slot.choice.opcode.is_some() {
        return None;
    }
    Some(match (slot.exact(), slot.model()) {
        (Some(Exact::Instructions), _) => Role::Instructions,
        (Some(Exact::References), _) => Role::References,
        (Some(Exact::Branches), _) => Role::Branches,
        (Some(Exact::Taken), _) => Role::Taken,
        (Some(Exact::FloatOps), _) => Role::Flops,
        (_, Some(Model::Mispredictions)) => Role::Wrong,
        (_, Some(Model::L1Misses)) => Role::L1Misses,
        (_, Some(Model::L2Misses)) => Role::L2Misses,
        _ => match slot.choice.event.name {
            "instructions" | "PAPI_TOT_INS" => Role::Instructions,
            "cpu-cycles" | "PAPI_TOT_CYC" => Role::Cycles,
            "branch-instructions" | "PAPI_BR_INS" => Role::Branches,
            "branch-misses" | "PAPI_BR_MSP" => Role::Wrong,
            "L1-dcache-loads" | "PAPI_L1_DCR" => Role::References,
            "L1-dcache-load-misses" | "PAPI_L1_DCM" | "PAPI_L1_LDM" => Role::L1Misses,
            "cache-references" | "PAPI_L3_TCA" => Role::LastReferences,
            "cache-misses" | "PAPI_L3_TCM" => Role::LastMisses,
            _ => return None,
        },
    })
}

/// Name, dividend, divisor, factor.
const RATIOS: [(&str, Role, Role, f64); 12] = [
    ("IPC", Role::Instructions, Role::Cycles, 1.0),
    ("taken %", Role::Taken, Role::Branches, 100.0),
    ("mispredicted %", Role::Wrong, Role::Branches, 100.0),
    (
        "mispredicted /1000 instr",
        Role::Wrong,
        Role::Instructions,
        1000.0,
    ),
    ("L1 miss %", Role::L1Misses, Role::References, 100.0),
    (
        "L1 misses /1000 instr",
        Role::L1Misses,
        Role::Instructions,
        1000.0,
    ),
    ("L2 miss %", Role::L2Misses, Role::L1Misses, 100.0),
    (
        "L2 misses /1000 instr",
        Role::L2Misses,
        Role::Instructions,
        1000.0,
    ),
    (
        "last level miss %",
        Role::LastMisses,
        Role::LastReferences,
        100.0,
    ),
    (
        "last level misses /1000 instr",
        Role::LastMisses,
        Role::Instructions,
        1000.0,
    ),
    (
        "references per instr",
        Role::References,
        Role::Instructions,
        1.0,
    ),
    ("flops per instr", Role::Flops, Role::Instructions, 1.0),
];

/// Figures that follow from a procedure's own values.
fn derived(report: &mut Report, found: &Found) {
    let run = found.run;
    let slots = run.settings.slots.iter().enumerate();
    let roles: Vec<(Role, usize)> = slots
        .filter(|(i, _)| !found.is_missing(*i))
        .filter_map(|(i, slot)| Some((role(slot)?, 1 + i)))
        .collect();
    let measure = |role: Role| roles.iter().find(|(r, _)| *r == role).map(|(_, i)| *i);
    let ratios: Vec<(&str, usize, usize, f64)> = RATIOS
        .iter()
        .filter_map(|(name, a, b, f)| Some((*name, measure(*a)?, measure(*b)?, *f)))
        .collect();
    let energy = run.settings.energy();
    if ratios.is_empty() && energy.is_none() {
        return;
    }
    let mut columns: Vec<&'static str> = ratios.iter().map(|r| leak(r.0.to_owned())).collect();
    if let Some(energy) = &energy {
        columns.extend(["mJ", "self mJ", "uJ per call"]);
        let without: Vec<&str> = energy
            .uses()
            .filter(|i| found.is_missing(*i))
            .map(|i| run.settings.slots[i].choice.name.as_str())
            .collect();
        if !without.is_empty() {
            report.fact("energy lacks", without.join(", "));
        }
    }
    columns.push("procedure");
    let mut order: Vec<&crate::book::Sums> = found.sums.iter().flatten().collect();
    order.sort_by_key(|s| std::cmp::Reverse(s.exclusive[0]));
    let table = report.table("derived from own values", columns);
    for sums in order {
        let Some(site) = run.procs.get(sums.proc as usize) else {
            continue;
        };
        let mut cells: Vec<Cell> = ratios
            .iter()
            .map(|(_, a, b, factor)| match sums.exclusive[*b] {
                0 => Cell::Empty,
                b => Cell::Ratio(sums.exclusive[*a] as f64 * factor / b as f64),
            })
            .collect();
        if let Some(energy) = &energy {
            let joules = |values: &[u64; MEASURES], calls: u64| {
                let events = (0..run.settings.slots.len())
                    .map(|i| (!found.is_missing(i)).then_some(values[1 + i]));
                let nanos = values[0] as f64 * run.nanos_per_tick();
                energy.joules(nanos, calls, &events.collect::<Vec<_>>())
            };
            let whole = joules(&sums.inclusive, sums.calls);
            cells.push(Cell::Ratio(whole * 1e3));
            cells.push(Cell::Ratio(joules(&sums.exclusive, sums.calls) * 1e3));
            cells.push(match sums.calls {
                0 => Cell::Empty,
                n => Cell::Ratio(joules(&sums.each, sums.calls) * 1e6 / n as f64),
            });
        }
        cells.push(site.proc.into());
        table.row_of(cells);
    }
}

/// One line for each procedure, with everything.
fn write_csv(found: &Found) -> std::io::Result<()> {
    let run = found.run;
    let folder = rows::folder(run);
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("summary.csv");
    let mut text = b"procedure,pc,calls,left".to_vec();
    let names = run.settings.slots.iter().map(|s| s.choice.name.as_str());
    for name in std::iter::once("time_ns").chain(names) {
        for part in ["inclusive", "self", "mean", "min", "max"] {
            text.extend(format!(",{name} {part}").as_bytes());
        }
    }
    text.push(b'\n');
    for sums in found.sums.iter().flatten() {
        let Some(site) = run.procs.get(sums.proc as usize) else {
            continue;
        };
        rows::quote(&mut text, site.proc);
        text.extend(format!(",{:#x},{},{}", site.pc, sums.calls, sums.left).as_bytes());
        for measure in 0..=run.settings.slots.len() {
            let [mean, least, most] = spread(sums, measure);
            let values = [
                sums.inclusive[measure],
                sums.exclusive[measure],
                mean,
                least,
                most,
            ];
            for value in values {
                match measure {
                    0 => {
                        let nanos = (value as f64 * run.nanos_per_tick()) as u64;
                        text.extend(format!(",{nanos}").as_bytes());
                    }
                    m if found.is_missing(m - 1) => text.push(b','),
                    _ => text.extend(format!(",{value}").as_bytes()),
                }
            }
        }
        text.push(b'\n');
    }
    let mut file = std::fs::File::create(&path)?;
    file.write_all(&text)
}
