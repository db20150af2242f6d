//! Running the instrumented program so that nobody notices that another process waits for it.
//!
//! The program gets the terminal, the standard streams, the environment, the signal mask and the
//! signal dispositions that `atom` was started with. While it runs, signals that a terminal sends
//! reach it directly, as both are in one process group, and `atom` ignores them; signals that
//! somebody sends to `atom` are passed on. When the program has ended, `atom` ends in the same way:
//! with its exit code, or by the signal that killed it.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};

use atom_core::{Error, Result};

use super::program::Program;
use super::{surroundings, watch};

const DOING: &str = "running the program";

/// Signals that a terminal sends to all processes of the foreground.
const OF_TERMINAL: [i32; 2] = [libc::SIGINT, libc::SIGQUIT];

/// Signals that are passed on to the program.
const PASSED_ON: [i32; 7] = [
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGWINCH,
    libc::SIGCONT,
];

/// The program's process number while it runs.
static CHILD: AtomicI32 = AtomicI32::new(0);

extern "C" fn pass_on(signal: i32) {
    let child = CHILD.load(Ordering::Relaxed);
    if child > 0 {
        // SAFETY: a system call that signal handlers may make.
        unsafe { libc::kill(child, signal) };
    }
}

/// Starts `file` with the program's arguments and waits for its end. Returns its process number, too. The signal `report_on` asks for a report and
/// is not passed on.
pub fn run(file: &Path, program: &Program, report_on: Option<i32>) -> Result<(u32, ExitStatus)> {
    let mut command = Command::new(file);
    if let Some(name) = program.arguments.first() {
        command.arg0(name);
    }
    command.args(program.arguments.iter().skip(1));
    let sigpipe = surroundings::sigpipe_at_start();
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGPIPE, sigpipe);
            Ok(())
        });
    }
    let mut child = command
        .spawn()
        .map_err(|e| Error::new(DOING, e.to_string()).file(file))?;
    CHILD.store(child.id() as i32, Ordering::Relaxed);
    for signal in OF_TERMINAL {
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    for signal in PASSED_ON {
        let handler = match report_on {
            Some(asking) if asking == signal => watch::on_signal,
            _ => pass_on as extern "C" fn(i32),
        };
        // SAFETY: the handlers make one system call and read an atomic number.
        unsafe { libc::signal(signal, handler as *const () as usize) };
    }
    let status = child
        .wait()
        .map_err(|e| Error::new(DOING, format!("waiting for it: {e}")).file(file));
    CHILD.store(0, Ordering::Relaxed);
    status.map(|status| (child.id(), status))
}

/// The exit code for `status`; does not return if a signal killed the program: the same one then
/// kills this process, without another core file.
pub fn exit_code(status: ExitStatus) -> u8 {
    if let Some(signal) = status.signal() {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: plain system calls on this process; the structures live across them.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            libc::signal(signal, libc::SIG_DFL);
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, signal);
            libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
            libc::raise(signal);
        }
        return 128 + signal as u8;
    }
    status.code().unwrap_or(1) as u8
}
