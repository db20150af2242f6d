//! A binary file that grows while a program runs.
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::{Heading, blocks};

/// Writes blocks, each with one system call, so that a program that is killed leaves whole blocks.
/// For the same reason the file has its final name from the start.
pub(crate) struct Sink {
    path: PathBuf,
    file: File,
    position: u64,
    /// What lies behind this is taken back at the next write.
    cut_off: Option<u64>,
    /// Another file has the name now.
    nameless: bool,
}

impl Sink {
    pub fn create(path: &Path, heading: &Heading) -> Result<Self> {
        let file = File::create(path).map_err(|e| Error::io("create", path, &e))?;
        let mut sink = Self {
            path: path.to_path_buf(),
            file,
            position: 0,
            cut_off: None,
            nameless: false,
        };
        sink.write(&blocks::head(heading))?;
        Ok(sink)
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(position) = self.cut_off.take() {
            let cut = self.file.set_len(position);
            cut.and_then(|()| self.file.seek(SeekFrom::Start(position)))
                .map_err(|e| Error::io("write", &self.path, &e))?;
            self.position = position;
        }
        self.position += bytes.len() as u64;
        self.file
            .write_all(bytes)
            .map_err(|e| Error::io("write", &self.path, &e))
    }

    /// How much was written.
    pub fn position(&self) -> u64 {
        self.cut_off.unwrap_or(self.position)
    }

    /// The next write is at this place, and nothing stays behind it.
    pub fn cut_off(&mut self, position: u64) {
        self.cut_off = Some(position);
    }

    /// Completes the file, which can go on with [`cut_off`](Self::cut_off).
    pub fn finish(&mut self, records: u64) -> Result<()> {
        self.write(&blocks::end(records))
    }

    /// The file's name, for reading it.
    pub fn path(&self) -> PathBuf {
        match self.nameless {
            true => format!("/proc/self/fd/{}", self.file.as_raw_fd()).into(),
            false => self.path.clone(),
        }
    }

    /// Another file has been given the name.
    pub fn loses_name(&mut self) {
        self.nameless = true;
    }
}
