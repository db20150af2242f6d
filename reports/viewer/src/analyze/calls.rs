//! The calls of a log for a page: the longest ones by time, and all of them by stack.
//!
//! A log may hold more calls than a page can draw, so the page has the longest ones. Shorter
//! ones appear as time of their callers. Stacks and sums are of all calls.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use call_log::account::Account;
use call_log::timeline::Timeline;
use call_log::{Event, EventKind};

/// Largest number of nodes of the tree of stacks while the log is read.
const NODES: usize = 500_000;

/// A call; longer ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Duration by the clock.
    pub ticks: u64,
    /// Start by the clock.
    pub start: u64,
    /// Number of the thread in the log.
    pub thread: u32,
    /// Number of enclosing calls.
    pub depth: u32,
    /// Index of the procedure in the timeline.
    pub place: usize,
}

/// Calls with the same stack.
#[derive(Clone, Copy)]
pub struct Node {
    /// Index of the node of the caller.
    pub parent: Option<usize>,
    /// Index of the procedure in the timeline.
    pub place: usize,
    /// Number of calls.
    pub calls: u64,
    /// Duration of all calls by the clock.
    pub ticks: u64,
}

/// A call that has not ended: its entry, and its node.
type Open = (Event, Option<usize>);

/// What is collected while the log is read.
pub struct Calls<'t> {
    timeline: &'t Timeline,
    most: usize,
    longest: BinaryHeap<Reverse<Call>>,
    open: Vec<Vec<Open>>,
    /// The calls by stack.
    pub nodes: Vec<Node>,
    known: HashMap<(Option<usize>, usize), usize>,
    /// Number of all calls that ended.
    pub total: u64,
    /// Sums by procedure, as the report has them.
    pub sums: Account<fn(u32) -> bool>,
}

impl<'t> Calls<'t> {
    /// Reads the log and keeps the `most` longest calls.
    ///
    /// # Errors
    /// Says what is wrong with the log.
    pub fn read(timeline: &'t Timeline, most: usize) -> call_log::Result<Self> {
        let mut calls = Self {
            timeline,
            most,
            longest: BinaryHeap::new(),
            open: Vec::new(),
            nodes: Vec::new(),
            known: HashMap::new(),
            total: 0,
            sums: Account::new(|_| true),
        };
        // Nothing is written, so the inner error cannot occur.
        let _ = timeline.each(None, |thread, event| {
            calls.sums.add(thread, &[event]);
            calls.take(thread, event);
            Ok(())
        })?;
        Ok(calls)
    }

    fn take(&mut self, thread: u32, event: Event) {
        if self.open.len() <= thread as usize {
            self.open.resize_with(thread as usize + 1, Vec::new);
        }
        let open = &mut self.open[thread as usize];
        let place = self.timeline.place(event.proc);
        if event.kind.opens() {
            let parent = open.last().and_then(|(_, node)| *node);
            let is_root = open.is_empty();
            let node = match self.known.get(&(parent, place)) {
                Some(node) => Some(*node),
                // Without its caller a stack would appear at the top.
                None if self.nodes.len() >= NODES || !is_root && parent.is_none() => None,
                None => {
                    let (calls, ticks) = (0, 0);
                    self.nodes.push(Node {
                        parent,
                        place,
                        calls,
                        ticks,
                    });
                    self.known.insert((parent, place), self.nodes.len() - 1);
                    Some(self.nodes.len() - 1)
                }
            };
            if let Some(node) = node {
                self.nodes[node].calls += u64::from(event.kind == EventKind::Entry);
            }
            open.push((event, node));
            return;
        }
        let Some((begun, node)) = open.pop() else {
            return;
        };
        self.total += 1;
        let ticks = event.clock.saturating_sub(begun.clock);
        if let Some(node) = node {
            self.nodes[node].ticks += ticks;
        }
        let call = Call {
            ticks,
            start: begun.clock,
            thread,
            depth: open.len() as u32,
            place: self.timeline.place(begun.proc),
        };
        self.longest.push(Reverse(call));
        if self.longest.len() > self.most {
            self.longest.pop();
        }
    }

    /// The longest calls by thread and start, outer ones first.
    pub fn longest(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = self.longest.iter().map(|Reverse(c)| *c).collect();
        calls.sort_by_key(|c| (c.thread, c.start, c.depth));
        calls
    }
}
