//! Exports of a log of calls: a page of its own, and files for other programs' viewers.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use atom_core::{Error, Result};
use call_log::indat::Wanted;
use call_log::table::Report;
use call_log::timeline::Timeline;
use call_log::{chrome, speedscope};

use super::{Analyze, failed, html};
use output::file::PendingFile;

type Writer = fn(&Timeline, &mut dyn Write) -> call_log::Result<io::Result<()>>;

/// Writes the files that the command line asks for; all show the log of the first report.
pub fn run(args: &Analyze, reports: &[(Report, Wanted)]) -> Result<()> {
    let wanted: [(&Option<_>, Writer); 3] = [
        (&args.html, html::write),
        (&args.chrome, chrome::write),
        (&args.speedscope, speedscope::write),
    ];
    if wanted.iter().all(|(file, _)| file.is_none()) {
        return Ok(());
    }
    let Some((_, first)) = reports.first() else {
        return Ok(());
    };
    if reports.iter().any(|(_, other)| other.data != first.data) {
        let reason = "it describes reports on several logs, and one can be exported";
        let error = Error::new("analyzing", reason).file(&args.file);
        return Err(error.advice("give it a description of one log"));
    }
    let timeline = Timeline::open(&first.data, &first.procs).map_err(failed)?;
    for (file, writer) in wanted {
        if let Some(file) = file {
            write(&timeline, file, writer)?;
        }
    }
    Ok(())
}

fn write(timeline: &Timeline, file: &Path, writer: Writer) -> Result<()> {
    let mut damaged = None;
    let pending = PendingFile::write(
        file,
        |to| {
            let mut to = BufWriter::new(to);
            match writer(timeline, &mut to) {
                Ok(written) => written?,
                Err(error) => damaged = Some(error),
            }
            to.flush()
        },
        0o644,
    )?;
    match damaged {
        Some(error) => Err(failed(error)),
        None => pending.commit(),
    }
}
