//! Running the steps of a job: measures their times, prints them, shows a progress bar.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use atom_core::pipeline::{self, Found, Stage};
use atom_core::{Error, Result};

use crate::describe;
use crate::job::Answer;
use crate::progress::Progress;
use crate::request::Request;
use crate::{cleanup, clocks, message};
use output::message::say;

/// A step of instrumenting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Image,
    Stage(Stage),
    Write,
}

impl Step {
    /// All steps in the order in which they run: the step, its short name for reports, what is done for people who wait.
    #[rustfmt::skip]
    const ALL: [(Self, &'static str, &'static str); 14] = [
        (Self::Image, "image", "reading the program"),
        (Self::Stage(Stage::Unwind), "unwind", "reading exception tables"),
        (Self::Stage(Stage::Load), "load", "loading the tool"),
        (Self::Stage(Stage::Cfg), "cfg", "finding procedures"),
        (Self::Stage(Stage::Tool), "tool", "running the instrument routine"),
        (Self::Stage(Stage::Analysis), "analysis", "reading the analysis routines"),
        (Self::Stage(Stage::Live), "live", "finding live registers"),
        (Self::Stage(Stage::Plan), "plan", "planning the calls"),
        (Self::Stage(Stage::Layout), "layout", "laying out the new text"),
        (Self::Stage(Stage::Rewrite), "rewrite", "planning the pads"),
        (Self::Stage(Stage::Debug), "debug", "converting debug information"),
        (Self::Stage(Stage::Emit), "emit", "putting the output together"),
        (Self::Stage(Stage::Check), "check", "comparing the output with the original"),
        (Self::Write, "write", "writing the output"),
    ];

    /// True if this request has the step.
    fn is_needed(self, request: &Request) -> bool {
        let Self::Stage(stage) = self else {
            return true;
        };
        match stage {
            Stage::Load | Stage::Tool | Stage::Analysis | Stage::Live | Stage::Plan => {
                request.tool.is_some()
            }
            Stage::Debug => request.options.debug_info,
            Stage::Check => request.options.check.is_some(),
            Stage::Unwind | Stage::Cfg | Stage::Layout | Stage::Rewrite | Stage::Emit => true,
        }
    }

    /// The texts of [`Step::ALL`].
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

/// A step that runs.
struct Running {
    name: &'static str,
    started: Instant,
    /// Processor time of the process at its start.
    processor: Duration,
    bar: Progress,
}

/// A job and the steps of it that are done.
pub struct Steps {
    verbose: bool,
    /// Errors are answered, see [`crate::job::Job`].
    answers: bool,
    /// Number of steps that this request has.
    total: u64,
    started: Instant,
    running: Option<Running>,
    done: Vec<Done>,
}

impl Steps {
    /// No step yet.
    pub fn new(request: &Request) -> Self {
        let needed = Step::ALL.iter().filter(|row| row.0.is_needed(request));
        Self {
            verbose: request.verbose,
            answers: request.job.answers,
            total: needed.count() as u64,
            started: Instant::now(),
            running: None,
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
        self.start(step);
        let value = work()?;
        self.finish(|| found(&value));
        Ok(value)
    }

    fn start(&mut self, step: Step) {
        let (name, doing) = step.texts();
        self.running = Some(Running {
            name,
            started: Instant::now(),
            processor: processor_time(),
            bar: Progress::start_at(doing, self.done.len() as u64, self.total),
        });
    }

    fn finish(&mut self, found: impl FnOnce() -> String) {
        let Some(Running {
            name,
            started,
            processor,
            bar,
        }) = self.running.take()
        else {
            return;
        };
        let time = started.elapsed();
        self.done.push(Done { name, time });
        drop(bar);
        if self.verbose {
            let memory = memory("VmRSS:").unwrap_or(0) as f64 / 1e6;
            let time = time.as_secs_f64();
            let processor = processor_time().saturating_sub(processor).as_secs_f64();
            say(&format!(
                "{name:>8}  {time:8.3} s {processor:8.3} s CPU {memory:6.0} MB  {}",
                found()
            ));
        }
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

impl pipeline::Progress for Steps {
    fn begin(&mut self, stage: Stage) {
        self.start(Step::Stage(stage));
    }

    fn end(&mut self, found: Found<'_>) {
        self.finish(|| describe::found(&found));
    }

    fn note(&mut self, text: &str) {
        message::note(text);
    }

    fn tool_panicked(&self, error: &Error) -> Infallible {
        if self.answers {
            Answer::give(error)
        } else {
            message::error(error)
        }
        cleanup::remove_all();
        std::process::exit(message::exit_code(error).into())
    }
}

/// Processor time of all threads of this process together.
fn processor_time() -> Duration {
    Duration::from_nanos(clocks::posix(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// A figure of this process's memory in bytes, by its name in `/proc/self/status`: `VmRSS:` for the
/// resident set now, `VmHWM:` for its largest size so far.
pub fn memory(figure: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix(figure))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
