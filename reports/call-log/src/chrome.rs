//! Export for viewers of Chrome's trace event format (Perfetto, `chrome://tracing`).
//!
//! Format: an object whose array `traceEvents` has the names of process and threads, then a complete event (`X`) for each
//! call, with its start and duration in microseconds. Calls of a thread are in the order of their starts, outer ones first,
//! since viewers nest calls of equal start in the order in which they come. Names are shortened: a C++ name may be longer
//! than all the rest of an event. The first call of a procedure has the full name and the source line.

use std::io::{self, Write};

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
    let pid = timeline.process;
    let tid = |thread: u32| match timeline.tids.get(thread as usize) {
        None | Some(0) => thread,
        Some(tid) => *tid,
    };
    let full: Vec<&str> = timeline.procs.iter().map(|p| &*p.name).collect();
    let names: Vec<String> = tables::shorten_all(&full, NAME)
        .iter()
        .map(|name| json!(name).to_string())
        .collect();
    let process = json!({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": timeline.title}});
    write!(
        to,
        "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{process}"
    )?;
    for thread in 0..timeline.tids.len() as u32 {
        let tid = tid(thread);
        let args = json!({ "name": timeline.thread_name(thread) });
        let name = json!({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args});
        let order = json!({"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid,
            "args": {"sort_index": if timeline.is_main(thread) { 0 } else { thread + 1 }}});
        write!(to, ",\n{name},\n{order}")?;
    }
    let mut seen = vec![false; names.len()];
    for call in calls {
        let place = call.place as usize;
        let start = timeline.micros(call.start);
        let (ts, dur) = (Micros(start), Micros(timeline.span(call.ticks)));
        let (name, tid) = (&names[place], tid(call.thread));
        write!(
            to,
            ",\n{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\"name\":{name}"
        )?;
        let proc = &timeline.procs[place];
        if !std::mem::replace(&mut seen[place], true) && (proc.name.len() > NAME || proc.line != 0)
        {
            let args = json!({"name": proc.name, "line": format!("{}:{}", proc.file, proc.line)});
            write!(to, ",\"args\":{args}")?;
        }
        write!(to, "}}")?;
    }
    writeln!(to, "\n]}}")
}

/// Microseconds with the digits that a nanosecond needs.
struct Micros(f64);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanos = (self.0 * 1000.0).round() as u64;
        match (nanos / 1000, nanos % 1000) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) => write!(f, "{}", format!("{whole}.{part:03}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Micros;

    #[test]
    fn times_are_short_and_exact_to_a_nanosecond() {
        let texts = [0.0, 0.001, 1.5, 12.3456, 1e6].map(|us| Micros(us).to_string());
        assert_eq!(texts, ["0", "0.001", "1.5", "12.346", "1000000"]);
    }
}
