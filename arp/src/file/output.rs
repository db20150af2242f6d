//! Files that appear under their name only when they are complete.
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::{Error, Result};

/// A file that is being written, compressed or not.
pub(crate) struct OutputFile {
    path: PathBuf,
    temporary: PathBuf,
    writer: Option<Writer>,
}

enum Writer {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl OutputFile {
    /// Will become `path` by [`commit`](Self::commit).
    pub fn create(path: &Path, gzip: bool) -> Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".tmp{}", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(|e| Error::io("create", &temporary, &e))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        let writer = match gzip {
            true => Writer::Gzip(GzEncoder::new(file, Compression::default())),
            false => Writer::Plain(file),
        };
        Ok(Self {
            path: path.to_path_buf(),
            temporary,
            writer: Some(writer),
        })
    }

    /// Completes the file and gives it its name.
    pub fn commit(mut self) -> Result<()> {
        let file = match self.writer.take() {
            Some(Writer::Plain(file)) => Ok(file),
            Some(Writer::Gzip(encoder)) => encoder.finish(),
            None => return Ok(()),
        };
        let result = file.and_then(|mut file| file.flush());
        result
            .and_then(|()| std::fs::rename(&self.temporary, &self.path))
            .map_err(|e| self.failed(&e))
    }

    /// A write failed.
    pub fn failed(&self, error: &io::Error) -> Error {
        Error::io("write", &self.path, error)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Some(Writer::Plain(file)) => file.write(bytes),
            Some(Writer::Gzip(encoder)) => encoder.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Some(Writer::Plain(file)) => file.flush(),
            Some(Writer::Gzip(encoder)) => encoder.flush(),
            None => Ok(()),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After a commit there is nothing with this name.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
