//! Stacks: folded ones, speedscope's, and Chrome's time line.
//!
//! A profile of *calltree* has its stacks. Others have measures by procedure, not by stack. If there is a call graph, stacks
//! follow from that ([`tree`]). Else the stack of a procedure is its object and itself: what people see is the share of each.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use atom_core::{Error, Result};
use call_tree::{CallTree, Measure, Node};
use exports::chrome::{Call, Trace};
use profile::{By, Profile, Role, Type};
use serde_json::json;

use super::super::spots::{self, Unit};
use super::{Made, tree, written};

/// A procedure or an object: the name of its object, and its name; the name is empty for the object itself.
type Frame = (String, String);

/// The table of exact stacks, which *calltree* writes: procedures with `;` between them, the outermost first.
pub const CALL_PATHS: &str = "call paths";

/// The stacks of a profile.
struct Stacks {
    /// The stacks, with what the first measure says of each.
    tree: CallTree,
    /// What the values count.
    unit: String,
    /// What could not be found out.
    notes: Vec<String>,
}

fn stacks(profile: &Profile) -> Result<Stacks> {
    let spots = spots::spots(profile, Unit::Procedure, None)?;
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
    if let Some(exact) = exact(profile, &measure.name) {
        values = exact;
    } else if profile.tables.iter().any(|t| t.by == By::Arc) {
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
    let mut tree = tree_of(&values);
    tree.title = format!(
        "{} of {}",
        profile.tool,
        profile.program.arguments.join(" ")
    );
    tree.measures.push(Measure {
        name: measure.name.clone(),
        is_bytes: measure.unit.as_deref() == Some("bytes"),
    });
    let unit = measure.unit.clone().unwrap_or_else(|| measure.name.clone());
    Ok(Stacks { tree, unit, notes })
}

/// The stacks of a profile that has call paths with this measure.
fn exact(profile: &Profile, measure: &str) -> Option<BTreeMap<Vec<Frame>, u64>> {
    let table = profile.table(CALL_PATHS)?;
    let paths = table.column("path").filter(|c| c.kind == Type::Text)?;
    let costs = table.column(measure).filter(|c| c.role == Role::Measure)?;
    let program = profile.objects.first().map_or("", |o| &*o.name);
    let frame = |text: &str| {
        let (object, name) = text.split_once(':').unwrap_or_default();
        if profile.objects.iter().any(|o| o.name == object) {
            (object.to_owned(), name.to_owned())
        } else {
            (program.to_owned(), text.to_owned())
        }
    };
    let mut stacks: BTreeMap<Vec<Frame>, u64> = BTreeMap::new();
    for (path, cost) in paths.values.iter().zip(&costs.values) {
        let path = profile.text(*path).filter(|path| !path.is_empty());
        let frames = path.unwrap_or("(start)").split(';').map(frame);
        *stacks.entry(frames.collect()).or_default() += cost.integer().unwrap_or(0);
    }
    Some(stacks)
}

/// The tree of sorted stacks: they share the nodes of the frames that they have in common.
fn tree_of(stacks: &BTreeMap<Vec<Frame>, u64>) -> CallTree {
    let mut tree = CallTree::default();
    let mut numbers: HashMap<&Frame, usize> = HashMap::new();
    // The nodes of the last stack with the numbers of their frames.
    let mut open: Vec<(usize, usize)> = Vec::new();
    for (stack, value) in stacks {
        for (depth, frame) in stack.iter().enumerate() {
            let number = *numbers.entry(frame).or_insert_with(|| {
                let (object, name) = frame;
                tree.frames.push(call_tree::Frame {
                    name: if name.is_empty() { object } else { name }.clone(),
                    file: object.clone(),
                    line: 0,
                });
                tree.frames.len() - 1
            });
            if open.get(depth).is_some_and(|(_, frame)| *frame == number) {
                continue;
            }
            open.truncate(depth);
            tree.nodes.push(Node {
                parent: open.last().map(|(node, _)| *node),
                frame: number,
                own: vec![0],
                note: String::new(),
            });
            open.push((tree.nodes.len() - 1, number));
        }
        open.truncate(stack.len());
        if let Some((last, _)) = open.last() {
            tree.nodes[*last].own[0] += value;
        }
    }
    tree
}

/// One line for each stack, with semicolons between its frames, and its value.
pub fn folded(profile: &Profile) -> Made {
    let Stacks { tree, notes, .. } = stacks(profile)?;
    Ok((written(|to| tree.write_folded(0, to)), notes))
}

/// The format of speedscope.
pub fn speedscope(profile: &Profile) -> Made {
    let Stacks { tree, notes, .. } = stacks(profile)?;
    Ok((written(|to| tree.write_speedscope(to)), notes))
}

/// Chrome's trace event format: stacks side by side. A microsecond of the time line stands for one unit of the measure.
pub fn chrome(profile: &Profile) -> Made {
    let Stacks {
        tree,
        unit,
        mut notes,
    } = stacks(profile)?;
    notes.push(format!(
        "the time line is no time: it has the stacks side by side, and one microsecond stands for one of {unit}"
    ));
    let measure = &*tree.measures[0].name;
    let axis = format!("{measure}: 1 µs stands for 1 of {unit}");
    let facts = json!({"exporter": "atom", "program": profile.program.path, "tool": profile.tool, "axis": axis});
    let put = |to: &mut dyn Write| {
        let mut trace = Trace::begin(profile.process.pid, &tree.title, &facts, to)?;
        trace.thread(1, &axis, 0)?;
        let mut now = 0;
        for (node, total) in tree.nodes.iter().zip(tree.totals(0)) {
            let (frame, own) = (&tree.frames[node.frame], node.own[0]);
            trace.call(&Call {
                tid: 1,
                start: now.into(),
                length: total.into(),
                name: &frame.name,
                category: &frame.file,
                facts: Some(json!({"object": frame.file, measure: total, "own": own})),
            })?;
            now += own;
        }
        trace.end()
    };
    Ok((written(put), notes))
}
