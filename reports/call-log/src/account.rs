//! Gives each instant of a thread to one procedure: the innermost running one that the
//! report includes. So the time of an excluded procedure goes to its caller, or to
//! the caller's caller. Recursion needs no special care for this; for the time
//! *including* callees only the outermost activation of a procedure counts.

use std::collections::HashMap;

use crate::reader::Log;
use crate::{Event, EventKind, Result};

/// Figures of a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Number of calls.
    pub calls: u64,
    /// Number of times that it was left without passing an exit, or suspended.
    pub left: u64,
    /// Ticks that belong to it.
    pub own: u64,
    /// Ticks during which it or a procedure that it called was running.
    pub inclusive: u64,
}

impl Figures {
    /// Adds the figures of another thread.
    pub fn add(&mut self, other: Self) {
        self.calls += other.calls;
        self.left += other.left;
        self.own = self.own.saturating_add(other.own);
        self.inclusive = self.inclusive.saturating_add(other.inclusive);
    }
}

/// Stands for an unknown caller, where the log begins.
pub const OUTSIDE: u32 = u32::MAX;

/// What is known of a thread so far.
#[derive(Default)]
struct Thread {
    /// Running and included procedures, innermost last, each with the clock at its start.
    open: Vec<(u32, u64)>,
    /// Clock of its last event.
    last: u64,
    is_begun: bool,
}

/// The sums of a log.
pub struct Account<F> {
    is_included: F,
    figures: HashMap<u32, Figures>,
    /// Calls by caller and callee.
    arcs: HashMap<(u32, u32), u64>,
    /// Number of running activations, by thread and procedure.
    depth: HashMap<(u32, u32), u32>,
    threads: Vec<Thread>,
}

impl<F: FnMut(u32) -> bool> Account<F> {
    /// Sums of no events. `is_included` says whether the report includes a procedure.
    pub fn new(is_included: F) -> Self {
        Self {
            is_included,
            figures: HashMap::new(),
            arcs: HashMap::new(),
            depth: HashMap::new(),
            threads: Vec::new(),
        }
    }

    /// The sums of a whole log.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn of(log: &mut Log, is_included: F) -> Result<Self> {
        let mut account = Self::new(is_included);
        let mut events = Vec::new();
        while let Some(thread) = log.next_events(&mut events)? {
            account.add(thread, &events);
        }
        Ok(account)
    }

    /// Adds the next events of a thread.
    pub fn add(&mut self, thread: u32, events: &[Event]) {
        let index = thread as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        let state = &mut self.threads[index];
        for &Event { proc, kind, clock } in events {
            if !state.is_begun {
                (state.is_begun, state.last) = (true, clock);
            }
            if let Some((running, _)) = state.open.last() {
                let passed = clock.saturating_sub(state.last);
                let own = &mut self.figures.entry(*running).or_default().own;
                *own = own.saturating_add(passed);
            }
            state.last = clock;
            if !(self.is_included)(proc) {
                continue;
            }
            if kind.opens() {
                let figures = self.figures.entry(proc).or_default();
                if kind == EventKind::Entry {
                    figures.calls += 1;
                    let caller = state.open.last().map_or(OUTSIDE, |(proc, _)| *proc);
                    *self.arcs.entry((caller, proc)).or_default() += 1;
                }
                *self.depth.entry((thread, proc)).or_default() += 1;
                state.open.push((proc, clock));
                continue;
            }
            let Some((proc, start)) = state.open.pop_if(|(open, _)| *open == proc) else {
                continue;
            };
            let figures = self.figures.entry(proc).or_default();
            figures.left += u64::from(kind == EventKind::Left);
            let depth = self.depth.entry((thread, proc)).or_default();
            *depth = depth.saturating_sub(1);
            if *depth == 0 {
                let passed = clock.saturating_sub(start);
                figures.inclusive = figures.inclusive.saturating_add(passed);
            }
        }
    }

    /// The figures of a procedure.
    pub fn figures(&self, proc: u32) -> Figures {
        self.figures.get(&proc).copied().unwrap_or_default()
    }

    /// The procedures that were called or have time, by number.
    pub fn procedures(&self) -> Vec<u32> {
        let mut all: Vec<_> = self.figures.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Number of calls by caller and callee, sorted; the caller may be [`OUTSIDE`].
    pub fn arcs(&self) -> Vec<((u32, u32), u64)> {
        let mut all: Vec<_> = self.arcs.iter().map(|(k, v)| (*k, *v)).collect();
        all.sort_unstable();
        all
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventKind::{Entry, Exit, Left, Resumed};

    fn account(events: &[(u32, EventKind, u64)], included: &[u32]) -> impl Fn(u32) -> [u64; 3] {
        let mut account = Account::new(|proc| included.contains(&proc));
        for (proc, kind, clock) in events {
            let (proc, kind, clock) = (*proc, *kind, *clock);
            account.add(0, &[Event { proc, kind, clock }]);
        }
        let all: HashMap<u32, [u64; 3]> = (0..9)
            .map(|p| (p, account.figures(p)))
            .map(|(p, f)| (p, [f.calls, f.own, f.inclusive]))
            .collect();
        move |proc| all[&proc]
    }

    const MUTUAL: [(u32, EventKind, u64); 10] = [
        (0, Entry, 100),
        (1, Entry, 110),
        (2, Entry, 130),
        (1, Entry, 160),
        (1, Entry, 170),
        (1, Exit, 175),
        (1, Exit, 180),
        (2, Exit, 181),
        (1, Exit, 183),
        (0, Exit, 200),
    ];

    #[test]
    fn an_instant_belongs_to_one() {
        let of = account(&MUTUAL, &[0, 1, 2]);
        assert_eq!(of(0), [1, 10 + 17, 100]);
        assert_eq!(of(1), [3, 20 + 10 + 5 + 5 + 2, 73]);
        assert_eq!(of(2), [1, 30 + 1, 51]);
    }

    #[test]
    fn excluded_time_goes_to_the_caller() {
        let of = account(&MUTUAL, &[0, 2]);
        assert_eq!(of(0), [1, 30 + 19, 100]);
        assert_eq!(of(1), [0, 0, 0]);
        assert_eq!(of(2), [1, 51, 51]);
        // With the outermost procedure excluded, the time before the others start belongs to no procedure.
        assert_eq!(account(&MUTUAL, &[1, 2])(1), [3, 42, 73]);
    }

    #[test]
    fn suspended_time_belongs_to_no_procedure() {
        let events = [
            (0, Entry, 0),
            (1, Entry, 10),
            (1, Left, 15),
            (1, Resumed, 40),
            (1, Exit, 42),
            (0, Exit, 50),
        ];
        let of = account(&events, &[0, 1]);
        assert_eq!(of(0), [1, 10 + 25 + 8, 50]);
        assert_eq!(of(1), [1, 7, 7]);
    }
}
