//! The time between entering and leaving.

use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use atom_abi::{Attached as Command, Control, StartInfo};
use atom_core::{Error, Result};

use super::enter::Attached;
use super::maps;
use crate::kept::records;
use crate::kept::store::Store;
use crate::message::note;
use crate::run::control::Page;
use crate::run::record::Record;

/// Time between two looks, in milliseconds.
const PAUSE: i32 = 10;
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
    start: Instant,
}

impl Session {
    /// Prepares it. Signals that would end this command end the time from now on.
    pub fn begin(store: &Store, pid: i32) -> Result<Self> {
        let fail = |e: std::io::Error| Error::new(super::DOING, e);
        let record = Record::make(store.folder())?;
        let mut page = Page::make(&record, true)?;
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
            start: Instant::now(),
        })
    }

    /// The process is entered: calls are made from now on.
    pub fn has_begun(&mut self, attached: &Attached) {
        self.start = Instant::now();
        self.page.switch(true);
        attached.switch(true);
    }

    /// Waits until the process is to be left, or is gone; lets it report meanwhile if that is wanted.
    pub fn wait(&self, attached: &mut Attached, length: Option<Duration>) -> Result<End> {
        let mut answered = self.page.answered.load(Ordering::Relaxed);
        loop {
            if self.is_gone() {
                return Ok(End::Gone);
            }
            let is_late = length.is_some_and(|length| self.start.elapsed() >= length);
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

    /// Waits a little; true if the process has ended.
    fn is_gone(&self) -> bool {
        let mut poll = libc::pollfd {
            fd: self.process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the kernel writes into the structure.
        unsafe { libc::poll(&mut poll, 1, PAUSE) > 0 }
    }

    /// The time is over: no calls are made any more. Says of it what a report's head says.
    pub fn end(&self, attached: &Attached, end: End) -> String {
        self.page.switch(false);
        if end == End::Left {
            attached.switch(false);
            sleep(OUT);
        }
        let (pid, time) = (attached.pid, self.start.elapsed().as_secs_f64());
        let how = match end {
            End::Left => "until it was left",
            End::Gone => "until it ended",
        };
        format!(
            "attached: process {pid}, which ran already, for {time:.2} s {how}; what it did before is not counted, nor what children do that it forks"
        )
    }
}

impl Attached {
    /// Begins a window in the process itself, which may not see the file of this command; or ends it.
    fn switch(&self, is_on: bool) {
        let memory = &self.helper.memory;
        let mut address = [0; 8];
        let field = offset_of!(StartInfo, control) as u64;
        let read = memory.read_exact_at(&mut address, self.files.entrance.info + field);
        let word = u64::from_le_bytes(address) + offset_of!(Control, is_on) as u64;
        let written =
            read.and_then(|()| memory.write_all_at(&u32::from(is_on).to_le_bytes(), word));
        // That the process has ended is noticed by the wait.
        written.unwrap_or_default();
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
