//! The profile: executions and values of each section, over all contexts and threads.
//!
//! The values are read back from the data file, which is complete by then. A file with a record for each execution may be
//! large: above [`LARGEST`] only the executions are in the profile.

use std::collections::HashMap;
use std::fs;

use arp::{Profile, Sid, Stats};
use atom_tool::output;
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Sum};

use super::meters::Measure;
use super::open::Facts;
use super::session::Whole;
use super::{KINDS, SectionFacts};

/// Size in bytes of the largest data file that is read.
const LARGEST: u64 = 16 << 20;

/// Column of the number of executions whose values are in the data file.
const RECORDED: &str = "recorded";

/// For each section with values the sums of each measure.
type Values = HashMap<Sid, Vec<Stats>>;

/// Reads the data file. `None` if it is too large, or not there because nothing was recorded.
fn values(whole: &Whole) -> Option<Values> {
    let file = output::path(whole.settings.file);
    if fs::metadata(&file).ok()?.len() > LARGEST {
        return None;
    }
    let data = Profile::load(&file).ok()?;
    let mut values = Values::new();
    for index in 0..data.len() {
        let Some(step) = data.stack(index).pop() else {
            continue;
        };
        let known = values.entry(step.sid).or_insert_with(|| {
            let sets = data.sets().iter();
            sets.map(|set| Stats::new(set.data_type)).collect()
        });
        for (set, sum) in known.iter_mut().enumerate() {
            if let Some(stats) = data.stats(index, set) {
                sum.merge(&stats);
            }
        }
    }
    Some(values)
}

/// The columns of a measure. Integers are never negative but in values of callbacks.
fn columns(measure: Measure, is_integer: bool) -> [Column; 4] {
    let name = measure.name();
    // A few bytes, once in a process.
    let called = |word: &str| -> &'static str { format!("{name}, {word}").leak() };
    let column = |name, sum| {
        if is_integer {
            Column::count(name, measure.name()).sum(sum)
        } else {
            Column::ratio(name).sum(sum)
        }
    };
    [
        column(name, Sum::Add),
        column(called("least"), Sum::Min),
        column(called("largest"), Sum::Max),
        Column::ratio_of(called("each"), name, RECORDED),
    ]
}

/// Writes the profile.
pub fn write(whole: &Whole, facts: &[SectionFacts], texts: Strings, sum: &Facts, files: Files) {
    let values = values(whole);
    let mut report = Report::new("kernel", whole.settings.program);
    let kernels: u64 = sum.counts.iter().sum();
    report.typed_fact(Column::count("executions", "executions"), kernels);
    let measures: &[Measure] = match values {
        Some(_) => &whole.settings.measures,
        None => &[],
    };
    let is_integer = |measure: Measure| {
        let kind = whole.settings.data_type_of(measure);
        !kind.is_float() && !kind.is_signed()
    };
    let mut heads = vec![
        Column::count("executions", "executions"),
        Column::text("kind").label(),
        Column::text("section").key(),
        Column::place("line"),
    ];
    if values.is_some() {
        heads.push(Column::count(RECORDED, "executions"));
    }
    for measure in measures {
        heads.extend(columns(*measure, is_integer(*measure)));
    }
    let table = report.typed_table(By::Other, "sections", heads);
    for (facts, count) in facts.iter().zip(&sum.counts).filter(|(_, n)| **n != 0) {
        let place = match facts.first_line {
            0 => Cell::Empty,
            line => Cell::place(texts.get(facts.file), line),
        };
        let mut row: Vec<Cell> = vec![
            (*count).into(),
            KINDS[facts.kind as usize % KINDS.len()].into(),
            texts.get(facts.name).into(),
            place,
        ];
        if let Some(values) = &values {
            let stats = values.get(&Sid(facts.id));
            let recorded = stats.and_then(|all| Some(all.first()?.count()));
            row.push(recorded.unwrap_or(0).into());
            for (set, measure) in measures.iter().enumerate() {
                let stats = stats
                    .and_then(|all| all.get(set))
                    .filter(|s| s.count() != 0);
                let cell = |value: f64| {
                    if is_integer(*measure) {
                        Cell::Number(value as u64)
                    } else {
                        Cell::Ratio(value)
                    }
                };
                let each = |of: fn(&Stats) -> f64| stats.map_or(Cell::Empty, |s| cell(of(s)));
                row.extend([each(Stats::sum), each(Stats::min), each(Stats::max)]);
                row.push(stats.map_or(Cell::Empty, |s| Cell::Ratio(s.mean())));
            }
        }
        table.row_of(row);
    }
    table.sort(0);
    report.write(files);
}
