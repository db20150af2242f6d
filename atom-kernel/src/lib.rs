//! Finds kernels that are marked in a program and records what they cost.
//!
//! The instrument half finds the marked sections ([`find`]), adds sections for
//! what leads to them ([`context`]) and adds the calls ([`weave`]); what these do
//! in the program is in [`run`], on top of the crate `arp`.
#![deny(missing_docs)]
// Blocks and instructions are hashed and compared by their numbers, which do not change.
#![allow(clippy::mutable_key_type)]

pub mod context;
pub mod find;
pub mod list;
pub mod options;
pub mod run;
pub mod weave;

use atom_tool::Place::{After, Before};
use atom_tool::{Args, Program, Result, StringList};

use context::Role;
use find::How;
use find::recursion::recursive;
use find::view::View;
use options::Options;
use run::meters::Measure;

/// The instrument routine of the tool `kernel`.
pub fn instrument(program: &Program<'_>, args: &Args<'_>) -> Result {
    let options = Options::read(args)?;
    let view = View::new(program);
    let found = find::find(&view, &options.patterns, options.marks)?;
    if options.list {
        print!("{}", list::text(&found, &recursive(&view, &found.sections)));
    } else {
        for line in list::warnings(&found) {
            eprintln!("kernel: {line}");
        }
        if found.sections.is_empty() {
            return Err(
                "nothing is marked in this program: mark it with labels or with ato.h, \
                        or name procedures with --kernel"
                    .into(),
            );
        }
    }
    let sites = context::sites(&view, &found, options.context);
    let thread = program.thread_data(run::Thread::default());
    let mut names = StringList::new();
    let mut files = StringList::new();
    let mut places = StringList::new();
    let mut facts: Vec<run::RowFacts> = Vec::new();
    for site in &sites {
        names.push(&site.name);
        files.push(site.file.as_deref().unwrap_or_default());
        places.push(&site.place());
        let is_marker = |i: usize| found.sections[i].how == How::Marker;
        let flags = match site.role {
            Role::Marked(i) if is_marker(i) => run::MARKER,
            Role::Call if site.border.leaves.is_empty() => run::TAIL,
            _ => 0,
        };
        let (first, last) = site.lines.unwrap_or_default();
        let kind = site.kind(&found).map_or(0, |k| k as u32 + 1);
        facts.push([site.id.into(), kind, flags.into(), first, last]);
    }
    let mut settings = vec![
        options.mode as u32,
        options.binary.into(),
        options.data_type as u32,
        (!options.callbacks[2]
            .as_deref()
            .unwrap_or_default()
            .starts_with('&'))
        .into(),
        options.calibrate as u32,
    ];
    settings.extend(options.measures.iter().map(|m| *m as u32));
    let callback = |name: &Option<String>| match name {
        None => Ok(None),
        Some(name) => exported(program, name.trim_start_matches('&')).map(Some),
    };
    let [enter, leave, context] = &options.callbacks;
    let [spawn, join] = &options.thread_callbacks;
    program.add_call(
        Before,
        run::begin,
        (
            &settings,
            options.file.as_str(),
            program.name(),
            callback(enter)?,
            callback(leave)?,
            callback(context)?,
            callback(spawn)?,
            callback(join)?,
            &facts,
            &names,
            &files,
        ),
    );
    weave::weave(&sites, &found, thread);
    if program.may_have_threads() {
        weave::spawns(program, thread);
    }
    if options.measures.contains(&Measure::Instructions) {
        weave::count(program, &sites, thread);
    }
    program.add_call(
        After,
        run::end,
        (
            thread,
            thread,
            options.summary.as_str(),
            &facts,
            &names,
            &places,
        ),
    );
    Ok(())
}

/// A callback of the user or what it gets, which was linked into the tool.
fn exported(program: &Program<'_>, name: &str) -> Result<atom_tool::Exported> {
    program.exported(name).ok_or_else(|| {
        format!(
            "the tool has no `{name}`: link the object that has it into the tool, as \
             docs/tools/kernel.md says"
        )
        .into()
    })
}
