//! Rows in memory, by column, before they become a part of a file.
//!
//! What is the same in many rows that follow each other (the run, the table, the measure) is kept once for a *segment*.
//! Texts are numbers of a list. So a million rows take 90 MB.

use profile::{By, Fact, FactValue, Profile, Scope, Table, Value};

use crate::cells::{NO_INTEGER, NO_TEXT, Names, integer};
use crate::place::Places;
use crate::run::Run;
use crate::schema::{INTEGERS, SEGMENT_INTEGERS, SEGMENT_TEXTS, TEXTS};

/// Rows that follow each other and agree in all columns of the segment.
#[derive(Clone)]
pub struct Segment {
    /// Number of rows.
    pub rows: usize,
    pub texts: [u32; SEGMENT_TEXTS],
    pub integers: [i64; SEGMENT_INTEGERS],
    /// Duration of the run in seconds.
    pub seconds: f64,
}

/// Rows by column.
#[derive(Default)]
pub struct Rows {
    pub names: Names,
    pub segments: Vec<Segment>,
    pub texts: [Vec<u32>; TEXTS],
    pub integers: [Vec<i64>; INTEGERS],
    /// Values that are no integers; not a number where there is none.
    pub floats: Vec<f64>,
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.floats.len()
    }

    /// Removes all rows. Texts keep their numbers.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.texts.iter_mut().for_each(Vec::clear);
        self.integers.iter_mut().for_each(Vec::clear);
        self.floats.clear();
    }

    /// Adds a profile: a row for each fact, and for each known value of a measure. The result is the number of rows.
    pub fn add(&mut self, profile: &Profile, run: &Run) -> u64 {
        let before = self.len();
        let segment = self.segment(profile, run);
        for fact in &profile.facts {
            self.fact(&segment, fact);
        }
        let mut places = Places::new(profile);
        for table in &profile.tables {
            self.table(&segment, table, &mut places);
        }
        (self.len() - before) as u64
    }

    /// The segment of a profile, without table and measure.
    fn segment(&mut self, profile: &Profile, run: &Run) -> Segment {
        let names = &mut self.names;
        let program = profile.objects.first();
        let path = &profile.program.path;
        let file = path.rsplit('/').next();
        let scope = match profile.scope {
            Scope::Process => "process",
            Scope::Program => "program",
        };
        let arguments = profile.program.arguments.get(1..).unwrap_or_default();
        let texts = [
            Some(run.id.as_str()),
            file,
            Some(path),
            program.and_then(|object| object.build_id.as_deref()),
            Some(&arguments.join(" ")),
            Some(&profile.options.join(" ")),
            Some(scope),
            Some(&profile.atom),
            Some(&profile.host.name),
            Some(&profile.host.kernel),
            profile.host.processor.as_deref(),
            None,
            None,
            None,
            None,
        ];
        let number = |n: u64| if n == 0 { NO_INTEGER } else { integer(n) };
        Segment {
            rows: 0,
            texts: texts.map(|text| names.maybe(text)),
            integers: [
                number(profile.host.processors),
                number(profile.process.pid),
                run.start.unwrap_or(NO_INTEGER),
            ],
            seconds: profile.time.seconds,
        }
    }

    /// Adds a segment without rows for a measure of a table.
    fn start(&mut self, of: &Segment, table: &str, per: &str, measure: (&str, Option<&str>)) {
        let mut segment = of.clone();
        let texts = [Some(table), Some(per), Some(measure.0), measure.1];
        for (number, text) in segment.texts[SEGMENT_TEXTS - texts.len()..]
            .iter_mut()
            .zip(texts)
        {
            *number = self.names.maybe(text);
        }
        self.segments.push(segment);
    }

    /// Ends the last segment, which begins with the row `from`.
    fn end(&mut self, from: usize) {
        let rows = self.len() - from;
        if let Some(last) = self.segments.last_mut() {
            last.rows = rows;
        }
    }

    fn fact(&mut self, segment: &Segment, fact: &Fact) {
        let from = self.len();
        self.start(segment, "", "fact", (&fact.name, fact.unit.as_deref()));
        let (value, detail) = match &fact.value {
            FactValue::Number(value) => (*value, NO_TEXT),
            FactValue::Text(text) => (Value::Unknown, self.names.maybe(Some(text))),
        };
        self.texts.iter_mut().for_each(|texts| texts.push(NO_TEXT));
        if let Some(last) = self.texts[TEXTS - 1].last_mut() {
            *last = detail;
        }
        let (places, _) = self.integers.split_at_mut(INTEGERS - 1);
        places.iter_mut().for_each(|n| n.push(NO_INTEGER));
        self.value(value);
        self.end(from);
    }

    fn table(&mut self, segment: &Segment, table: &Table, places: &mut Places) {
        let order = places.of_table(table, &mut self.names);
        for measure in table.measures() {
            let from = self.len();
            let name = (measure.name.as_str(), measure.unit.as_deref());
            self.start(segment, &table.name, per(table.by), name);
            for (place, row) in order.iter().enumerate() {
                let value = measure.values.get(*row as usize).copied();
                let Some(value @ (Value::Integer(_) | Value::Float(_))) = value else {
                    continue;
                };
                for (to, from) in self.texts.iter_mut().zip(&places.texts) {
                    to.push(from[place]);
                }
                for (to, from) in self.integers.iter_mut().zip(&places.integers) {
                    to.push(from[place]);
                }
                self.value(value);
            }
            self.end(from);
        }
    }

    /// Adds the value of a row, which completes the row. Integers that 64 bits with a sign do not hold become floats.
    fn value(&mut self, value: Value) {
        let (integer, float) = match value {
            Value::Unknown => (NO_INTEGER, f64::NAN),
            Value::Float(x) => (NO_INTEGER, x),
            Value::Integer(n) => match i64::try_from(n) {
                Ok(n) => (n, f64::NAN),
                Err(_) => (NO_INTEGER, n as f64),
            },
        };
        self.integers[INTEGERS - 1].push(integer);
        self.floats.push(float);
    }
}

/// What a row of a table stands for, as profiles write it.
fn per(by: By) -> &'static str {
    match by {
        By::Object => "object",
        By::Procedure => "procedure",
        By::File => "file",
        By::Line => "line",
        By::Block => "block",
        By::Instruction => "instruction",
        By::Branch => "branch",
        By::Arc => "arc",
        By::Data => "data",
        By::Thread => "thread",
        By::Other => "other",
    }
}
