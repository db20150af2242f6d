//! A folder of one tool and one day: which runs it has, and its new file.
//!
//! A file lists its runs in its footer, so what is known is always what is there: files may be removed, and copied from
//! other folders. A file of one run has the run's name, and needs to be opened only for that run.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::file::metadata::ParquetMetaDataReader;
use parquet::file::writer::SerializedFileWriter;
use profile::Profile;

use crate::error::{Error, Result};
use crate::rows::Rows;
use crate::run::Run;
use crate::write;

/// Rows of a row group, at least, but for the last group of a file.
const GROUP: usize = 1 << 19;

/// Key of the list of runs in a file's footer: in each line the run, a space, and the report.
const RUNS: &str = "atom.runs";

/// End of the names of files.
const END: &str = ".parquet";

/// Beginning of the names of files that are not complete. Engines leave out files with such names.
const TEMPORARY: &str = "_new-";

/// A folder of a tool and a day.
pub struct Partition {
    folder: PathBuf,
    /// Reports of the runs in files of several runs, and in the new file.
    known: HashMap<String, String>,
    /// The runs in the new file, in order.
    new: Vec<Run>,
    rows: Rows,
    file: Option<Unfinished>,
}

/// The new file. It is removed if it is dropped before it has its name.
struct Unfinished {
    writer: Option<SerializedFileWriter<File>>,
    temporary: Temporary,
}

/// A file that is removed at the end, unless it got another name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A complete file that has not its name yet.
pub struct Complete {
    temporary: Temporary,
    to: PathBuf,
}

impl Partition {
    /// Reads which runs a folder has. The folder need not be there.
    pub fn open(folder: PathBuf) -> Result<Self> {
        let mut known = HashMap::new();
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self::new(folder, known));
            }
            Err(e) => return Err(Error::file(&folder, e)),
        };
        for entry in entries {
            let path = entry.map_err(|e| Error::file(&folder, e))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // The lock is held, so the process that wrote this file has ended before it was complete.
            if name.starts_with(TEMPORARY) {
                std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
            }
            if name.ends_with(END) && !name.starts_with('_') && !is_run(&name) {
                known.extend(runs(&path)?);
            }
        }
        Ok(Self::new(folder, known))
    }

    fn new(folder: PathBuf, known: HashMap<String, String>) -> Self {
        Self {
            folder,
            known,
            new: Vec::new(),
            rows: Rows::default(),
            file: None,
        }
    }

    /// The report of a run that the folder has.
    pub fn known(&self, run: &str) -> Result<Option<String>> {
        if let Some(report) = self.known.get(run) {
            return Ok(Some(report.clone()));
        }
        let path = self.folder.join(format!("{run}{END}"));
        if path.exists() {
            Ok(runs(&path)?.remove(run))
        } else {
            Ok(None)
        }
    }

    /// Adds the rows of a profile. The result is their number.
    pub fn add(&mut self, profile: &Profile, run: Run) -> Result<u64> {
        let rows = self.rows.add(profile, &run);
        self.known.insert(run.id.clone(), run.report.clone());
        self.new.push(run);
        if self.rows.len() >= GROUP {
            self.flush()?;
        }
        Ok(rows)
    }

    /// Writes the rows that are in memory.
    fn flush(&mut self) -> Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(Unfinished::new(&self.folder)?),
        };
        if let Some(writer) = &mut file.writer {
            write::group(writer, &self.rows).map_err(|e| Error::parquet(&file.temporary.0, e))?;
        }
        self.rows.clear();
        Ok(())
    }

    /// Completes the new file, if there is one.
    pub fn complete(mut self) -> Result<Option<Complete>> {
        let Some(first) = self.new.first() else {
            return Ok(None);
        };
        let name = match self.new.len() - 1 {
            0 => format!("{}{END}", first.id),
            more => format!("{}+{more}{END}", first.id),
        };
        if self.rows.len() > 0 || self.file.is_none() {
            self.flush()?;
        }
        let Some(Unfinished {
            writer: Some(mut writer),
            temporary,
        }) = self.file.take()
        else {
            return Ok(None);
        };
        let runs = self.new.iter().map(|r| format!("{} {}\n", r.id, r.report));
        writer.append_key_value_metadata(write::note(RUNS, runs.collect()));
        let file = writer.into_inner();
        let file = file.map_err(|e| Error::parquet(&temporary.0, e))?;
        file.sync_all().map_err(|e| Error::file(&temporary.0, e))?;
        let to = self.folder.join(name);
        Ok(Some(Complete { temporary, to }))
    }
}

impl Unfinished {
    fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::file(folder, e))?;
        let path = folder.join(format!("{TEMPORARY}{}{END}", std::process::id()));
        let file = File::create(&path).map_err(|e| Error::file(&path, e))?;
        let temporary = Temporary(path);
        let writer = write::begin(file).map_err(|e| Error::parquet(&temporary.0, e))?;
        Ok(Self {
            writer: Some(writer),
            temporary,
        })
    }
}

impl Complete {
    /// Gives the file its name.
    pub fn publish(self) -> Result<()> {
        std::fs::rename(&self.temporary.0, &self.to).map_err(|e| Error::file(&self.to, e))
    }
}

/// True for the name of a file of one run.
fn is_run(name: &str) -> bool {
    let stem = name.strip_suffix(END).unwrap_or_default();
    !stem.is_empty() && stem.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The runs in a file, with their reports. None in a file of another program.
fn runs(path: &Path) -> Result<HashMap<String, String>> {
    let file = File::open(path).map_err(|e| Error::file(path, e))?;
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&file)
        .map_err(|e| Error::parquet(path, e))?;
    let notes = metadata.file_metadata().key_value_metadata();
    let list = notes
        .into_iter()
        .flatten()
        .filter(|note| note.key == RUNS)
        .find_map(|note| note.value.as_deref());
    let run = |line: &str| {
        let (run, report) = line.split_once(' ')?;
        Some((run.to_owned(), report.to_owned()))
    };
    Ok(list.unwrap_or_default().lines().filter_map(run).collect())
}
