//! The objects that an instrument routine sees: a program alone, or all objects of a process.
//!
//! Each object has a [`Session`]. Towards the tool there is one numbering (see [`Numbers`]): here is the session
//! of a number or an address, with the object's own.

use std::cell::OnceCell;
use std::convert::Infallible;

use atom_abi::OBJECT_SHIFT;

use super::application::Application;
use super::binding::{self, Bindings};
use super::calls::Scope;
use super::load::Tool;
use super::session::{Results, Session};
use super::threads;
use crate::Error;
use crate::cfg::Numbers;
use crate::ids::{InstId, ProcId};

/// The sessions of all objects.
pub(super) struct Process<'a> {
    /// A session for each object, the program first.
    pub(super) sessions: Vec<Session<'a>>,
    numbers: Vec<Numbers>,
    may_have_threads: OnceCell<bool>,
    objects: &'a [Application<'a>],
    bindings: OnceCell<Bindings<'a>>,
}

impl<'a> Process<'a> {
    pub(super) fn new(
        tool: &'a Tool,
        objects: &'a [Application<'a>],
        results: &'a Results,
        panicked: &'a dyn Fn(&Error) -> Infallible,
    ) -> Self {
        let numbers = Numbers::of(objects.iter().map(|o| o.cfg));
        let sessions = objects.iter().zip(&numbers);
        Self {
            sessions: sessions
                .map(|(object, numbers)| {
                    let numbers = (*numbers, objects.len() > 1);
                    Session::new(tool, *object, numbers, results, panicked)
                })
                .collect(),
            numbers,
            may_have_threads: OnceCell::new(),
            objects,
            bindings: OnceCell::new(),
        }
    }

    /// The program's session.
    pub(super) fn program(&self) -> &Session<'a> {
        &self.sessions[0]
    }

    /// The session and the own number of a thing. The program itself is looked for in its object.
    pub(super) fn own(&self, scope: Scope, id: u32) -> (&Session<'a>, u32) {
        let (object, own) = scope.locate(id, &self.numbers).unwrap_or((0, id));
        (&self.sessions[object], own)
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

    /// The object and the procedure to which a call or jump of an object certainly leads through an import.
    pub(super) fn bound(&self, object: usize, inst: InstId) -> Option<(usize, ProcId)> {
        if self.sessions.len() == 1 {
            return None;
        }
        let bindings = self.bindings.get_or_init(|| Bindings::new(self.objects));
        binding::bound(bindings, &self.sessions, object, inst)
    }

    /// True unless it is certain that the process has one thread only.
    pub(super) fn may_have_threads(&self) -> bool {
        *self.may_have_threads.get_or_init(|| {
            let objects = self.sessions.iter().map(|s| (s.image, s.cfg));
            threads::process_may_have_threads(objects)
        })
    }
}
