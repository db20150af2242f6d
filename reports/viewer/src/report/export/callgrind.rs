//! Costs of source lines: the formats of callgrind and cachegrind, and those of covered lines.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs::File;

use coverage::Coverage;
use exports::callgrind::{Call, Function, Functions, Line, UNKNOWN};
use profile::{By, Profile, Table, Type};

use super::covered::of_lines;
use super::tree::{self, Graph};
use super::{Costs, Format, Made, costs, lines, word, written};

/// A procedure: path of its object, and its name.
type Proc<'a> = (&'a str, &'a str);

fn known(text: &str) -> &str {
    if text.is_empty() { UNKNOWN } else { text }
}

/// The program with its arguments, in one line.
fn command(profile: &Profile) -> String {
    let words = profile.program.arguments.join(" ");
    words.replace(char::is_control, " ")
}

/// Callgrind's format: objects, files, procedures, lines, and the calls of a profile that has arcs.
pub fn callgrind(profile: &Profile) -> Made {
    let arcs = profile.tables.iter().find(|t| t.by == By::Arc);
    let (spots, names) = match (lines(profile), arcs) {
        (Ok(spots), _) => {
            let names = spots.heads.iter().map(|h| word(&h.name)).collect();
            (Some(spots), names)
        }
        (Err(_), Some(_)) => (None, vec!["calls".to_owned()]),
        (Err(error), None) => return Err(error),
    };
    let mut notes = Vec::new();
    let mut procedures = Procedures::new();
    if let Some(spots) = &spots {
        notes.clone_from(&spots.notes);
        for ((object, file, procedure), costs) in costs(spots) {
            let object = profile.objects.get(object).map_or("", |o| &*o.path);
            let known = procedures.entry((object, procedure)).or_default();
            known.files.push((file, costs));
        }
    }
    if let Some(table) = arcs {
        add_calls(profile, table, &mut procedures);
    }
    let found = spots.as_ref().and_then(|spots| {
        let graph = Graph::new(profile, tree::own(&spots.all))?;
        notes.push(format!(
            "inclusive costs of calls are estimates from the call graph, for {}: all calls of a procedure count as equally expensive",
            names[0]
        ));
        Some(graph.arcs())
    });
    let path = |object: usize| profile.objects.get(object).map_or("", |o| &*o.path);
    let inclusive: HashMap<(Proc<'_>, Proc<'_>), u64> = (found.iter().flatten())
        .map(|((from, to), cost)| {
            let [from, to] = [from, to].map(|(object, name)| (path(*object), &**name));
            ((from, to), *cost)
        })
        .collect();
    let file = Functions {
        command: &command(profile),
        pid: profile.process.pid,
        events: &names,
        all: functions(&procedures, &inclusive),
    };
    Ok((written(|to| file.write(to)), notes))
}

/// What a file says of a procedure.
#[derive(Default)]
struct Procedure<'a> {
    /// Costs of its lines by source file.
    files: Vec<(&'a str, Costs)>,
    /// Procedures that it calls, and how often.
    callees: Vec<(Proc<'a>, u64)>,
    /// Number of its own calls.
    entries: u64,
}

type Procedures<'a> = BTreeMap<Proc<'a>, Procedure<'a>>;

impl<'a> Procedure<'a> {
    /// The source file with most of its cost: the other ones have code that was inlined.
    fn file(&self) -> &'a str {
        let cost = |costs: &Costs| -> u64 { costs.values().filter_map(|v| v.first()).sum() };
        let most = self.files.iter().max_by_key(|(_, costs)| cost(costs));
        most.map_or("", |(file, _)| file)
    }
}

/// Adds the calls of a table of arcs.
fn add_calls<'a>(profile: &'a Profile, table: &'a Table, procedures: &mut Procedures<'a>) {
    let text = |name: &str, row: usize| {
        let column = table.column(name)?;
        profile.text(*column.values.get(row)?)
    };
    let object = |name: &str, row: usize| {
        let column = table.column(name).filter(|c| c.kind == Type::Address)?;
        profile.object(column, row).map(|o| &*o.path)
    };
    for row in 0..table.rows {
        let count = table
            .column("calls")
            .and_then(|c| c.values.get(row)?.integer());
        let (Some(count), Some(callee)) = (count, text("callee", row)) else {
            continue;
        };
        let caller = (
            object("caller pc", row).unwrap_or(""),
            text("caller", row).unwrap_or(""),
        );
        let callee = (object("callee pc", row).unwrap_or(""), callee);
        let caller = procedures.entry(caller).or_default();
        caller.callees.push((callee, count));
        procedures.entry(callee).or_default().entries += count;
    }
}

/// All procedures. If there are no other costs, a call is a cost of the procedure that is called.
fn functions<'a>(
    procedures: &Procedures<'a>,
    inclusive: &HashMap<(Proc<'_>, Proc<'_>), u64>,
) -> Vec<Function<'a>> {
    let are_costs = procedures.values().all(|p| p.files.is_empty());
    let numbers: HashMap<Proc<'_>, usize> = procedures.keys().copied().zip(0..).collect();
    let function = |(proc, procedure): (&Proc<'a>, &Procedure<'a>)| {
        let file = procedure.file();
        let line = |file, (line, costs): (&u64, &Vec<u64>)| Line {
            file,
            line: *line,
            costs: costs.clone(),
        };
        let lines = procedure.files.iter();
        let lines = lines.flat_map(|(file, costs)| costs.iter().map(|of| line(*file, of)));
        let entries = (are_costs && procedure.entries != 0)
            .then(|| line(file, (&0, &vec![procedure.entries])));
        let call = |(callee, count): &(Proc<'a>, u64)| Call {
            callee: numbers[callee],
            line: 0,
            count: *count,
            total: if are_costs {
                *count
            } else {
                inclusive.get(&(*proc, *callee)).copied().unwrap_or(0)
            },
        };
        Function {
            object: proc.0,
            name: proc.1,
            file,
            line: 0,
            lines: lines.chain(entries).collect(),
            calls: procedure.callees.iter().map(call).collect(),
        }
    };
    procedures.iter().map(function).collect()
}

/// Cachegrind's format: files, procedures, lines.
pub fn cachegrind(profile: &Profile) -> Made {
    let spots = lines(profile)?;
    let names: Vec<String> = spots.heads.iter().map(|h| word(&h.name)).collect();
    let mut text = format!(
        "desc: atom report, profile of {}\ncmd: {}\nevents: {}\n",
        profile.tool,
        command(profile),
        names.join(" ")
    );
    // The format has no objects: code of one file and procedure in two objects is one.
    let mut all: BTreeMap<(&str, &str), BTreeMap<u64, Vec<u64>>> = BTreeMap::new();
    let mut sums = vec![0u64; names.len()];
    for ((_, file, procedure), costs) in costs(&spots) {
        for (line, values) in costs {
            let lines = all.entry((file, procedure)).or_default();
            let known = lines.entry(line).or_insert_with(|| vec![0; names.len()]);
            for ((sum, all), value) in known.iter_mut().zip(&mut sums).zip(values) {
                *sum += value;
                *all += value;
            }
        }
    }
    let shown = |values: &[u64]| {
        let values: Vec<String> = values.iter().map(u64::to_string).collect();
        values.join(" ")
    };
    let mut last = None;
    for ((file, procedure), costs) in all {
        // Writing to a string does not fail.
        if last.replace(file) != Some(file) {
            let _ = writeln!(text, "fl={}", known(file));
        }
        let _ = writeln!(text, "fn={}", known(procedure));
        for (line, values) in costs {
            let _ = writeln!(text, "{line} {}", shown(&values));
        }
    }
    let _ = writeln!(text, "summary: {}", shown(&sums));
    Ok((text.into_bytes(), spots.notes))
}

/// The formats of covered lines, for a profile that has reached lines only: executions by the first measure. The share
/// of covered lines is not known.
pub fn lines_reached(profile: &Profile, format: Format) -> Made {
    let spots = lines(profile)?;
    let mut coverage = Coverage::default();
    for spot in spots.all.iter().filter(|s| s.line != 0) {
        let count = spot.values.first().and_then(|v| v.integer()).unwrap_or(0);
        let file = coverage.files.entry(spot.file.clone()).or_default();
        let line = file.lines.entry(spot.line).or_default();
        *line = (*line).max(count);
    }
    // genhtml ends with an error at the first source file that it cannot read.
    let all = coverage.files.len();
    let is_readable =
        |file: &String| File::open(file).is_ok_and(|f| f.metadata().is_ok_and(|m| m.is_file()));
    coverage.files.retain(|file, _| is_readable(file));
    let missing = all - coverage.files.len();
    let mut notes = spots.notes;
    if missing != 0 {
        notes.push(format!(
            "{missing} of {all} source files are left out: they cannot be read here"
        ));
    }
    notes.push("lines that were not reached are not in the profile, and so not in the file".into());
    Ok((of_lines(&coverage, format, profile), notes))
}
