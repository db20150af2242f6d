//! What a run has found: the sums of all threads.

use events::Source;
use events::perf::Reading;

use crate::book::Sums;
use crate::meters::Meters;
use crate::settings::Run;

/// The sums of all threads.
pub struct Found {
    pub run: &'static Run,
    /// Counts of instrumentation in all, by number in the set.
    pub totals: Vec<Option<u64>>,
    pub sums: Vec<Option<Sums>>,
    pub threads: u64,
    pub unmatched: u64,
    pub left: u64,
    pub lost: u64,
    pub meters: Vec<MeterSum>,
}

/// The sums of a meter over all threads.
#[derive(Clone, Copy, Default)]
pub struct MeterSum {
    /// Nanoseconds for which it was enabled, and for which it counted.
    pub enabled: u64,
    pub running: u64,
    /// How it is read.
    pub way: &'static str,
    /// Number of threads in which it could not be opened.
    pub failed: u64,
}

impl Found {
    pub fn new(run: &'static Run, cells: &[u64]) -> Self {
        // A forked child has its parent's counts among its own.
        let is_first = std::process::id() == run.pid;
        let slots = run.settings.slots.iter();
        Self {
            run,
            totals: slots
                .map(|s| cells.get(s.cell?).copied().filter(|_| is_first))
                .collect(),
            sums: vec![None; run.procs.len()],
            threads: 0,
            unmatched: 0,
            left: 0,
            lost: 0,
            meters: Vec::new(),
        }
    }

    /// Adds the sums of a thread.
    pub fn thread(&mut self, sums: &[Sums], meters: &Meters) {
        self.threads += 1;
        let times = meters.times();
        self.meters
            .resize(times.len().max(self.meters.len()), MeterSum::default());
        for ((sum, reading), way) in self.meters.iter_mut().zip(&times).zip(meters.ways()) {
            let reading = reading.unwrap_or_default();
            sum.enabled += reading.enabled;
            sum.running += reading.running;
            match way {
                "" => sum.failed += 1,
                way => sum.way = way,
            }
        }
        let kernels = self.run.settings.slots.iter().enumerate();
        let kernels: Vec<(usize, bool)> = kernels
            .filter(|(_, slot)| slot.cell.is_none())
            .map(|(i, slot)| (1 + i, slot.choice.event.source == Source::Hardware))
            .collect();
        for sums in sums {
            let mut sums = sums.clone();
            for ((i, is_hardware), reading) in kernels.iter().zip(&times) {
                // A counter that shares a register is assumed to count at the same rate all the time.
                let is_shared = |r: &Reading| *is_hardware && r.running < r.enabled;
                if let Some(reading) = reading.filter(is_shared) {
                    let whole = |value| Reading { value, ..reading }.scaled();
                    sums.scale(*i, |value| whole(value).unwrap_or(0));
                }
            }
            match self.sums.get_mut(sums.proc as usize) {
                Some(Some(all)) => all.add(&sums),
                Some(none) => *none = Some(sums),
                None => {}
            }
        }
    }

    pub fn is_missing(&self, event: usize) -> bool {
        self.run.missing.iter().any(|(i, _)| *i == event)
    }
}
