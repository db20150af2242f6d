//! Reports of a process that was entered: where the helper writes them, and what is told of them.
//!
//! The helper has the process's user and sees its files. Where these are not this command's, it reports into a folder that is made for
//! it, and the files are moved afterwards.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atom_core::{Error, Result};

use crate::message::note;
use crate::run;
use crate::run::processes::Processes;
use crate::run::record::{self, Entry, Process, Record};

const DOING: &str = "preparing the report";

/// The folder for reports.
pub struct Folder {
    path: PathBuf,
    /// True if it was made for this process.
    is_made: bool,
    /// True if the process sees the files that this command sees.
    sees_files: bool,
}

impl Folder {
    /// The folder for a process.
    pub fn of(pid: i32) -> Result<Self> {
        let own = fs::metadata("/proc/self").map_err(|e| Error::new(DOING, e))?;
        let other = fs::metadata(format!("/proc/{pid}")).map_err(|e| Error::new(DOING, e))?;
        // The root of its files.
        let root = |of: &str| {
            fs::metadata(format!("/proc/{of}/root/."))
                .map(|m| (m.dev(), m.ino()))
                .ok()
        };
        let sees_files = root("self") == root(&pid.to_string());
        if own.uid() == other.uid() && sees_files {
            return Ok(Self {
                path: std::env::current_dir().map_err(|e| Error::new(DOING, e))?,
                is_made: false,
                sees_files,
            });
        }
        let path = std::env::temp_dir().join(format!("atom-attach-{}", std::process::id()));
        let fail = |e: std::io::Error| Error::new(DOING, e).file(&path);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(fail)?;
        let made = Self {
            path: path.clone(),
            is_made: true,
            sees_files,
        };
        std::os::unix::fs::chown(&path, Some(other.uid()), Some(other.gid())).map_err(fail)?;
        Ok(made)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which the process finds it; empty if there is none.
    pub fn named(&self) -> &Path {
        if self.sees_files {
            &self.path
        } else {
            Path::new("")
        }
    }

    /// Moves what was written into the working folder; the files there.
    fn move_files(&self) -> std::io::Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let from = entry?.path();
            let to = PathBuf::from(from.file_name().unwrap_or_default());
            fs::copy(&from, &to)?;
            all.push(to);
        }
        all.sort();
        Ok(all)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_made {
            fs::remove_dir_all(&self.path).unwrap_or_default();
        }
    }
}

/// Tells of the reports. `lines` go into their heads, and into profiles as facts with these names.
pub fn tell(
    record: &Record,
    (pid, program): (i32, &Path),
    folder: &Folder,
    lines: &[(&str, String)],
    quiet: bool,
) -> Result<ExitCode> {
    let mut said = record::read(record.file());
    if folder.is_made {
        let files = folder.move_files();
        let files = files.map_err(|e| Error::new(DOING, e).file(folder.path()))?;
        let has_profile = files.iter().any(|file| is_profile(file));
        let each = files.into_iter();
        said.extend(each.flat_map(|file| entries(pid, file, has_profile)));
    }
    let has_failed = record::tell_failures(&said);
    let program = record::Program {
        path: program.to_owned(),
        file: program.to_owned(),
        arguments: String::new(),
    };
    let processes = Processes::new(said, pid as u32, program);
    for (name, line) in lines {
        run::add_line(&processes, name, line).unwrap_or_else(|e| note(&e.to_string()));
    }
    if !quiet {
        run::tell_reports(&processes);
    }
    // What the process was attached to is known.
    lines.iter().skip(1).for_each(|(_, line)| note(line));
    Ok(if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// True for the name of a profile.
fn is_profile(file: &Path) -> bool {
    file.extension().is_some_and(|end| end == "profile")
}

/// What a record would say of a file that the process could not tell of. Without a profile nobody knows whether it is for people.
fn entries(pid: i32, file: PathBuf, has_profile: bool) -> Vec<Entry> {
    let process = Process {
        number: pid as u32,
        parent: std::process::id(),
    };
    if is_profile(&file) {
        return vec![Entry::Profile(process, file)];
    }
    let summed = has_profile.then(|| Entry::Summed(process, file.clone()));
    let report = Entry::Report(process, file);
    [report].into_iter().chain(summed).collect()
}
