//! What `c/paths.inst.c` does, in Rust.
use std::io::Write;

use atom_tool::paths::{CallPaths, PathOptions, PathState, Tree};
use atom_tool::prelude::*;

#[analysis]
fn executed(path: PerThread<PathState>, insts: u64) {
    path.count(insts);
}

fn write(out: &mut dyn Write, tree: &Tree, procs: Sites) -> std::io::Result<()> {
    for (i, node) in tree.nodes.iter().enumerate() {
        let proc = node.proc.and_then(|proc| procs.get(proc));
        let name = proc.map_or("-", |site| site.proc);
        let call = node.call.map_or(-1, |call| call as i64);
        let (parent, depth, own) = (node.parent, node.depth, node.own);
        let (total, calls) = (node.total, node.calls);
        let outermost = u8::from(node.is_outermost);
        writeln!(
            out,
            "{i} {parent} {depth} {name} {call} {own} {total} {calls} {outermost}"
        )?;
    }
    for repeat in &tree.repeats {
        writeln!(out, "{} -> {} {}", repeat.from, repeat.to, repeat.calls)?;
    }
    writeln!(out, "end")
}

#[analysis]
fn end(paths: AllThreads<PathState>, procs: Sites, file: Str) {
    let Ok(mut out) = output::create(&file) else {
        return;
    };
    let trees = std::iter::once(Tree::merged(paths)).chain(Tree::of_threads(paths));
    for tree in trees {
        let _ = write(&mut out, &tree, procs);
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let repeats = options.value("--recursion")?.unwrap_or("1").parse()?;
    let file = options.value("--output")?.unwrap_or("paths.out");
    options.finish()?;
    let all = PathOptions::default();
    let paths = CallPaths::add(program, PathOptions { repeats, ..all });
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        block.add_call(Before, executed, (paths.state, block.insts().len() as u64));
    }
    program.add_call(After, end, (paths.state, &paths.procs, file));
    Ok(())
}

atom_tool::tool!(instrument);
