//! The files of other programs.
//!
//! Massif's format: snapshots with time and live bytes; the snapshot of the peak and the last one have a tree, in which each level
//! has the callers of the one above. Places with less than a hundredth of the bytes are one line.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Write};

use atom_tool::prelude::*;
use call_tree::{CallTree, Frame, Measure, Node};

use crate::found::{Found, Path};

/// A place must have one of this many parts of the bytes to be in the tree for itself.
const SMALLEST: u64 = 100;

/// Writes the files with these names, which are empty for files that are not wanted. `measure` is the number of the
/// measure of folded stacks.
pub fn write(
    found: &Found<'_>,
    paths: &BTreeMap<usize, Path>,
    program: &str,
    measure: usize,
    names: &[&str],
) {
    let tree = if names.iter().skip(1).any(|name| !name.is_empty()) {
        tree(found, paths, program)
    } else {
        CallTree::default()
    };
    let totals = &found.heap.totals;
    let facts = format!(
        "{} allocations with {} bytes, {} bytes at the peak, {} bytes never freed",
        totals.allocations, totals.bytes, totals.peak[1], totals.live[1]
    );
    type Writer<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;
    let writers: [Writer<'_>; 4] = [
        &|to| to.write_all(massif(found, paths, program).as_bytes()),
        &|to| tree.write_folded(measure, to),
        &|to| tree.write_speedscope(to),
        &|to| tree.write_page(&facts, to),
    ];
    for (name, write) in names.iter().zip(writers) {
        output::write_file("heap", name, write);
    }
}

fn tree(found: &Found<'_>, paths: &BTreeMap<usize, Path>, program: &str) -> CallTree {
    let measures = [
        ("bytes allocated", true),
        ("allocations", false),
        ("bytes live at the peak", true),
        ("bytes never freed", true),
    ];
    let mut made = CallTree {
        title: format!("{program}: memory by call path"),
        measures: measures
            .map(|(name, is_bytes)| Measure {
                name: name.into(),
                is_bytes,
            })
            .into(),
        ..CallTree::default()
    };
    let mut frames: HashMap<String, usize> = HashMap::new();
    let mut places: Vec<Option<usize>> = Vec::new();
    for (i, node) in found.tree.nodes.iter().enumerate() {
        let path = paths.get(&i).copied().unwrap_or_default();
        if i == 0 && path.allocations == 0 {
            places.push(None);
            continue;
        }
        let frame = *frames
            .entry(found.sites.name(node))
            .or_insert_with_key(|name| {
                let site = found.sites.proc(node);
                made.frames.push(Frame {
                    name: name.clone(),
                    file: site.map_or("", |site| site.file).to_owned(),
                    line: site.map_or(0, |site| site.line),
                });
                made.frames.len() - 1
            });
        let from = found.sites.line(node);
        made.nodes.push(Node {
            parent: if node.depth <= 1 {
                None
            } else {
                places[node.parent]
            },
            frame,
            own: vec![path.bytes, path.allocations, path.peak[1], path.end[1]],
            note: from.map_or(String::new(), |(file, line)| {
                format!("called at {file}:{line}")
            }),
        });
        places.push(Some(made.nodes.len() - 1));
    }
    made
}

/// Bytes of a place, and of its callers.
#[derive(Default)]
struct Callers {
    bytes: u64,
    callers: HashMap<String, Callers>,
}

fn massif(found: &Found<'_>, paths: &BTreeMap<usize, Path>, program: &str) -> String {
    let heap = found.heap;
    let mut text = format!("desc: atom heap\ncmd: {program}\ntime_unit: ms\n");
    let peak = (heap.totals.peak_time, heap.totals.peak[1]);
    let last = (heap.last, heap.totals.live[1]);
    let samples = heap.timeline.samples.iter().map(|sample| (*sample, ""));
    let before = samples.clone().filter(|((time, _), _)| *time <= peak.0);
    let after = samples.filter(|((time, _), _)| *time > peak.0 && *time < last.0);
    let peak = (peak.1 != 0).then_some((peak, "peak"));
    let all = before.chain(peak).chain(after).chain([(last, "detailed")]);
    for (number, ((time, bytes), kind)) in all.enumerate() {
        let ms = found.ms(time) as u64;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "#-----------\nsnapshot={number}\n#-----------\ntime={ms}\nmem_heap_B={bytes}\nmem_heap_extra_B=0\n\
             mem_stacks_B=0\nheap_tree={}\n",
            if kind.is_empty() { "empty" } else { kind }
        );
        if !kind.is_empty() {
            let of = |path: &Path| match kind {
                "peak" => path.peak[1],
                _ => path.end[1],
            };
            let root = callers(found, paths, of);
            let title = "(heap allocation functions) malloc/new/new[], --alloc-fns, etc.";
            branch(&mut text, &root, title, 0, root.bytes / SMALLEST);
        }
    }
    text
}

/// The bytes by the places that allocate, and by their callers.
fn callers(found: &Found<'_>, paths: &BTreeMap<usize, Path>, of: impl Fn(&Path) -> u64) -> Callers {
    let nodes = &found.tree.nodes;
    let mut root = Callers::default();
    for (node, path) in paths {
        let bytes = of(path);
        if bytes == 0 {
            continue;
        }
        root.bytes += bytes;
        let (mut at, mut place) = (*node, &mut root);
        while nodes[at].parent != 0 {
            let caller = &nodes[nodes[at].parent];
            let call = found.sites.call(&nodes[at]);
            let address = call.map_or(0, |call| Address(call.pc).in_file());
            let line = call.and_then(|call| call.short_line());
            let where_to = line.unwrap_or_else(|| "in ???".to_owned());
            let text = format!("{address:#X}: {} ({where_to})", found.sites.name(caller));
            place = place.callers.entry(text.replace("0X", "0x")).or_default();
            place.bytes += bytes;
            at = nodes[at].parent;
        }
    }
    root
}

/// Writes a place and its callers.
fn branch(text: &mut String, place: &Callers, name: &str, depth: usize, least: u64) {
    let mut callers: Vec<(&String, &Callers)> = place.callers.iter().collect();
    callers.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(b.0)));
    let (large, small): (Vec<_>, Vec<_>) =
        callers.iter().partition(|(_, c)| c.bytes >= least.max(1));
    let lines = large.len() + usize::from(!small.is_empty());
    let _ = writeln!(text, "{:depth$}n{lines}: {} {name}", "", place.bytes);
    for (name, caller) in large {
        branch(text, caller, name, depth + 1, least);
    }
    if !small.is_empty() {
        let bytes: u64 = small.iter().map(|(_, caller)| caller.bytes).sum();
        let inner = depth + 1;
        let places = match small.len() {
            1 => "1 place, below".to_owned(),
            count => format!("{count} places, all below"),
        };
        let _ = writeln!(
            text,
            "{:inner$}n0: {bytes} in {places} massif's threshold (1.00%)",
            ""
        );
    }
}
