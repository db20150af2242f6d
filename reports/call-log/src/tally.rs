//! Sums of one thread while it runs: calls, and ticks with and without callees, by procedure.
//!
//! [`Account`](crate::account) makes the same sums of a finished log, with callers and with a choice of procedures. This
//! one is for the program that writes the log, whose events take 22 ns each: it has arrays only, and no callers.

use crate::account::Figures;
use crate::{Event, EventKind};

/// Sums of a procedure, and the number of its executions that are open.
#[derive(Clone, Copy, Default)]
struct Row {
    figures: Figures,
    depth: u32,
}

/// The sums of a thread.
#[derive(Default)]
pub struct Tally {
    rows: Vec<Row>,
    /// Executions that are open, innermost last: procedure, and clock at the start.
    open: Vec<(u32, u64)>,
    /// Clock of the last event.
    last: u64,
}

impl Tally {
    /// Adds the next event.
    #[inline]
    pub fn add(&mut self, event: Event) {
        let Event { proc, kind, clock } = event;
        if let Some((running, _)) = self.open.last()
            && let Some(row) = self.rows.get_mut(*running as usize)
        {
            row.figures.own += clock.saturating_sub(self.last);
        }
        self.last = clock;
        if kind.opens() {
            let index = proc as usize;
            if self.rows.len() <= index {
                self.rows.resize(index + 1, Row::default());
            }
            let row = &mut self.rows[index];
            row.figures.calls += u64::from(kind == EventKind::Entry);
            row.depth += 1;
            self.open.push((proc, clock));
            return;
        }
        let Some((_, start)) = self.open.pop_if(|(open, _)| *open == proc) else {
            return;
        };
        let row = &mut self.rows[proc as usize];
        row.figures.left += u64::from(kind == EventKind::Left);
        row.depth -= 1;
        if row.depth == 0 {
            row.figures.inclusive += clock.saturating_sub(start);
        }
    }

    /// The sums by the procedures' numbers. Executions that are open have no time with callees yet.
    pub fn figures(&self) -> impl Iterator<Item = Figures> + '_ {
        self.rows.iter().map(|row| row.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;

    /// Calls of few procedures, recursion, ends that pair with nothing, and clocks that are still.
    #[test]
    fn it_agrees_with_the_account_of_the_whole_log() {
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let kinds = [
            EventKind::Entry,
            EventKind::Exit,
            EventKind::Left,
            EventKind::Resumed,
        ];
        let mut clock = 100;
        let mut events = Vec::new();
        let mut open: Vec<u32> = Vec::new();
        for _ in 0..5000 {
            clock += next(4);
            let kind = kinds[next(4) as usize];
            let proc = match (kind.opens(), open.last()) {
                (false, Some(last)) if next(20) != 0 => *last,
                _ => next(6) as u32,
            };
            if kind.opens() {
                open.push(proc)
            } else {
                open.pop_if(|last| *last == proc);
            }
            events.push(Event { proc, kind, clock });
        }
        let mut account = Account::new(|_| true);
        let mut tally = Tally::default();
        account.add(0, &events);
        events.iter().for_each(|event| tally.add(*event));
        for (proc, figures) in (0..).zip(tally.figures()) {
            assert_eq!(figures, account.figures(proc), "{proc}");
            assert!(figures.calls > 100 && figures.own > 100);
        }
    }
}
