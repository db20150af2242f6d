//! Profiles of many runs and machines as rows of Parquet files, which query engines read.
//!
//! All tools share one table: a row is one measured value of one row of a profile's table, with the place in the code
//! that it belongs to, and with what ran. So a query does not depend on the tool that measured. Each file of
//! the table is in a folder that names its tool and its day, as engines expect of a partitioned table:
//!
//! ```text
//! FOLDER/tool=icount/date=2026-11-22/RUN.parquet
//! ```
//!
//! A file appears under its name when it is complete, and never changes afterwards. `docs/fleet.md` describes the columns.
#![deny(missing_docs)]

mod cells;
mod error;
mod partition;
mod place;
mod rows;
mod run;
mod schema;
mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use profile::Profile;

pub use error::{Error, Result};
pub use schema::{Kind, columns};

use partition::Partition;
use run::Run;

/// Name of the file in the folder that is locked while rows are appended.
const LOCK: &str = "_lock";

/// What was appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Number of rows.
    pub rows: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of profiles whose rows the folder had already.
    pub known: u64,
}

/// What became of one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its rows will be written.
    Added,
    /// The folder has its rows.
    Known,
    /// The folder has rows of another report of the same run. Those of this report are left out.
    OtherReport,
}

/// Appends profiles to a folder. Other processes that append to it wait meanwhile.
///
/// Nothing is in the folder until [`finish`](Self::finish): temporary files are removed if the value is dropped before.
pub struct Appender {
    folder: PathBuf,
    partitions: BTreeMap<PathBuf, Partition>,
    appended: Appended,
    /// The lock is released when the file is closed.
    _lock: File,
}

impl Appender {
    /// Makes the folder, if it is not there, and waits until no other process appends to it.
    pub fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
        let path = folder.join(LOCK);
        let lock = File::create(&path).map_err(|e| Error::file(&path, e))?;
        lock.lock().map_err(|e| Error::file(&path, e))?;
        Ok(Self {
            folder: folder.to_owned(),
            partitions: BTreeMap::new(),
            appended: Appended::default(),
            _lock: lock,
        })
    }

    /// Appends the rows of a profile, unless the folder has them.
    pub fn add(&mut self, profile: &Profile) -> Result<Outcome> {
        let run = Run::of(profile);
        let path = self.folder.join(run.partition());
        let partition = match self.partitions.entry(path) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                let partition = Partition::open(new.key().clone())?;
                new.insert(partition)
            }
        };
        if let Some(known) = partition.known(&run.id)? {
            self.appended.known += 1;
            return Ok(if known == run.report {
                Outcome::Known
            } else {
                Outcome::OtherReport
            });
        }
        self.appended.rows += partition.add(profile, run)?;
        self.appended.runs += 1;
        Ok(Outcome::Added)
    }

    /// Completes the files and gives them their names.
    pub fn finish(self) -> Result<Appended> {
        // All files are complete before the first of them appears.
        let complete: Vec<_> = (self.partitions.into_values())
            .map(Partition::complete)
            .collect::<Result<_>>()?;
        for file in complete.into_iter().flatten() {
            file.publish()?;
        }
        Ok(self.appended)
    }
}
