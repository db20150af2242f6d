//! What an executed program gets from the process before it, and what the command itself needs meanwhile.
//!
//! Rust's start-up code changes two things before `main`: it ignores SIGPIPE, and it opens `/dev/null` in
//! the place of standard streams that are closed. An initialiser notes how both were before, and which signals the
//! command ignores by inheritance (`nohup`, the background jobs of a script).

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

/// The disposition of SIGPIPE with which the process was started.
static SIGPIPE_AT_START: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// A bit for each signal that was ignored at the start: 1 for signal 1.
static IGNORED_AT_START: AtomicU64 = AtomicU64::new(0);

/// Number of signals.
const SIGNALS: i32 = 64;

/// A bit for each of the standard streams (descriptors 0 to 2) that was closed at the start.
static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

/// Descriptors of the standard streams.
const STANDARD: [i32; 3] = [0, 1, 2];

extern "C" fn remember() {
    SIGPIPE_AT_START.store(disposition(libc::SIGPIPE), Ordering::Relaxed);
    let ignored = (1..=SIGNALS).filter(|signal| disposition(*signal) == libc::SIG_IGN);
    let ignored = ignored.fold(0, |all, signal| all | 1 << (signal - 1));
    IGNORED_AT_START.store(ignored, Ordering::Relaxed);
    for descriptor in STANDARD {
        // SAFETY: only asks for the flags of a descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } < 0 {
            CLOSED_AT_START.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Runs before Rust's start-up code, as initialisers do.
#[used]
// SAFETY: the section holds functions by the C ABI; this one needs nothing to be set up.
#[unsafe(link_section = ".init_array")]
static REMEMBER: extern "C" fn() = remember;

/// The disposition of SIGPIPE with which the process was started.
pub fn sigpipe_at_start() -> usize {
    SIGPIPE_AT_START.load(Ordering::Relaxed)
}

/// True if the process was started with this signal ignored.
pub fn is_ignored_at_start(signal: i32) -> bool {
    IGNORED_AT_START.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0
}

/// Gives a new process the dispositions with which the command was started, between fork and exec: those that it has
/// handlers for become the default ones by themselves.
pub fn restore_signals() {
    let sigpipe = sigpipe_at_start();
    // SAFETY: system calls that are allowed between fork and exec.
    unsafe {
        libc::signal(libc::SIGPIPE, sigpipe);
        for signal in (1..=SIGNALS).filter(|signal| is_ignored_at_start(*signal)) {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// The disposition of a signal: `SIG_DFL`, `SIG_IGN` or the address of a handler.
fn disposition(signal: i32) -> usize {
    // SAFETY: only reads the disposition, into a structure that zeros are valid for.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        match libc::sigaction(signal, std::ptr::null(), &mut action) {
            0 => action.sa_sigaction,
            _ => libc::SIG_DFL,
        }
    }
}

/// What the command has changed for itself and changes back before it executes a program in its place.
pub struct Surroundings {
    umask: libc::mode_t,
    /// Signals with the dispositions that they had.
    dispositions: [(i32, usize); 3],
}

impl Surroundings {
    /// Makes the process fit for the command: it can wait for children, survives a limit on the size of
    /// files, and makes files that nobody else can read.
    pub fn begin() -> Self {
        // SAFETY: plain system calls on this process.
        unsafe {
            for descriptor in STANDARD {
                if CLOSED_AT_START.load(Ordering::Relaxed) & 1 << descriptor != 0 {
                    libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC);
                }
            }
            let dispositions = [
                (libc::SIGPIPE, sigpipe_at_start()),
                (libc::SIGCHLD, disposition(libc::SIGCHLD)),
                (libc::SIGXFSZ, disposition(libc::SIGXFSZ)),
            ];
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Self {
                umask: libc::umask(0o077),
                dispositions,
            }
        }
    }

    /// Changes everything back.
    pub fn restore(&self) {
        // SAFETY: plain system calls on this process; the dispositions are those before, and handlers of
        // other programs do not outlive an `exec`.
        unsafe {
            libc::umask(self.umask);
            for (signal, disposition) in self.dispositions {
                libc::signal(signal, disposition);
            }
        }
    }
}
