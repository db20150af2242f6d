//! How problems reach the program.
//!
//! The error callback gets them if there is one. Without it they go to standard error, and anything worse
//! than a warning ends the program with code 1, after the records have been saved. The program
//! ends just before the function that found the problem returns, since recorders are in use
//! until then.
use std::ffi::{CString, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use arp_core::{Problem, Severity};

use crate::context::Context;
use crate::system::NoCancel;

pub(crate) type ErrorCallback =
    extern "C" fn(kind: c_int, message: *const i8, context: *mut c_void);

/// Error callback and context that `arp_start` or `arp_load_data` was given.
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

    /// Reports a problem. Returns whether the program should end.
    pub fn tell(&self, problem: &Problem) -> bool {
        let _guard = NoCancel::new();
        let severity = problem.severity();
        if let Some(callback) = self.callback {
            // Messages contain no zero bytes.
            let text = CString::new(problem.to_string()).unwrap_or_default();
            callback(c_int::from(severity as u8), text.as_ptr(), self.context.0);
            return false;
        }
        print(problem);
        severity != Severity::Warning
    }
}

/// Number of messages of each sort so far.
static PRINTED: Mutex<[u32; 32]> = Mutex::new([0; 32]);
/// Number of messages of one sort that are shown.
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

/// Set if the program is to end just before the present function returns.
pub(crate) static ENDING: AtomicBool = AtomicBool::new(false);
