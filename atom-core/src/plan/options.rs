//! Options of planning: what the caller chooses, and what follows from the objects and the tool.

use super::code::Home;
use super::switch::Switch;
use super::threads::{self, ThreadOptions};
use crate::analysis::AnalysisImage;
use crate::analysis::specialise::Specialiser;
use crate::cfg::Object;
use crate::error::{Error, Result};
use crate::live::has_foreign;
use crate::tool::borders::Borders;
use crate::tool::{Calls, libraries, process_may_have_threads, process_uses_gs, uses_gs};

/// Export of the runtime that is called before the process may become another program.
const EXEC: &str = "__atom_exec";
/// Export of the runtime that is called before some system calls, whose arguments it may change.
const SYSTEM_CALL: &str = "__atom_system_call";
/// Export of the runtime that calls a routine on a stack of the runtime's.
const APART: &str = "__atom_apart";

/// Export of the runtime that begins a window, or ends it.
const WINDOW: &str = "__atom_window";
/// Export of the runtime that is called where a thread leaves a version of the text, if the run is sampled.
const TURN: &str = "__atom_turn";

/// Exports of the runtime that inserted code calls by their addresses.
pub const CALLED: [&str; 6] = [EXEC, SYSTEM_CALL, threads::FORKED, APART, WINDOW, TURN];

/// Options of planning.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Address of the runtime's `finish` in the tool's file. It is called where the process may end.
    /// `None`: there are no such hooks.
    pub finish: Option<u64>,
    /// Address of the runtime's `exec` in the tool's file. It is called before the process may become
    /// another program. `None`: there are no such hooks.
    pub exec: Option<u64>,
    /// Address of the runtime's `system_call` in the tool's file. It is called before some system calls,
    /// whose arguments it may change, if all objects of the process are instrumented.
    pub system_call: Option<u64>,
    /// True if programs that the process executes are instrumented too: the runtime's `system_call` is then
    /// also called before the system calls that execute a program, and in a static program.
    pub follows: bool,
    /// True if the program can have more than one thread, so that the end of a thread need not be the end
    /// of the process.
    pub may_have_threads: bool,
    /// Address of the runtime's function in the tool's file that calls a routine on another stack. `None`: all routines run
    /// on the program's.
    pub apart: Option<u64>,
    /// How per-thread data is found.
    pub threads: ThreadOptions,
    /// Makes the bodies that are in line. `None`: all routines are called.
    pub bodies: Option<&'a Specialiser<'a>>,
    /// Number of bytes from the start of the new segments that have fixed addresses below 2 GiB; 0 if the
    /// program may be anywhere. Data there can be named by 32-bit displacements.
    pub low_space: u64,
    /// Where the tool's code and data are.
    pub home: Home,
    /// True if each call that only counts is made at its own point, and no edges are counted instead.
    pub every_point: bool,
    /// Procedures have two versions, and this leads from one to the other.
    pub switch: Option<Switch>,
    /// Where windows begin and end, for each object; empty if they do so nowhere.
    pub borders: &'a [Borders],
    /// Address of the runtime's `window` in the tool's file, which begins and ends windows.
    pub window: Option<u64>,
    /// Address of the runtime's `turn` in the tool's file: a thread begins a burst, or ends it.
    pub turn: Option<u64>,
    /// True if the gs segment is left to the program in any case.
    pub no_gs: bool,
}

impl Options<'_> {
    /// Adds what follows from the tool, from its calls, and from the objects of the process, with the first `begun` of
    /// which the process begins. `note` gets what a user should know.
    pub fn complete(
        self,
        objects: &[Object<'_>],
        begun: usize,
        calls: &Calls,
        analysis: &AnalysisImage,
        note: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        if self.switch.is_some() {
            refuse_versions(objects)?;
            refuse_changes(calls)?;
        }
        let facts = &analysis.facts;
        let each = || objects.iter().map(|o| (o.image, &o.cfg));
        // A library that comes later must find the access that the process began with.
        let begun = &objects[..begun];
        let mut names_gs = || {
            let library = libraries::that_uses_gs(begun.iter().map(|o| o.image));
            if let Some(path) = &library {
                note(&format!(
                    "{} uses the gs segment, so threads' own counters are found more slowly",
                    path.display()
                ));
            }
            library.is_some()
        };
        let facts_of_threads = threads::Facts {
            has_data: calls.thread_data.len != 0,
            may_have_threads: process_may_have_threads(each()),
            own_stack: own_stack(objects)?,
            are_sampled: self.switch.is_some_and(Switch::is_of_threads),
        };
        Ok(Self {
            finish: Some(facts.finish),
            exec: facts.export(EXEC),
            apart: facts.export(APART),
            window: facts.export(WINDOW),
            turn: facts.export(TURN),
            system_call: facts.export(SYSTEM_CALL),
            may_have_threads: facts_of_threads.may_have_threads,
            threads: ThreadOptions::new(
                facts_of_threads,
                || begun.iter().any(|o| has_foreign(o.image, &o.cfg)),
                || self.no_gs || process_uses_gs(each()) || names_gs(),
                facts,
            ),
            ..self
        })
    }
}

/// Refuses objects of which there cannot be two versions: Go's tables describe one copy of each procedure.
fn refuse_versions(objects: &[Object<'_>]) -> Result<()> {
    match objects.iter().find(|object| object.unwind.go.is_some()) {
        None => Ok(()),
        Some(go) => {
            let reason = "programs of Go have one version of each procedure";
            Err(Error::new("writing procedures twice", reason).file(&go.image.path))
        }
    }
}

/// True if analysis routines need stacks of their own: a goroutine's is small, and moves when it grows.
fn own_stack(objects: &[Object<'_>]) -> Result<bool> {
    let mut needed = false;
    for object in objects.iter().filter(|object| object.unwind.go.is_some()) {
        if uses_gs(object.image, &object.cfg) {
            let reason = "the program uses the gs segment, by which the stacks of analysis routines are found";
            return Err(
                Error::new("instrumenting a program of Go", reason).file(&object.image.path)
            );
        }
        needed = true;
    }
    Ok(needed)
}

/// A change of the program cannot come and go with a window.
fn refuse_changes(calls: &Calls) -> Result<()> {
    if !calls.are_changing() {
        return Ok(());
    }
    let reason = "the tool changes the program, so it cannot be left out for a part of the time";
    let error = Error::new("planning calls", reason);
    Err(error.advice("leave out the options for windows and samples"))
}
