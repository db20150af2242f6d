//! Finds kernels that are marked in a program and records what they cost.
//!
//! The instrument half finds the marked sections ([`find`]), adds sections for the calls and loops
//! that lead to them ([`context`]) and adds the calls of analysis routines ([`weave`]). The
//! analysis half is in [`run`], on top of the crate `arp`.
#![deny(missing_docs)]

pub mod context;
pub mod find;
pub mod list;
pub mod options;
pub mod run;
pub mod weave;

use atom_tool::Place::{After, Before};
use atom_tool::{Args, Program, Result, StringList};

use context::{Role, Site};
use find::recursion::recursive;
use find::view::View;
use find::{Found, How};
use options::Options;
use run::meters::Measure;
use run::{Choices, SectionFacts};

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
    let mut texts = StringList::new();
    let facts: Vec<SectionFacts> = sites
        .iter()
        .map(|site| facts(site, &found, &mut texts))
        .collect();
    let choices = Choices {
        mode: options.mode as u32,
        data_type: options.data_type as u32,
        calibrate: options.calibrate,
        file: texts.push(&options.file),
        program: texts.push(program.name()),
        is_binary: options.binary,
        _unused: [0; 3],
    };
    add_callbacks(program, &options)?;
    let begins = (&choices, &options.measures, &facts, &texts);
    program.add_call(Before, run::begin, begins);
    weave::weave(&sites, &found, thread);
    if program.may_have_threads() {
        weave::spawns(program, thread);
    }
    if options.measures.contains(&Measure::Instructions) {
        weave::count(program, &sites, thread);
    }
    let ends = (
        thread,
        thread,
        options.summary.as_str(),
        &facts,
        &texts,
        &options.files,
    );
    program.add_call(After, run::end, ends);
    Ok(())
}

/// A section as an argument; its texts go to the list.
fn facts(site: &Site<'_>, found: &Found<'_>, texts: &mut StringList) -> SectionFacts {
    let is_marker = |i: usize| found.sections[i].how == How::Marker;
    let flags = match site.role {
        Role::Marked(i) if is_marker(i) => run::MARKER,
        Role::Call if site.border.leaves.is_empty() => run::TAIL,
        _ => 0,
    };
    let (first_line, last_line) = site.lines.unwrap_or_default();
    SectionFacts {
        id: site.id.into(),
        kind: site.kind(found).map_or(0, |kind| kind as u32 + 1),
        flags: flags.into(),
        first_line,
        last_line,
        name: texts.push(&site.name),
        file: texts.intern(site.file.as_deref().unwrap_or_default()),
        place: texts.intern(&site.place()),
    }
}

/// Adds the call that tells of the user's callbacks, which must come before [`run::begin`].
fn add_callbacks(program: &Program<'_>, options: &Options) -> Result {
    let callback = |name: &Option<String>| match name {
        None => Ok(None),
        Some(name) => exported(program, name.trim_start_matches('&')).map(Some),
    };
    let [enter, leave, context] = &options.callbacks;
    let [spawn, join] = &options.thread_callbacks;
    let is_pointer = !context.as_deref().unwrap_or_default().starts_with('&');
    let args = (
        callback(enter)?,
        callback(leave)?,
        callback(context)?,
        is_pointer,
        callback(spawn)?,
        callback(join)?,
    );
    program.add_call(Before, run::callbacks, args);
    Ok(())
}

/// A callback of the user, or the data that callbacks get, which was linked into the tool.
fn exported(program: &Program<'_>, name: &str) -> Result<atom_tool::Exported> {
    program.exported(name).ok_or_else(|| {
        format!(
            "the tool has no `{name}`: link the object that has it into the tool, as \
             docs/tools/kernel.md says"
        )
        .into()
    })
}
