//! `atom ctl`: begins and ends windows of a run that continues, and asks it for reports.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use atom_core::{Error, Result};
use clap::{Args, ValueEnum};

use super::control::Page;
use super::record;
use crate::kept::records;
use crate::kept::store::Store;
use crate::proc_stat;

const DOING: &str = "controlling a run";

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Arguments of `atom ctl`.
#[derive(Args)]
pub struct Ctl {
    /// Process number of the `atom run`, or of the program that it runs
    pub pid: u32,
    /// What is to be done
    #[arg(value_enum)]
    pub what: What,
}

/// What can be done.
#[derive(Clone, Copy, ValueEnum)]
pub enum What {
    /// Begin a window: the tool's calls are made from now on
    On,
    /// End the window: the program runs at nearly its own speed
    Off,
    /// Let all processes report now what was measured so far
    Report,
    /// Say what was measured so far
    Status,
    /// Measure nothing any more
    Detach,
}

/// Runs `atom ctl`.
pub fn run(arguments: &Ctl) -> Result<()> {
    let pid = arguments.pid;
    let (page, record) = find(pid)?;
    let is_possible = match arguments.what {
        What::On | What::Off => page.is_commanded(),
        What::Detach => page.is_commanded() || page.can_be_left.load(Ordering::Relaxed) != 0,
        What::Report | What::Status => true,
    };
    if !is_possible {
        let reason = format!("the program of {pid} begins and ends windows itself");
        return Err(Error::new(DOING, reason)
            .advice("start it with --off, --after or --for instead of --from and --to"));
    }
    match arguments.what {
        What::On if page.was_detached() => {
            return Err(Error::new(DOING, format!("{pid} was detached before")));
        }
        What::On => page.switch(true),
        What::Off => page.switch(false),
        What::Detach => page.detach(),
        What::Report => report(&page, &record, pid)?,
        What::Status => {
            let is_on = page.is_on.load(Ordering::Relaxed) != 0;
            let state = match (page.was_detached(), is_on, page.is_commanded()) {
                (true, ..) => "detached",
                (_, true, _) => "on",
                (_, false, true) => "off",
                (_, false, false) => "as the program says",
            };
            let told = page.told();
            println!(
                "{state}; {}",
                told.as_deref().unwrap_or("measured: nothing")
            );
        }
    }
    Ok(())
}

/// The page and the record of the run that a process is, or that waits for it.
fn find(pid: u32) -> Result<(Page, PathBuf)> {
    let store = Store::open()?;
    let waiter = proc_stat::parent_of(pid);
    let found = std::iter::once(pid).chain(waiter).find_map(|pid| {
        let record = records::of(store.folder(), pid);
        Some((Page::open(&record).ok()?, record))
    });
    found.ok_or_else(|| {
        let reason = format!("{pid} is no `atom run` with windows, and no program of one");
        Error::new(DOING, reason).advice("start it with `atom run --off TOOL -- PROGRAM`")
    })
}

/// Lets all processes report, waits until they have, and says where the reports are.
fn report(page: &Page, record: &Path, pid: u32) -> Result<()> {
    let known = record::read(record).len();
    let number = page.ask();
    let start = Instant::now();
    while (page.answered.load(Ordering::Acquire).wrapping_sub(number) as i32) < 0 {
        if start.elapsed() > PATIENCE {
            return Err(Error::new(DOING, format!("{pid} does not answer")));
        }
        sleep(PAUSE);
    }
    for file in record::reports(record::read(record).get(known..).unwrap_or_default()) {
        println!("report: {}", file.display());
    }
    Ok(())
}
