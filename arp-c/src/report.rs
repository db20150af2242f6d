//! How problems reach the program.
//!
//! With an error callback, that. Without, a message on standard error, and for anything
//! worse than a warning the end of the program with code 1, after what was recorded has
//! been saved. The end comes when the function that found the problem is about to return, since
//! recorders are in use before that.
use std::ffi::{CString, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use arp_core::{Problem, Severity};

use crate::context::Context;
use crate::system::NoCancel;

pub(crate) type ErrorCallback =
    extern "C" fn(kind: c_int, message: *const i8, context: *mut c_void);

/// What `arp_start` or `arp_load_data` was given.
#[derive(Clone, Copy)]
pub(crate) struct Errors {
    pub callback: Option<ErrorCallback>,
    pub context: Context,
}

impl Errors {
    pub const NONE: Self = Self {
        callback: None,
        context: Context(std::ptr::null_mut()),
    };

    /// Tells of a problem. Says whether the program should end.
    pub fn tell(&self, problem: &Problem) -> bool {
        let _guard = NoCancel::new();
        let severity = problem.severity();
        if let Some(callback) = self.callback {
            // A text without zero bytes, as messages are.
            let text = CString::new(problem.to_string()).unwrap_or_default();
            callback(c_int::from(severity as u8), text.as_ptr(), self.context.0);
            return false;
        }
        print(problem);
        severity != Severity::Warning
    }
}

/// Messages of each sort so far.
static PRINTED: Mutex<[u32; 32]> = Mutex::new([0; 32]);
/// After so many, the others of a sort are not shown.
const MOST: u32 = 10;

fn print(problem: &Problem) {
    let shown = match PRINTED.lock() {
        Ok(mut printed) => {
            let count = &mut printed[problem.sort() % 32];
            *count = count.saturating_add(1);
            *count
        }
        Err(_) => 1,
    };
    if shown > MOST {
        return;
    }
    let what = match problem.severity() {
        Severity::Warning => "warning",
        _ => "error",
    };
    eprintln!("arp: {what}: {problem}");
    if shown == MOST {
        eprintln!("arp: more of this sort are not shown");
    }
}

/// Set if the program is to end when the present function is about to return.
pub(crate) static ENDING: AtomicBool = AtomicBool::new(false);

/// Ends the program if that is due. No recorder may be in use by the calling thread.
#[inline]
pub(crate) fn end_if_due() {
    if ENDING.load(Ordering::Relaxed) {
        end();
    }
}

#[cold]
fn end() -> ! {
    // Without `exit`'s help `arp_finish` would be called twice.
    crate::threads::finish_quietly();
    std::process::exit(1);
}

/// Tells of a problem outside of a recording, and ends the program if it should.
pub(crate) fn tell(errors: &Errors, problem: &Problem) {
    if errors.tell(problem) {
        end();
    }
}
