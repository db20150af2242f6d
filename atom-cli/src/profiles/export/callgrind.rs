//! Costs of source lines: the formats of callgrind and cachegrind, and those of covered lines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;

use coverage::Coverage;
use profile::{By, Profile, Table, Type};

use super::covered::written;
use super::{Format, Made, costs, lines, word};

/// A procedure: path of its object, and its name.
type Proc<'a> = (&'a str, &'a str);

/// A text for what is not known, as callgrind's own.
const UNKNOWN: &str = "???";

fn known(text: &str) -> &str {
    if text.is_empty() { UNKNOWN } else { text }
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
    let mut text = String::from("# callgrind format\nversion: 1\ncreator: atom\n");
    let pid = profile.process.pid;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "pid: {pid}\ncmd: {}\npart: 1\n",
        profile.program.arguments.join(" ")
    );
    let _ = writeln!(text, "positions: line\nevents: {}", names.join(" "));
    let mut sums = vec![0u64; names.len()];
    let mut body = String::new();
    let mut notes = Vec::new();
    if let Some(spots) = &spots {
        notes.clone_from(&spots.notes);
        for ((object, file, procedure), costs) in costs(spots) {
            let object = profile.objects.get(object).map_or("", |o| &*o.path);
            let _ = writeln!(
                body,
                "\nob={}\nfl={}\nfn={}",
                known(object),
                known(file),
                known(procedure)
            );
            for (line, values) in costs {
                let shown: Vec<String> = values.iter().map(u64::to_string).collect();
                let _ = writeln!(body, "{line} {}", shown.join(" "));
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += value;
                }
            }
        }
    }
    if let Some(table) = arcs {
        calls(profile, table, spots.is_none(), &mut body, &mut sums);
    }
    let shown: Vec<String> = sums.iter().map(u64::to_string).collect();
    let _ = writeln!(text, "summary: {}", shown.join(" "));
    text.push_str(&body);
    let _ = writeln!(text, "\ntotals: {}", shown.join(" "));
    Ok((text.into_bytes(), notes))
}

/// Writes the calls. If they are the only cost, a call is a cost of the procedure that is called.
fn calls(profile: &Profile, table: &Table, are_costs: bool, body: &mut String, sums: &mut [u64]) {
    let text = |name: &str, row: usize| {
        let column = table.column(name)?;
        profile.text(*column.values.get(row)?)
    };
    let object = |name: &str, row: usize| {
        let column = table.column(name).filter(|c| c.kind == Type::Address)?;
        profile.object(column, row).map(|o| &*o.path)
    };
    let mut by_caller: BTreeMap<Proc<'_>, Vec<(&str, &str, u64)>> = BTreeMap::new();
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
        let callee = (object("callee pc", row).unwrap_or(""), callee, count);
        by_caller.entry(caller).or_default().push(callee);
        if are_costs {
            by_caller.entry((callee.0, callee.1)).or_default();
        }
    }
    let mut entries: BTreeMap<Proc<'_>, u64> = BTreeMap::new();
    for (object, name, count) in by_caller.values().flatten() {
        *entries.entry((object, name)).or_default() += count;
    }
    let costs = sums.len();
    for ((ob, name), callees) in &by_caller {
        // Writing to a string does not fail.
        let _ = writeln!(body, "\nob={}\nfl={UNKNOWN}\nfn={}", known(ob), known(name));
        if are_costs && let Some(own) = entries.get(&(*ob, *name)) {
            let _ = writeln!(body, "0 {own}");
            sums[0] += own;
        }
        for (ob, name, count) in callees {
            let inclusive = if are_costs { *count } else { 0 };
            let zeros = " 0".repeat(costs - 1);
            let _ = writeln!(
                body,
                "cob={}\ncfi={UNKNOWN}\ncfn={}\ncalls={count} 0\n0 {inclusive}{zeros}",
                known(ob),
                known(name)
            );
        }
    }
}

/// Cachegrind's format: files, procedures, lines.
pub fn cachegrind(profile: &Profile) -> Made {
    let spots = lines(profile)?;
    let names: Vec<String> = spots.heads.iter().map(|h| word(&h.name)).collect();
    let mut text = format!(
        "desc: atom report, profile of {}\ncmd: {}\nevents: {}\n",
        profile.tool,
        profile.program.arguments.join(" "),
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
    Ok((written(&coverage, format, profile), notes))
}
