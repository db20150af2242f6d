//! The report: times and counts of procedures, and figures derived from them.

use std::io::Write;

use atom_tool::report::{By, Column, Sum};
use atom_tool::{Address, Cell, Files, Report, output};
use events::Source;

use crate::book::Sums;
use crate::found::Found;
use crate::rows;
use crate::{cost, derived};

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
    derived::add(&mut report, found);
    report.write(files);
    if !run.settings.csv.is_empty()
        && let Err(error) = write_csv(found)
    {
        output::cannot_write("counters", error);
    }
}

const EXECUTED: Column = Column::count("procedures executed", "procedures").sum(Sum::None);
const PROCEDURES: Column = Column::count("procedures", "procedures").sum(Sum::Max);

fn facts(report: &mut Report, found: &Found) {
    let (run, costs) = (found.run, cost::costs());
    let nanos = |ticks: u64| Cell::Ratio(ticks as f64 * run.nanos_per_tick());
    let sums = || found.sums.iter().flatten();
    let calls: u64 = sums().map(|s| s.calls).sum();
    report
        .typed_fact(Column::count("executions", "executions"), calls)
        .typed_fact(EXECUTED, sums().count() as u64)
        .typed_fact(PROCEDURES, run.procs.len() as u64)
        .typed_fact(Column::count("threads", "threads"), found.threads)
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
        Column::text("event").key(),
        Column::text("source").key(),
        Column::text("read by"),
        Column::count("in all", "events"),
        Column::count("outside", "events"),
        Column::count("cost", "events").sum(Sum::None),
        Column::count("enabled ns", "ns"),
        Column::count("running ns", "ns"),
        Column::text("remark"),
    ];
    let costs = cost::costs();
    let table = report.typed_table(By::Other, "events", columns);
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
        let times = meter.filter(|sum| sum.enabled != 0);
        let total = found.totals[i];
        table.row([
            slot.choice.name.clone().into(),
            slot.choice.event.source.word().into(),
            match (meter, slot.cell) {
                (Some(sum), _) => sum.way.into(),
                (None, Some(_)) => "instrumentation".into(),
                (None, None) => Cell::Empty,
            },
            number(total),
            number(total.map(|total| total.saturating_sub(attributed))),
            match missing {
                None => Cell::Number(costs.whole[1 + i]),
                Some(_) => Cell::Empty,
            },
            number(times.map(|t| t.enabled)),
            number(times.map(|t| t.running)),
            match missing {
                Some((_, message)) => message.clone().into(),
                None if meter.is_some_and(|sum| sum.failed != 0) => {
                    let failed = meter.map_or(0, |sum| sum.failed);
                    format!("threads in which it could not be opened, and counts 0: {failed}")
                        .into()
                }
                None if slot.choice.event.source == Source::Hardware
                    && times.is_some_and(|t| t.running < t.enabled) =>
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
        Column::count("calls", "calls"),
        Column::count("time ns", "ns"),
        Column::count("self ns", "ns"),
        Column::share("self %", "self ns"),
        Column::count("mean ns", "ns").sum(Sum::None),
        Column::count("min ns", "ns").sum(Sum::Min),
        Column::count("max ns", "ns").sum(Sum::Max),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let all: u64 = found.sums.iter().flatten().map(|s| s.exclusive[0]).sum();
    let table = report.typed_table(By::Procedure, "procedures", columns);
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
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(2);
}

/// Mean, least and greatest value of an execution.
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
        Column::count("inclusive", "events"),
        Column::count("self", "events"),
        Column::share("self %", "self"),
        Column::count("mean", "events").sum(Sum::None),
        Column::count("min", "events").sum(Sum::Min),
        Column::count("max", "events").sum(Sum::Max),
        Column::text("procedure").key(),
    ];
    let measure = 1 + event;
    let all: u64 = found
        .sums
        .iter()
        .flatten()
        .map(|s| s.exclusive[measure])
        .sum();
    let name = run.settings.slots[event].choice.name.clone();
    let table = report.typed_table(By::Procedure, name, columns);
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
            Cell::Text(site.proc_of_process()),
        ]);
    }
    table.sort(1);
}

/// Writes one line for each procedure, with all values.
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
        text.extend(format!(",{},{},{}", Address(site.pc), sums.calls, sums.left).as_bytes());
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
