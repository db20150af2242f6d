//! Executed instructions by call path, each with what it calls.
//!
//! Each thread has a tree of its call paths (`atom_tool::paths`). Blocks add their instructions to the node of the running
//! path; few blocks and branches do so for all (`paths::amounts`). `docs/tools/calltree.md` describes
//! options and output.

mod exports;
mod found;
mod report;
mod stubs;

use atom_tool::paths::{self, CallPaths, PathOptions, PathState, Spot};
use atom_tool::prelude::*;

/// The options that name files, in the order of the strings.
const FILES: [&str; 4] = ["--callgrind", "--folded", "--speedscope", "--html"];

/// Counts instructions of the running path.
#[analysis]
fn count(path: PerThread<PathState>, insts: u64) {
    path.count(insts);
}

/// `texts` has the program's name, the files of [`FILES`] and the paths of all objects.
#[analysis]
fn end(
    states: AllThreads<PathState>,
    files: Files,
    texts: Strings,
    procs: Sites,
    per_thread: bool,
) {
    report::write(states, files, texts, procs, per_thread);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let mut texts = StringList::new();
    texts.push(program.name());
    for option in FILES {
        texts.push(options.value(option)?.unwrap_or_default());
    }
    let per_thread = options.flag("--per-thread");
    let repeats = options.number("--recursion")?;
    let most = options.size("--paths")?;
    options.finish()?;
    for object in program.objects() {
        let path = std::path::absolute(object.path());
        let path = path.as_deref().map(|path| path.to_string_lossy());
        texts.push(path.as_deref().unwrap_or(object.path()));
    }

    let paths = CallPaths::add(
        program,
        PathOptions {
            by_site: false,
            repeats,
            most,
        },
    );
    let stubs = stubs::Stubs::find(program);
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        for (spot, insts) in paths::amounts(proc, |block| stubs.amount(block)) {
            match spot {
                Spot::Block(block) => block.add_call(Before, count, (paths.state, insts)),
                Spot::Edge(block, way) => block.add_call_on(way, count, (paths.state, insts)),
            }
        }
    }
    let args = (paths.state, &files, &texts, &paths.procs, per_thread);
    program.add_call(After, end, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "calltree.out" }
