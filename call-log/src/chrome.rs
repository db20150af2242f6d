//! Export for viewers of Chrome's trace event format (Perfetto, `chrome://tracing`).
//!
//! Format: an object whose array `traceEvents` has the names of process and threads, then an event for each begin
//! and end of a call, with its time in microseconds.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::Result;
use crate::timeline::Timeline;

/// Writes a log.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let pid = timeline.process;
    let mut separator = "";
    let mut put = |to: &mut dyn Write, event: Value| {
        let result = write!(to, "{separator}\n{event}");
        separator = ",";
        result
    };
    let tid = |thread: u32| match timeline.tids.get(thread as usize) {
        None | Some(0) => thread,
        Some(tid) => *tid,
    };
    let begin = |to: &mut dyn Write,
                 put: &mut dyn FnMut(&mut dyn Write, Value) -> io::Result<()>| {
        write!(to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        let args = json!({ "name": timeline.title });
        put(
            to,
            json!({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": args}),
        )?;
        for thread in 0..timeline.tids.len() as u32 {
            let args = json!({ "name": timeline.thread_name(thread) });
            let tid = tid(thread);
            put(
                to,
                json!({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": args}),
            )?;
        }
        Ok(())
    };
    if let Err(error) = begin(to, &mut put) {
        return Ok(Err(error));
    }
    let result = timeline.each(None, |thread, event| {
        let proc = &timeline.procs[timeline.place(event.proc)];
        let phase = if event.kind.opens() { "B" } else { "E" };
        let (ts, tid) = (timeline.micros(event.clock), tid(thread));
        put(to, json!({"name": proc.name, "cat": "call", "ph": phase, "ts": ts, "pid": pid, "tid": tid}))
    })?;
    Ok(result.and_then(|()| writeln!(to, "\n]}}")))
}
