//! The time between entering and leaving.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use atom_abi::{Attached as Command, Control, StartInfo};
use atom_core::{Error, Result};

use super::Arguments;
use super::enter::{Attached, Inside};
use super::maps::{self, Map};
use crate::kept::records;
use crate::kept::store::Store;
use crate::message::note;
use crate::run::control::{Page, Schedule, WindowRequests};
use crate::run::record::Record;

/// Longest time between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Time for threads to come out of the version with calls, so that few have to be brought out while all are stopped.
const OUT: Duration = Duration::from_millis(5);

/// Why the time is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The process is to be left.
    Left,
    /// It has ended, or executes another program.
    Gone,
}

/// What belongs to one time of measuring.
pub struct Session {
    /// What the runtime leaves.
    pub record: Record,
    page: Page,
    is_over: Arc<AtomicBool>,
    process: OwnedFd,
    /// From the moment when the process was entered.
    schedule: Schedule,
    /// When the process is left, if that was said.
    length: Option<Duration>,
    /// True if this command begins and ends windows in a process that has a page of its own, as it does not see the file.
    is_apart: bool,
}

impl Session {
    /// Prepares it. Signals that would end this command end the time from now on.
    pub fn begin(store: &Store, pid: i32, arguments: &Arguments) -> Result<Self> {
        let fail = |e: std::io::Error| Error::new(super::DOING, e);
        let record = Record::make(store.folder())?;
        let choices = &arguments.choices;
        let (is_shared, bursts) = (!choices.measures_itself(), choices.sampling.bursts());
        let mut page = Page::make(&record, is_shared, bursts)?;
        page.can_be_left.store(1, Ordering::Relaxed);
        page.add_name(&records::of(store.folder(), pid as u32))
            .map_err(fail)?;
        let is_over = Arc::new(AtomicBool::new(false));
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            signal_hook::flag::register(signal, is_over.clone()).map_err(fail)?;
        }
        // SAFETY: a new descriptor, which nobody else has.
        let process = unsafe {
            match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
                -1 => return Err(fail(std::io::Error::last_os_error())),
                fd => OwnedFd::from_raw_fd(fd as i32),
            }
        };
        Ok(Self {
            record,
            page,
            is_over,
            process,
            schedule: Schedule::start(&arguments.windows),
            length: arguments.windows.end(),
            is_apart: false,
        })
    }

    /// The process is entered: windows begin and end from now on.
    pub fn has_begun(&mut self, attached: &Attached, windows: &WindowRequests) {
        self.page.begin();
        let began = self.page.began.load(Ordering::Relaxed);
        let is_shared = attached.control(offset_of!(Control, began)) == Some(began);
        self.is_apart = self.page.is_commanded() && !is_shared;
        self.schedule = Schedule::start(windows);
        self.schedule.pass(&self.page);
        self.pass_on(attached);
        if self.page.burst.load(Ordering::Relaxed) != 0 {
            self.pass_bursts(attached);
        }
    }

    /// Gives the process the lengths and the seed of bursts, which one that does not see this command's file lacks.
    fn pass_bursts(&self, attached: &Attached) {
        for (field, word) in [
            (offset_of!(Control, burst), &self.page.burst),
            (offset_of!(Control, gap), &self.page.gap),
            (offset_of!(Control, warm_up), &self.page.warm_up),
        ] {
            let word = word.load(Ordering::Relaxed);
            // What the tool has chosen stays.
            if word != Control::WARM_UP_OF_TOOL {
                attached.set(field, &word.to_le_bytes());
            }
        }
        let seed = self.page.seed.load(Ordering::Relaxed);
        attached.set(offset_of!(Control, seed), &seed.to_le_bytes());
    }

    /// Lets a process with a page of its own do as this command's page says.
    fn pass_on(&self, attached: &Attached) {
        if self.is_apart {
            attached.switch(self.page.is_on.load(Ordering::Relaxed) != 0);
        }
    }

    /// Waits until the process is to be left, or is gone; begins and ends windows meanwhile, and lets it report if that is wanted.
    pub fn wait(&mut self, attached: &mut Attached) -> Result<End> {
        let mut answered = self.page.answered.load(Ordering::Relaxed);
        loop {
            let next = self.schedule.pass(&self.page);
            self.pass_on(attached);
            let left = self
                .length
                .map(|length| length.saturating_sub(self.schedule.elapsed()));
            let pause = next.into_iter().chain(left).fold(PAUSE, Duration::min);
            if self.is_gone(pause) {
                return Ok(End::Gone);
            }
            let is_late = left == Some(Duration::ZERO);
            if is_late || self.is_over.load(Ordering::Relaxed) || self.page.was_detached() {
                let area = attached.files.entrance.area[0];
                let maps = maps::read(attached.pid).unwrap_or_default();
                let is_there = maps.iter().any(|m| m.start == area);
                return Ok(if is_there { End::Left } else { End::Gone });
            }
            let asked = self.page.asked.load(Ordering::Acquire);
            if asked != answered {
                answered = asked;
                if let Err(e) = attached.speak(Command::Snapshot) {
                    note(&e.to_string());
                }
                self.page.answered.store(asked, Ordering::Release);
            }
        }
    }

    /// Waits for this time; true if the process has ended.
    fn is_gone(&self, pause: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let pause = libc::timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: pause.subsec_nanos().into(),
        };
        // SAFETY: the kernel reads a time and writes into the structure.
        unsafe { libc::ppoll(&mut poll, 1, &pause, std::ptr::null()) > 0 }
    }

    /// The time is over: no calls are made any more, but where the program itself says when. Says of it what a report's head says.
    pub fn end(&self, attached: &Attached, end: End) -> String {
        self.page.switch(false);
        if end == End::Left {
            self.pass_on(attached);
            sleep(OUT);
        }
        let (pid, time) = (attached.pid, self.schedule.elapsed().as_secs_f64());
        let how = match end {
            End::Left => "until it was left",
            End::Gone => "until it ended",
        };
        let opened = match attached.opened() {
            names if names.is_empty() => String::new(),
            names => {
                let names: Vec<_> = names.into_iter().collect();
                format!(", nor libraries that it opened ({})", names.join(", "))
            }
        };
        format!(
            "attached: process {pid}, which ran already, for {time:.2} s {how}; what it did before is not counted, nor what children do that it forks{opened}"
        )
    }

    /// What was measured, in words, when the process has reported.
    pub fn measured(&self) -> Option<String> {
        self.page.told()
    }
}

impl Attached {
    /// The address of a field of the page by which the process decides whether calls are made.
    fn field(&self, field: usize) -> std::io::Result<u64> {
        let mut address = [0; 8];
        let control = offset_of!(StartInfo, control) as u64;
        self.helper
            .memory
            .read_exact_at(&mut address, self.files.entrance.info + control)?;
        Ok(u64::from_le_bytes(address) + field as u64)
    }

    /// A field of it; `None` if the process has ended.
    fn control(&self, field: usize) -> Option<u64> {
        let mut word = [0; 8];
        let at = self.field(field).ok()?;
        self.helper.memory.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// Sets a field of it.
    fn set(&self, field: usize, bytes: &[u8]) {
        let at = self.field(field);
        let written = at.and_then(|at| self.helper.memory.write_all_at(bytes, at));
        // That the process has ended is noticed by the wait.
        written.unwrap_or_default();
    }

    /// Begins a window in the process itself, or ends it.
    fn switch(&self, is_on: bool) {
        self.set(offset_of!(Control, is_on), &u32::from(is_on).to_le_bytes());
    }

    /// Names of files whose code was mapped since the process was entered, and still is. The helper has the memory as long as it is
    /// needed.
    fn opened(&self) -> BTreeSet<String> {
        let [start, _, end] = self.files.entrance.area;
        let is_ours = |m: &Map| {
            let mut segments = self.objects.iter().map(Inside::segment);
            let is_text = self.objects.iter().any(|o| o.has_text(m.start));
            is_text
                || segments.any(|[s, e]| (s..e).contains(&m.start))
                || (start..end).contains(&m.start)
        };
        let now = maps::read(self.helper.pid).unwrap_or_default();
        let is_new = |m: &&Map| {
            m.is_code()
                && m.is_file()
                && !is_ours(m)
                && self.before.iter().all(|b| b.file != m.file)
        };
        let name = |m: &Map| m.path.file_name().unwrap_or_default().display().to_string();
        now.iter().filter(is_new).map(name).collect()
    }

    /// Has the helper do something in the runtime.
    fn speak(&mut self, command: Command) -> Result<()> {
        let address = self.files.entrance.attached;
        self.helper
            .function(address, [command as u64, self.pid as u64])
            .map(|_| ())
    }

    /// Has the helper report.
    pub fn report(&mut self) -> Result<()> {
        self.speak(Command::Report)
    }
}
