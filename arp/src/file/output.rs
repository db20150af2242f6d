//! Files that appear under their name only when they are complete. An existing object that is not a
//! regular file, such as `/dev/null` or a pipe, is written to and not replaced.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::{Error, Result};

/// A file that is being written, compressed or not.
pub(crate) struct OutputFile {
    path: PathBuf,
    /// Temporary name; `None` if the file is written in place.
    temporary: Option<PathBuf>,
    writer: Option<Stream>,
}

enum Stream {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl OutputFile {
    /// Makes a file that gets the name `path` by [`commit`](Self::commit).
    pub fn create(path: &Path, gzip: bool) -> Result<Self> {
        let is_special = std::fs::metadata(path).is_ok_and(|m| !m.is_file());
        let temporary = (!is_special).then(|| {
            let mut name = path.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".tmp{}", std::process::id()));
            path.with_file_name(name)
        });
        let first = temporary.as_deref().unwrap_or(path);
        let file = File::create(first).map_err(|e| Error::io("create", first, &e))?;
        let file = BufWriter::with_capacity(1 << 16, file);
        let writer = if gzip {
            Stream::Gzip(GzEncoder::new(file, Compression::default()))
        } else {
            Stream::Plain(file)
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
            Some(Stream::Plain(file)) => Ok(file),
            Some(Stream::Gzip(encoder)) => encoder.finish(),
            None => return Ok(()),
        };
        let result = file.and_then(|mut file| file.flush());
        let named = || match &self.temporary {
            Some(temporary) => std::fs::rename(temporary, &self.path),
            None => Ok(()),
        };
        result.and_then(|()| named()).map_err(|e| self.failed(&e))
    }

    /// The error of a failed write.
    pub fn failed(&self, error: &io::Error) -> Error {
        Error::io("write", &self.path, error)
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Some(Stream::Plain(file)) => file.write(bytes),
            Some(Stream::Gzip(encoder)) => encoder.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Some(Stream::Plain(file)) => file.flush(),
            Some(Stream::Gzip(encoder)) => encoder.flush(),
            None => Ok(()),
        }
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After a commit no file has this name.
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_to() {
        let path = Path::new("/dev/null");
        let mut file = OutputFile::create(path, false).unwrap();
        file.write_all(b"nothing").unwrap();
        file.commit().unwrap();
        assert!(!std::fs::metadata(path).unwrap().is_file());
    }

    #[test]
    fn an_incomplete_file_does_not_appear() {
        let path = std::env::temp_dir().join(format!("arp-output-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let mut file = OutputFile::create(&path, true).unwrap();
        file.write_all(b"new").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        std::fs::remove_file(&path).unwrap();
    }
}
