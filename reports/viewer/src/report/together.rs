//! The profiles of all processes of a run as one, whatever their programs.
//!
//! Tables of programs and of processes are in front of the tool's own tables: what each program did in all of its
//! processes, and what each process did.

use std::collections::HashMap;
use std::path::Path;

use ::profile::{
    Adder, By, Column, FactValue, Profile, Readers, Role, Sum, Table, Type, Value, added,
};
use atom_core::{Error, Result};
use rayon::prelude::*;

use output::message::count;
use output::progress::Progress;

/// Number of profiles that are read at once. At most twice this number are in memory.
const AT_ONCE: usize = 32;

/// Name of the table of programs, which several programs have.
const PROGRAMS: &str = "programs";
/// Name of the table of processes.
const PROCESSES: &str = "processes";

/// The profiles that have been added up so far.
#[derive(Default)]
struct SoFar {
    adder: Option<Adder>,
    programs: Rows,
    processes: Rows,
    /// Number of profiles that contain what the parents did.
    inheriting: usize,
    /// When the first process started and the last one ended.
    span: Option<(f64, f64)>,
}

impl SoFar {
    fn add(&mut self, path: &Path, profile: Profile) -> Result<()> {
        let process = [profile.process.pid, profile.process.parent];
        self.programs.add(&profile, None);
        self.processes.add(&profile, Some(process));
        self.inheriting += usize::from(profile.process.inherits);
        if let Some(start) = profile.time.since_1970() {
            let end = start + profile.time.seconds;
            let (first, last) = self.span.unwrap_or((start, end));
            self.span = Some((first.min(start), last.max(end)));
        }
        match &mut self.adder {
            None => self.adder = Some(Adder::of_programs(profile)),
            Some(adder) => adder
                .add(&profile)
                .map_err(|e| Error::new("adding profiles up", e.to_string()).file(path))?,
        }
        Ok(())
    }
}

/// Adds profiles up, of several programs too. Returns the sum, and the number of the profiles.
///
/// # Errors
/// A profile cannot be read, or one is of another tool than the first.
pub fn sum(files: &[&Path]) -> Result<(Profile, usize)> {
    let progress = Progress::start_at("reports added up", 0, files.len() as u64);
    let mut sum = SoFar::default();
    let read = |chunk: &[&Path]| -> Vec<Result<Profile>> {
        chunk.par_iter().map(|path| super::read(path)).collect()
    };
    let mut chunks = files.chunks(AT_ONCE);
    let mut current = chunks.next().map(|chunk| (chunk, read(chunk)));
    // The next ones are read while these are added up.
    while let Some((paths, profiles)) = current {
        let add = || {
            paths.iter().zip(profiles).try_for_each(|(path, profile)| {
                progress.advance();
                sum.add(path, profile?)
            })
        };
        let next = || chunks.next().map(|chunk| (chunk, read(chunk)));
        let (added, next) = rayon::join(add, next);
        added?;
        current = next;
    }
    finish(sum)
}

/// The sum with its tables of programs and processes.
fn finish(so_far: SoFar) -> Result<(Profile, usize)> {
    let adder = so_far.adder;
    let adder = adder.ok_or_else(|| Error::new(super::DOING, "no profile is named"))?;
    let number = adder.files();
    let mut sum = adder.finish();
    if let Some((first, last)) = so_far.span {
        sum.time.seconds = last - first;
    }
    if so_far.inheriting != 0 {
        let reports = count(so_far.inheriting, "profile");
        let text =
            format!("{reports} of forked processes contain what their parents did before the fork");
        sum.facts.push(super::text_fact("counted twice", &text));
    }
    // A sum that is added up has tables of its own.
    let is_known = |name: &str| sum.tables.iter().any(|t| t.name == name);
    let wanted = [
        (
            PROCESSES,
            so_far.processes,
            number > 1 && !is_known(PROCESSES),
        ),
        (PROGRAMS, so_far.programs, !is_known(PROGRAMS)),
    ];
    for (name, rows, is_wanted) in wanted {
        if is_wanted && rows.all.len() > 1 {
            let table = rows.table(name, &mut sum);
            sum.tables.insert(0, table);
        }
    }
    Ok((sum, number))
}

/// What the processes of one program did, or what one process did.
struct Row {
    path: String,
    /// Numbers of the process and of its parent.
    process: Option<[u64; 2]>,
    /// Number of profiles.
    processes: u64,
    seconds: f64,
    /// For each fact its sum.
    facts: Vec<Value>,
}

/// The rows of a table in the order in which they were met.
#[derive(Default)]
struct Rows {
    all: Vec<Row>,
    known: HashMap<(String, Option<[u64; 2]>), usize>,
    /// Names of the facts that are added up.
    names: Vec<(String, Type, Option<String>)>,
}

impl Rows {
    /// Adds what a profile says to the row of its program and of the given process.
    fn add(&mut self, profile: &Profile, process: Option<[u64; 2]>) {
        let path = &profile.program.path;
        let next = self.all.len();
        let at = *self.known.entry((path.clone(), process)).or_insert(next);
        if at == next {
            self.all.push(Row {
                path: path.clone(),
                process,
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
        let row = &mut self.all[at];
        row.processes += 1;
        row.seconds += profile.time.seconds;
        row.facts.resize(self.names.len(), Value::Unknown);
        for ((name, ..), total) in self.names.iter().zip(&mut row.facts) {
            if let Some(fact) = profile.fact(name) {
                *total = added(Sum::Add, *total, fact.number());
            }
        }
    }

    /// The table, with its texts in the profile's strings.
    fn table(mut self, name: &str, profile: &mut Profile) -> Table {
        for row in &mut self.all {
            row.facts.resize(self.names.len(), Value::Unknown);
        }
        let by_most = |p: &Row| {
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
        let is_process = self.all.iter().any(|row| row.process.is_some());
        if !is_process {
            let processes = self.all.iter().map(|p| Value::Integer(p.processes));
            let unit = Some("processes".into());
            let values = processes.collect();
            columns.push(measure("processes", Type::Count, unit, values));
        }
        let seconds = self.all.iter().map(|p| Value::Float(p.seconds)).collect();
        columns.push(measure("seconds", Type::Seconds, None, seconds));
        let key = |name: &str, kind, values: Vec<Value>| Column {
            name: name.into(),
            kind,
            role: Role::Key,
            values,
            ..Column::default()
        };
        if is_process {
            let first = profile.strings.len() as u64;
            let numbers = |which: usize| {
                let numbers = self.all.iter().filter_map(move |row| row.process);
                numbers.map(move |process| process[which].to_string())
            };
            let rows = self.all.len() as u64;
            for (name, from) in [("process", first), ("parent", first + rows)] {
                let values = (from..from + rows).map(Value::Integer).collect();
                columns.push(key(name, Type::Text, values));
            }
            let texts: Vec<String> = numbers(0).chain(numbers(1)).collect();
            profile.strings.extend(texts);
        }
        let first = profile.strings.len() as u64;
        let rows = self.all.len();
        let values = (first..).take(rows).map(Value::Integer).collect();
        columns.push(key("program", Type::Text, values));
        profile.strings.extend(self.all.into_iter().map(|p| p.path));
        Table {
            name: name.into(),
            by: By::Other,
            rows,
            readers: Readers::All,
            columns,
        }
    }
}
