//! Running the steps of a job: measures their times, prints them, shows a progress bar.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atom_core::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time after which a step on a terminal brings up the progress bar.
const PATIENCE: Duration = Duration::from_millis(500);

/// A step that was done.
pub struct Done {
    /// Short name: `cfg`.
    pub name: &'static str,
    /// Elapsed time.
    pub time: Duration,
}

/// A job and the steps of it that are done.
pub struct Steps {
    verbose: bool,
    total: u64,
    started: Instant,
    done: Vec<Done>,
}

impl Steps {
    /// A job of at most `total` steps.
    pub fn new(verbose: bool, total: u64) -> Self {
        Self {
            verbose,
            total,
            started: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs a step. `name` stands in reports, `doing` beside the progress bar; `found` describes the
    /// result in a few words for `--verbose`.
    pub fn run<T>(
        &mut self,
        name: &'static str,
        doing: &'static str,
        work: impl FnOnce() -> Result<T>,
        found: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let started = Instant::now();
        let processor = processor_time();
        let bar = Bar::start(doing, self.done.len() as u64, self.total);
        let result = work();
        drop(bar);
        let time = started.elapsed();
        self.done.push(Done { name, time });
        let value = result?;
        if self.verbose {
            let memory = memory("VmRSS:").unwrap_or(0) as f64 / 1e6;
            let time = time.as_secs_f64();
            let processor = processor_time().saturating_sub(processor).as_secs_f64();
            eprintln!(
                "{name:>8}  {time:8.3} s {processor:8.3} s CPU {memory:6.0} MB  {}",
                found(&value)
            );
        }
        Ok(value)
    }

    /// The steps that are done, in order.
    pub fn done(&self) -> &[Done] {
        &self.done
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// Processor time of all threads of this process together.
fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A figure of this process's memory in bytes, by its name in `/proc/self/status`: `VmRSS:` for the
/// resident set now, `VmHWM:` for its largest size so far.
pub fn memory(figure: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(figure))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// A progress bar that appears when its step takes longer than [`PATIENCE`].
struct Bar {
    finished: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    fn start(doing: &'static str, position: u64, total: u64) -> Option<Self> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let (finished, wait) = channel();
        let thread = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {elapsed}");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_message(doing)
                .with_elapsed(PATIENCE)
                .with_position(position);
            bar.enable_steady_tick(Duration::from_millis(100));
            // Returns when the step ends, because the sender is dropped then.
            let _ = wait.recv();
            bar.finish_and_clear();
        });
        Some(Self {
            finished,
            thread: Some(thread),
        })
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let _ = self.finished.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
