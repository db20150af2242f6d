//! Export for viewers of Chrome's trace event format (Perfetto, `chrome://tracing`).
//!
//! Names are shortened: a C++ name may be longer than all the rest of an event. The first call of a procedure has the full
//! name and the source line.

use std::io::{self, Write};

use exports::chrome::{Call as Span, Trace};
use serde_json::json;

use crate::timeline::Timeline;
use crate::{Event, Result};

/// Largest number of characters of a name.
const NAME: usize = 48;

/// A call. The order is the order in the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    thread: u32,
    start: u64,
    depth: u32,
    place: u32,
    ticks: u64,
}

/// Writes a log.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let mut calls = Vec::new();
    let mut open: Vec<Vec<Event>> = Vec::new();
    // Nothing is written meanwhile, so the inner error cannot occur.
    let _ = timeline.each(None, |thread, event| {
        if open.len() <= thread as usize {
            open.resize_with(thread as usize + 1, Vec::new);
        }
        let open = &mut open[thread as usize];
        if event.kind.opens() {
            open.push(event);
        } else if let Some(begun) = open.pop() {
            calls.push(call(timeline, thread, begun, event.clock, open.len()));
        }
        Ok(())
    })?;
    // A log that was cut off ends within calls.
    for (thread, events) in (0..).zip(&open) {
        for (depth, begun) in events.iter().enumerate() {
            calls.push(call(timeline, thread, *begun, timeline.last(), depth));
        }
    }
    calls.sort_unstable();
    Ok(put(timeline, &calls, to))
}

fn call(timeline: &Timeline, thread: u32, begun: Event, end: u64, depth: usize) -> Call {
    Call {
        thread,
        start: begun.clock,
        depth: depth as u32,
        place: timeline.place(begun.proc) as u32,
        ticks: end.saturating_sub(begun.clock),
    }
}

fn put(timeline: &Timeline, calls: &[Call], to: &mut dyn Write) -> io::Result<()> {
    let tid = |thread: u32| match timeline.tids.get(thread as usize) {
        None | Some(0) => thread,
        Some(tid) => *tid,
    };
    let full: Vec<&str> = timeline.procs.iter().map(|p| &*p.name).collect();
    let names = tables::shorten_all(&full, NAME);
    let facts = json!({"exporter": "atom"});
    let mut trace = Trace::begin(timeline.process.into(), &timeline.title, &facts, to)?;
    for thread in 0..timeline.tids.len() as u32 {
        let rank = if timeline.is_main(thread) {
            0
        } else {
            thread + 1
        };
        trace.thread(tid(thread), &timeline.thread_name(thread), rank)?;
    }
    let mut seen = vec![false; names.len()];
    for call in calls {
        let place = call.place as usize;
        let proc = &timeline.procs[place];
        let is_told = std::mem::replace(&mut seen[place], true);
        let facts = (!is_told && (proc.name.len() > NAME || proc.line != 0))
            .then(|| json!({"name": proc.name, "line": format!("{}:{}", proc.file, proc.line)}));
        trace.call(&Span {
            tid: tid(call.thread),
            start: timeline.micros(call.start).into(),
            length: timeline.span(call.ticks).into(),
            name: &names[place],
            category: "",
            facts,
        })?;
    }
    trace.end()
}
