//! A binary file that grows while a program runs.
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::{Heading, blocks};

/// Writes each block with one system call, so a program that is killed leaves complete blocks.
/// For the same reason the file has its final name from the start.
pub(crate) struct Sink {
    path: PathBuf,
    file: File,
    position: u64,
    /// Offset from which the next write replaces the contents.
    cut_off: Option<u64>,
    /// Whether another file has got the name.
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

    /// Number of bytes written and kept.
    pub fn position(&self) -> u64 {
        self.cut_off.unwrap_or(self.position)
    }

    /// Makes the next write truncate the file at `position` and append there.
    pub fn cut_off(&mut self, position: u64) {
        self.cut_off = Some(position);
    }

    /// Completes the file; [`cut_off`](Self::cut_off) can undo that.
    pub fn finish(&mut self, records: u64) -> Result<()> {
        self.write(&blocks::end(records))
    }

    /// Name under which the file can be opened for reading.
    pub fn path(&self) -> PathBuf {
        if self.nameless {
            format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
        } else {
            self.path.clone()
        }
    }

    /// Notes that another file has got the name.
    pub fn loses_name(&mut self) {
        self.nameless = true;
    }
}
