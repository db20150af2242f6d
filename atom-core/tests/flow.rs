//! Dominators, loops and edges: known answers for small programs, and slow
//! but obvious methods as judges for large ones.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_core::cfg::Cfg;
use atom_core::cfg::graph::{EdgeKind, FlowFacts, FlowGraph};
use atom_core::cfg::seeds::FrameFacts;
use atom_core::image::Image;
use atom_core::{BlockId, ProcId};

struct Program {
    image: Image,
    cfg: Cfg,
    facts: FlowFacts,
}

fn load(path: &Path) -> Program {
    let image = Image::open(path).unwrap();
    let unwind = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&unwind)).unwrap();
    let facts = FlowFacts::new(&image, &cfg, &unwind);
    drop(unwind);
    Program { image, cfg, facts }
}

impl Program {
    fn proc(&self, name: &str) -> ProcId {
        let found = self
            .cfg
            .procs
            .iter()
            .position(|p| p.name.as_deref() == Some(name));
        ProcId::from_index(found.unwrap_or_else(|| panic!("no procedure {name}")))
    }

    fn graph(&self, name: &str) -> FlowGraph {
        FlowGraph::new(&self.cfg, &self.facts, self.proc(name))
    }

    /// The block whose last instruction calls a procedure.
    fn block_calling(&self, of: &str, callee: &str) -> BlockId {
        let graph = self.graph(of);
        let found = graph.blocks().find(|b| {
            let last = self.cfg.block(*b).last();
            let decoded = self.cfg.decode(&self.image, last);
            decoded.is_call_near()
                && self
                    .cfg
                    .proc_at(decoded.near_branch_target())
                    .is_some_and(|p| self.cfg.proc(p).display_name() == callee)
        });
        found.unwrap_or_else(|| panic!("{of} does not call {callee}"))
    }
}

fn build(name: &str, extension: &str, source: &str, command: &[&str]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = directory.join(format!("flow-{name}.{extension}"));
    let out = directory.join(format!("flow-{name}"));
    std::fs::write(&file, source).unwrap();
    let status = Command::new(command[0])
        .args(&command[1..])
        .arg("-o")
        .arg(&out)
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    out
}

const LOOPS: &str = r#"
    #include <stdlib.h>
    volatile int sink;
    __attribute__((noinline)) void a(void) { sink += 2; }
    __attribute__((noinline)) void b(void) { sink += 3; }
    __attribute__((noinline)) void c(void) { sink += 4; }
    __attribute__((noinline)) void d(void) { sink += 5; }
    __attribute__((noinline)) void e(void) { sink += 6; }
    __attribute__((noinline, cold)) void dies(void) { sink++; abort(); }
    __attribute__((noinline)) void nest(int n, int m) {
        a();
        for (int i = 0; i < n; i++) {
            b();
            for (int j = 0; j < m; j++) {
                c();
                if (sink == 1000000) dies();
            }
            do { d(); } while (sink % 3);
        }
        e();
    }
    __attribute__((noinline)) void diamond(int n) {
        a();
        if (n) b(); else c();
        d();
        while (1) { e(); if (sink > 100000) exit(0); }
    }
    int main(int n, char **v) { nest(n, n); diamond(n); return 0; }
"#;

#[test]
fn loops_and_dominators_of_a_known_program() {
    for compiler in ["gcc", "clang"] {
        for level in ["-O0", "-O1", "-O2"] {
            let name = format!("loops-{compiler}{level}");
            let flags = [
                compiler,
                level,
                "-fno-unroll-loops",
                "-fno-optimize-sibling-calls",
            ];
            known_program(&load(&build(&name, "c", LOOPS, &flags)), &name);
        }
    }
}

fn known_program(p: &Program, name: &str) {
    let graph = p.graph("nest");
    let at = |callee| p.block_calling("nest", callee);
    let loops = graph.loops();
    assert!(!loops.irreducible, "{name}");
    let depth = |block| {
        let i = graph.innermost_loop(block);
        i.map_or(0, |i| loops.list()[i as usize].depth)
    };
    let depths = ["a", "b", "c", "d", "e"].map(|f| depth(at(f)));
    assert_eq!(depths, [0, 1, 2, 2, 0], "{name}");
    assert_eq!(loops.list().len(), 3, "{name}");
    assert_ne!(graph.innermost_loop(at("c")), graph.innermost_loop(at("d")));
    let outer = &loops.list()[0];
    assert_eq!((outer.parent, outer.depth), (None, 1), "{name}");
    for inner in &loops.list()[1..] {
        assert_eq!((inner.parent, inner.depth), (Some(0), 2), "{name}");
        let blocks = loops.blocks(inner);
        assert!(blocks.iter().all(|b| loops.blocks(outer).contains(b)));
        assert!(blocks.iter().all(|b| graph.dominates(inner.header, *b)));
        assert!(blocks.contains(&inner.header) && inner.latches.iter().all(|l| blocks.contains(l)));
    }
    let dominates = |a, b| graph.dominates(at(a), at(b));
    assert!(dominates("a", "b") && dominates("a", "e") && dominates("b", "c"));
    assert!(dominates("b", "d") && !dominates("c", "d") && !dominates("b", "e"));
    // The call that never returns is an end too, and it can be reached from both.
    assert!(!graph.post_dominates(at("e"), at("a")) && !graph.post_dominates(at("d"), at("b")));
    // A call that never returns leads nowhere.
    assert!(graph.successors(at("dies")).is_empty(), "{name}");

    let graph = p.graph("diamond");
    let at = |callee| p.block_calling("diamond", callee);
    let (a, b, c, d, e) = (at("a"), at("b"), at("c"), at("d"), at("e"));
    assert!(graph.dominates(a, d) && !graph.dominates(b, d) && !graph.dominates(c, d));
    assert!(graph.post_dominates(d, b) && graph.post_dominates(d, c));
    assert!(!graph.post_dominates(b, a) && graph.post_dominates(d, a));
    let exit = at("exit@plt");
    assert!(graph.post_dominates(exit, e) && graph.successors(exit).is_empty());
    assert!(graph.innermost_loop(e).is_some() && graph.innermost_loop(exit).is_none());
}

const CATCH: &str = r#"
    #include <cstdio>
    int sum;
    __attribute__((noinline)) void may_throw(int i) { if (i % 3 == 0) throw i; sum += i; }
    __attribute__((noinline)) void caught(int i) { sum -= i; }
    __attribute__((noinline)) void loop(int n) {
        for (int i = 0; i < n; i++) {
            try { may_throw(i); } catch (int x) { caught(x); }
        }
    }
    int main(int n, char **) { loop(n + 10); std::printf("%d\n", sum); }
"#;

#[test]
fn a_loop_goes_through_its_handlers() {
    for level in ["-O0", "-O2"] {
        let p = load(&build("catch", "cc", CATCH, &["g++", level]));
        let name = "_Z4loopi";
        let graph = p.graph(name);
        let throws = p.block_calling(name, "_Z9may_throwi");
        let caught = p.block_calling(name, "_Z6caughti");
        let unwind = graph
            .successors(throws)
            .iter()
            .find(|e| e.kind == EdgeKind::Unwind)
            .expect("an edge to the handler");
        let pad = unwind.block.expect("a block");
        assert!(p.cfg.block(pad).is_landing_pad);
        assert!(
            graph
                .predecessors(pad)
                .contains(&(throws, EdgeKind::Unwind))
        );
        assert!(graph.dominates(throws, caught));
        let around = graph.innermost_loop(throws).expect("a loop");
        assert_eq!(graph.innermost_loop(caught), Some(around), "{level}");
        assert_eq!(graph.entries().count(), 1, "{level}");
    }
}

/// Blocks reachable from `from` without passing `without`.
fn reach(
    from: impl Iterator<Item = BlockId>,
    without: Option<BlockId>,
    next: &dyn Fn(BlockId) -> Vec<BlockId>,
) -> HashSet<BlockId> {
    let mut work: Vec<_> = from.filter(|b| Some(*b) != without).collect();
    let mut seen: HashSet<_> = work.iter().copied().collect();
    while let Some(block) = work.pop() {
        for to in next(block) {
            if Some(to) != without && seen.insert(to) {
                work.push(to);
            }
        }
    }
    seen
}

/// Compares a graph with what the definitions say, word for word.
fn check(graph: &FlowGraph) {
    let blocks: Vec<BlockId> = graph.blocks().collect();
    let succs = |b: BlockId| -> Vec<BlockId> {
        graph.successors(b).iter().filter_map(|e| e.block).collect()
    };
    let preds =
        |b: BlockId| -> Vec<BlockId> { graph.predecessors(b).iter().map(|p| p.0).collect() };
    // Each edge is seen from both ends, as often.
    for &b in &blocks {
        for e in graph.successors(b) {
            let Some(to) = e.block else { continue };
            let forth = graph
                .successors(b)
                .iter()
                .filter(|x| x.block == Some(to) && x.kind == e.kind);
            let back = graph.predecessors(to).iter().filter(|p| **p == (b, e.kind));
            assert_eq!(forth.count(), back.count());
        }
        for &(from, kind) in graph.predecessors(b) {
            assert!(
                graph
                    .successors(from)
                    .iter()
                    .any(|e| e.block == Some(b) && e.kind == kind)
            );
        }
    }
    let reachable = reach(graph.entries(), None, &succs);
    let ends = |b: &BlockId| {
        let edges = graph.successors(*b);
        edges.is_empty() || edges.iter().any(|e| e.block.is_none())
    };
    let ends: Vec<BlockId> = blocks.iter().copied().filter(ends).collect();
    let ending = reach(ends.iter().copied(), None, &preds);
    for &a in &blocks {
        assert_eq!(graph.is_reachable(a), reachable.contains(&a));
        let around = reach(graph.entries(), Some(a), &succs);
        let before = reach(ends.iter().copied(), Some(a), &preds);
        for &b in &blocks {
            let known = reachable.contains(&a) && reachable.contains(&b);
            assert_eq!(
                graph.dominates(a, b),
                known && !around.contains(&b),
                "{a} {b}"
            );
            let known = ending.contains(&a) && ending.contains(&b);
            assert_eq!(
                graph.post_dominates(a, b),
                known && !before.contains(&b),
                "{a} {b}"
            );
        }
    }
    for &b in &blocks {
        // The immediate dominator is the one that all others dominate.
        let mut strict = blocks
            .iter()
            .filter(|a| **a != b && graph.dominates(**a, b));
        match graph.immediate_dominator(b) {
            Some(i) => {
                assert!(i != b && graph.dominates(i, b) && strict.all(|a| graph.dominates(*a, i)))
            }
            None => assert_eq!(strict.next(), None),
        }
        let mut strict = blocks
            .iter()
            .filter(|a| **a != b && graph.post_dominates(**a, b));
        match graph.immediate_post_dominator(b) {
            Some(i) => assert!(i != b && strict.all(|a| graph.post_dominates(*a, i))),
            None => assert_eq!(strict.next(), None),
        }
    }
    check_loops(graph, &blocks, &succs, &preds);
}

fn check_loops(
    graph: &FlowGraph,
    blocks: &[BlockId],
    succs: &dyn Fn(BlockId) -> Vec<BlockId>,
    preds: &dyn Fn(BlockId) -> Vec<BlockId>,
) {
    let loops = graph.loops();
    let headers: HashSet<BlockId> = blocks
        .iter()
        .flat_map(|b| succs(*b).into_iter().map(move |to| (*b, to)))
        .filter(|(from, to)| graph.dominates(*to, *from))
        .map(|edge| edge.1)
        .collect();
    assert_eq!(headers.len(), loops.list().len());
    let set_of = |i: u32| -> HashSet<BlockId> {
        loops
            .blocks(&loops.list()[i as usize])
            .iter()
            .copied()
            .collect()
    };
    for (i, l) in loops.list().iter().enumerate() {
        assert!(headers.contains(&l.header));
        let latches: HashSet<BlockId> = preds(l.header)
            .into_iter()
            .filter(|p| graph.dominates(l.header, *p))
            .collect();
        assert_eq!(latches, l.latches.iter().copied().collect());
        // All that reaches a latch without the header, and the header.
        let mut body = reach(latches.into_iter(), Some(l.header), preds);
        body.insert(l.header);
        body.retain(|b| graph.is_reachable(*b));
        assert_eq!(body, set_of(i as u32));
        assert_eq!(body.len(), loops.blocks(l).len());
        let depth = match l.parent {
            Some(p) => {
                assert!(p < i as u32 && set_of(p).is_superset(&body));
                loops.list()[p as usize].depth
            }
            None => 0,
        };
        assert_eq!(l.depth, depth + 1);
        let around = (0..loops.list().len() as u32)
            .filter(|j| *j != i as u32 && set_of(*j).contains(&l.header))
            .count() as u32;
        assert_eq!(around + 1, l.depth);
    }
    for &b in blocks {
        let around = (0..loops.list().len() as u32).filter(|i| set_of(*i).contains(&b));
        let innermost = around.max_by_key(|i| loops.list()[*i as usize].depth);
        assert_eq!(graph.innermost_loop(b), innermost);
    }
}

/// Procedures of real programs; those that the slow methods can take.
#[test]
fn real_programs_obey_the_definitions() {
    let mut checked = 0;
    let (mut in_loops, mut irreducible) = (0, 0);
    for name in ["/usr/bin/bash", "/usr/bin/gdb", "/usr/bin/find", "/bin/ls"] {
        let p = load(Path::new(name));
        let mut budget: usize = 30_000_000;
        for id in (0..p.cfg.procs.len()).map(ProcId::from_index) {
            if p.cfg.whole(id) != id || !p.cfg.proc(id).is_movable() {
                continue;
            }
            let graph = FlowGraph::new(&p.cfg, &p.facts, id);
            let n = graph.blocks().count();
            let cost = n.pow(3);
            if n > 250 || cost > budget {
                continue;
            }
            budget -= cost;
            check(&graph);
            checked += 1;
            in_loops += graph.loops().list().len();
            irreducible += usize::from(graph.loops().irreducible);
        }
    }
    println!("{checked} procedures, {in_loops} loops, {irreducible} irreducible");
    assert!(checked > 100 && in_loops > 50);
}
