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
/// null behind it; `None` if executed programs run as they are.
pub(crate) fn follow() -> Option<&'static [u8]> {
    let follow = run()?.follow;
    // SAFETY: `atom` wrote the string, which stays in the image.
    (follow.len != 0).then(|| unsafe { core::slice::from_raw_parts(follow.ptr, follow.len) })
}
