//! Writes a data file of either format, record by record.
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::ascii::AsciiWriter;
use crate::file::blocks::{self, BlockKind};
use crate::file::output::OutputFile;
use crate::file::record::Data;
use crate::file::{Heading, sums};
use crate::types::{Format, Mode, Sid, Step, Tid};

/// Approximate size in bytes of a block of sums.
const SUMS: usize = 256 << 10;

/// Writes a data file record by record.
pub(crate) struct FileWriter<'a> {
    heading: &'a Heading,
    form: Form,
    records: u64,
}

enum Form {
    Ascii(AsciiWriter<OutputFile>),
    Binary {
        file: OutputFile,
        kind: BlockKind,
        tid: Tid,
        contents: Vec<u8>,
        count: u32,
    },
}

impl<'a> FileWriter<'a> {
    /// Begins a file with `records` records.
    pub fn create(
        path: &Path,
        format: Format,
        gzip: bool,
        heading: &'a Heading,
        records: u64,
    ) -> Result<Self> {
        let mut file = OutputFile::create(path, gzip)?;
        let form = match format {
            Format::Ascii => {
                let failed = |e: &std::io::Error| Error::io("write", path, e);
                Form::Ascii(AsciiWriter::new(file, heading, records).map_err(|e| failed(&e))?)
            }
            Format::Binary => {
                let head = file.write_all(&blocks::head(heading));
                head.map_err(|e| file.failed(&e))?;
                let kind = match heading.mode {
                    Mode::RecordAverage => BlockKind::Stats,
                    Mode::RecordHistogram => BlockKind::Histograms,
                    _ => BlockKind::Samples,
                };
                Form::Binary {
                    file,
                    kind,
                    tid: Tid(0),
                    contents: Vec::new(),
                    count: 0,
                }
            }
        };
        Ok(Self {
            heading,
            form,
            records: 0,
        })
    }

    /// Adds a block of samples with its frame.
    pub fn samples(&mut self, frame: &[u8], records: u32) -> Result<()> {
        self.records += u64::from(records);
        match &mut self.form {
            Form::Binary { file, .. } => file.write_all(frame).map_err(|e| file.failed(&e)),
            Form::Ascii(_) => Ok(()),
        }
    }

    /// Adds a record to an ASCII file.
    pub fn text(&mut self, stack: &[Step], data: Data<'_>) -> Result<()> {
        self.records += 1;
        match &mut self.form {
            Form::Ascii(writer) => {
                let result = writer.record(stack, data);
                result.map_err(|e| writer.get_ref().failed(&e))
            }
            Form::Binary { .. } => Ok(()),
        }
    }

    /// Adds sums.
    pub fn sums(&mut self, thread: Tid, path: &[Sid], data: Data<'_>) -> Result<()> {
        if matches!(self.form, Form::Ascii(_)) {
            let stack: Vec<_> = path
                .iter()
                .map(|sid| Step {
                    sid: *sid,
                    counter: 0,
                })
                .collect();
            return self.text(&stack, data);
        }
        self.records += 1;
        if let Form::Binary { tid, contents, .. } = &mut self.form
            && (*tid != thread || contents.len() > SUMS)
        {
            self.flush()?;
        }
        if let Form::Binary {
            tid,
            contents,
            count,
            ..
        } = &mut self.form
        {
            *tid = thread;
            *count += 1;
            match data {
                Data::Stats(stats) => sums::put_average(contents, path, stats),
                Data::Histograms(all) => sums::put_histogram(contents, path, all),
                Data::Sample(_) => {}
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if let Form::Binary {
            file,
            kind,
            tid,
            contents,
            count,
        } = &mut self.form
            && *count > 0
        {
            let frame = blocks::sums(*kind, *tid, *count, contents);
            file.write_all(&frame).map_err(|e| file.failed(&e))?;
            contents.clear();
            *count = 0;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        self.flush()?;
        match self.form {
            Form::Ascii(writer) => {
                let failed = |e: std::io::Error| Error::usage("write", e.to_string());
                writer.finish(self.heading).map_err(failed)?.commit()
            }
            Form::Binary { mut file, .. } => {
                let end = file.write_all(&blocks::end(self.records));
                end.map_err(|e| file.failed(&e))?;
                file.commit()
            }
        }
    }
}
