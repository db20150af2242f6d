//! What the functions of the table share: finding the session of a context and a number, and what crosses the border
//! to the tool.
//!
//! ABI: each function gets back the context pointer that the table carries. For a number out of range a function
//! returns "none" and notes an error of the tool, because a panic here would have to unwind through the tool.

use atom_abi::StrRef;
use atom_abi::host::Context;

use super::calls::Scope;
use super::process::Process;
use super::session::Session;
use crate::cfg::{Block, Proc};
use crate::ids::{BlockId, InstId, ProcId};
use crate::x86::Inst;

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

impl Session<'_> {
    fn known_proc(&self, id: u32) -> Option<&Proc> {
        let found = self.cfg.procs.get(id as usize);
        self.expect(found, "procedure", id)
    }

    fn known_block(&self, id: u32) -> Option<&Block> {
        let found = self.cfg.blocks.get(id as usize);
        self.expect(found, "block", id)
    }

    fn known_inst(&self, id: u32) -> Option<&Inst> {
        let found = self.cfg.insts.get(id as usize);
        self.expect(found, "instruction", id)
    }

    fn expect<T>(&self, found: Option<T>, kind: &str, id: u32) -> Option<T> {
        if found.is_none() {
            self.note(self.error(format!("it asked for {kind} {id}, which does not exist")));
        }
        found
    }
}

/// A string that the tool passed.
pub(super) fn text<'c>(text: StrRef) -> &'c str {
    // SAFETY: by the interface, the string is UTF-8 and lives during the call.
    unsafe { text.as_str() }
}

/// Bytes for the tool, which need not be text.
pub(super) fn bytes(bytes: &[u8]) -> StrRef {
    StrRef {
        ptr: bytes.as_ptr(),
        len: bytes.len(),
    }
}

/// Items that the tool passed; a null pointer leads to none.
///
/// # Safety
/// `first` leads to `count` items that live during the call.
pub(super) unsafe fn items<'c, T>(first: *const T, count: usize) -> &'c [T] {
    if first.is_null() || count == 0 {
        &[]
    } else {
        // SAFETY: by the caller.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

/// Writes a result, if there is one, and says so.
///
/// # Safety
/// `place` leads to memory for it.
pub(super) unsafe fn put<T>(place: *mut T, result: Option<T>) -> bool {
    let Some(result) = result else { return false };
    // SAFETY: by the caller.
    unsafe { place.write(result) };
    true
}
