//! Running a program and recording its output and its end.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::source::End;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Exit code or signal.
    pub end: End,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Process id.
    pub pid: u32,
    /// User CPU time of the program and its waited-for children.
    pub user: Duration,
    /// Whether it was killed because it took too long.
    pub timed_out: bool,
}

/// Circumstances of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Switch address randomisation off.
    pub fixed_addresses: bool,
    /// Kill the program after this time.
    pub timeout: Duration,
    /// Standard input.
    pub stdin: Vec<u8>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            fixed_addresses: false,
            timeout: Duration::from_secs(60),
            stdin: Vec::new(),
        }
    }
}

/// Gives a command the environment that all runs share, so that two runs differ
/// in nothing but the program.
pub fn plain_environment(command: &mut Command) {
    command.env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    command
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("TERM", "dumb")
        .env("USER", "test");
}

/// Runs a command to its end.
pub fn run(command: &mut Command, setting: &Setting) -> Result<Outcome> {
    let program = command.get_program().to_os_string();
    let fail = |e: std::io::Error| Error::new("running", e).file(Path::new(&program));
    command.stdin(if setting.stdin.is_empty() {
        Stdio::null()
    } else {
        Stdio::piped()
    });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let fixed = setting.fixed_addresses;
    // SAFETY: the closure makes system calls only, which are safe after fork.
    unsafe {
        command.pre_exec(move || {
            // The child has its own process group, so that a timeout ends its children, too.
            libc::setpgid(0, 0);
            let no_core = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            if fixed && libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) == -1 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let mut child = crate::start::spawn(command).map_err(fail)?;
    let pid = child.id();
    let writer = child.stdin.take().map(|mut pipe| {
        let bytes = setting.stdin.clone();
        // A program need not read all of its input.
        std::thread::spawn(move || drop(std::io::Write::write_all(&mut pipe, &bytes)))
    });
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    let (status, user, timed_out) = wait(&mut child, setting.timeout).map_err(fail)?;
    if timed_out {
        // Processes that still hold the pipes belong to the group.
        // SAFETY: the group was made for this child.
        unsafe { libc::kill(-(pid as i32), libc::SIGKILL) };
    }
    let join = |h: std::thread::JoinHandle<Vec<u8>>| h.join().unwrap_or_default();
    let (stdout, stderr) = (join(stdout), join(stderr));
    drop(writer);
    Ok(Outcome {
        end: status.into(),
        stdout,
        stderr,
        pid,
        user,
        timed_out,
    })
}

fn collect(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Output that was read before an error is still compared.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

fn wait(
    child: &mut Child,
    limit: Duration,
) -> std::io::Result<(std::process::ExitStatus, Duration, bool)> {
    let start = Instant::now();
    let (mut timed_out, mut pause) = (false, Duration::from_micros(200));
    loop {
        let mut status = 0;
        // SAFETY: all-zero is a valid rusage, and wait4 fills both variables.
        let (pid, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (
                libc::wait4(
                    child.id() as i32,
                    &raw mut status,
                    libc::WNOHANG,
                    &raw mut usage,
                ),
                usage,
            )
        };
        if pid < 0 {
            return Err(std::io::Error::last_os_error());
        }
        if pid > 0 {
            let t = usage.ru_utime;
            let user =
                Duration::from_secs(t.tv_sec as u64) + Duration::from_micros(t.tv_usec as u64);
            return Ok((std::process::ExitStatus::from_raw(status), user, timed_out));
        }
        if !timed_out && start.elapsed() > limit {
            timed_out = true;
            // SAFETY: the group was made for this child, which has not been waited for.
            unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// The first difference of two texts, in words; none if they are equal.
pub fn difference(expected: &[u8], got: &[u8]) -> Option<String> {
    if expected == got {
        return None;
    }
    let line = |bytes: &[u8], n: usize| {
        let line = bytes.split(|b| *b == b'\n').nth(n);
        line.map_or("<end>".to_string(), |l| {
            let text = String::from_utf8_lossy(l).into_owned();
            text.chars().take(200).collect()
        })
    };
    let same = expected
        .split(|b| *b == b'\n')
        .zip(got.split(|b| *b == b'\n'))
        .take_while(|(a, b)| a == b)
        .count();
    Some(format!(
        "line {}: expected \"{}\", got \"{}\"",
        same + 1,
        line(expected, same),
        line(got, same)
    ))
}

impl Outcome {
    /// The first difference from another run in words; `None` if there is none.
    pub fn differs_from(&self, original: &Outcome) -> Option<String> {
        if self.timed_out != original.timed_out {
            return Some("it did not end in time".into());
        }
        let stderr = || {
            let text = String::from_utf8_lossy(&self.stderr);
            if text.trim().is_empty() {
                String::new()
            } else {
                format!("; stderr: {}", text.trim())
            }
        };
        if self.end != original.end {
            return Some(format!(
                "ended with {:?} instead of {:?}{}",
                self.end,
                original.end,
                stderr()
            ));
        }
        if let Some(d) = difference(&original.stdout, &self.stdout) {
            return Some(format!("stdout differs, {d}"));
        }
        difference(&original.stderr, &self.stderr).map(|d| format!("stderr differs, {d}"))
    }
}

/// Seconds of user and system time of all child processes that have ended.
pub fn children() -> [f64; 2] {
    // SAFETY: the structure consists of integers, and the call writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime].map(|t| t.tv_sec as f64 + t.tv_usec as f64 / 1e6)
}
