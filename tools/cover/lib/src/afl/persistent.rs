//! Persistent processes: one process runs a procedure again and again, once for each input.
//!
//! The routine at the procedure's entry calls the procedure itself, with the words that its caller passed, and stops
//! the process after each call. The server has it continue for the next input. The caller never gets control back: after
//! the last cycle the process ends.
//!
//! ABI: a procedure gets up to six words in registers. What it gets on the stack or in vector registers is not passed.

use std::sync::atomic::{AtomicBool, Ordering};

use atom_tool::Marks;

use super::compare;
use super::input::Source;
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
    /// Version of the server's protocol.
    pub protocol: u32,
    /// The first two words are address and length of the test case.
    pub has_input: bool,
}

/// Serves at the first call, and calls the procedure for each input in a process that the fork server has made. Returns if
/// there is no fuzzer, and while the procedure runs already.
pub fn run(map: Map, done: Marks, of: Loop) {
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if HAS_BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut source = if of.has_input {
        Some(Source::of_environment().unwrap_or_else(|message| {
            eprintln!("afl: {message}");
            sys::exit(1)
        }))
    } else {
        None
    };
    server::begin(map, done, of.protocol, source.as_ref());
    if !server::is_child() {
        return;
    }
    type Called = extern "C" fn(u64, u64, u64, u64, u64, u64) -> u64;
    // SAFETY: the address of a procedure of the program. The words are those that its caller passed.
    let called: Called = unsafe { std::mem::transmute(of.proc as usize) };
    let [mut a, mut b, c, d, e, f] = of.words;
    // What led to the procedure the first time does not belong to an input.
    map.clear();
    for cycle in 1..=of.cycles {
        if let Some(source) = &mut source {
            [a, b] = source.test_case();
        }
        called(a, b, c, d, e, f);
        if cycle < of.cycles {
            stop();
            compare::begin_input(done);
        }
    }
    sys::exit(0)
}

/// Stops the process until the server has it continue.
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
