//! The files of other programs.

use std::collections::HashMap;
use std::io::{self, Write};

use atom_tool::paths::Tree;
use atom_tool::prelude::*;
use call_tree::{CallTree, Frame, Measure, Node};
use exports::callgrind::{Call, Function, Functions, Line};

use crate::found::Found;

/// What the files show.
pub struct Export<'a> {
    pub found: &'a Found,
    /// The trees of the threads, if paths begin with their thread.
    pub threads: &'a [Tree],
    pub program: &'a str,
    /// The paths of the objects.
    pub objects: &'a [&'a str],
}

/// Writes the files with these names, which are empty for files that are not wanted.
pub fn write(export: &Export<'_>, names: &[&str]) {
    // All but the first file show the tree.
    let tree = if names.iter().skip(1).any(|name| !name.is_empty()) {
        export.tree()
    } else {
        CallTree::default()
    };
    let facts = format!(
        "{} instructions in {} call paths",
        export.found.tree.nodes[0].total,
        export.found.tree.nodes.len() - 1
    );
    type Writer<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;
    let writers: [Writer<'_>; 4] = [
        &|to| export.write_callgrind(to),
        &|to| tree.write_folded(0, to),
        &|to| tree.write_speedscope(to),
        &|to| tree.write_page(&facts, to),
    ];
    for (name, write) in names.iter().zip(writers) {
        output::write_file("calltree", name, write);
    }
}

impl Export<'_> {
    fn frame(&self, name: String, proc: Option<usize>) -> Frame {
        let site = proc.and_then(|proc| self.found.procs.get(proc));
        Frame {
            name,
            file: site.map_or("", |site| site.file).to_owned(),
            line: site.map_or(0, |site| site.line),
        }
    }

    fn tree(&self) -> CallTree {
        let mut made = CallTree {
            title: format!("{}: instructions by call path", self.program),
            measures: vec![Measure {
                name: "instructions".into(),
                is_bytes: false,
            }],
            ..CallTree::default()
        };
        let mut frames: HashMap<String, usize> = HashMap::new();
        if self.threads.is_empty() {
            self.add(&self.found.tree, None, &mut made, &mut frames);
        }
        for (tree, number) in self.threads.iter().zip(1..) {
            made.frames
                .push(self.frame(format!("thread {number}"), None));
            made.nodes.push(Node {
                parent: None,
                frame: made.frames.len() - 1,
                own: vec![0],
                note: String::new(),
            });
            let thread = made.nodes.len() - 1;
            self.add(tree, Some(thread), &mut made, &mut frames);
        }
        made
    }

    /// Adds the nodes of a tree below the node `around`.
    fn add(
        &self,
        tree: &Tree,
        around: Option<usize>,
        made: &mut CallTree,
        frames: &mut HashMap<String, usize>,
    ) {
        let mut places: Vec<Option<usize>> = Vec::with_capacity(tree.nodes.len());
        for (i, node) in tree.nodes.iter().enumerate() {
            // What runs before the first entry is beside the outermost procedures.
            if i == 0 && node.own == 0 {
                places.push(around);
                continue;
            }
            let name = self.found.name(node);
            let frame = *frames.entry(name).or_insert_with_key(|name| {
                made.frames.push(self.frame(name.clone(), node.proc));
                made.frames.len() - 1
            });
            let parent = if node.depth <= 1 {
                around
            } else {
                places[node.parent]
            };
            made.nodes.push(Node {
                parent,
                frame,
                own: vec![node.own],
                note: format!("{} calls", node.calls),
            });
            places.push(Some(made.nodes.len() - 1));
        }
    }

    fn write_callgrind(&self, to: &mut dyn Write) -> io::Result<()> {
        let found = self.found;
        let line = |file, line, own| Line {
            file,
            line,
            costs: vec![own],
        };
        let mut all: Vec<Function<'_>> = Vec::with_capacity(found.procs.len());
        for (site, cost) in found.procs.iter().zip(&found.costs) {
            let object = Address(site.pc).object_number();
            let own = (cost.own != 0).then(|| line(site.file, site.line.into(), cost.own));
            all.push(Function {
                object: self.objects.get(object).copied().unwrap_or_default(),
                name: site.proc,
                file: site.file,
                line: site.line.into(),
                lines: own.into_iter().collect(),
                calls: Vec::new(),
            });
        }
        for ((caller, callee), arc) in &found.arcs {
            let line = all[*caller].line;
            all[*caller].calls.push(Call {
                callee: *callee,
                line,
                count: arc.calls,
                total: arc.total,
            });
        }
        // What belongs to no procedure.
        let known: u64 = found.costs.iter().map(|cost| cost.own).sum();
        let rest = found.tree.nodes[0].total - known;
        all.push(Function {
            name: "(start)",
            lines: (rest != 0).then(|| line("", 0, rest)).into_iter().collect(),
            ..Function::default()
        });
        let functions = Functions {
            command: self.program,
            pid: std::process::id().into(),
            events: &["Ir".into()],
            all,
        };
        functions.write(to)
    }
}
