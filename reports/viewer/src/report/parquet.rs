//! `atom report --parquet`: appends profiles to a folder of Parquet files.

use std::path::{Path, PathBuf};

use atom_core::{Error, Result};
use fleet::{Appender, Outcome};

use output::message::note;
use output::progress::Progress;

/// Appends profiles, each as a run of its own. If one of them cannot be read, none is appended.
pub fn append(files: &[PathBuf], folder: &Path) -> Result<()> {
    let fail = |e: fleet::Error| Error::new("appending to Parquet files", e.to_string());
    let mut appender = Appender::new(folder).map_err(fail)?;
    let progress = Progress::start_at("appending profiles", 0, files.len() as u64);
    for path in files {
        let profile = super::read(path)?;
        if appender.add(&profile).map_err(fail)? == Outcome::OtherReport {
            note(&format!(
                "{}: left out: the folder has another report of this run",
                path.display()
            ));
        }
        progress.advance();
    }
    let appended = appender.finish().map_err(fail)?;
    drop(progress);
    let known = match appended.known {
        0 => String::new(),
        known => format!("; {} were there already", tables::grouped(known)),
    };
    println!(
        "{}: {} rows of {} runs{known}",
        folder.display(),
        tables::grouped(appended.rows),
        tables::grouped(appended.runs)
    );
    Ok(())
}
