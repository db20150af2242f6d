//! The program as the instrument routine sees it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::panic::Location;
use std::sync::OnceLock;

use atom_abi::StrRef;
use atom_abi::host::{self, Host, Place, ProgramInfo, Scope};
use atom_abi::query::Sink;

use crate::calls::params::Params;
use crate::calls::proto::{self, NamedArg, Prototype};
use crate::calls::typed::{ArgList, AsRoutine, Computed, Exported, computed};
use crate::{Error, Result};

/// Tells the file and line in the tool's source at which a call is being added, if they are known.
pub type Source = fn() -> Option<(&'static str, u32)>;

/// What tells it in tools of other languages; in those of Rust it is the caller's place.
static SOURCE: OnceLock<Source> = OnceLock::new();

/// Sets what tells the place in the tool's source.
pub fn set_source(source: Source) {
    // A second one is the same.
    let _ = SOURCE.set(source);
}

/// The function table of `atom`, and the prototypes that the tool declared.
pub(crate) struct Session<'h> {
    pub(crate) host: &'h Host,
    prototypes: RefCell<HashMap<String, Prototype>>,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl<'h> Session<'h> {
    pub(crate) fn new(host: &'h Host) -> Self {
        Self {
            host,
            prototypes: RefCell::default(),
        }
    }

    /// A string of the host, which lives as long as the instrument routine runs.
    pub(crate) fn text(&self, text: StrRef) -> &'h str {
        // SAFETY: the host promises UTF-8 that lives as long as the routine runs,
        // and no session outlives that.
        unsafe { text.as_str() }
    }

    pub(crate) fn add_call(
        &self,
        scope: Scope,
        id: u32,
        place: Place,
        routine: *const (),
        args: &[host::Arg],
    ) -> bool {
        let host = self.host;
        (host.add_call)(
            host.context,
            scope,
            id,
            place,
            routine,
            args.as_ptr(),
            args.len(),
        ) == 0
    }

    pub(crate) fn offers(
        &self,
        scope: Scope,
        id: u32,
        place: Place,
        value: &impl Computed,
    ) -> bool {
        let (kind, number) = value.kind();
        let arg = computed(kind, number);
        let host = self.host;
        (host.offers)(host.context, scope, id, place, &arg)
    }

    #[track_caller]
    pub(crate) fn add_typed<P: Params>(
        &self,
        scope: Scope,
        id: u32,
        place: Place,
        routine: impl AsRoutine<P>,
        args: impl ArgList<P>,
    ) {
        let is_added = args.with_host(|args| {
            self.add_call(scope, id, place, routine.as_routine().address(), args)
        });
        if !is_added {
            self.refused_at(Location::caller());
        }
    }

    /// The host has noted a refused call as an error, and ends with it. It learns where in the tool's source the call is added.
    fn refused_at(&self, caller: &Location<'_>) {
        let told = SOURCE.get().and_then(|place| place());
        let (file, line) = told.unwrap_or((caller.file(), caller.line()));
        let host = self.host;
        (host.refused_at)(host.context, StrRef::new(file), line);
    }

    #[track_caller]
    pub(crate) fn add_named(
        &self,
        scope: Scope,
        id: u32,
        place: Place,
        name: &str,
        args: &[NamedArg<'_>],
    ) -> Result {
        let prototypes = self.prototypes.borrow();
        let prototype = prototypes.get(name).ok_or_else(|| {
            Error::from(format!(
                "no prototype of `{name}` was added; call add_call_proto first"
            ))
        })?;
        let args = prototype.check(args)?;
        if !self.add_call(scope, id, place, prototype.address, &args) {
            self.refused_at(Location::caller());
        }
        Ok(())
    }
}

/// Hands each item of a query's answer to `take`, while the item is valid.
pub(crate) fn each<T>(ask: impl FnOnce(*mut c_void, Sink<T>), mut take: impl FnMut(&T)) {
    extern "C" fn sink<T>(arg: *mut c_void, item: *const T) {
        // SAFETY: `arg` is the closure below, which outlives the query; the item
        // is valid during this call, by the interface.
        unsafe { (*arg.cast::<&mut dyn FnMut(&T)>())(&*item) }
    }
    let mut take: &mut dyn FnMut(&T) = &mut take;
    ask((&raw mut take).cast(), sink::<T>);
}

/// The program that is being instrumented.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    pub(crate) session: &'a Session<'a>,
}

impl<'a> Program<'a> {
    pub(crate) fn host(&self) -> &'a Host {
        self.session.host
    }

    /// The file's name without directories, and without ATOM's extension `.rr`.
    pub fn name(&self) -> &'a str {
        let host = self.host();
        self.session.text((host.program_name)(host.context))
    }

    /// The path that was given to `atom`.
    pub fn path(&self) -> &'a str {
        let host = self.host();
        self.session.text((host.program_path)(host.context))
    }

    /// A number about the whole program.
    pub fn info(&self, what: ProgramInfo) -> u64 {
        let host = self.host();
        (host.program_info)(host.context, what as u32)
    }

    /// True unless it is certain that the program runs one thread only.
    ///
    /// Counters and per-thread state are exact in both cases. A tool needs this for data that it
    /// shares between threads itself.
    pub fn may_have_threads(&self) -> bool {
        self.info(ProgramInfo::MayHaveThreads) != 0
    }

    /// Number of basic blocks in all procedures.
    pub fn block_count(&self) -> usize {
        self.info(ProgramInfo::BlockCount) as usize
    }

    /// Number of instructions in all procedures.
    pub fn inst_count(&self) -> usize {
        self.info(ProgramInfo::InstCount) as usize
    }

    /// Ends `atom` with a message, which may be about the tool's options, as an error of the instrument routine would. For code through
    /// which no error can be returned, such as C's.
    pub fn stop(&self, message: &str, is_usage: bool) -> ! {
        let host = self.host();
        (host.panicked)(
            host.context,
            is_usage,
            StrRef::new(message),
            StrRef::new(""),
        )
    }

    /// A C function or data that was linked into the tool's shared object and that it exports
    /// under this name.
    pub fn exported(&self, name: &str) -> Option<Exported> {
        let host = self.host();
        let found = (host.named_routine)(host.context, StrRef::new(name));
        (!found.is_null()).then_some(Exported(found))
    }

    /// Adds a call before the program starts or after it has ended.
    #[track_caller]
    pub fn add_call<P: Params>(
        &self,
        place: Place,
        routine: impl AsRoutine<P>,
        args: impl ArgList<P>,
    ) {
        self.session
            .add_typed(Scope::Program, 0, place, routine, args);
    }

    /// Adds a call of a routine by name; see [`Program::add_call_proto`].
    #[track_caller]
    pub fn add_call_named(&self, place: Place, name: &str, args: &[NamedArg<'_>]) -> Result {
        self.session.add_named(Scope::Program, 0, place, name, args)
    }

    /// Declares an analysis routine by a C prototype, as in ATOM:
    /// `"CondBranch(int, VALUE)"`. Parameter types are `char`, `int`, `long`,
    /// `char*`, `char[n]`, `int[n]`, `long[n]`, `REGV` and `VALUE`; for routines that are not written in Rust also
    /// `ADDRESS`, `COUNTER`, `COUNTERS`, `MARK`, `MARKS`, `THREAD` and `THREADS`, each a pointer or an address.
    pub fn add_call_proto(&self, prototype: &str) -> Result {
        let host = self.host();
        let find = |name: &str| (host.named_routine)(host.context, StrRef::new(name));
        let (name, prototype) = proto::resolve(prototype, find)?;
        self.session.prototypes.borrow_mut().insert(name, prototype);
        Ok(())
    }

    /// The types of the parameters of a routine that [`Program::add_call_proto`] has declared.
    #[doc(hidden)]
    pub fn parameters(&self, routine: &str) -> Option<Vec<proto::Type>> {
        let prototypes = self.session.prototypes.borrow();
        prototypes.get(routine).map(Prototype::types)
    }

    /// Says that strings and arrays which this routine passes at ProgramBefore may be replaced by longer ones while the program
    /// runs. Under `atom run` a library that the program opens is added to the process: the instrument routine runs again, with the
    /// library after the other objects, and what it passes at ProgramBefore and ProgramAfter then is found where it was
    /// before. The routines must keep the parameters themselves (an `Array`, `Sites`), look into them each time they need them, and
    /// give everything that they number the same numbers again. Without this, a tool whose arguments at ProgramBefore
    /// depend on the number of procedures does not see such libraries; arguments at ProgramAfter may always become longer.
    pub fn tables_may_grow(&self) {
        let host = self.host();
        (host.tables_may_grow)(host.context);
    }

    /// Adds bytes to the instrumented program's file, by which other programs recognise it. Nothing loads them.
    pub fn sign(&self, bytes: &[u8]) {
        let host = self.host();
        (host.sign)(host.context, bytes.as_ptr(), bytes.len());
    }

    /// Places per-thread data; the host notes a failure.
    pub(crate) fn place_for_threads(&self, initial: &[u8], size: usize, sum_from: usize) -> u64 {
        let host = self.host();
        let initial_ptr = initial.as_ptr();
        (host.add_thread_data)(host.context, initial_ptr, initial.len(), size, sum_from)
    }

    /// Places data; the host notes a failure, with which `atom` ends later.
    pub(crate) fn place(&self, what: &str, bytes: &[u8], size: usize) -> u64 {
        let host = self.host();
        if bytes.len() != size {
            let message = format!("no memory for {size} bytes of {what}");
            (host.error)(host.context, false, StrRef::new(&message));
            return 0;
        }
        (host.add_data)(host.context, bytes.as_ptr(), size)
    }

    /// As [`Program::place`]. The last `counts` bytes, zeros, count what the process does, and are zeros in a
    /// forked child again.
    pub(crate) fn place_counts(&self, what: &str, bytes: &[u8], size: usize, counts: usize) -> u64 {
        let offset = self.place(what, bytes, size);
        let host = self.host();
        // After a failure the offset names nothing.
        if bytes.len() == size && offset != u64::MAX {
            (host.mark_counts)(host.context, offset + (size - counts) as u64, counts);
        }
        offset
    }
}
