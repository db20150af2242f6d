//! Running the steps of a job: measures their times, prints them, shows a progress bar.

use std::time::{Duration, Instant};

use atom_core::Result;

use crate::progress::Progress;
use crate::request::Request;

/// A step of instrumenting. The order is that in which they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Image,
    Unwind,
    Load,
    Cfg,
    Tool,
    Analysis,
    Live,
    Plan,
    Layout,
    Rewrite,
    Debug,
    Emit,
    Check,
    Write,
}

impl Step {
    /// All steps: the step, its short name for reports, what is done for people who wait.
    #[rustfmt::skip]
    const ALL: [(Self, &'static str, &'static str); 14] = [
        (Self::Image, "image", "reading the program"),
        (Self::Unwind, "unwind", "reading exception tables"),
        (Self::Load, "load", "loading the tool"),
        (Self::Cfg, "cfg", "finding procedures"),
        (Self::Tool, "tool", "running the instrument routine"),
        (Self::Analysis, "analysis", "reading the analysis routines"),
        (Self::Live, "live", "finding live registers"),
        (Self::Plan, "plan", "planning the calls"),
        (Self::Layout, "layout", "laying out the new text"),
        (Self::Rewrite, "rewrite", "planning the pads"),
        (Self::Debug, "debug", "converting debug information"),
        (Self::Emit, "emit", "putting the output together"),
        (Self::Check, "check", "comparing the output with the original"),
        (Self::Write, "write", "writing the output"),
    ];

    /// True if this request has the step.
    fn is_needed(self, request: &Request) -> bool {
        match self {
            Self::Load | Self::Tool | Self::Analysis | Self::Live | Self::Plan => {
                request.tool.is_some()
            }
            Self::Debug => request.debug_info,
            Self::Check => request.check.is_some(),
            Self::Image | Self::Unwind | Self::Cfg | Self::Layout => true,
            Self::Rewrite | Self::Emit | Self::Write => true,
        }
    }

    /// The row of [`Step::ALL`].
    fn texts(self) -> (&'static str, &'static str) {
        let row = Self::ALL.iter().find(|row| row.0 == self);
        row.map_or(("", ""), |(_, name, doing)| (name, doing))
    }
}

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
    /// Number of steps that this request has.
    total: u64,
    started: Instant,
    done: Vec<Done>,
}

impl Steps {
    /// No step yet.
    pub fn new(request: &Request) -> Self {
        let needed = Step::ALL.iter().filter(|row| row.0.is_needed(request));
        Self {
            verbose: request.verbose,
            total: needed.count() as u64,
            started: Instant::now(),
            done: Vec::new(),
        }
    }

    /// Runs a step. `found` describes the result in a few words for `--verbose`.
    pub fn run<T>(
        &mut self,
        step: Step,
        work: impl FnOnce() -> Result<T>,
        found: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let (name, doing) = step.texts();
        let started = Instant::now();
        let processor = processor_time();
        let bar = Progress::start_at(doing, self.done.len() as u64, self.total);
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
