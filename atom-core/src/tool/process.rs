//! The objects that an instrument routine sees: a program alone, or all objects of a process.
//!
//! Each object has a [`Session`]. Towards the tool there is one numbering (see [`Numbers`]); the functions
//! of the interface find the session here and continue with the object's own numbers and addresses.

use std::cell::OnceCell;
use std::convert::Infallible;

use atom_abi::OBJECT_SHIFT;
use atom_abi::host::Context;

use super::binding::{self, Bindings};
use super::calls::Scope;
use super::load::{Application, Tool};
use super::session::{Results, Session};
use super::threads;
use crate::Error;
use crate::cfg::Numbers;
use crate::ids::{BlockId, InstId, ProcId};

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
    fn own(&self, scope: Scope, id: u32) -> (&Session<'a>, u32) {
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

/// The process after a context.
///
/// Every function of the table is called only with the context of the table.
pub(super) fn process<'c>(context: *mut Context) -> &'c Process<'c> {
    // SAFETY: `table` stored a reference to the process as the context, and the table does not outlive
    // the process; all changes are after cells.
    unsafe { &*context.cast::<Process<'c>>() }
}

/// The program's session.
pub(super) fn program<'c>(context: *mut Context) -> &'c Session<'c> {
    process(context).program()
}

/// The session and the own number of what a call is added to.
pub(super) fn of_scope<'c>(
    context: *mut Context,
    scope: impl Into<Scope>,
    id: u32,
) -> (&'c Session<'c>, u32) {
    process(context).own(scope.into(), id)
}

/// Procedures, blocks and instructions, which have numbers.
pub(super) trait Numbered: Sized {
    /// The session of the thing with a number, and the own number; `None`, with an error of the tool, if there is none.
    fn known<'c>(context: *mut Context, number: u32) -> Option<(&'c Session<'c>, Self)>;
}

impl Numbered for ProcId {
    fn known<'c>(context: *mut Context, number: u32) -> Option<(&'c Session<'c>, Self)> {
        let (session, own) = of_scope(context, Scope::Proc, number);
        session.known_proc(own).map(|_| (session, Self(own)))
    }
}

impl Numbered for BlockId {
    fn known<'c>(context: *mut Context, number: u32) -> Option<(&'c Session<'c>, Self)> {
        let (session, own) = of_scope(context, Scope::Block, number);
        session.known_block(own).map(|_| (session, Self(own)))
    }
}

impl Numbered for InstId {
    fn known<'c>(context: *mut Context, number: u32) -> Option<(&'c Session<'c>, Self)> {
        let (session, own) = of_scope(context, Scope::Inst, number);
        session.known_inst(own).map(|_| (session, Self(own)))
    }
}

/// Defines functions of the table about a thing with a number. `, VALUE` after the type of the result is the result for
/// a number out of range; `each TYPE` in place of a result stands for a sink that gets the items of the value.
macro_rules! queries {
    () => {};
    (fn $name:ident($session:ident, $id:ident: $kind:ty) each $item:ty $body:block $($rest:tt)*) => {
        pub(super) extern "C" fn $name(
            context: *mut Context, number: u32, arg: *mut c_void, sink: Sink<$item>,
        ) {
            if let Some(($session, $id)) = <$kind>::known(context, number) {
                ($body).into_iter().for_each(|item| sink(arg, &item));
            }
        }
        queries! { $($rest)* }
    };
    (fn $name:ident($session:ident, $id:ident: $kind:ty $(, $arg:ident: $type:ty)*) -> $result:ty, $none:expr; $body:block $($rest:tt)*) => {
        pub(super) extern "C" fn $name(context: *mut Context, number: u32 $(, $arg: $type)*) -> $result {
            match <$kind>::known(context, number) {
                Some(($session, $id)) => $body,
                None => $none,
            }
        }
        queries! { $($rest)* }
    };
}
pub(super) use queries;

/// The session and the own address for an address of the process.
pub(super) fn of_address<'c>(context: *mut Context, address: u64) -> (&'c Session<'c>, u64) {
    process(context).at(address)
}
