//! Persistent processes: one process runs a procedure again and again, once for each input.
//!
//! The routine at the procedure's entry calls the procedure itself, with the words that its caller passed, and stops
//! the process after each call. The server has it go on for the next input. The caller never gets control back: after
//! the last cycle the process ends.
//!
//! ABI: a procedure gets up to six words in registers. What it gets on the stack or in vector registers is not passed.

use std::sync::atomic::{AtomicBool, Ordering};

use super::map::Map;
use super::server;
use super::sys::{self, syscall};

/// A procedure, what it is called with, and how often.
pub struct Loop {
    /// Address at run time.
    pub proc: u64,
    /// The words in registers.
    pub words: [u64; 6],
    /// Number of calls.
    pub cycles: u64,
}

/// Calls the procedure for each input, if a fork server has made this process. Returns if it has not, and while the
/// procedure runs already.
pub fn run(map: Map, of: Loop) {
    static IS_RUNNING: AtomicBool = AtomicBool::new(false);
    if !server::is_child() || IS_RUNNING.swap(true, Ordering::Relaxed) {
        return;
    }
    type Called = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // SAFETY: the address of a procedure of the program. The words are those that its caller passed.
    let called: Called = unsafe { std::mem::transmute(of.proc as usize) };
    let [a, b, c, d, e, f] = of.words;
    // What led to the procedure the first time does not belong to an input.
    map.clear();
    for cycle in 1..=of.cycles {
        called(a, b, c, d, e, f);
        if cycle < of.cycles {
            stop();
        }
    }
    sys::exit(0)
}

/// Stops the process until the server has it go on.
fn stop() {
    // SAFETY: no effect on memory.
    unsafe {
        syscall(
            libc::SYS_tgkill,
            syscall(libc::SYS_getpid),
            sys::gettid(),
            libc::SIGSTOP,
        )
    };
}
