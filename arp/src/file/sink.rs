//! A binary file that grows while a program runs.
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::{Heading, blocks};

/// Writes blocks, each with one system call, so that a program that is killed leaves whole blocks.
/// For the same reason the file has its final name from the start.
pub(crate) struct Sink {
    path: PathBuf,
    file: File,
}

impl Sink {
    pub fn create(path: &Path, heading: &Heading) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("create", path, &e))?;
        let mut sink = Self {
            path: path.to_path_buf(),
            file,
        };
        sink.write(&blocks::head(heading))?;
        Ok(sink)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|e| Error::io("write", &self.path, &e))
    }

    pub fn finish(mut self, records: u64) -> Result<()> {
        self.write(&blocks::end(records))
    }
}
