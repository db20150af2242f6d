//! Reports while the program runs, and after it was killed.
//!
//! The runtime in the program starts a *watcher*: a process that shares the program's memory and is a child
//! of `atom run`. It makes a report when `atom run` says so: in intervals, at a signal, and when the program
//! has ended without one.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use atom_abi::{PROCESS_GONE, REPORT_ASKED, REPORT_NOW};
use atom_core::{Error, Result};
use clap::Args as ClapArgs;

use super::processes;
use super::record::{self, Record};
use crate::message::note;

/// Longest wait for the report of a watcher after the program's end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait for a report that somebody has asked for.
const ANSWER: Duration = Duration::from_secs(10);
/// Time between two looks whether a watcher has ended.
const PAUSE: Duration = Duration::from_micros(200);

/// Signals that may ask for a report, with their names.
const SIGNALS: [(&str, i32); 6] = [
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("HUP", libc::SIGHUP),
    ("ALRM", libc::SIGALRM),
    ("WINCH", libc::SIGWINCH),
    ("CONT", libc::SIGCONT),
];

/// Options of `atom run` on reports while the program runs.
#[derive(ClapArgs, Clone, Default)]
pub struct ReportRequests {
    /// Report in intervals while the program runs, such as `10s`, `5m`, `1h 30m`
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub every: Option<Duration>,
    /// Report when this signal is sent to `atom run`: USR1, USR2, HUP, ALRM, WINCH or CONT. The program
    /// does not get it
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub report_on: Option<i32>,
}

/// Reads a time such as `1m 30s`.
pub fn interval(text: &str) -> std::result::Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time.is_zero() {
        Err("an interval is longer than 0".into())
    } else {
        Ok(time)
    }
}

fn signal(text: &str) -> std::result::Result<i32, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    let known = SIGNALS.iter().find(|s| s.0 == name);
    known.map(|s| s.1).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|s| s.0).collect();
        format!("it is none of {}", names.join(", "))
    })
}

/// Descriptor that wakes the thread which asks for reports; -1 if there is none.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static IS_OVER: AtomicBool = AtomicBool::new(false);
/// True if somebody has asked for a report.
static WAS_ASKED: AtomicBool = AtomicBool::new(false);
/// True if nobody wants to wait for a report any more.
static IS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// When the program ended.
static ENDED_AT: OnceLock<Instant> = OnceLock::new();
/// For this time after the program's end, signals are of the request that ended it: `timeout` sends one to its command and
/// then one to the process group, so `atom run` gets two, and on a busy machine the program dies of the first between them.
const GRACE: Duration = Duration::from_secs(1);

/// The program has ended.
pub fn program_ended() {
    ENDED_AT.get_or_init(Instant::now);
}

/// Ends the wait for reports, some time after the program's end. A signal handler may call this.
pub fn give_up() {
    if ENDED_AT.get().is_some_and(|at| at.elapsed() > GRACE) {
        IS_GIVEN_UP.store(true, Ordering::Relaxed);
    }
}

fn wake() {
    let one = 1u64;
    // SAFETY: the kernel reads eight bytes; a system call that signal handlers may make.
    unsafe { libc::write(WAKE.load(Ordering::Relaxed), (&raw const one).cast(), 8) };
}

/// Handles the signal that asks for a report.
pub extern "C" fn on_signal(_: i32) {
    wake();
}

/// The thread that asks for reports while the program runs.
pub struct Asking {
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    /// Starts asking, if that is wished.
    pub fn start(requests: &ReportRequests, record: &Record) -> Result<Self> {
        if requests.every.is_none() && requests.report_on.is_none() {
            return Ok(Self { thread: None });
        }
        let fail = |e: std::io::Error| Error::new("preparing the run", e);
        // SAFETY: a new descriptor, which nobody else has.
        let event = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC) {
                -1 => return Err(fail(std::io::Error::last_os_error())),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        WAKE.store(event.as_raw_fd(), Ordering::Relaxed);
        let (every, record) = (requests.every, record.file().to_path_buf());
        let ask = move || {
            while let Some(cause) = wait(&event, every) {
                match cause {
                    Cause::Time => _ = report_now(&record, 0),
                    Cause::Asked => report_asked(&record),
                }
            }
        };
        let builder = std::thread::Builder::new().spawn(ask);
        Ok(Self {
            thread: Some(builder.map_err(fail)?),
        })
    }

    /// Stops asking.
    pub fn stop(self) {
        IS_OVER.store(true, Ordering::Relaxed);
        wake();
        if let Some(thread) = self.thread {
            thread.join().unwrap_or_default();
        }
    }
}

/// Why a report is due.
enum Cause {
    Time,
    Asked,
}

/// Waits until a report is due; `None` if the program has ended.
fn wait(event: &OwnedFd, every: Option<Duration>) -> Option<Cause> {
    let mut poll = libc::pollfd {
        fd: event.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let most = i32::MAX as u128;
    let limit = every.map_or(-1, |time| time.as_millis().clamp(1, most) as i32);
    let (mut count, mut cause) = (0u64, Cause::Time);
    // SAFETY: the kernel writes into the structure, and eight bytes.
    unsafe {
        if libc::poll(&mut poll, 1, limit) > 0 {
            libc::read(event.as_raw_fd(), (&raw mut count).cast(), 8);
            cause = Cause::Asked;
        }
    }
    (!IS_OVER.load(Ordering::Relaxed)).then_some(cause)
}

/// Lets all processes of a run report now, by its record. Returns how many they are.
fn report_now(record: &Path, value: usize) -> usize {
    let watchers = record::watchers(&record::read(record));
    let told = watchers.iter().filter(|w| tell(**w, REPORT_NOW, value));
    told.count()
}

/// As somebody asks for it: earlier reports are kept, and it is told where the new ones are when they are written.
pub fn report_asked(record: &Path) {
    WAS_ASKED.store(true, Ordering::Relaxed);
    let known = record::read(record).len();
    let wanted = report_now(record, REPORT_ASKED);
    let start = Instant::now();
    let said = || record::read(record).split_off(known);
    while record::done(&said()) < wanted
        && start.elapsed() < ANSWER
        && !IS_OVER.load(Ordering::Relaxed)
    {
        sleep(PAUSE);
    }
    let reports = record::reports(&said());
    let folder = std::env::current_dir().ok();
    let names = reports
        .iter()
        .map(|r| processes::short(r, folder.as_deref()));
    if !reports.is_empty() {
        note(&format!("report: {}", names.collect::<Vec<_>>().join(", ")));
    }
}

/// True if somebody has asked for a report, and wants to find it after the end.
pub fn was_asked() -> bool {
    WAS_ASKED.load(Ordering::Relaxed)
}

/// Sends a command with a value; false if the process is not there.
fn tell(watcher: i32, command: i32, value: usize) -> bool {
    let value = libc::sigval {
        sival_ptr: std::ptr::without_provenance_mut(value),
    };
    // SAFETY: a system call on a child, which has not been waited for.
    unsafe { libc::sigqueue(watcher, command, value) == 0 }
}

/// Lets the watchers report where the program has not, and waits for their ends.
pub fn finish(watchers: &[i32]) {
    for watcher in watchers.iter().filter(|w| tell(**w, PROCESS_GONE, 0)) {
        let status = ended(*watcher).unwrap_or_else(|| {
            // SAFETY: system calls on a child, which has not been waited for.
            unsafe { libc::kill(*watcher, libc::SIGKILL) };
            libc::SIGKILL
        });
        if status != 0 {
            note("the program was killed, and no report could be made of it");
        }
    }
}

/// Waits for a watcher's end; `None` if that takes too long, or nobody wants to wait.
fn ended(watcher: i32) -> Option<i32> {
    let start = Instant::now();
    let mut status = 0;
    while start.elapsed() < PATIENCE && !IS_GIVEN_UP.load(Ordering::Relaxed) {
        // SAFETY: the kernel writes the status.
        match unsafe { libc::waitpid(watcher, &mut status, libc::WNOHANG | libc::__WALL) } {
            0 => sleep(PAUSE),
            -1 => return Some(0),
            _ => return Some(status),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_and_signals_are_read() {
        assert_eq!(interval("10s").unwrap(), Duration::from_secs(10));
        assert_eq!(interval("1m 30s").unwrap(), Duration::from_secs(90));
        for wrong in ["", "0s", "10", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!(signal("USR1").unwrap(), libc::SIGUSR1);
        assert_eq!(signal("sighup").unwrap(), libc::SIGHUP);
        assert!(signal("KILL").unwrap_err().contains("USR1"));
    }
}
