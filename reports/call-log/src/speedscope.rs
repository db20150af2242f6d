//! Export for speedscope, with a profile for each thread.

use std::io::{self, Write};

use exports::speedscope::{File, Frame};

use crate::Result;
use crate::timeline::Timeline;

/// Writes a log.
///
/// # Errors
/// The outer error is about reading the log, the inner one about writing.
pub fn write(timeline: &Timeline, to: &mut dyn Write) -> Result<io::Result<()>> {
    let frames = timeline.procs.iter().map(|proc| Frame {
        name: &proc.name,
        file: &proc.file,
        line: proc.line,
    });
    let mut file = match File::begin(&timeline.title, frames, to) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error)),
    };
    for thread in 0..timeline.tids.len() as u32 {
        let begun = file.begin_events(&timeline.thread_name(thread), timeline.length());
        let written = timeline.each(Some(thread), |_, event| {
            let (frame, at) = (timeline.place(event.proc), timeline.micros(event.clock));
            file.event(event.kind.opens(), frame, at)
        })?;
        if let Err(error) = begun.and(written).and_then(|()| file.end_events()) {
            return Ok(Err(error));
        }
    }
    Ok(file.end())
}
