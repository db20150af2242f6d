//! Stacks: folded ones, speedscope's, and Chrome's time line.
//!
//! A profile has measures by procedure, not by stack. If it has a call graph, stacks follow from that ([`tree`]). Else the
//! stack of a procedure is its object and itself: what people see is the share of each.

use std::collections::{BTreeMap, HashMap};

use atom_core::{Error, Result};
use profile::{By, Profile};
use serde_json::json;

use super::super::group::{self, Unit};
use super::{Made, tree};

/// A procedure or an object: the name of its object, and its name; the name is empty for the object itself.
type Frame = (String, String);

/// The name of the measure, its value for each stack with the outermost frame first, and what could not be found
/// out.
struct Stacks {
    measure: String,
    unit: String,
    values: BTreeMap<Vec<Frame>, u64>,
    notes: Vec<String>,
}

fn stacks(profile: &Profile) -> Result<Stacks> {
    let spots = group::spots(profile, Unit::Procedure, None)?;
    let Some(measure) = spots.heads.first() else {
        return Err(Error::new(
            "exporting",
            "the profile has no measure that is added up",
        ));
    };
    let own = tree::own(&spots.all);
    let object = |number: usize| {
        profile
            .objects
            .get(number)
            .map_or("", |o| &*o.name)
            .to_owned()
    };
    let mut notes = spots.notes;
    let mut values: BTreeMap<Vec<Frame>, u64> = BTreeMap::new();
    if profile.tables.iter().any(|t| t.by == By::Arc) {
        notes.push(format!(
            "stacks are estimates from the call graph: all calls of a procedure count as equally expensive. Sums of {} by procedure are exact",
            measure.name
        ));
        let graph = tree::Graph::new(profile, own);
        for (procs, value) in graph.map(tree::Graph::stacks).unwrap_or_default() {
            let frames = procs
                .into_iter()
                .map(|(number, name)| (object(number), name));
            *values.entry(frames.collect()).or_default() += value;
        }
    } else {
        for ((number, name), value) in own {
            let frames = vec![(object(number), String::new()), (object(number), name)];
            *values.entry(frames).or_default() += value;
        }
    }
    values.retain(|_, value| *value != 0);
    Ok(Stacks {
        measure: measure.name.clone(),
        unit: measure.unit.clone().unwrap_or_else(|| measure.name.clone()),
        values,
        notes,
    })
}

/// The name of a frame as people read it.
fn name(frame: &Frame) -> &str {
    match &*frame.1 {
        "" => &frame.0,
        name => name,
    }
}

/// One line for each stack, with semicolons between its frames, and its value.
pub fn folded(profile: &Profile) -> Made {
    let Stacks { values, notes, .. } = stacks(profile)?;
    // Procedures of one name in two objects are one line.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, value) in values {
        let frames: Vec<String> = frames
            .iter()
            .map(|f| name(f).replace([';', '\n'], ":"))
            .collect();
        *lines.entry(frames.join(";")).or_default() += value;
    }
    let text: String = lines
        .iter()
        .map(|(stack, value)| format!("{stack} {value}\n"))
        .collect();
    Ok((text.into_bytes(), notes))
}

/// The format of speedscope.
pub fn speedscope(profile: &Profile) -> Made {
    let Stacks {
        measure,
        values,
        notes,
        ..
    } = stacks(profile)?;
    let mut frames: Vec<Frame> = Vec::new();
    let mut numbers: HashMap<Frame, usize> = HashMap::new();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (stack, value) in values {
        let sample = stack.into_iter().map(|frame| {
            *numbers.entry(frame.clone()).or_insert_with(|| {
                frames.push(frame);
                frames.len() - 1
            })
        });
        samples.push(sample.collect::<Vec<_>>());
        weights.push(value);
    }
    let frame = |frame: &Frame| match &*frame.1 {
        "" => json!({ "name": frame.0 }),
        name => json!({ "name": name, "file": frame.0 }),
    };
    let end: u64 = weights.iter().sum();
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "atom",
        "name": format!("{} of {}", profile.tool, profile.program.path),
        "shared": { "frames": frames.iter().map(frame).collect::<Vec<_>>() },
        "profiles": [{
            "type": "sampled", "name": measure, "unit": "none", "startValue": 0, "endValue": end,
            "samples": samples, "weights": weights,
        }],
    });
    Ok((file.to_string().into_bytes(), notes))
}

/// A slice of the time line.
struct Slice {
    frame: Frame,
    start: u64,
    length: u64,
    own: u64,
}

/// The slices of sorted stacks: a frame is one slice as long as the stacks have it in common. Outer slices are
/// before inner ones.
fn slices(stacks: &BTreeMap<Vec<Frame>, u64>) -> Vec<Slice> {
    let mut slices: Vec<Slice> = Vec::new();
    // Numbers of the slices that are open.
    let mut open: Vec<usize> = Vec::new();
    let mut now = 0;
    for (stack, value) in stacks {
        let same = open
            .iter()
            .zip(stack)
            .take_while(|(slice, frame)| slices[**slice].frame == **frame);
        let common = same.count();
        open.truncate(common);
        for frame in &stack[common..] {
            open.push(slices.len());
            slices.push(Slice {
                frame: frame.clone(),
                start: now,
                length: 0,
                own: 0,
            });
        }
        open.iter().for_each(|slice| slices[*slice].length += value);
        if let Some(last) = open.last() {
            slices[*last].own += value;
        }
        now += value;
    }
    slices
}

/// Chrome's trace event format: stacks side by side. A microsecond of the time line stands for one unit of the measure.
pub fn chrome(profile: &Profile) -> Made {
    let Stacks {
        measure,
        unit,
        values,
        mut notes,
    } = stacks(profile)?;
    let pid = profile.process.pid;
    let title = format!(
        "{} of {}",
        profile.tool,
        profile.program.arguments.join(" ")
    );
    let axis = format!("{measure}: 1 µs stands for 1 of {unit}");
    let meta = |what: &str, name: &str| json!({"name": what, "ph": "M", "pid": pid, "tid": 1, "args": {"name": name}});
    let mut events = vec![meta("process_name", &title), meta("thread_name", &axis)];
    for slice in slices(&values) {
        events.push(json!({
            "ph": "X", "pid": pid, "tid": 1, "ts": slice.start, "dur": slice.length, "name": name(&slice.frame),
            "cat": slice.frame.0, "args": {"object": slice.frame.0, measure.as_str(): slice.length, "own": slice.own},
        }));
    }
    notes.push(format!(
        "the time line is no time: it has the stacks side by side, and one microsecond stands for one of {unit}"
    ));
    let file = json!({
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"exporter": "atom", "program": profile.program.path, "tool": profile.tool, "axis": axis},
    });
    Ok((file.to_string().into_bytes(), notes))
}
