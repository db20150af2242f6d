//! Code for the page: the hottest procedures with their instructions and source lines.
//!
//! Amounts are limited, so that the page stays small: the rest is a matter for `atom annotate`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use profile::Profile;
use serde_json::{Map, Value, json};

use crate::annotate::{self, Annotated, CodeCounts, Sources};

/// Limits: number of procedures, of instructions, bytes of source text.
const PROCEDURES: usize = 400;
const INSTRUCTIONS: usize = 60_000;
const SOURCE: usize = 4 << 20;

/// The code of a page.
pub struct Embedded {
    measures: Vec<Value>,
    procedures: Vec<Value>,
    /// Lines by source file.
    files: Vec<(String, BTreeMap<u32, String>)>,
    /// Number of procedures with events that are not on the page.
    left_out: usize,
    /// What could not be read.
    pub problems: Vec<String>,
}

impl Embedded {
    /// Reads the code of the hottest procedures.
    pub fn new(profile: &Profile, counts: &CodeCounts, folders: &[PathBuf]) -> Self {
        let rows = &counts.procedures[..counts.procedures.len().min(PROCEDURES)];
        let collected = annotate::procedures(profile, counts, rows);
        let measure =
            |m: &annotate::Measure| json!({"name": m.name, "unit": m.unit, "total": m.total});
        let mut embedded = Self {
            measures: counts.measures.iter().map(measure).collect(),
            procedures: Vec::new(),
            files: Vec::new(),
            left_out: 0,
            problems: collected.problems,
        };
        let mut sources = Sources::new(folders);
        let (mut insts, mut bytes) = (0, 0);
        for procedure in &collected.procedures {
            insts += procedure.insts.len();
            if insts > INSTRUCTIONS || bytes > SOURCE {
                break;
            }
            let numbers = embedded.source(procedure, counts, &mut sources, &mut bytes);
            embedded.procedures.push(object(procedure, &numbers));
        }
        embedded.left_out = counts.procedures.len() - embedded.procedures.len();
        embedded
    }

    /// Adds the source lines of a procedure. Returns the page's number of each of its files.
    fn source(
        &mut self,
        procedure: &Annotated,
        counts: &CodeCounts,
        sources: &mut Sources,
        bytes: &mut usize,
    ) -> Vec<usize> {
        let numbers: Vec<usize> = procedure
            .files
            .iter()
            .map(|path| {
                let known = self.files.iter().position(|f| f.0 == *path);
                known.unwrap_or_else(|| {
                    self.files.push((path.clone(), BTreeMap::new()));
                    self.files.len() - 1
                })
            })
            .collect();
        for file in sources.of(procedure, counts.measures.len()) {
            let Some((_, lines)) = self.files.iter_mut().find(|f| f.0 == file.path) else {
                continue;
            };
            for line in file.lines.into_iter().filter(|_| file.is_found) {
                *bytes += line.text.len();
                lines.insert(line.number, line.text);
            }
        }
        numbers
    }

    /// The code as the page's scripts read it; `code.js` knows the keys.
    pub fn json(&self) -> Value {
        let files = self.files.iter().map(|(path, lines)| {
            // Consecutive lines are one text.
            let mut parts: Vec<(u32, u32, String)> = Vec::new();
            for (number, line) in lines {
                match parts.last_mut() {
                    Some((_, next, text)) if next == number => {
                        text.push('\n');
                        text.push_str(line);
                        *next += 1;
                    }
                    _ => parts.push((*number, number + 1, line.clone())),
                }
            }
            let parts = parts
                .into_iter()
                .map(|(first, _, text)| json!([first, text]));
            json!({"path": path, "parts": parts.collect::<Vec<_>>()})
        });
        json!({
            "measures": self.measures,
            "files": files.collect::<Vec<_>>(),
            "procedures": self.procedures,
            "leftOut": self.left_out,
            "problems": self.problems,
        })
    }
}

/// A procedure: its instructions by column.
fn object(procedure: &Annotated, numbers: &[usize]) -> Value {
    let insts = &procedure.insts;
    let column =
        |of: &dyn Fn(&annotate::Inst) -> Value| -> Vec<Value> { insts.iter().map(of).collect() };
    // Facts that few instructions have, by the instruction's index.
    let few = |of: &dyn Fn(&annotate::Inst) -> Option<Value>| {
        let known = insts.iter().enumerate();
        let known = known.filter_map(|(i, inst)| Some((i.to_string(), of(inst)?)));
        known.collect::<Map<String, Value>>()
    };
    let starts = insts
        .iter()
        .enumerate()
        .filter(|(_, inst)| inst.starts_block);
    let loops = procedure.loops.iter().map(|l| {
        json!({"header": l.header, "depth": l.depth, "parent": l.parent, "rounds": l.rounds, "entries": l.entries})
    });
    json!({
        "object": procedure.object,
        "name": procedure.name,
        "start": procedure.start,
        "end": procedure.end,
        "reason": procedure.reason,
        "address": column(&|i| i.address.into()),
        "bytes": column(&|i| i.bytes.as_str().into()),
        "text": column(&|i| i.text.as_str().into()),
        "values": column(&|i| i.values.clone().into()),
        "file": column(&|i| i.place.map_or((-1).into(), |p| numbers[p.0].into())),
        "line": column(&|i| i.place.map_or(0, |p| p.1).into()),
        "loop": column(&|i| i.innermost.map_or((-1).into(), Value::from)),
        "comment": few(&|i| i.comment.as_deref().map(Value::from)),
        "target": few(&|i| i.target.map(Value::from)),
        "call": few(&|i| i.is_call.then(|| true.into())),
        "branch": few(&|i| i.branch.map(|b| json!([b.taken, b.not_taken]))),
        "targets": few(&|i| (!i.targets.is_empty()).then(|| json!(i.targets))),
        "blocks": starts.map(|(i, _)| i).collect::<Vec<_>>(),
        "loops": loops.collect::<Vec<_>>(),
    })
}
