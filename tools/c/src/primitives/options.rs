//! Options of tools in C, and the files of reports.
//!
//! C's way is kept: what is taken leaves the list of words, and the rest moves up. So a tool may read other words itself.

use std::ffi::{c_char, c_int};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

use atom_tool::report::ReportFiles;
use atom_tool::{Args, Options, Result, WrongOption};

use super::handles::{program, stop, word};
use super::placed::{Data, keep};

/// The arguments, while the instrument routine runs.
static ARGS: AtomicPtr<Args<'static>> = AtomicPtr::new(std::ptr::null_mut());

/// The options that were asked for, as an error shows them.
static KNOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Lets primitives see the arguments, which live as long as the instrument routine runs.
pub fn open(args: &Args<'_>) {
    let args = std::ptr::from_ref(args).cast_mut();
    ARGS.store(args.cast(), Ordering::Release);
}

/// The words after the program's name.
///
/// # Safety
/// The list has `argc` strings of C, which live for `'a`.
unsafe fn words<'a>(argc: c_int, argv: *mut *const c_char, primitive: &str) -> Vec<&'a str> {
    if argv.is_null() || argc < 1 {
        stop(
            primitive,
            "these are not the arguments of the instrument routine",
        );
    }
    (1..argc as usize)
        // SAFETY: the caller's promise.
        .map(|i| unsafe { word(*argv.add(i), primitive) })
        .collect()
}

/// Takes options out of the list of words. An error of the user's ends `atom`.
///
/// # Safety
/// As for [`words`], of `*argc` strings.
unsafe fn take<'a, R>(
    argc: *mut c_int,
    argv: *mut *const c_char,
    primitive: &str,
    take: impl FnOnce(&Options<'a>) -> Result<R>,
) -> R {
    if argc.is_null() {
        stop(primitive, "the number of arguments is NULL");
    }
    // SAFETY: the caller's promise; the arguments live while the instrument routine runs, which calls this.
    let (words, args) = unsafe {
        let args = ARGS.load(Ordering::Acquire).cast::<Args<'a>>();
        (words(*argc, argv, primitive), &*args)
    };
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let options = args.options_of(words, std::mem::take(&mut *known));
    let taken = match take(&options) {
        Ok(taken) => taken,
        Err(error) => program().stop(&error.to_string(), error.is::<WrongOption>()),
    };
    let (rest, asked) = options.parts();
    *known = asked;
    // SAFETY: the list had at least as many words, each of which is a whole string of C, and a null after it.
    unsafe {
        for (i, word) in rest.iter().enumerate() {
            *argv.add(i + 1) = word.as_ptr().cast();
        }
        *argv.add(rest.len() + 1) = null();
        *argc = rest.len() as c_int + 1;
    }
    taken
}

/// # Safety
/// The arguments of the instrument routine, of which `*argc` are left; the name is a string of C.
#[unsafe(no_mangle)]
unsafe extern "C" fn TakeOption(
    argc: *mut c_int,
    argv: *mut *const c_char,
    name: *const c_char,
) -> *const c_char {
    const NAME: &str = "TakeOption";
    // SAFETY: the caller's promise.
    unsafe {
        let name = word(name, NAME);
        // The end of a string of C is one, too.
        let value = take(argc, argv, NAME, |options| options.value(name));
        value.map_or(null(), |value| value.as_ptr().cast())
    }
}

/// # Safety
/// As for [`TakeOption`].
#[unsafe(no_mangle)]
unsafe extern "C" fn TakeFlag(
    argc: *mut c_int,
    argv: *mut *const c_char,
    name: *const c_char,
) -> c_int {
    const NAME: &str = "TakeFlag";
    // SAFETY: the caller's promise.
    unsafe {
        let name = word(name, NAME);
        take(argc, argv, NAME, |options| Ok(options.flag(name))).into()
    }
}

/// # Safety
/// As for [`TakeOption`].
#[unsafe(no_mangle)]
unsafe extern "C" fn RefuseOptions(argc: c_int, argv: *mut *const c_char) {
    let mut argc = argc;
    // SAFETY: the caller's promise. Nothing is taken.
    unsafe { take(&raw mut argc, argv, "RefuseOptions", Options::check) };
}

/// # Safety
/// As for [`TakeOption`].
#[unsafe(no_mangle)]
unsafe extern "C" fn MakeReportFiles(
    argc: *mut c_int,
    argv: *mut *const c_char,
    default: *const c_char,
) -> usize {
    const NAME: &str = "MakeReportFiles";
    // SAFETY: the caller's promise.
    let files = unsafe {
        let default = word(default, NAME);
        take(argc, argv, NAME, |options| {
            ReportFiles::with_default(options, default)
        })
    };
    keep(Data::Files(Box::leak(Box::new(files))))
}
