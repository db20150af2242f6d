//! An HTML page that draws the calls over time. It loads no other file.
//!
//! A log may hold more calls than a page can draw, so the page has the longest ones. Shorter
//! ones appear as time of their callers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use serde_json::json;

use crate::timeline::Timeline;
use crate::{Event, Result};

/// Largest number of calls in a page.
const MOST: usize = 100_000;

const PAGE: &str = include_str!("timeline.html");

/// A call; longer ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    /// Duration and start by the clock.
    ticks: u64,
    start: u64,
    thread: u32,
    /// Number of enclosing calls.
    depth: u32,
    /// Index of the procedure in the timeline.
    place: usize,
}

/// The longest calls so far.
#[derive(Default)]
struct Longest {
    calls: BinaryHeap<Reverse<Call>>,
    /// For each thread the entries of calls that have not ended.
    open: Vec<Vec<Event>>,
    /// Number of all calls.
    total: u64,
}

impl Longest {
    fn take(&mut self, timeline: &Timeline, thread: u32, event: Event, most: usize) {
        if self.open.len() <= thread as usize {
            self.open.resize_with(thread as usize + 1, Vec::new);
        }
        let open = &mut self.open[thread as usize];
        if event.kind.opens() {
            open.push(event);
            return;
        }
        let Some(begun) = open.pop() else { return };
        self.total += 1;
        let call = Call {
            ticks: event.clock.saturating_sub(begun.clock),
            start: begun.clock,
            thread,
            depth: open.len() as u32,
            place: timeline.place(begun.proc),
        };
        self.calls.push(Reverse(call));
        if self.calls.len() > most {
            self.calls.pop();
        }
    }
}

/// Writes the page.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let mut longest = Longest::default();
    let result = timeline.each(None, |thread, event| {
        longest.take(timeline, thread, event, MOST);
        Ok(())
    })?;
    if result.is_err() {
        return Ok(result);
    }
    let mut calls: Vec<Call> = longest.calls.into_iter().map(|Reverse(c)| c).collect();
    calls.sort_by_key(|c| (c.thread, c.start, c.depth));
    let shown = calls.len() as u64;
    let rows: Vec<_> = calls
        .iter()
        .map(|call| {
            let start = timeline.micros(call.start);
            let length = timeline.micros(call.start + call.ticks) - start;
            json!([
                call.thread,
                call.depth,
                call.place,
                rounded(start),
                rounded(length)
            ])
        })
        .collect();
    let names: Vec<_> = timeline.procs.iter().map(|p| &p.name).collect();
    let threads: Vec<_> = (0..timeline.tids.len() as u32)
        .map(|t| timeline.thread_name(t))
        .collect();
    let data = json!({
        "title": timeline.title,
        "length": timeline.length(),
        "names": names,
        "threads": threads,
        "calls": rows,
        "left_out": longest.total - shown,
    });
    // No name may contain the end tag of the script.
    let data = data.to_string().replace('<', "\\u003c");
    let (before, after) = PAGE.split_once("/*DATA*/").unwrap_or((PAGE, ""));
    let write = |to: &mut dyn Write| {
        to.write_all(before.as_bytes())?;
        to.write_all(data.as_bytes())?;
        to.write_all(after.as_bytes())
    };
    Ok(write(to))
}

/// Rounds microseconds to whole nanoseconds, so that the page gets no longer than necessary.
fn rounded(micros: f64) -> f64 {
    (micros * 1000.0).round() / 1000.0
}
