//! Windows that `atom run` begins and ends: by the time, and as `atom ctl` asks.
//!
//! Both have the same page in memory, a file beside the run's record, which the processes of the run map too
//! ([`Control`]). The thread of this module begins and ends windows by the time, and passes on what is asked. It sleeps on
//! the word `asked` of the page (`futex`), which `atom ctl` raises.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atom_abi::{CONTROL_SUFFIX, Control};
use atom_core::plan::Bursts;
use atom_core::{Error, Result};
use clap::Args as ClapArgs;
use memmap2::MmapMut;

use super::record::Record;
use super::watch;
use crate::choices::Choices;
use crate::clocks;
use crate::kept::records;
use crate::sampling::Sampling;

const DOING: &str = "preparing windows";

/// Size of the file in bytes: a page.
const SIZE: u64 = 4096;

/// Options of `atom run` and `atom attach` on windows by the time.
#[derive(ClapArgs, Clone, Default)]
pub struct WindowRequests {
    /// Start without the tool's calls, at nearly the program's own speed: `atom ctl` begins and ends windows
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub off: bool,
    /// Begin the first window after this time, such as `10s` or `1m 30s`
    #[arg(long, value_name = "TIME", value_parser = watch::interval, conflicts_with_all = ["from", "to", "off"])]
    pub after: Option<Duration>,
    /// Measure for this time, and no longer
    #[arg(long = "for", visible_alias = "duration", value_name = "TIME", value_parser = watch::interval, conflicts_with_all = ["from", "to", "off"])]
    pub length: Option<Duration>,
    /// Begin a window each time that this time has passed; --for says how long it is
    #[arg(long, value_name = "TIME", value_parser = watch::interval, requires = "length", conflicts_with_all = ["from", "to", "off"])]
    pub each: Option<Duration>,
}

impl WindowRequests {
    /// True if windows begin and end while the program runs.
    pub fn are_any(&self) -> bool {
        self.off || self.after.is_some() || self.length.is_some()
    }

    /// Nonsense that only the values tell.
    pub fn check(&self, sampling: &Sampling) -> Result<()> {
        if self.are_any() && sampling.sample.is_some() {
            let reason = "a run is sampled as a whole, or measured in windows";
            return Err(
                Error::usage(reason).advice("leave out --sample, or the options of windows")
            );
        }
        match (self.each, self.length) {
            (Some(each), Some(length)) if each <= length => {
                let reason = "a window is as long as the time from one to the next, or longer";
                Err(Error::usage(reason).advice("choose a smaller --for, or a larger --each"))
            }
            _ => Ok(()),
        }
    }

    /// How long after the start the last window ends; `None` if nothing says so.
    pub fn end(&self) -> Option<Duration> {
        let length = self.length.filter(|_| self.each.is_none());
        length.map(|length| self.after.unwrap_or_default() + length)
    }

    /// The next change after the one with this number, counted from 0: how long after the start, and whether a
    /// window begins. `None` if there is no further one.
    fn change(&self, number: u32) -> Option<(Duration, bool)> {
        if self.off {
            return None;
        }
        let begins = number.is_multiple_of(2);
        let first = self.after.unwrap_or_default();
        let start = match (number / 2, self.each) {
            (0, _) => first,
            (n, Some(each)) => first + each * n,
            (_, None) => return None,
        };
        if begins {
            Some((start, true))
        } else {
            Some((start + self.length?, false))
        }
    }
}

/// Windows by the time, from a start on.
pub struct Schedule {
    requests: WindowRequests,
    start: Instant,
    /// Number of the next change.
    next: u32,
}

impl Schedule {
    /// The start is now.
    pub fn start(requests: &WindowRequests) -> Self {
        Self {
            requests: requests.clone(),
            start: Instant::now(),
            next: 0,
        }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Begins and ends the windows that are due; the time until the next is. `None` if there is no further one, or the program
    /// itself begins and ends them.
    pub fn pass(&mut self, page: &Page) -> Option<Duration> {
        if !page.is_commanded() {
            return None;
        }
        loop {
            let (at, begins) = self.requests.change(self.next)?;
            let left = at.saturating_sub(self.elapsed());
            if !left.is_zero() {
                return Some(left);
            }
            page.switch(begins);
            self.next += 1;
        }
    }
}

/// The page of a run. The run that makes it removes the file with this value.
pub struct Page {
    map: MmapMut,
    /// Its names.
    files: Vec<PathBuf>,
}

impl std::ops::Deref for Page {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the mapping is a page; all bytes are a valid structure of atomic words.
        unsafe { &*self.map.as_ptr().cast() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        for file in &self.files {
            // If it stays, a later run removes it.
            fs::remove_file(file).unwrap_or_default();
        }
    }
}

impl Page {
    /// Makes the page of a run. `is_shared`: processes map it in the place of their own. Otherwise they take lengths and seed
    /// of bursts from it.
    pub fn make(record: &Record, is_shared: bool, bursts: Option<Bursts>) -> Result<Self> {
        let file = beside(record.file());
        let fail = |e: std::io::Error| Error::new(DOING, e).file(&file);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let opened = options.mode(0o600).open(&file).map_err(fail)?;
        opened.set_len(SIZE).map_err(fail)?;
        let page = Self::of(&opened, vec![file.clone()]).map_err(fail)?;
        page.is_shared
            .store(u32::from(is_shared), Ordering::Relaxed);
        page.began.store(now(), Ordering::Relaxed);
        if let Some(bursts) = bursts {
            let warm_up = bursts.warm_up.unwrap_or(Control::WARM_UP_OF_TOOL);
            page.burst.store(bursts.length, Ordering::Relaxed);
            page.gap.store(bursts.gap, Ordering::Relaxed);
            page.warm_up.store(warm_up, Ordering::Relaxed);
            page.seed.store(bursts.seed, Ordering::Relaxed);
        }
        Ok(page)
    }

    /// The page of a run that another `atom` has made, by the path of its record.
    pub fn open(record: &Path) -> std::io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW);
        let file = file.open(beside(record))?;
        if file.metadata()?.size() != SIZE {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        Self::of(&file, Vec::new())
    }

    fn of(opened: &File, files: Vec<PathBuf>) -> std::io::Result<Self> {
        // SAFETY: the file keeps its size; all accesses are atomic.
        let map = unsafe { MmapMut::map_mut(opened)? };
        Ok(Self { map, files })
    }

    /// Gives the page that was made here another name, by the path of another process's record.
    pub fn add_name(&mut self, record: &Path) -> std::io::Result<()> {
        let name = beside(record);
        fs::remove_file(&name).unwrap_or_default();
        fs::hard_link(&self.files[0], &name)?;
        self.files.push(name);
        Ok(())
    }

    /// The run begins now.
    pub fn begin(&self) {
        self.began.store(now(), Ordering::Relaxed);
    }

    /// Begins a window, or ends it.
    pub fn switch(&self, is_on: bool) {
        self.set(is_on, now());
    }

    /// Nothing is measured from now on.
    pub fn detach(&self) {
        self.is_detached.store(1, Ordering::Relaxed);
        self.switch(false);
    }

    /// Asks for a report; returns the number of the request.
    pub fn ask(&self) -> u32 {
        let number = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        number
    }

    /// What was measured until now, in words; `None` if there was no window.
    pub fn told(&self) -> Option<String> {
        let (windows, now) = (self.windows.load(Ordering::Relaxed), now());
        let tests = [&self.tests[0], &self.tests[1]].map(|n| n.load(Ordering::Relaxed) as f64);
        if tests[1] != 0.0 {
            let share = 100.0 * tests[0] / tests[1];
            return Some(format!(
                "sampled: {windows} bursts, {share:.2} % of the run"
            ));
        }
        let measured = Duration::from_nanos(self.measured_until(now));
        let whole = Duration::from_nanos(now - self.began.load(Ordering::Relaxed));
        let plural = if windows == 1 { "" } else { "s" };
        let share = 100.0 * measured.as_secs_f64() / whole.as_secs_f64();
        (windows != 0).then(|| {
            format!(
                "measured: {windows} window{plural}, {:.2} s of {:.2} s ({share:.1} %)",
                measured.as_secs_f64(),
                whole.as_secs_f64()
            )
        })
    }

    /// True if processes map the page in the place of their own.
    pub fn is_commanded(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed) != 0
    }

    /// True if nothing is measured any more.
    pub fn was_detached(&self) -> bool {
        self.is_detached.load(Ordering::Relaxed) != 0
    }

    /// Sleeps until something is asked beyond `known`, or for this time.
    fn sleep(&self, known: u32, limit: Option<Duration>) {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the word and the time live across the call.
        unsafe { libc::syscall(libc::SYS_futex, self.word(), libc::FUTEX_WAIT, known, limit) };
    }

    /// Wakes who sleeps.
    fn wake(&self) {
        // SAFETY: the word lives across the call.
        unsafe { libc::syscall(libc::SYS_futex, self.word(), libc::FUTEX_WAKE, i32::MAX) };
    }

    fn word(&self) -> *const AtomicU32 {
        &raw const self.asked
    }
}

/// The file of a run, by the path of its record.
fn beside(record: &Path) -> PathBuf {
    records::beside(record, CONTROL_SUFFIX)
}

/// Nanoseconds of the clock that the page's times are of.
fn now() -> u64 {
    clocks::posix(libc::CLOCK_MONOTONIC)
}

/// The thread that begins and ends windows, and passes on what is asked.
pub struct Controlling {
    page: Arc<Page>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Controlling {
    /// Starts it, before the program: a window that begins at once begins now.
    pub fn start(requests: &WindowRequests, record: &Record, choices: &Choices) -> Result<Self> {
        let page = Page::make(record, choices.switchable, choices.sampling.bursts())?;
        let page = Arc::new(page);
        let mut schedule = Schedule::start(requests);
        let is_over = Arc::new(AtomicBool::new(false));
        schedule.pass(&page);
        let (own, over) = (page.clone(), is_over.clone());
        let record = record.file().to_path_buf();
        let control = move || {
            let mut known = 0;
            while !over.load(Ordering::Acquire) {
                let left = schedule.pass(&own);
                own.sleep(known, left);
                let asked = own.asked.load(Ordering::Acquire);
                if asked != known && !over.load(Ordering::Acquire) {
                    known = asked;
                    watch::report_asked(&record);
                    own.answered.store(asked, Ordering::Release);
                }
            }
        };
        let builder = std::thread::Builder::new().name("windows".into());
        let thread = builder.spawn(control).map_err(|e| Error::new(DOING, e))?;
        Ok(Self {
            page,
            is_over,
            thread,
        })
    }

    /// The program has ended; says what was measured.
    pub fn stop(self) -> Option<String> {
        self.is_over.store(true, Ordering::Release);
        self.page.ask();
        self.thread.join().unwrap_or_default();
        self.page.switch(false);
        self.page.told()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_follow_each_other() {
        let second = Duration::from_secs;
        let requests = |after, length, each| WindowRequests {
            off: false,
            after,
            length,
            each,
        };
        let all =
            |requests: WindowRequests| (0..5).map_while(|n| requests.change(n)).collect::<Vec<_>>();
        assert_eq!(
            all(requests(Some(second(5)), None, None)),
            [(second(5), true)]
        );
        assert_eq!(
            all(requests(None, Some(second(2)), None)),
            [(second(0), true), (second(2), false)]
        );
        let each = all(requests(Some(second(1)), Some(second(2)), Some(second(10))));
        let at = [(1, true), (3, false), (11, true), (13, false), (21, true)];
        assert_eq!(each, at.map(|(at, begins)| (second(at), begins)));
        let off = WindowRequests {
            off: true,
            ..WindowRequests::default()
        };
        assert_eq!(off.change(0), None);
        let end = |after, length, each| requests(after, length, each).end();
        assert_eq!(end(Some(second(5)), Some(second(2)), None), Some(second(7)));
        assert_eq!(end(Some(second(5)), None, None), None);
        assert_eq!(end(None, Some(second(2)), Some(second(10))), None);
        assert!(
            requests(None, Some(second(2)), Some(second(2)))
                .check(&Sampling::default())
                .is_err()
        );
    }
}
