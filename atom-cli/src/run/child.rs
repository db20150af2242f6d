//! Running the instrumented program so that nobody notices that another process waits for it.
//!
//! The program gets the terminal, the standard streams, the environment, the signal mask and the
//! signal dispositions that `atom` was started with. While it runs, signals that a terminal sends
//! reach it directly, as both are in one process group, and `atom` ignores them; signals that
//! a process sends to `atom` are passed on, those that `atom` ignores by inheritance included. The kernel says
//! in the signal's information (`si_code`) which of both sent it. When the program has ended, `atom` ends in the same way:
//! with its exit code, or by the signal that killed it.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use atom_core::{Error, Result};

use super::program::Program;
use super::watch;
use crate::surroundings;

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

/// Signals by which people end what takes too long after the program's end.
const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// The program's process number while it runs; 0 before and after.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// Bit n - 1 for a signal n that came before the program's process number was known. Threads of `atom` that do not
/// block the signals get them while the first thread starts the program.
static EARLY: AtomicU32 = AtomicU32::new(0);

extern "C" fn pass_on(signal: i32) {
    EARLY.fetch_or(1 << (signal - 1), Ordering::SeqCst);
    pass_on_early();
    if ENDING.contains(&signal) {
        watch::give_up();
    }
}

/// Passes on the signals that came, if the program runs. A signal is noted before the number is read, and the number is
/// stored before the notes are read, so none is lost and none is sent twice.
fn pass_on_early() {
    let child = CHILD.load(Ordering::SeqCst);
    if child > 0 {
        let early = EARLY.swap(0, Ordering::SeqCst);
        for signal in (1..32).filter(|n| early >> (n - 1) & 1 != 0) {
            // SAFETY: a system call that signal handlers may make.
            unsafe { libc::kill(child, signal) };
        }
    }
}

/// Passes on a signal that a process has sent, as `kill` does, and no other.
extern "C" fn pass_on_sent(signal: i32, information: *const libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives the information to a handler that asks for it.
    let is_sent = unsafe { (*information).si_code } <= libc::SI_USER;
    if is_sent {
        pass_on(signal);
    }
}

/// Installs [`pass_on_sent`].
fn pass_on_if_sent(signal: i32) {
    // SAFETY: zeros are a valid structure, which lives across the call.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = pass_on_sent as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Blocks the signals that are passed on; yields the mask before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: plain system calls on this thread; the structures live across them.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in OF_TERMINAL.iter().chain(&PASSED_ON) {
            libc::sigaddset(&mut set, *signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before);
        before
    }
}

/// Installs the handlers that pass signals on. The signal `report_on` asks for a report instead.
fn pass_signals_on(report_on: Option<i32>) {
    for signal in OF_TERMINAL {
        pass_on_if_sent(signal);
    }
    for signal in PASSED_ON {
        let handler = match report_on {
            Some(asking) if asking == signal => watch::on_signal,
            _ => pass_on as extern "C" fn(i32),
        };
        // SAFETY: the handlers make one system call and read an atomic number.
        unsafe { libc::signal(signal, handler as *const () as usize) };
    }
}

/// Starts `file` with the program's arguments and waits for its end. Returns its process number, too. The signal
/// `report_on` asks for a report and is not passed on.
pub fn run(file: &Path, program: &Program, report_on: Option<i32>) -> Result<(u32, ExitStatus)> {
    let mut command = Command::new(file);
    if let Some(name) = program.arguments.first() {
        command.arg0(name);
    }
    command.args(program.arguments.iter().skip(1));
    // The child must not run the handlers between fork and exec: what comes then waits until the dispositions are the
    // program's.
    let before = block_signals();
    // SAFETY: between fork and exec only system calls are made; the mask is the one that the thread had.
    unsafe {
        command.pre_exec(move || {
            surroundings::restore_signals();
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            Ok(())
        });
    }
    pass_signals_on(report_on);
    let child = command.spawn();
    if let Ok(child) = &child {
        CHILD.store(child.id() as i32, Ordering::SeqCst);
        pass_on_early();
    }
    // SAFETY: the mask is the one that the thread had.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    let mut child = child.map_err(|e| Error::new(DOING, e).file(file))?;
    let status = child
        .wait()
        .map_err(|e| Error::new(DOING, format!("waiting for it: {e}")).file(file));
    CHILD.store(0, Ordering::SeqCst);
    watch::program_ended();
    for signal in OF_TERMINAL {
        // SAFETY: as above.
        unsafe { libc::signal(signal, pass_on as extern "C" fn(i32) as *const () as usize) };
    }
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
