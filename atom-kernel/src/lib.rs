//! Finds kernels that are marked in a program and records what they cost.
#![deny(missing_docs)]

pub mod context;
pub mod find;
pub mod list;
pub mod run;
pub mod weave;

use atom_tool::Place::{After, Before};
use atom_tool::{Args, Program, Result, StringList};

use context::Role;
use find::view::View;
use find::{How, Kind, Pattern};

/// The instrument routine of the tool `kernel`.
pub fn instrument(program: &Program<'_>, args: &Args<'_>) -> Result {
    let options = args.options();
    let list = options.flag("--list");
    let summary = options.value("--summary")?.unwrap_or("");
    let mut patterns = Vec::new();
    for (name, kind) in [("--kernel", Kind::Kernel), ("--profile", Kind::Profiled)] {
        if let Some(text) = options.value(name)? {
            patterns.push((kind, Pattern::parse(text)?));
        }
    }
    options.finish()?;
    let view = View::new(program);
    let found = find::find(&view, &patterns, true)?;
    let sites = context::sites(&view, &found);
    if list {
        print!("{}", list::text(&found));
    } else {
        for line in list::warnings(&found) {
            eprintln!("kernel: {line}");
        }
    }
    if found.sections.is_empty() && !list {
        return Err("nothing is marked in this program: mark it with labels or ato.h, or name procedures with --kernel".into());
    }
    let thread = program.thread_data(run::Thread::default());
    let mut names = StringList::new();
    let mut places = StringList::new();
    let mut facts: Vec<[u16; 2]> = Vec::new();
    let mut flags: Vec<u8> = Vec::new();
    for site in &sites {
        names.push(&site.name);
        places.push(&site.place());
        facts.push([site.id, site.kind(&found).map_or(0, |k| k as u16 + 1)]);
        let is_marker = |i: usize| found.sections[i].how == How::Marker;
        flags.push(match site.role {
            Role::Marked(i) if is_marker(i) => run::MARKER,
            Role::Call if site.border.leaves.is_empty() => run::TAIL,
            _ => 0,
        });
    }
    program.add_call(Before, run::begin, (&flags,));
    weave::weave(&sites, &found.scope_ends, thread);
    program.add_call(After, run::end, (summary, &facts, &names, &places));
    Ok(())
}
