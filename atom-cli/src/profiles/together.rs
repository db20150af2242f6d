//! The profiles of all processes of a run as one, whatever their programs.
//!
//! A table of programs stands in front of the tool's own tables: what each program did, in all of its processes.

use std::collections::HashMap;
use std::path::Path;

use ::profile::{
    Adder, By, Column, Fact, FactValue, Profile, Readers, Role, Sum, Table, Type, Value, added,
};
use atom_core::{Error, Result};
use rayon::prelude::*;

use crate::message::count;

/// Number of profiles that are in memory at once.
const AT_ONCE: usize = 64;

/// Name of the table of programs.
const PROGRAMS: &str = "programs";

/// What the processes of one program did.
struct Program {
    path: String,
    processes: u64,
    seconds: f64,
    /// For each fact its sum.
    facts: Vec<Value>,
}

/// Adds profiles up, of several programs too. Returns the sum, and the number of the profiles.
///
/// # Errors
/// A profile cannot be read, or one is of another tool than the first.
pub fn sum(files: &[&Path]) -> Result<(Profile, usize)> {
    let mut adder: Option<Adder> = None;
    let mut programs = Programs::default();
    let mut inheriting = 0;
    for chunk in files.chunks(AT_ONCE) {
        let read = chunk.par_iter().map(|path| super::read(path));
        for (path, profile) in chunk.iter().zip(read.collect::<Vec<_>>()) {
            let profile = profile?;
            programs.add(&profile);
            inheriting += usize::from(profile.process.inherits);
            match &mut adder {
                None => adder = Some(Adder::of_programs(profile)),
                Some(adder) => adder
                    .add(&profile)
                    .map_err(|e| Error::new("adding profiles up", e.to_string()).file(path))?,
            }
        }
    }
    let adder = adder.ok_or_else(|| Error::new(super::DOING, "no profile is named"))?;
    let number = adder.files();
    let mut sum = adder.finish();
    if inheriting != 0 {
        let reports = count(inheriting, "profile");
        sum.facts.push(Fact {
            name: "counted twice".into(),
            kind: Type::Text,
            unit: None,
            sum: Sum::None,
            part: None,
            whole: None,
            value: FactValue::Text(format!(
                "{reports} of forked processes contain what their parents did before the fork"
            )),
        });
    }
    if !sum.tables.iter().any(|t| t.name == PROGRAMS) {
        let table = programs.table(&mut sum);
        sum.tables.insert(0, table);
    }
    Ok((sum, number))
}

/// The programs in the order in which they were met.
#[derive(Default)]
struct Programs {
    all: Vec<Program>,
    known: HashMap<String, usize>,
    /// Names of the facts that are added up.
    names: Vec<(String, Type, Option<String>)>,
}

impl Programs {
    fn add(&mut self, profile: &Profile) {
        let path = &profile.program.path;
        let next = self.all.len();
        let at = *self.known.entry(path.clone()).or_insert(next);
        if at == next {
            self.all.push(Program {
                path: path.clone(),
                processes: 0,
                seconds: 0.0,
                facts: Vec::new(),
            });
        }
        for fact in &profile.facts {
            let is_known = self.names.iter().any(|(name, ..)| *name == fact.name);
            let is_number = matches!(fact.value, FactValue::Number(_));
            if !is_known && is_number && fact.sum == Sum::Add && fact.part.is_none() {
                let name = (fact.name.clone(), fact.kind, fact.unit.clone());
                self.names.push(name);
            }
        }
        let program = &mut self.all[at];
        program.processes += 1;
        program.seconds += profile.time.seconds;
        program.facts.resize(self.names.len(), Value::Unknown);
        for ((name, ..), total) in self.names.iter().zip(&mut program.facts) {
            if let Some(fact) = profile.fact(name) {
                *total = added(Sum::Add, *total, fact.number());
            }
        }
    }

    /// The table, with its texts in the profile's strings.
    fn table(mut self, profile: &mut Profile) -> Table {
        for program in &mut self.all {
            program.facts.resize(self.names.len(), Value::Unknown);
        }
        let by_most = |p: &Program| {
            let number = p.facts.first().and_then(|v| v.float()).unwrap_or(0.0);
            (number, p.processes)
        };
        self.all.sort_by(|a, b| {
            by_most(b)
                .partial_cmp(&by_most(a))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let measure = |name: &str, kind, unit: Option<String>, values: Vec<Value>| Column {
            name: name.into(),
            kind,
            unit,
            role: Role::Measure,
            sum: Sum::Add,
            values,
            ..Column::default()
        };
        let mut columns = Vec::new();
        for (i, (name, kind, unit)) in self.names.iter().enumerate() {
            let values = self.all.iter().map(|p| p.facts[i]).collect();
            columns.push(measure(name, *kind, unit.clone(), values));
            if i == 0 {
                columns.push(Column {
                    name: "%".into(),
                    kind: Type::Percent,
                    role: Role::Derived,
                    part: Some(name.clone()),
                    ..Column::default()
                });
            }
        }
        let processes = self.all.iter().map(|p| Value::Integer(p.processes));
        columns.push(measure(
            "processes",
            Type::Count,
            Some("processes".into()),
            processes.collect(),
        ));
        let seconds = self.all.iter().map(|p| Value::Float(p.seconds)).collect();
        columns.push(measure("seconds", Type::Seconds, None, seconds));
        let first = profile.strings.len() as u64;
        let rows = self.all.len();
        columns.push(Column {
            name: "program".into(),
            kind: Type::Text,
            role: Role::Key,
            values: (first..).take(rows).map(Value::Integer).collect(),
            ..Column::default()
        });
        profile.strings.extend(self.all.into_iter().map(|p| p.path));
        Table {
            name: PROGRAMS.into(),
            by: By::Other,
            rows,
            readers: Readers::All,
            columns,
        }
    }
}
