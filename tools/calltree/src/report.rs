//! The tables.

use std::cmp::Reverse;

use atom_tool::paths::{PathState, Tree, TreeNode};
use atom_tool::prelude::*;
use atom_tool::report::{By, Column, Readers, Sum};

use crate::exports::{self, Export};
use crate::found::Found;

/// Largest number of call paths in the profile, and of procedures on one; the others are one row.
const MOST_PATHS: usize = 2_000;
const MOST_ON_PATH: usize = 1_000;
/// Largest number of levels by which a name in the tree is indented. Names of a deep recursion would be longer than all
/// that is in them.
const MOST_INDENTED: usize = 100;

/// Writes the report and the other files.
pub fn write(
    states: AllThreads<PathState>,
    files: Files,
    texts: Strings,
    procs: Sites,
    per_thread: bool,
) {
    let mut texts = texts.iter();
    let program = texts.next().unwrap_or_default();
    let exports: Vec<&str> = texts.by_ref().take(crate::FILES.len()).collect();
    let objects: Vec<&str> = texts.collect();
    let threads: Vec<Tree> = Tree::of_threads(states).collect();
    let found = Found::new(Tree::merged(states), procs);
    let export = Export {
        found: &found,
        threads: if per_thread { &threads } else { &[] },
        program,
        objects: &objects,
    };
    exports::write(&export, &exports);

    let mut report = Report::new("calltree", program);
    facts(&mut report, &found, &threads);
    tree(&mut report, &found, files.rows());
    procedures(&mut report, &found);
    if threads.len() > 1 {
        by_thread(&mut report, &threads);
    }
    arcs(&mut report, &found);
    if files.has_profile() {
        paths(&mut report, &found);
    }
    report.write(files);
}

fn facts(report: &mut Report, found: &Found, threads: &[Tree]) {
    let nodes = &found.tree.nodes;
    let calls: u64 = nodes.iter().map(|node| node.calls).sum();
    let depth = nodes.iter().map(|node| node.depth).max();
    let (mut back, mut beyond) = (0, 0);
    for repeat in &found.tree.repeats {
        // A call of a procedure that is on the path leads back to a node above. Others lead below the node of no
        // procedure, where paths have one procedure each.
        let around = nodes[repeat.to].parent;
        let is_more = around != 0 && nodes[around].proc.is_none();
        if is_more && repeat.from != repeat.to {
            beyond += repeat.calls
        } else {
            back += repeat.calls
        }
    }
    report
        .typed_fact(
            Column::count("instructions", "instructions"),
            nodes[0].total,
        )
        .typed_fact(Column::count("calls", "calls"), calls)
        .typed_fact(Column::count("recursive calls", "calls"), back)
        .typed_fact(
            Column::count("call paths", "paths").sum(Sum::Max),
            nodes.len() as u64 - 1,
        )
        .typed_fact(
            Column::count("longest path", "procedures").sum(Sum::Max),
            depth.unwrap_or(0) as u64,
        )
        .typed_fact(Column::count("threads", "threads"), threads.len() as u64);
    if beyond != 0 {
        report.typed_fact(Column::count("calls beyond --paths", "calls"), beyond);
    }
}

/// The tree for people: the `most` most expensive nodes, each below its caller.
fn tree(report: &mut Report, found: &Found, most: usize) {
    let nodes = &found.tree.nodes;
    let whole = nodes[0].total;
    let mut order: Vec<usize> = (1..nodes.len()).filter(|i| nodes[*i].total != 0).collect();
    // A node is after its parent, whose total is not smaller, so the first ones form a tree.
    order.sort_by_key(|i| (Reverse(nodes[*i].total), *i));
    if most != 0 {
        order.truncate(most);
    }
    let mut is_shown = vec![false; nodes.len()];
    order.iter().for_each(|i| is_shown[*i] = true);
    let columns = [
        Column::percent_of_fact("%", "inclusive", "instructions"),
        Column::count("inclusive", "instructions"),
        Column::count("own", "instructions"),
        Column::count("calls", "calls"),
        Column::text("procedure"),
    ];
    let table = report
        .typed_table(By::Other, "call tree", columns)
        .readers(Readers::People);
    let children = found.tree.children();
    let mut open: Vec<usize> = vec![0];
    while let Some(i) = open.pop() {
        let node = &nodes[i];
        let is_start = i == 0 && node.own != 0;
        if is_shown[i] || is_start {
            let above = node.depth.saturating_sub(1);
            let indent = "  ".repeat(above.min(MOST_INDENTED));
            let further = match above.saturating_sub(MOST_INDENTED) {
                0 => String::new(),
                further => format!("+{further} "),
            };
            let total = if is_start { node.own } else { node.total };
            table.row([
                Cell::percent(total, whole),
                total.into(),
                node.own.into(),
                node.calls.into(),
                format!("{indent}{further}{}", found.name(node)).into(),
            ]);
        }
        let shown = children[i].iter().rev().filter(|i| is_shown[**i]);
        open.extend(shown);
    }
}

fn procedures(report: &mut Report, found: &Found) {
    let whole = found.tree.nodes[0].total;
    let columns = [
        Column::count("own", "instructions"),
        Column::share("own %", "own"),
        Column::count("inclusive", "instructions"),
        Column::percent_of_fact("%", "inclusive", "instructions"),
        Column::count("calls", "calls"),
        Column::address("pc"),
        Column::place("line"),
        Column::text("procedure"),
    ];
    let table = report.typed_table(By::Procedure, "procedures", columns);
    let reached = |i: usize| Some(found.costs[i]).filter(|cost| cost.calls != 0 || cost.own != 0);
    for (site, cost) in found.procs.with(reached) {
        table.row([
            cost.own.into(),
            Cell::percent(cost.own, whole),
            cost.total.into(),
            Cell::percent(cost.total, whole),
            cost.calls.into(),
            Cell::Address(site.pc),
            site.place(),
            site.proc.into(),
        ]);
    }
    table.sort(0);
}

fn by_thread(report: &mut Report, threads: &[Tree]) {
    let columns = [
        Column::count("thread", "").key(),
        Column::count("instructions", "instructions"),
        Column::count("calls", "calls"),
        Column::count("call paths", "paths").sum(Sum::Max),
    ];
    let table = report.typed_table(By::Thread, "threads", columns);
    for (tree, number) in threads.iter().zip(1u64..) {
        let calls: u64 = tree.nodes.iter().map(|node| node.calls).sum();
        table.row([
            number.into(),
            tree.nodes[0].total.into(),
            calls.into(),
            (tree.nodes.len() as u64 - 1).into(),
        ]);
    }
}

fn arcs(report: &mut Report, found: &Found) {
    let columns = [
        Column::count("calls", "calls"),
        Column::count("inclusive", "instructions"),
        Column::text("caller"),
        Column::address("caller pc"),
        Column::text("callee"),
        Column::address("callee pc"),
    ];
    let table = report
        .typed_table(By::Arc, "arcs", columns)
        .readers(Readers::Programs);
    for ((caller, callee), arc) in &found.arcs {
        let (Some(from), Some(to)) = (found.procs.get(*caller), found.procs.get(*callee)) else {
            continue;
        };
        table.row([
            arc.calls.into(),
            arc.total.into(),
            from.proc.into(),
            Cell::Address(from.pc),
            to.proc.into(),
            Cell::Address(to.pc),
        ]);
    }
}

/// The paths for programs.
fn paths(report: &mut Report, found: &Found) {
    let nodes = &found.tree.nodes;
    let columns = [
        Column::count("own", "instructions"),
        Column::count("inclusive", "instructions"),
        Column::count("calls", "calls"),
        Column::text("path").key(),
    ];
    let table = report
        .typed_table(By::Other, "call paths", columns)
        .readers(Readers::Programs);
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    let is_deep = |i: usize| nodes[i].depth > MOST_ON_PATH;
    order.sort_by_key(|i| (is_deep(*i), Reverse(nodes[*i].own)));
    let shown = order.iter().take(MOST_PATHS).take_while(|i| !is_deep(**i));
    let (most, rest) = order.split_at(shown.count());
    for i in most {
        let node = &nodes[*i];
        let names = found.tree.path(*i).into_iter();
        let names: Vec<String> = names.map(|i| found.name(&nodes[i])).collect();
        table.row([
            node.own.into(),
            node.total.into(),
            node.calls.into(),
            names.join(";").into(),
        ]);
    }
    if !rest.is_empty() {
        let sum = |of: fn(&TreeNode) -> u64| rest.iter().map(|i| of(&nodes[*i])).sum::<u64>();
        let (own, calls) = (sum(|node| node.own), sum(|node| node.calls));
        table.row([own.into(), own.into(), calls.into(), "(others)".into()]);
    }
}
