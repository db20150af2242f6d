//! Export for speedscope.
//!
//! Format: `https://www.speedscope.app/file-format-schema.json`, with one
//! profile of type `evented` for each thread.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::Result;
use crate::timeline::Timeline;

/// Writes a log.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let frames: Vec<Value> = timeline
        .procs
        .iter()
        .map(|proc| {
            let mut frame = json!({ "name": proc.name });
            if !proc.file.is_empty() {
                frame["file"] = json!(proc.file);
            }
            if proc.line != 0 {
                frame["line"] = json!(proc.line);
            }
            frame
        })
        .collect();
    let head = format!(
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\
         \"exporter\":\"atom analyze\",\"name\":{},\"activeProfileIndex\":0,\
         \"shared\":{},\"profiles\":[",
        json!(timeline.title),
        json!({ "frames": frames }),
    );
    if let Err(error) = to.write_all(head.as_bytes()) {
        return Ok(Err(error));
    }
    for thread in 0..timeline.tids.len() as u32 {
        let comma = if thread == 0 { "" } else { "," };
        let start = write!(
            to,
            "{comma}\n{{\"type\":\"evented\",\"name\":{},\"unit\":\"microseconds\",\
             \"startValue\":0,\"endValue\":{},\"events\":[",
            json!(timeline.thread_name(thread)),
            json!(timeline.length()),
        );
        if let Err(error) = start {
            return Ok(Err(error));
        }
        let mut comma = "";
        let result = timeline.each(Some(thread), |_, event| {
            let kind = if event.kind.opens() { "O" } else { "C" };
            let (frame, at) = (timeline.place(event.proc), timeline.micros(event.clock));
            let event = json!({ "type": kind, "frame": frame, "at": at });
            let result = write!(to, "{comma}\n{event}");
            comma = ",";
            result
        })?;
        if let Err(error) = result.and_then(|()| write!(to, "]}}")) {
            return Ok(Err(error));
        }
    }
    Ok(writeln!(to, "\n]}}"))
}
