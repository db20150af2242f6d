//! Pairs entries and exits of the points that a running program passes.
//!
//! A procedure may be left without passing any of its exits: by `longjmp`, an
//! exception, `exit`, the end of its thread. The stack pointer tells in all cases:
//! at a procedure's entry it points to the return address, and the stack grows
//! downwards. So a procedure that was entered with a lower stack pointer than
//! the current one is gone. A procedure that was entered with the current stack pointer is gone too
//! if another one is entered with it: the return address has been replaced.
//! At an exit, a point has the stack pointer after the exit: after a jump to another procedure
//! it is the same as at the entry, after a return eight bytes higher.
//!
//! A thread may use several stacks, for signal handlers and coroutines. Stack
//! pointers of different stacks cannot be compared. The stack of a thread's first point
//! is its *base*. Procedures on another stack are nested in the procedures
//! on the base, as a signal handler is. If the thread continues elsewhere
//! before they have ended, they belong to a coroutine: it is suspended, and resumed
//! at the next point on its stack.

use crate::{Event, EventKind};

/// Kind of a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Entry of a procedure.
    Entry,
    /// Exit of a procedure.
    Exit,
    /// The program continues in a procedure whose frame ends above the stack
    /// pointer: after `setjmp`, in a handler of an exception.
    Here,
}

/// A point of the program that was passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Its kind.
    pub seen: Seen,
    /// The procedure's number.
    pub proc: u32,
    /// The stack pointer.
    pub sp: u64,
    /// The clock's value.
    pub clock: u64,
}

/// Size of a return address in bytes.
const RETURN_ADDRESS: u64 = 8;

/// An open procedure, with the stack pointer at its entry.
#[derive(Clone, Copy, Debug)]
struct Frame {
    proc: u32,
    sp: u64,
}

/// A stack: its range of addresses and the procedures that are open on it, innermost last.
#[derive(Clone, Debug, Default)]
struct Stack {
    start: u64,
    end: u64,
    frames: Vec<Frame>,
}

/// Numbers of points that do not pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Oddities {
    /// Exits of procedures whose entry was not seen.
    pub unmatched: u64,
    /// Procedures that were left without passing an exit.
    pub left: u64,
}

/// Pairs the entries and exits of one thread.
#[derive(Clone, Debug, Default)]
pub struct Balancer {
    /// All stacks of the thread; the first is the base.
    stacks: Vec<Stack>,
    /// Index of the stack that the thread runs on.
    current: usize,
    /// True if the open procedures are closed in the log, and must be resumed before the next event.
    suspended: bool,
    last_clock: u64,
    oddities: Oddities,
}

impl Balancer {
    /// No procedure is open.
    pub fn new() -> Self {
        Self::default()
    }

    /// The highest clock value so far.
    pub fn last_clock(&self) -> u64 {
        self.last_clock
    }

    /// Numbers of points that did not pair.
    pub fn oddities(&self) -> Oddities {
        self.oddities
    }

    /// Number of open procedures.
    pub fn depth(&self) -> usize {
        self.stacks.iter().map(|s| s.frames.len()).sum()
    }

    /// Takes the next point of the thread, and passes its events to `out`. `region` returns the start and the end of the
    /// mapping around an address, if it knows.
    pub fn point(
        &mut self,
        point: Point,
        region: &mut impl FnMut(u64) -> Option<(u64, u64)>,
        out: &mut impl FnMut(Event),
    ) {
        // A signal handler may come between reading the clock and noting it.
        let clock = point.clock.max(self.last_clock);
        self.last_clock = clock;
        self.resume(clock, out);
        let near = match point.seen {
            Seen::Exit => point.sp.wrapping_sub(RETURN_ADDRESS),
            _ => point.sp,
        };
        self.go_to_stack_of(near, clock, region, out);
        // At an exit, the innermost open procedure may have been entered with a stack pointer 8 bytes lower.
        let dead = match point.seen {
            Seen::Entry => point.sp,
            Seen::Here => point.sp.saturating_sub(1),
            Seen::Exit => point.sp.saturating_sub(RETURN_ADDRESS + 1),
        };
        let own_is_dead = self.drop_dead(dead, point.proc, clock, out);
        let (proc, sp) = (point.proc, point.sp);
        match point.seen {
            Seen::Here => {}
            Seen::Entry => {
                let frames = &mut self.stacks[self.current].frames;
                frames.push(Frame { proc, sp });
                let kind = EventKind::Entry;
                out(Event { proc, kind, clock });
            }
            Seen::Exit => self.exit(proc, sp, own_is_dead, clock, out),
        }
    }

    /// Takes an exit. The stack pointer at the innermost procedure's entry is `sp`, or 8 less, or higher.
    fn exit(
        &mut self,
        proc: u32,
        sp: u64,
        own_is_dead: bool,
        clock: u64,
        out: &mut impl FnMut(Event),
    ) {
        let frames = &mut self.stacks[self.current].frames;
        let inner_is_dead = match frames.as_slice() {
            // The procedure that it called was left by other means.
            [.., own, inner] => own.sp == sp && own.proc == proc && inner.proc != proc,
            _ => false,
        };
        // The exit of `longjmp` itself, which goes to a place with another stack pointer.
        let is_jump = own_is_dead && frames.last().is_some_and(|f| f.proc != proc);
        if inner_is_dead || is_jump {
            self.drop_dead(sp.saturating_sub(1), proc, clock, out);
        }
        if is_jump {
            return;
        }
        // A procedure may continue in the middle of another one and share its end. So the exit may name the
        // other one.
        let frames = &mut self.stacks[self.current].frames;
        let is_own = |f: &mut Frame| f.sp == sp || f.sp.wrapping_add(RETURN_ADDRESS) == sp;
        match frames.pop_if(is_own) {
            None => self.oddities.unmatched += 1,
            Some(Frame { proc, .. }) => {
                let kind = EventKind::Exit;
                out(Event { proc, kind, clock });
            }
        }
    }

    /// Closes the open procedures, since the log ends or pauses here. The next point
    /// resumes them.
    pub fn suspend(&mut self, clock: u64, out: &mut impl FnMut(Event)) {
        let clock = clock.max(self.last_clock);
        self.last_clock = clock;
        if !std::mem::replace(&mut self.suspended, true) {
            if self.current != 0 {
                close(&self.stacks[self.current].frames, clock, out);
            }
            if let Some(base) = self.stacks.first() {
                close(&base.frames, clock, out);
            }
        }
    }

    /// Closes and forgets the open procedures, since the thread has ended and another one takes its place.
    pub fn end(&mut self, clock: u64, out: &mut impl FnMut(Event)) {
        self.suspend(clock, out);
        let open = self.depth() as u64;
        *self = Self {
            oddities: self.oddities,
            ..Self::default()
        };
        self.oddities.left += open;
    }

    /// Has the next point resume the open procedures, in the log of a forked child.
    pub fn fork(&mut self) {
        self.suspended = true;
        self.last_clock = 0;
        self.oddities = Oddities::default();
    }

    /// Resumes the open procedures after [`Balancer::suspend`].
    fn resume(&mut self, clock: u64, out: &mut impl FnMut(Event)) {
        if std::mem::replace(&mut self.suspended, false) {
            if let Some(base) = self.stacks.first() {
                open(&base.frames, clock, out);
            }
            if self.current != 0 {
                open(&self.stacks[self.current].frames, clock, out);
            }
        }
    }

    /// Closes the procedures that were entered with a stack pointer up to `sp`. True if `proc` is one of them.
    fn drop_dead(&mut self, sp: u64, proc: u32, clock: u64, out: &mut impl FnMut(Event)) -> bool {
        let frames = &mut self.stacks[self.current].frames;
        let mut found = false;
        while let Some(frame) = frames.pop_if(|frame| frame.sp <= sp) {
            found |= frame.proc == proc;
            let (proc, kind) = (frame.proc, EventKind::Left);
            out(Event { proc, kind, clock });
            self.oddities.left += 1;
        }
        found
    }

    /// Makes the stack with the address `sp` current; suspends and resumes the coroutines on both.
    fn go_to_stack_of(
        &mut self,
        sp: u64,
        clock: u64,
        region: &mut impl FnMut(u64) -> Option<(u64, u64)>,
        out: &mut impl FnMut(Event),
    ) {
        let now = self.stacks.get(self.current);
        if now.is_some_and(|s| (s.start..s.end).contains(&sp)) {
            return;
        }
        let known = |s: &Stack| (s.start..s.end).contains(&sp);
        let next = match self.stacks.iter().position(known) {
            Some(next) => next,
            None => {
                // For unknown memory the best guess is the current stack.
                let near = || now.map_or((sp, sp), |s| (s.start.min(sp), s.end.max(sp)));
                let (start, end) = region(sp).unwrap_or_else(near);
                // A stack that grows keeps its end.
                let grown = |s: &Stack| s.start < end.max(sp + 1) && start < s.end;
                let next = self.stacks.iter().position(grown);
                let next = next.unwrap_or_else(|| {
                    self.stacks.push(Stack::default());
                    self.stacks.len() - 1
                });
                let stack = &mut self.stacks[next];
                (stack.start, stack.end) = (start, end.max(sp + 1));
                next
            }
        };
        if next != self.current {
            if self.current != 0 {
                close(&self.stacks[self.current].frames, clock, out);
            }
            if next != 0 {
                // Procedures that were left meanwhile are not resumed.
                let frames = &mut self.stacks[next].frames;
                while frames.pop_if(|frame| frame.sp < sp).is_some() {
                    self.oddities.left += 1;
                }
                open(frames, clock, out);
            }
            self.current = next;
        }
    }
}

/// Passes an event for each open procedure that it is left, innermost first.
fn close(frames: &[Frame], clock: u64, out: &mut impl FnMut(Event)) {
    for frame in frames.iter().rev() {
        let (proc, kind) = (frame.proc, EventKind::Left);
        out(Event { proc, kind, clock });
    }
}

/// Passes an event for each open procedure that it is resumed, innermost last.
fn open(frames: &[Frame], clock: u64, out: &mut impl FnMut(Event)) {
    for frame in frames {
        let (proc, kind) = (frame.proc, EventKind::Resumed);
        out(Event { proc, kind, clock });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Seen::{Entry, Exit, Here};

    /// Takes points of (kind, procedure, stack pointer), one for each tick of the clock.
    fn run(points: &[(Seen, u32, u64)]) -> (String, Balancer) {
        let mut balancer = Balancer::new();
        let mut text = String::new();
        let mut region = |sp| Some((sp / 1000 * 1000, sp / 1000 * 1000 + 1000));
        for (clock, &(seen, proc, sp)) in (1..).zip(points) {
            let clock: u64 = clock;
            let point = Point {
                seen,
                proc,
                sp,
                clock,
            };
            balancer.point(point, &mut region, &mut |event| {
                assert_eq!(event.clock, clock);
                let sign = match event.kind {
                    EventKind::Entry => '+',
                    EventKind::Exit => '-',
                    EventKind::Left => '!',
                    EventKind::Resumed => '^',
                };
                text.push(sign);
                text.push_str(&event.proc.to_string());
            });
            text.push(' ');
        }
        text.pop();
        (text, balancer)
    }

    #[test]
    fn calls_nest() {
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 800),
            (Exit, 1, 808),
            (Exit, 0, 908),
        ];
        assert_eq!(run(&points).0, "+0 +1 -1 -0");
    }

    #[test]
    fn an_exit_may_be_a_jump() {
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 892),
            (Exit, 1, 892),
            (Entry, 2, 892),
            (Exit, 2, 900),
            (Exit, 0, 908),
        ];
        assert_eq!(run(&points).0, "+0 +1 -1 +2 -2 -0");
        // Procedure 1 is left by longjmp into 0, which then jumps to 2.
        let points = [(Entry, 0, 900), (Entry, 1, 892), (Exit, 0, 900)];
        assert_eq!(run(&points).0, "+0 +1 !1-0");
        // Procedure 2 is `longjmp`; its exit is the jump into 0.
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 892),
            (Entry, 2, 870),
            (Exit, 2, 900),
        ];
        assert_eq!(run(&points).0, "+0 +1 +2 !2!1");
    }

    #[test]
    fn what_lies_deeper_is_dead() {
        // A longjmp from procedure 2 to 0, which calls 3.
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 800),
            (Entry, 2, 700),
            (Entry, 3, 820),
        ];
        let (text, balancer) = run(&points);
        assert_eq!(text, "+0 +1 +2 !2!1+3");
        assert_eq!(balancer.oddities().left, 2);
        // The same jump, with a point where setjmp returns.
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 800),
            (Here, 0, 850),
            (Exit, 0, 908),
        ];
        assert_eq!(run(&points).0, "+0 +1 !1 -0");
        // Procedure 2 has replaced the return address of 1 by its own.
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 800),
            (Entry, 2, 800),
            (Exit, 2, 808),
        ];
        assert_eq!(run(&points).0, "+0 +1 !1+2 -2");
    }

    #[test]
    fn an_exit_closes_whoever_was_entered_there() {
        // Procedure 1 continues in the middle of 2.
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 800),
            (Exit, 2, 808),
            (Exit, 0, 908),
        ];
        assert_eq!(run(&points).0, "+0 +1 -1 -0");
        let (text, balancer) = run(&[(Entry, 0, 900), (Exit, 5, 700), (Exit, 0, 908)]);
        assert_eq!(
            (text.as_str(), balancer.oddities().unmatched),
            ("+0  -0", 1)
        );
    }

    #[test]
    fn a_handler_on_its_own_stack_is_nested() {
        let points = [
            (Entry, 0, 900),
            (Entry, 9, 5900),
            (Exit, 9, 5908),
            (Exit, 0, 908),
        ];
        assert_eq!(run(&points).0, "+0 +9 -9 -0");
    }

    #[test]
    fn coroutines_are_suspended_and_resumed() {
        let points = [
            (Entry, 0, 900),
            (Entry, 1, 5900),
            (Entry, 2, 5800),
            (Entry, 7, 850), // back on the base
            (Exit, 7, 858),
            (Exit, 2, 5808),  // the first coroutine goes on
            (Entry, 3, 6900), // the second one
            (Exit, 1, 5908),
            (Exit, 0, 908),
        ];
        let want = "+0 +1 +2 !2!1+7 -7 ^1^2-2 !1+3 !3^1-1 -0";
        assert_eq!(run(&points).0, want);
    }

    #[test]
    fn a_growing_stack_stays_one() {
        let mut balancer = Balancer::new();
        let mut end = String::new();
        for (sp, start) in [(900, 800), (700, 700), (850, 700)] {
            let point = Point {
                seen: Entry,
                proc: 0,
                sp,
                clock: 1,
            };
            balancer.point(point, &mut |_| Some((start, 1000)), &mut |e| {
                end.push_str(if e.kind == EventKind::Left { "!" } else { "+" });
            });
        }
        assert_eq!(end, "++!+");
    }

    #[test]
    fn a_suspended_log_goes_on() {
        let (_, mut balancer) = run(&[(Entry, 0, 900), (Entry, 1, 800)]);
        let mut events = Vec::new();
        balancer.suspend(9, &mut |e| events.push((e.kind, e.proc, e.clock)));
        let point = Point {
            seen: Exit,
            proc: 1,
            sp: 808,
            clock: 8,
        };
        balancer.point(point, &mut |_| None, &mut |e| {
            events.push((e.kind, e.proc, e.clock))
        });
        let want = [
            (EventKind::Left, 1, 9),
            (EventKind::Left, 0, 9),
            (EventKind::Resumed, 0, 9),
            (EventKind::Resumed, 1, 9),
            (EventKind::Exit, 1, 9),
        ];
        assert_eq!(events, want);
        assert_eq!(balancer.depth(), 1);
    }
}
