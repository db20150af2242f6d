//! Handles of C, strings for C, and errors of primitives.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::marker::PhantomData;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use atom_tool::{Block, Inst, Object, Proc, Program, private};

use crate::varargs;

unsafe extern "C" {
    fn abort() -> !;
}

/// The program, while the instrument routine runs.
static PROGRAM: AtomicPtr<Program<'static>> = AtomicPtr::new(null_mut());

/// The strings that were given to C.
static TEXTS: Mutex<Option<HashMap<Vec<u8>, &'static CStr>>> = Mutex::new(None);

/// Primitives work as long as this lives.
pub struct Open<'a>(PhantomData<&'a ()>);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        PROGRAM.store(null_mut(), Ordering::Release);
    }
}

/// Lets primitives see a program.
pub fn open<'a>(program: &'a Program<'a>) -> Open<'a> {
    private::set_source(place_of_call);
    let program = std::ptr::from_ref(program).cast_mut();
    PROGRAM.store(program.cast(), Ordering::Release);
    Open(PhantomData)
}

/// The program that is being instrumented.
pub fn program() -> Program<'static> {
    let program = PROGRAM.load(Ordering::Acquire);
    // SAFETY: null, or what `open` stored: its value lives until `Open` is dropped.
    match unsafe { program.as_ref() } {
        Some(program) => *program,
        // Not reached from an instrument routine, nor from analysis routines, which have no primitives.
        None => std::process::abort(),
    }
}

/// Ends `atom` with an error of a primitive.
pub fn stop(primitive: impl Display, reason: impl Display) -> ! {
    let place = match place_of_call() {
        Some((file, line)) => format!(" ({file}, line {line})"),
        None => String::new(),
    };
    program().stop(&format!("{primitive}: {reason}{place}"), false)
}

/// The file and line of the call that is being added; null and 0 if they are not known.
static PLACE: (AtomicPtr<c_char>, AtomicI32) = (AtomicPtr::new(null_mut()), AtomicI32::new(0));

/// The macros of the header file say so where a call is added.
///
/// # Safety
/// `file` is a string of C that lives for ever.
#[unsafe(no_mangle)]
unsafe extern "C" fn AtomCallAt(file: *const c_char, line: c_int) {
    PLACE.0.store(file.cast_mut(), Ordering::Relaxed);
    PLACE.1.store(line, Ordering::Relaxed);
}

/// Forgets the place: the call has been added.
pub fn call_is_added() {
    PLACE.0.store(null_mut(), Ordering::Relaxed);
}

/// The place of the call that is being added, if the macros of the header file have told it.
pub fn place_of_call() -> Option<(&'static str, u32)> {
    let file = PLACE.0.load(Ordering::Relaxed);
    if file.is_null() {
        return None;
    }
    // SAFETY: the promise to `AtomCallAt`.
    let file = unsafe { CStr::from_ptr(file) }.to_str().ok()?;
    Some((file, u32::try_from(PLACE.1.load(Ordering::Relaxed)).ok()?))
}

/// Ends the process with a mistake of the tool's, as an assertion does.
pub fn fail(function: &str, reason: impl std::fmt::Display) -> ! {
    eprintln!("{function}: {reason}");
    // SAFETY: it has no conditions.
    unsafe { abort() }
}

/// A handle for an index.
pub fn number(index: Option<usize>) -> usize {
    index.map_or(0, |index| index + 1)
}

fn known<T>(found: Option<T>, handle: usize, kind: &str, primitive: &str) -> T {
    found.unwrap_or_else(|| match handle {
        0 => stop(primitive, format!("the {kind} is NULL")),
        _ => stop(primitive, format!("{handle:#x} is no {kind}")),
    })
}

/// The procedure with a handle.
pub fn proc(handle: usize, primitive: &str) -> Proc<'static> {
    let found = program().proc(handle.wrapping_sub(1));
    known(found, handle, "procedure", primitive)
}

/// The block with a handle.
pub fn block(handle: usize, primitive: &str) -> Block<'static> {
    let found = program().block(handle.wrapping_sub(1));
    known(found, handle, "block", primitive)
}

/// The instruction with a handle.
pub fn inst(handle: usize, primitive: &str) -> Inst<'static> {
    let found = program().inst(handle.wrapping_sub(1));
    known(found, handle, "instruction", primitive)
}

/// The object with a handle.
pub fn object(handle: usize, primitive: &str) -> Object<'static> {
    let found = program().objects().nth(handle.wrapping_sub(1));
    known(found, handle, "object", primitive)
}

/// The handle of a procedure, or NULL.
pub fn of_proc(proc: Option<Proc>) -> usize {
    number(proc.map(|proc| proc.index()))
}

/// The handle of a block, or NULL.
pub fn of_block(block: Option<Block>) -> usize {
    number(block.map(|block| block.index()))
}

/// The handle of an instruction, or NULL.
pub fn of_inst(inst: Option<Inst>) -> usize {
    number(inst.map(|inst| inst.index()))
}

/// A string for C, which lives for ever; equal strings are one.
pub fn text(text: &str) -> *const c_char {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    let texts = texts.get_or_insert_default();
    if let Some(known) = texts.get(text.as_bytes()) {
        return known.as_ptr();
    }
    let kept: &'static CStr = Box::leak(CString::new(text).unwrap_or_default().into_boxed_c_str());
    texts.insert(text.as_bytes().to_vec(), kept);
    kept.as_ptr()
}

/// As [`text`]; NULL for none.
pub fn text_or_null(found: Option<&str>) -> *const c_char {
    found.map_or(null(), text)
}

/// A string of C.
///
/// # Safety
/// It is NULL or a string of C that lives for `'a`.
pub unsafe fn word<'a>(text: *const c_char, primitive: &str) -> &'a str {
    if text.is_null() {
        stop(primitive, "a string is NULL");
    }
    // SAFETY: the caller's promise.
    match std::str::from_utf8(unsafe { varargs::bytes(text) }) {
        Ok(text) => text,
        Err(_) => stop(primitive, "a string is not UTF-8"),
    }
}

/// Writes an item for C and returns 1; 0 without an item.
///
/// # Safety
/// `to` is NULL or may be written.
pub unsafe fn give<T>(item: Option<T>, to: *mut T, primitive: &str) -> i32 {
    let Some(item) = item else { return 0 };
    if to.is_null() {
        stop(primitive, "the place for the result is NULL");
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(item) };
    1
}

/// The item of a list with a number of C.
pub fn nth<T>(list: Vec<T>, n: i32) -> Option<T> {
    list.into_iter().nth(usize::try_from(n).ok()?)
}

/// Defines primitives about a thing with a handle. `NAME` is the primitive's name in their code. One that `gives` a
/// structure writes it to its last argument and returns 1, or returns 0 for `None`.
macro_rules! primitives {
    () => {};
    (fn $name:ident($thing:ident: $kind:ident $(, $arg:ident: $type:ty)*) gives $item:ty $body:block $($rest:tt)*) => {
        /// # Safety
        /// `to` is NULL or may be written.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(handle: usize $(, $arg: $type)*, to: *mut $item) -> c_int {
            const NAME: &str = stringify!($name);
            let $thing = $crate::primitives::handles::$kind(handle, NAME);
            let item = $body;
            // SAFETY: the caller's promise.
            unsafe { $crate::primitives::handles::give(item, to, NAME) }
        }
        primitives! { $($rest)* }
    };
    (fn $name:ident($thing:ident: $kind:ident $(, $arg:ident: $type:ty)*) -> $result:ty $body:block $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: usize $(, $arg: $type)*) -> $result {
            const NAME: &str = stringify!($name);
            let $thing = $crate::primitives::handles::$kind(handle, NAME);
            $body
        }
        primitives! { $($rest)* }
    };
}
pub(super) use primitives;
