//! A folder of one run, and the file in it that tells the tool what only this run is given.

use std::fs;
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};

use crate::kept::records;
use crate::kept::store::Store;

const START: &str = "valgrind-";
const FILE: &str = "given";

/// The folder of a run, which is removed with this value.
pub struct RunFolder {
    folder: PathBuf,
    /// The path of the file, with `%w` in place of the number of this process.
    pub template: String,
}

impl RunFolder {
    /// Makes the folder, among the records of runs.
    pub fn make() -> Result<Self> {
        let store = Store::open()?;
        let records = records::folder(store.folder());
        let folder = records.join(format!("{START}{}", std::process::id()));
        let template = records.join(format!("{START}%w")).join(FILE);
        // A process of this number may have been killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|e| fail(&folder, e))?;
        Ok(Self {
            folder,
            template: template.display().to_string(),
        })
    }

    /// The path of a file in the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes the file: lines with a word, a space and a text.
    pub fn write(&self, lines: &[(&str, String)]) -> Result<()> {
        let lines = lines
            .iter()
            .map(|(word, text)| format!("{word} {}\n", text.replace('\n', " ")));
        let file = self.file(FILE);
        fs::write(&file, lines.collect::<String>()).map_err(|e| fail(&file, e))
    }

    /// The files in the folder whose names begin in this way.
    pub fn files(&self, start: &str) -> Vec<PathBuf> {
        let all = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut files: Vec<_> = all
            .filter(|found| found.file_name().to_string_lossy().starts_with(start))
            .map(|found| found.path())
            .collect();
        files.sort();
        files
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn fail(path: &Path, error: std::io::Error) -> Error {
    Error::new("preparing the run", error).file(path)
}
