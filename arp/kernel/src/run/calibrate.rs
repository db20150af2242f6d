//! The cost of measuring, found at the start by measuring empty sections.
//!
//! The cost is subtracted from later values: one part for the section's own measurement, and
//! another part for each section inside it. The measures of this crate are tried in this process.
//! Callbacks of the user may do more than measure, so they are tried in a child process, which has
//! a copy of all memory and no files; their effects end with the child. If callbacks change memory
//! beside their data, their values may be something else than a cost, and nothing is subtracted
//! from them unless the user says so.

use std::time::{Duration, Instant};

use arp::{Area, Meter, Mode, SectionKind, Session, Sid, Tid};
use atom_tool::between_routines;

use super::meters::{AnyMeter, Cost, HERE, Measure};
use super::scratch;
use super::settings::{Calibrate, Settings};

/// Number of trials.
const TRIALS: usize = 400;
/// Least number of trials, where callbacks are slow.
const FEWEST: usize = 10;
/// Time for all trials of a measure.
const TIME: Duration = Duration::from_millis(60);
/// Number of inner sections in a trial.
const INNER: usize = 16;

/// The section that is measured. It is no section of the program, as their ids start with 1.
const SECTION: Sid = Sid(0);
const OTHER: Sid = Sid(1);

/// How many numbers the child returns for one measure.
const NUMBERS: usize = 5;

/// Costs of all measures, with notes about them for the data file.
pub fn costs(settings: &Settings, notes: &mut Vec<(String, String)>) -> Vec<Cost> {
    let measures = &settings.measures;
    let all = |own: bool| -> Vec<Found> {
        let one = |i: usize| Found::of(settings, i, own);
        (0..measures.len()).map(one).collect()
    };
    let found = if !measures.contains(&Measure::Callbacks) {
        all(false)
    } else {
        let own = match settings.calibrate {
            Calibrate::Off => None,
            _ => scratch::in_child(measures.len() * NUMBERS + 1, || {
                let stateful = f64::from(u8::from(is_stateful(settings)));
                let mut numbers: Vec<f64> = all(true).iter().flat_map(Found::numbers).collect();
                numbers.push(stateful);
                numbers
            }),
        };
        let key = || "callback subtracted".to_owned();
        match own {
            Some(numbers) => {
                let mut found: Vec<Found> =
                    numbers.chunks_exact(NUMBERS).map(Found::from).collect();
                if numbers.last() != Some(&0.0) && settings.calibrate == Calibrate::Auto {
                    let text = "nothing: the callbacks change more than their data, so they may not measure a cost";
                    notes.push((key(), text.to_owned()));
                    for (measure, found) in measures.iter().zip(&mut found) {
                        if *measure == Measure::Callbacks {
                            *found = Found::default();
                        }
                    }
                }
                found
            }
            None => {
                let text = match settings.calibrate {
                    Calibrate::Off => {
                        "nothing, nor their cost from other values, as it was asked for"
                    }
                    _ => {
                        "nothing, nor their cost from other values: they could not be tried at the start"
                    }
                };
                notes.push((key(), text.to_owned()));
                all(false)
            }
        }
    };
    for (measure, found) in measures.iter().zip(&found) {
        let (cost, name) = (found.cost, measure.name());
        if cost != Cost::default() {
            let text = format!(
                "{} for an execution, {} around one, {} around a section that is not measured",
                number(cost.own),
                number(cost.measured),
                number(cost.plain)
            );
            notes.push((format!("{name} subtracted"), text));
            let text = format!(
                "{} in the middle, {} in 95 of 100, as measured at the start",
                number(found.middle),
                number(found.high)
            );
            notes.push((format!("{name} left in an empty section"), text));
        }
    }
    found.into_iter().map(|f| f.cost).collect()
}

/// A number with up to three decimals.
fn number(n: f64) -> String {
    let text = format!("{n:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The findings about one measure.
#[derive(Clone, Copy, Default)]
struct Found {
    cost: Cost,
    /// Median of the values of empty sections after the cost was subtracted.
    middle: f64,
    /// The same value's 95th percentile.
    high: f64,
}

impl Found {
    fn numbers(&self) -> [f64; NUMBERS] {
        let Cost {
            own,
            plain,
            measured,
        } = self.cost;
        [own, plain, measured, self.middle, self.high]
    }

    fn from(numbers: &[f64]) -> Self {
        Self {
            cost: Cost {
                own: numbers[0],
                plain: numbers[1],
                measured: numbers[2],
            },
            middle: numbers[3],
            high: numbers[4],
        }
    }

    /// Measures empty sections with measure `i`. The user's callbacks are called, too, if `own` is
    /// true.
    fn of(settings: &Settings, i: usize, own: bool) -> Self {
        let measure = settings.measures[i];
        if measure == Measure::Instructions || measure == Measure::Callbacks && !own {
            return Self::default();
        }
        let place = HERE.with(std::cell::Cell::get);
        let meter = |measure: Measure| settings.meter(measure, Cost::default(), place);
        let taking_part = || {
            settings
                .measures
                .iter()
                .filter(|m| own || **m != Measure::Callbacks)
        };
        let mut builder = Session::builder(Mode::RecordAverage).on_problem(|_| {});
        for measure in taking_part() {
            let data_type = settings.data_type_of(*measure);
            builder = builder.values(arp::ValueSet {
                data_type,
                name: String::new(),
            });
        }
        let Ok(session) = builder.start() else {
            return Self::default();
        };
        let meters: Vec<Box<dyn Meter>> = taking_part().map(|m| meter(*m).0).collect();
        let mut recorder = session.thread_with(Tid(0), meters);
        let (mut probe, data_type) = (meter(measure).0, settings.data_type_of(measure));
        let mut pass = |kind: Option<SectionKind>| -> f64 {
            let mut area = Area::default();
            probe.enter(SECTION, &mut area);
            between_routines();
            if let Some(kind) = kind {
                let sid = if kind.is_measured() { SECTION } else { OTHER };
                for _ in 0..INNER {
                    recorder.enter(kind, sid, 0);
                    between_routines();
                    recorder.leave(kind, sid);
                    between_routines();
                }
            }
            probe.leave(SECTION, &mut area);
            area.get(data_type).as_f64()
        };
        let start = Instant::now();
        let mut values = [Vec::new(), Vec::new(), Vec::new()];
        while values[0].len() < TRIALS && (values[0].len() < FEWEST || start.elapsed() < TIME) {
            let kinds = [None, Some(SectionKind::Plain), Some(SectionKind::Kernel)];
            for (values, kind) in values.iter_mut().zip(kinds) {
                values.push(pass(kind));
            }
        }
        let typical = Typical::of(measure);
        let [empty, plain, measured] = values.map(|mut values| typical.take(&mut values));
        let around = |sum: f64| ((sum - empty) / INNER as f64).max(0.0);
        // Between the two readings of this measure are the readings of the others.
        let mut meters: Vec<AnyMeter> = taking_part().map(|m| meter(*m)).collect();
        let which = taking_part().position(|m| *m == measure).unwrap_or(0);
        let mut areas = vec![Area::default(); meters.len()];
        let start = Instant::now();
        let mut own = Vec::new();
        while own.len() < TRIALS && (own.len() < FEWEST || start.elapsed() < TIME) {
            areas.fill(Area::default());
            let meters = std::hint::black_box(&mut meters);
            for (meter, area) in meters.iter_mut().zip(&mut areas) {
                meter.0.enter(SECTION, area);
            }
            between_routines();
            for (meter, area) in meters.iter_mut().zip(&mut areas) {
                meter.0.leave(SECTION, area);
            }
            own.push(areas[which].get(data_type).as_f64());
        }
        let best = typical.take(&mut own);
        let left = |part: usize| (own[own.len() * part / 100] - best).max(0.0);
        let cost = Cost {
            own: best,
            plain: around(plain),
            measured: around(measured),
        };
        // Such values are no cost.
        if ![cost.own, cost.plain, cost.measured]
            .iter()
            .all(|n| n.is_finite() && *n >= 0.0)
        {
            return Self::default();
        }
        Self {
            cost,
            middle: left(50),
            high: left(95),
        }
    }
}

/// How the typical one of many values of the same quantity is found.
enum Typical {
    /// One of the least values: greater ones include interruptions.
    Least,
    /// The mean without the greatest values, for units that may be coarse.
    Mean,
}

impl Typical {
    fn of(measure: Measure) -> Self {
        match measure {
            Measure::Callbacks => Self::Mean,
            _ => Self::Least,
        }
    }

    /// Sorts the values and returns the typical one. There must be at least one.
    fn take(&self, values: &mut [f64]) -> f64 {
        values.sort_unstable_by(f64::total_cmp);
        match self {
            Self::Least => values[values.len() / 20],
            Self::Mean => {
                let most = &values[..(values.len() * 9 / 10).max(1)];
                most.iter().sum::<f64>() / most.len() as f64
            }
        }
    }
}

/// True if the user's callbacks change memory beside their data.
fn is_stateful(settings: &Settings) -> bool {
    let place = HERE.with(std::cell::Cell::get);
    let mut meter = settings.meter(Measure::Callbacks, Cost::default(), place);
    let mut pairs = |n: usize| {
        for _ in 0..n {
            let mut area = Area::default();
            meter.0.enter(SECTION, &mut area);
            meter.0.leave(SECTION, &mut area);
        }
    };
    // The first calls may set something up.
    pairs(2);
    scratch::changes(|| pairs(4))
}
