//! The objects that an instrument routine sees: a program alone, or all objects of a process.
//!
//! Each object has a [`Session`]. Towards the tool there is one numbering (see [`Numbers`]); the functions
//! of the interface find the session here and go on with the object's own numbers and addresses.

use std::cell::OnceCell;
use std::convert::Infallible;

use atom_abi::host::Context;

use super::load::{Application, Tool};
use super::session::{Results, Session};
use super::threads;
use crate::Error;
use crate::cfg::{Numbers, OBJECT_SHIFT};

/// The sessions of all objects.
pub(super) struct Process<'a> {
    /// A session for each object, the program first.
    pub(super) sessions: Vec<Session<'a>>,
    may_have_threads: OnceCell<bool>,
}

impl<'a> Process<'a> {
    pub(super) fn new(
        tool: &'a Tool,
        objects: &[Application<'a>],
        results: &'a Results,
        panicked: &'a dyn Fn(&Error) -> Infallible,
    ) -> Self {
        let numbers = Numbers::of(objects.iter().map(|o| o.cfg));
        let sessions = objects.iter().zip(numbers);
        Self {
            sessions: sessions
                .map(|(object, numbers)| {
                    let numbers = (numbers, objects.len() > 1);
                    Session::new(tool, *object, numbers, results, panicked)
                })
                .collect(),
            may_have_threads: OnceCell::new(),
        }
    }

    /// The program's session.
    pub(super) fn program(&self) -> &Session<'a> {
        &self.sessions[0]
    }

    /// The session of the object in which `first` finds its numbers to begin at `id` or before.
    fn session(&self, id: u32, first: impl Fn(&Numbers) -> u32) -> &Session<'a> {
        let after = self.sessions.partition_point(|s| first(&s.numbers) <= id);
        &self.sessions[after.saturating_sub(1)]
    }

    /// The session and the own address for an address of the process. An address of no object is
    /// looked for in the program, where nothing is found.
    pub(super) fn at(&self, address: u64) -> (&Session<'a>, u64) {
        let number = (address >> OBJECT_SHIFT) as usize;
        match self.sessions.get(number) {
            Some(session) if self.sessions.len() > 1 => (session, session.numbers.in_file(address)),
            _ => (self.program(), address),
        }
    }

    /// True unless it is certain that the process has one thread only.
    pub(super) fn may_have_threads(&self) -> bool {
        *self.may_have_threads.get_or_init(|| {
            let objects = self.sessions.iter().map(|s| (s.image, s.cfg));
            threads::process_may_have_threads(objects)
        })
    }
}

/// The process behind a context.
///
/// Every function of the table is called only with the context of the table.
pub(super) fn process<'c>(context: *mut Context) -> &'c Process<'c> {
    // SAFETY: `table` stored a reference to the process as the context, and the table does not outlive
    // the process; all changes are behind cells.
    unsafe { &*context.cast::<Process<'c>>() }
}

/// The program's session.
pub(super) fn program<'c>(context: *mut Context) -> &'c Session<'c> {
    process(context).program()
}

/// The session and the own number of a procedure.
pub(super) fn of_proc<'c>(context: *mut Context, proc: u32) -> (&'c Session<'c>, u32) {
    let session = process(context).session(proc, |n| n.proc);
    (session, proc - session.numbers.proc)
}

/// The session and the own number of a block.
pub(super) fn of_block<'c>(context: *mut Context, block: u32) -> (&'c Session<'c>, u32) {
    let session = process(context).session(block, |n| n.block);
    (session, block - session.numbers.block)
}

/// The session and the own number of an instruction.
pub(super) fn of_inst<'c>(context: *mut Context, inst: u32) -> (&'c Session<'c>, u32) {
    let session = process(context).session(inst, |n| n.inst);
    (session, inst - session.numbers.inst)
}

/// The session and the own address for an address of the process.
pub(super) fn of_address<'c>(context: *mut Context, address: u64) -> (&'c Session<'c>, u64) {
    process(context).at(address)
}
