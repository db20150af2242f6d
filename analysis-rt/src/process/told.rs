//! What `atom` tells reports and records of the run.

use atom_abi::{RunInfo, StrRef};

use super::info;

fn run() -> Option<&'static RunInfo> {
    // SAFETY: null or a structure in the image, which stays for the process's life.
    unsafe { info::get()?.run.as_ref() }
}

fn text(of: StrRef) -> Option<&'static str> {
    // SAFETY: `atom` wrote the string, which is UTF-8 and stays in the image.
    let bytes = match of.len {
        0 => return None,
        len => unsafe { core::slice::from_raw_parts(of.ptr, len) },
    };
    core::str::from_utf8(bytes).ok()
}

/// The text at which a string of the run's information is, which ends with a null; `None` if it is empty.
fn path(of: impl FnOnce(&RunInfo) -> StrRef) -> Option<*const u8> {
    let text = of(run()?);
    (text.len != 0).then_some(text.ptr)
}

/// Path by which a program that is instrumented alone was named; a null follows.
pub(crate) fn named() -> Option<*const u8> {
    path(|run| run.named)
}

/// Path of a link to the original of such a program; a null follows.
pub(crate) fn link() -> Option<*const u8> {
    path(|run| run.link)
}

/// Path of the record for `atom run`, up to the number of the process that waits; `None` if none is
/// wanted.
pub fn record() -> Option<&'static str> {
    text(run()?.record)
}

/// Names of the program's libraries that are not instrumented, with `, ` between them; `None` if there are
/// none, or if nothing is known.
pub fn unseen() -> Option<&'static str> {
    text(run()?.unseen)
}

/// What the tool replaces, with `, ` between; `None` if it changes nothing.
pub fn replaced() -> Option<&'static str> {
    text(run()?.replaced)
}

/// Number of procedures that are not instrumented because they are not understood; `None` if it is not
/// known.
pub fn opaque() -> Option<u64> {
    Some(run()?.opaque)
}

/// Size in bytes of all code that is known, and of the part that a tool can instrument; `None` if it is not
/// known.
pub fn code() -> Option<[u64; 2]> {
    let run = run()?;
    (run.code != 0).then_some([run.code, run.understood])
}

/// First words of the command line by which `atom` executes a program in this one's place, each with a
/// null after it; `None` if executed programs run as they are.
pub(crate) fn follow() -> Option<&'static [u8]> {
    let follow = run()?.follow;
    // SAFETY: `atom` wrote the string, which stays in the image.
    (follow.len != 0).then(|| unsafe { core::slice::from_raw_parts(follow.ptr, follow.len) })
}

/// Name of the tool; `None` if it is not known.
pub(crate) fn tool() -> Option<&'static str> {
    text(run()?.tool)
}

/// First words of the command line by which `atom` instruments a library that the process opens, each with a null after it
/// it, and the last word of all: the path of what it has to know, with its null. `None` if such libraries run as they
/// are.
pub(crate) fn late() -> Option<(&'static [u8], &'static [u8])> {
    let late = run()?.late;
    if late.len == 0 {
        return None;
    }
    // SAFETY: `atom` wrote the string, which stays in the image.
    let words = unsafe { core::slice::from_raw_parts(late.ptr, late.len) };
    let last = words[..words.len() - 1].iter().rposition(|b| *b == 0)?;
    Some(words.split_at(last + 1))
}

/// Device and inode of the original of a program that `atom run` runs alone.
pub(crate) fn original() -> Option<[u64; 2]> {
    let original = run()?.original;
    (original != [0; 2]).then_some(original)
}
