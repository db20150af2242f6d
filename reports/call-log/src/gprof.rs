//! Compares a log with the figures that gprof computes from `gmon.out`, and explains the differences.
//!
//! gprof counts calls where a procedure was compiled with `-pg`, and takes the time from
//! samples of the program counter. It does not measure how long a procedure waits for its callees:
//! it shares out the time of a callee to its callers by their numbers of calls,
//! and takes procedures that call each other in a circle as one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use tables::{grouped, grouped_decimal};

use crate::gmon::Gmon;
use crate::table::{fitted, width_of};

/// A procedure of the program's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its address.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

/// A procedure of the log.
#[derive(Clone, PartialEq, Debug)]
pub struct Logged {
    /// Its name.
    pub name: String,
    /// Its address; 0 if the log does not say, and then it is found by its name.
    pub pc: u64,
    /// Number of calls.
    pub calls: u64,
    /// Its own time in milliseconds.
    pub own: f64,
    /// Time in milliseconds including its callees.
    pub inclusive: f64,
}

/// Figures of a procedure by gprof.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Sampled {
    /// Number of calls, recursive ones included.
    pub calls: u64,
    /// Its own time in milliseconds, by samples.
    pub own: f64,
    /// Number of samples; a bin that it shares counts in proportion.
    pub samples: f64,
    /// True if it calls others, so that it was compiled with `-pg`.
    pub is_caller: bool,
    /// Time in milliseconds including its callees, as gprof computes it; for the whole circle if it is in one.
    pub inclusive: f64,
    /// Names of the other procedures in its circle of calls.
    pub circle: Vec<String>,
}

/// A procedure with its figures from both sides.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Figures from the log.
    pub logged: Option<Logged>,
    /// Figures from `gmon.out`.
    pub sampled: Option<Sampled>,
    /// Explanations of the differences.
    pub remarks: Vec<String>,
}

/// A comparison of a log with gprof.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The procedures, sorted by time, longest first.
    pub rows: Vec<Row>,
    /// Explanations that hold for all procedures.
    pub notes: Vec<String>,
}

/// Compares a log with gprof. `symbols` are the program's, in the order of their addresses.
pub fn compare(logged: &[Logged], gmon: &Gmon, symbols: &[Symbol]) -> Comparison {
    let sampled = sampled(gmon, symbols);
    let period = gmon
        .histograms
        .first()
        .map_or(0.0, |h| 1000.0 / f64::from(h.rate));
    let mut rest = sampled.clone();
    let mut rows: Vec<Row> = Vec::new();
    for procedure in logged {
        let found = symbols.iter().position(|s| match procedure.pc {
            0 => s.name == procedure.name,
            pc => s.start == pc,
        });
        let sampled = found.and_then(|place| rest.remove(&place));
        let remarks = remarks(procedure, sampled.as_ref(), period);
        rows.push(Row {
            name: procedure.name.clone(),
            logged: Some(procedure.clone()),
            sampled,
            remarks,
        });
    }
    for (place, sampled) in rest {
        rows.push(Row {
            name: symbols[place].name.clone(),
            logged: None,
            sampled: Some(sampled),
            remarks: vec!["not in the log: it was not chosen, or did not run".into()],
        });
    }
    let own = |row: &Row| {
        let logged = row.logged.as_ref().map_or(0.0, |l| l.own);
        logged.max(row.sampled.as_ref().map_or(0.0, |s| s.own))
    };
    rows.sort_by(|a, b| own(b).total_cmp(&own(a)));
    let notes = notes(&rows, gmon, period);
    Comparison { rows, notes }
}

/// Figures of gprof by the index of the symbol.
fn sampled(gmon: &Gmon, symbols: &[Symbol]) -> BTreeMap<usize, Sampled> {
    let at = |address: u64| {
        let next = symbols.partition_point(|s| s.start <= address);
        let place = next.checked_sub(1)?;
        (address < symbols[place].end).then_some(place)
    };
    let mut all: BTreeMap<usize, Sampled> = BTreeMap::new();
    for histogram in &gmon.histograms {
        for (place, symbol) in symbols.iter().enumerate() {
            let samples = histogram.samples(symbol.start, symbol.end);
            if samples > 0.0 {
                let sampled = all.entry(place).or_default();
                sampled.samples += samples;
                sampled.own += samples * 1000.0 / f64::from(histogram.rate);
            }
        }
    }
    // Numbers of calls by (caller, callee). An unknown caller is `None`.
    let mut calls: BTreeMap<(Option<usize>, usize), u64> = BTreeMap::new();
    for arc in &gmon.arcs {
        let Some(to) = at(arc.to) else { continue };
        // A return address may be at the start of the next procedure.
        let from = at(arc.from.saturating_sub(1));
        *calls.entry((from, to)).or_default() += u64::from(arc.count);
        all.entry(to).or_default().calls += u64::from(arc.count);
        if let Some(from) = from {
            all.entry(from).or_default().is_caller = true;
        }
    }
    let circles = circles(&all, &calls);
    let mut circle_of = BTreeMap::new();
    for (number, members) in circles.iter().enumerate() {
        circle_of.extend(members.iter().map(|m| (*m, number)));
    }
    // Callees come before their callers, so the whole time of each callee is known.
    let mut totals = vec![0.0; circles.len()];
    let mut entered = vec![0u64; circles.len()];
    for ((from, to), count) in &calls {
        let to = circle_of[to];
        if from.is_none_or(|from| circle_of[&from] != to) {
            entered[to] += count;
        }
    }
    for (number, members) in circles.iter().enumerate() {
        let mut total: f64 = members.iter().map(|m| all[m].own).sum();
        for ((from, to), count) in &calls {
            let callee = circle_of[to];
            if from.is_some_and(|f| members.contains(&f))
                && callee != number
                && entered[callee] != 0
            {
                total += totals[callee] * *count as f64 / entered[callee] as f64;
            }
        }
        totals[number] = total;
        for member in members {
            let others = members.iter().filter(|m| *m != member);
            let others = others.map(|m| symbols[*m].name.clone()).collect();
            if let Some(sampled) = all.get_mut(member) {
                (sampled.inclusive, sampled.circle) = (total, others);
            }
        }
    }
    all
}

/// Groups of procedures that reach each other by calls, callees before their callers.
fn circles(
    all: &BTreeMap<usize, Sampled>,
    calls: &BTreeMap<(Option<usize>, usize), u64>,
) -> Vec<BTreeSet<usize>> {
    let mut forward: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut backward = forward.clone();
    for (from, to) in calls.keys() {
        if let Some(from) = from {
            forward.entry(*from).or_default().push(*to);
            backward.entry(*to).or_default().push(*from);
        }
    }
    // Kosaraju's algorithm: a depth-first walk gives the order, walks against the calls the groups.
    let mut seen = BTreeSet::new();
    let mut order = Vec::new();
    for &start in all.keys() {
        let mut path = vec![(start, 0)];
        if !seen.insert(start) {
            continue;
        }
        while let Some((node, next)) = path.last_mut() {
            let to = forward.get(node).and_then(|to| to.get(*next)).copied();
            *next += 1;
            match to {
                Some(to) if seen.insert(to) => path.push((to, 0)),
                Some(_) => {}
                None => {
                    order.push(*node);
                    path.pop();
                }
            }
        }
    }
    let mut circles = Vec::new();
    let mut taken = BTreeSet::new();
    for &start in order.iter().rev() {
        let mut work = vec![start];
        let mut members = BTreeSet::new();
        while let Some(node) = work.pop() {
            if taken.insert(node) {
                members.insert(node);
                work.extend(backward.get(&node).into_iter().flatten());
            }
        }
        if !members.is_empty() {
            circles.push(members);
        }
    }
    circles.reverse();
    circles
}

/// Explains the differences of a procedure's figures. `period` is the time between samples in milliseconds.
fn remarks(logged: &Logged, sampled: Option<&Sampled>, period: f64) -> Vec<String> {
    let Some(sampled) = sampled else {
        let expected = logged.own / period.max(1e-9);
        return vec![if expected < 3.0 {
            format!("gprof has not seen it: {expected:.1} samples could be expected")
        } else {
            "gprof does not know it: not compiled with -pg, or in a library".into()
        }];
    };
    let mut remarks = Vec::new();
    if sampled.calls == 0 && logged.calls != 0 && sampled.is_caller {
        remarks
            .push("calls: gprof counts none from outside of the program, as libc's of main".into());
    } else if sampled.calls == 0 && logged.calls != 0 {
        remarks.push("calls: gprof counts none, it was not compiled with -pg".into());
    } else if sampled.calls != logged.calls {
        remarks.push("calls: the runs differ, or gprof's table of calls was full".into());
    }
    // The number of samples is random; its standard deviation is its square root.
    let error = 2.0 * period * (sampled.samples.sqrt() + 1.0);
    let difference = sampled.own - logged.own;
    if difference.abs() <= error {
        remarks.push(format!(
            "time: equal within the error of {:.0} samples (+-{error:.0} ms)",
            sampled.samples
        ));
    } else if difference < 0.0 {
        remarks.push(
            "time: the log has more: it includes libraries, waiting and what logging costs".into(),
        );
    } else {
        remarks.push(
            "time: gprof has more: it includes what is not in the log and lies beside it, and the \
             runs may differ"
                .into(),
        );
    }
    if !sampled.circle.is_empty() {
        remarks.push(format!(
            "with callees: gprof has one time for the circle with {}",
            sampled.circle.join(", ")
        ));
    } else if (sampled.inclusive - logged.inclusive).abs() > error.max(logged.inclusive * 0.1) {
        remarks
            .push("with callees: gprof shares the time of callees by the number of calls".into());
    }
    remarks
}

/// Explains differences that hold for all procedures.
fn notes(rows: &[Row], gmon: &Gmon, period: f64) -> Vec<String> {
    let samples: u64 = gmon.histograms.iter().map(|h| h.total()).sum();
    let logged: f64 = rows
        .iter()
        .filter_map(|r| Some(r.logged.as_ref()?.own))
        .sum();
    let calls: u64 = rows
        .iter()
        .filter_map(|r| Some(r.logged.as_ref()?.calls))
        .sum();
    let mut notes = vec![
        format!(
            "gprof has {samples} samples, one each {period:.0} ms of processor time: {:.0} ms; the log has {logged:.0} ms",
            samples as f64 * period
        ),
        "gprof does not sample libraries and the kernel; in the log their time is their caller's"
            .into(),
        format!(
            "the log's times contain what logging its {} entries and exits costs, gprof's what -pg adds to each call",
            calls * 2
        ),
    ];
    if rows
        .iter()
        .any(|r| r.sampled.as_ref().is_some_and(|s| !s.circle.is_empty()))
    {
        notes.push(
            "where procedures call each other in a circle gprof knows no times with callees of each".into(),
        );
    }
    notes
}

/// Columns of a line after the name.
const FIGURES: usize = 79;

impl Comparison {
    /// The table. A line takes at most `width` columns, if names can be shortened that far; in full without a
    /// width.
    pub fn text(&self, width: Option<usize>) -> String {
        let mut text = String::from("-----\nThe log and gprof\n\n");
        let names: Vec<&str> = self.rows.iter().map(|r| &*r.name).collect();
        let names = fitted(&names, width.map(|w| w.saturating_sub(FIGURES)));
        let width = width_of(&names);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:width$}  {:^23}  {:^25}  {:^25}",
            "Procedure Name", "Calls", "Execution Time (ms.)", "With Callees (ms.)"
        );
        let _ = writeln!(
            text,
            "{:width$}  {:>11} {:>11}  {:>12} {:>12}  {:>12} {:>12}",
            "", "log", "gprof", "log", "gprof", "log", "gprof"
        );
        for (row, name) in self.rows.iter().zip(names) {
            let (l, s) = (row.logged.as_ref(), row.sampled.as_ref());
            let count = |n: Option<u64>| n.map_or("-".into(), grouped);
            let time = |t: Option<f64>| t.map_or("-".into(), |t| grouped_decimal(t, 3));
            let _ = writeln!(
                text,
                "{name:width$}  {:>11} {:>11}  {:>12} {:>12}  {:>12} {:>12}",
                count(l.map(|l| l.calls)),
                count(s.map(|s| s.calls)),
                time(l.map(|l| l.own)),
                time(s.map(|s| s.own)),
                time(l.map(|l| l.inclusive)),
                time(s.map(|s| s.inclusive)),
            );
            for remark in &row.remarks {
                let _ = writeln!(text, "    {remark}");
            }
        }
        let _ = writeln!(text);
        for note in &self.notes {
            let _ = writeln!(text, "Note: {note}.");
        }
        text
    }

    /// The same as JSON.
    pub fn json(&self) -> serde_json::Value {
        let rows: Vec<_> = self
            .rows
            .iter()
            .map(|row| {
                let (l, s) = (row.logged.as_ref(), row.sampled.as_ref());
                serde_json::json!({
                    "procedure": row.name,
                    "log": l.map(|l| serde_json::json!({
                        "calls": l.calls, "time_ms": l.own, "inclusive_ms": l.inclusive,
                    })),
                    "gprof": s.map(|s| serde_json::json!({
                        "calls": s.calls, "time_ms": s.own, "inclusive_ms": s.inclusive,
                        "samples": s.samples, "circle": s.circle,
                    })),
                    "remarks": row.remarks,
                })
            })
            .collect();
        serde_json::json!({ "procedures": rows, "notes": self.notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gmon::{Arc, Histogram};

    /// `main` calls `a` once and `b` three times, each of which calls `c` once; `d` and `e` are a circle.
    #[test]
    fn time_with_callees_is_shared_by_calls() {
        let symbols: Vec<Symbol> = (0..6)
            .map(|i| Symbol {
                name: ["main", "a", "b", "c", "d", "e"][i].into(),
                start: 0x1000 + 16 * i as u64,
                end: 0x1010 + 16 * i as u64,
            })
            .collect();
        let arc = |from: u64, to: u64, count| Arc {
            from: if from == 9 { 5 } else { 0x1008 + 16 * from },
            to: 0x1000 + 16 * to,
            count,
        };
        let gmon = Gmon {
            histograms: vec![Histogram {
                low: 0x1000,
                high: 0x1060,
                rate: 100,
                bins: vec![1, 2, 3, 8, 5, 7],
            }],
            arcs: vec![
                arc(9, 0, 1),
                arc(0, 1, 1),
                arc(0, 2, 3),
                arc(1, 3, 1),
                arc(2, 3, 3),
                arc(2, 4, 1),
                arc(4, 5, 10),
                arc(5, 4, 9),
                arc(5, 5, 4),
            ],
        };
        let sampled = sampled(&gmon, &symbols);
        let of = |i: usize| (sampled[&i].calls, sampled[&i].own, sampled[&i].inclusive);
        assert_eq!(of(3), (4, 80.0, 80.0));
        assert_eq!(of(1), (1, 20.0, 40.0));
        assert_eq!(of(4), (10, 50.0, 120.0));
        assert_eq!(of(5), (14, 70.0, 120.0));
        assert_eq!(sampled[&4].circle, ["e"]);
        assert_eq!(of(2), (3, 30.0, 30.0 + 60.0 + 120.0));
        assert_eq!(of(0), (1, 10.0, 260.0));
        let logged = Logged {
            name: "c".into(),
            pc: 0,
            calls: 4,
            own: 75.0,
            inclusive: 75.0,
        };
        let comparison = compare(&[logged], &gmon, &symbols);
        let row = comparison.rows.iter().find(|r| r.name == "c").unwrap();
        assert!(row.remarks[0].starts_with("time: equal within"), "{row:?}");
        assert_eq!(comparison.rows.len(), 6);
    }
}
