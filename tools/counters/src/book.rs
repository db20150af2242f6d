//! Assigns counts to the executions of procedures.
//!
//! The *inclusive* value of an execution is the count from its beginning to its end. Its *exclusive* value is
//! the inclusive value minus the inclusive values of the measured procedures that it called. The inclusive sum of a
//! procedure contains only its outermost executions, because recursion would count twice.

use call_log::{Event, EventKind};

use crate::cost::{Costs, MEASURES, Moment};

/// Sums of a procedure. Arrays have the clock first, then the events.
#[derive(Clone, Debug)]
pub struct Sums {
    pub proc: u32,
    /// Number of entries.
    pub calls: u64,
    /// Number of executions that have ended. A suspension ends an execution, too.
    pub ended: u64,
    /// Number of these executions that ended in another way than by an exit.
    pub left: u64,
    /// Sums of the inclusive values of outermost executions.
    pub inclusive: [u64; MEASURES],
    /// Sums of the exclusive values.
    pub exclusive: [u64; MEASURES],
    /// Sums of the inclusive values of all executions, including the inner ones of a recursion.
    pub each: [u64; MEASURES],
    /// Smallest inclusive values.
    pub least: [u64; MEASURES],
    /// Largest inclusive values.
    pub most: [u64; MEASURES],
}

impl Sums {
    fn new(proc: u32) -> Self {
        Self {
            proc,
            calls: 0,
            ended: 0,
            left: 0,
            inclusive: [0; MEASURES],
            exclusive: [0; MEASURES],
            each: [0; MEASURES],
            least: [u64::MAX; MEASURES],
            most: [0; MEASURES],
        }
    }

    /// Adds the sums of another thread.
    pub fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.ended += other.ended;
        self.left += other.left;
        for i in 0..MEASURES {
            self.inclusive[i] += other.inclusive[i];
            self.exclusive[i] += other.exclusive[i];
            self.each[i] += other.each[i];
            self.least[i] = self.least[i].min(other.least[i]);
            self.most[i] = self.most[i].max(other.most[i]);
        }
    }

    /// Applies a function to all values of a measure.
    pub fn scale(&mut self, i: usize, scale: impl Fn(u64) -> u64) {
        for values in [
            &mut self.inclusive,
            &mut self.exclusive,
            &mut self.each,
            &mut self.most,
        ] {
            values[i] = scale(values[i]);
        }
        if self.ended != 0 {
            self.least[i] = scale(self.least[i]);
        }
    }
}

/// An execution that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    pub proc: u32,
    pub processor: u32,
    /// Time stamp at its beginning.
    pub start: u64,
    /// Time stamp at its end.
    pub stop: u64,
    /// Inclusive values.
    pub values: [u64; MEASURES],
}

/// An execution that is open.
#[derive(Clone, Debug)]
struct Frame {
    proc: u32,
    processor: u32,
    /// Its entry was noted.
    is_call: bool,
    /// Time stamp at its beginning.
    start: u64,
    /// Values at its beginning.
    values: [u64; MEASURES],
    /// Sums of the inclusive values of the executions that it called.
    called: [u64; MEASURES],
    /// Number of notes that were made during it.
    notes: u64,
}

/// The executions of a thread.
#[derive(Clone, Debug, Default)]
pub struct Book {
    frames: Vec<Frame>,
    /// For each procedure its index in the sums, plus 1, and the number of its open executions.
    known: Vec<(u32, u32)>,
    pub sums: Vec<Sums>,
}

impl Book {
    /// The index of a procedure's sums, and the number of its open executions.
    fn sums_of(&mut self, proc: u32) -> (usize, &mut u32) {
        let place = proc as usize;
        if self.known.len() <= place {
            self.known.resize(place + 1, (0, 0));
        }
        let (number, open) = &mut self.known[place];
        if *number == 0 {
            self.sums.push(Sums::new(proc));
            *number = self.sums.len() as u32;
        }
        (*number as usize - 1, open)
    }

    /// Processes an event with the values at its time. Returns a row if an execution ends.
    pub fn event(&mut self, event: Event, moment: &Moment, costs: &Costs) -> Option<Row> {
        if event.kind.opens() {
            let is_call = event.kind == EventKind::Entry;
            let (number, open) = self.sums_of(event.proc);
            *open += 1;
            self.sums[number].calls += u64::from(is_call);
            self.frames.push(Frame {
                proc: event.proc,
                processor: moment.processor,
                is_call,
                start: moment.stamp,
                values: moment.values,
                called: [0; MEASURES],
                notes: 0,
            });
            return None;
        }
        let frame = self.frames.pop()?;
        let mut values = [0; MEASURES];
        let is_exit = event.kind == EventKind::Exit;
        for (i, value) in values.iter_mut().enumerate() {
            let passed = moment.values[i].wrapping_sub(frame.values[i]);
            // A meter that was closed or opened again may go back.
            let passed = if passed as i64 > 0 { passed } else { 0 };
            let own = if frame.is_call { costs.own[i] } else { 0 };
            let cost = own + frame.notes * costs.whole[i] / 2;
            *value = passed.saturating_sub(cost);
        }
        let (number, open) = self.sums_of(frame.proc);
        *open = open.saturating_sub(1);
        let is_outermost = *open == 0;
        let sums = &mut self.sums[number];
        sums.ended += 1;
        sums.left += u64::from(!is_exit);
        for (i, value) in values.iter().copied().enumerate() {
            sums.exclusive[i] += value.saturating_sub(frame.called[i]);
            sums.each[i] += value;
            sums.least[i] = sums.least[i].min(value);
            sums.most[i] = sums.most[i].max(value);
            if is_outermost {
                sums.inclusive[i] += value;
            }
        }
        if let Some(outer) = self.frames.last_mut() {
            for (called, value) in outer.called.iter_mut().zip(values) {
                *called += value;
            }
            outer.notes += frame.notes + u64::from(frame.is_call) + u64::from(is_exit);
        }
        Some(Row {
            proc: frame.proc,
            processor: frame.processor,
            start: frame.start,
            stop: moment.stamp,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(clock: u64, count: u64) -> Moment {
        let mut values = [0; MEASURES];
        (values[0], values[1]) = (clock, count);
        Moment {
            stamp: clock,
            processor: 3,
            values,
        }
    }

    /// Events of (kind, procedure, clock, count).
    fn run(events: &[(EventKind, u32, u64, u64)], costs: Costs) -> (Book, Vec<Row>) {
        let mut book = Book::default();
        let mut rows = Vec::new();
        for &(kind, proc, clock, count) in events {
            let event = Event { proc, kind, clock };
            rows.extend(book.event(event, &moment(clock, count), &costs));
        }
        (book, rows)
    }

    use EventKind::{Entry, Exit, Left, Resumed};

    #[test]
    fn recursion_is_counted_once() {
        let events = [
            (Entry, 0, 100, 1000),
            (Entry, 1, 110, 1001),
            (Entry, 0, 120, 1003),
            (Exit, 0, 150, 1010),
            (Exit, 1, 160, 1012),
            (Exit, 0, 200, 1020),
        ];
        let (book, rows) = run(&events, Costs::default());
        let [outer, inner] = &book.sums[..] else {
            panic!()
        };
        assert_eq!(
            (outer.calls, outer.inclusive[0], outer.exclusive[0]),
            (2, 100, 50 + 30)
        );
        assert_eq!(
            (outer.least[0], outer.most[0], outer.each[0]),
            (30, 100, 130)
        );
        assert_eq!((inner.inclusive[1], inner.exclusive[1]), (11, 4));
        let exclusive: u64 = book.sums.iter().map(|s| s.exclusive[1]).sum();
        assert_eq!(exclusive, 20);
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (rows[0].proc, rows[0].start, rows[0].stop, rows[0].processor),
            (0, 120, 150, 3)
        );
    }

    #[test]
    fn costs_are_subtracted_where_they_arise() {
        let mut costs = Costs::default();
        (costs.own[0], costs.whole[0]) = (4, 10);
        // Outer: 100 real, and two inner ones of 7, each of which costs 10 and shows 4 of it.
        let events = [
            (Entry, 0, 0, 0),
            (Entry, 1, 50, 0),
            (Exit, 1, 61, 0),
            (Entry, 1, 70, 0),
            (Exit, 1, 81, 0),
            (Exit, 0, 124, 0),
        ];
        let (book, _) = run(&events, costs);
        assert_eq!(book.sums[1].inclusive[0], 14);
        assert_eq!(book.sums[0].inclusive[0], 124 - 4 - 20);
        assert_eq!(book.sums[0].exclusive[0], 100 - 14);
        // Nothing gets less than nothing.
        let (book, _) = run(&[(Entry, 0, 5, 0), (Exit, 0, 6, 0)], costs);
        assert_eq!(book.sums[0].inclusive[0], 0);
    }

    #[test]
    fn what_is_suspended_goes_on() {
        let events = [
            (Entry, 0, 0, 0),
            (Left, 0, 10, 0),
            (Resumed, 0, 50, 0),
            (Exit, 0, 70, 0),
        ];
        let (book, rows) = run(&events, Costs::default());
        let sums = &book.sums[0];
        assert_eq!((sums.calls, sums.ended, sums.left), (1, 2, 1));
        assert_eq!((sums.inclusive[0], rows.len()), (30, 2));
    }
}
