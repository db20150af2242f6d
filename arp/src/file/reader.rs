//! Reads a data file of any format, record by record.
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use crate::error::{Error, FilePosition, Result};
use crate::file::ascii::AsciiReader;
use crate::file::blocks::{self, BlockKind, MAGIC, VERSION};
use crate::file::bytes::Cursor;
use crate::file::record::{Data, Record};
use crate::file::samples::Samples;
use crate::file::sums::Sums;
use crate::file::{Heading, MAX_SETS, TITLE};
use crate::types::{DataType, Format, Mode, Section, ValueSet};

/// Streams through a data file. Memory does not grow with the file.
pub struct Reader {
    path: Option<PathBuf>,
    format: Format,
    heading: Heading,
    source: Source,
    records: u64,
    done: bool,
    /// An error found before the first record was asked for.
    pending: Option<Error>,
    gzip: bool,
}

type Input = Box<dyn BufRead + Send>;

enum Source {
    Ascii(Box<AsciiReader>),
    Binary {
        input: Input,
        offset: u64,
        current: Current,
        /// Number of valid blocks.
        whole: u64,
    },
}

enum Current {
    None,
    Samples(Samples),
    Sums(Sums),
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("path", &self.path)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a file and reads its heading.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::io("open", path, &e))?;
        let mut reader =
            Self::new(BufReader::with_capacity(1 << 16, file)).map_err(|e| e.of_file(path))?;
        reader.path = Some(path.to_path_buf());
        Ok(reader)
    }

    /// Reads a data file from any source.
    pub fn new(input: impl BufRead + Send + 'static) -> Result<Self> {
        let mut input: Input = Box::new(input);
        let mut gzip = false;
        let head = input
            .fill_buf()
            .map_err(|e| Error::reading(FilePosition::Offset(0), &e))?;
        if head.starts_with(&[0x1f, 0x8b]) {
            gzip = true;
            input = Box::new(BufReader::with_capacity(
                1 << 16,
                MultiGzDecoder::new(input),
            ));
        }
        let (format, heading, mut offset) = read_heading(&mut input)?;
        let source = match format {
            Format::Ascii => Source::Ascii(Box::new(AsciiReader::new(input, &heading)?)),
            Format::Binary => {
                let position = FilePosition::Offset(offset);
                let mut magic = Vec::new();
                let most = MAGIC.len() as u64 + 1;
                let read = input.by_ref().take(most).read_to_end(&mut magic);
                read.map_err(|e| Error::reading(position, &e))?;
                if !magic.iter().zip(MAGIC).all(|(a, b)| a == b) {
                    let reason = "it is called binary, but it is none of ours";
                    return Err(Error::syntax(position, reason));
                }
                if magic.len() <= MAGIC.len() {
                    return Err(Error::truncated(position, "the heading is not whole"));
                }
                if magic[MAGIC.len()] != VERSION {
                    let found = magic[MAGIC.len()];
                    let reason = format!(
                        "version {found} of the binary format is not known, only {VERSION}"
                    );
                    return Err(Error::syntax(position, reason));
                }
                offset += magic.len() as u64;
                Source::Binary {
                    input,
                    offset,
                    current: Current::None,
                    whole: 0,
                }
            }
        };
        let mut reader = Self {
            path: None,
            format,
            heading,
            source,
            records: 0,
            done: false,
            pending: None,
            gzip,
        };
        reader.describe();
        Ok(reader)
    }

    /// Reads the blocks before the first record of a binary file. An error there is kept until a record is
    /// asked for.
    fn describe(&mut self) {
        if self.format == Format::Binary {
            self.pending = self.next_block().err();
        }
    }

    /// The recording's mode.
    pub fn mode(&self) -> Mode {
        self.heading.mode
    }

    /// The file's format, without regard to gzip.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether the file is compressed with gzip.
    pub fn is_gzip(&self) -> bool {
        self.gzip
    }

    /// Offset at which the block of the current record starts.
    pub(crate) fn block_offset(&self) -> u64 {
        match &self.source {
            Source::Binary {
                current: Current::Samples(samples),
                ..
            } => samples.block().offset,
            _ => 0,
        }
    }

    pub(crate) fn into_heading(self) -> Heading {
        self.heading
    }

    /// The sets of values.
    pub fn sets(&self) -> &[ValueSet] {
        &self.heading.sets
    }

    /// Descriptions of sections, by number. A file may have descriptions after its records, so the list is
    /// complete only after the last record.
    pub fn sections(&self) -> &[Section] {
        &self.heading.sections
    }

    /// Notes about the recording; complete only after the last record, like [`sections`](Self::sections).
    pub fn info(&self) -> &[(String, String)] {
        &self.heading.info
    }

    /// The next record; `None` after the last one and after an error.
    ///
    /// The error is [`Truncated`](crate::ErrorKind::Truncated) if the file ends too early; the records before it are valid.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        match self.advance() {
            Ok(true) => {
                self.records += 1;
                Ok(Some(self.current()))
            }
            Ok(false) => {
                self.done = true;
                Ok(None)
            }
            Err(error) => {
                self.done = true;
                Err(match &self.path {
                    Some(path) => error.of_file(path),
                    None => error,
                })
            }
        }
    }

    /// Moves to the next record.
    fn advance(&mut self) -> Result<bool> {
        if self.done {
            return Ok(false);
        }
        if let Some(error) = self.pending.take() {
            return Err(error);
        }
        loop {
            match &mut self.source {
                Source::Ascii(reader) => return reader.advance(&mut self.heading),
                Source::Binary { current, .. } => match current {
                    Current::Samples(samples) => {
                        if samples.advance()? {
                            return Ok(true);
                        }
                    }
                    Current::Sums(sums) => {
                        if sums.advance()? {
                            return Ok(true);
                        }
                    }
                    Current::None => {}
                },
            }
            self.next_block()?;
            if self.done {
                return Ok(false);
            }
        }
    }

    /// The record that `advance` moved to.
    fn current(&self) -> Record<'_> {
        match &self.source {
            Source::Ascii(reader) => reader.current(),
            Source::Binary { current, .. } => match current {
                Current::Samples(samples) => {
                    let (stack, values) = samples.current();
                    Record {
                        thread: Some(samples.block().tid),
                        stack,
                        data: Data::Sample(values),
                    }
                }
                Current::Sums(s) => Record {
                    thread: Some(s.block().tid),
                    stack: &s.stack,
                    data: if s.histograms.is_empty() {
                        Data::Stats(&s.stats)
                    } else {
                        Data::Histograms(&s.histograms)
                    },
                },
                Current::None => unreachable!("there is a current record"),
            },
        }
    }

    /// Reads blocks up to the next one with records, or to the end.
    fn next_block(&mut self) -> Result<()> {
        let Source::Binary {
            input,
            offset,
            current,
            whole,
        } = &mut self.source
        else {
            return Ok(());
        };
        loop {
            let Some((block, next)) = blocks::read(input, *offset)? else {
                let reason = format!("it ends after {whole} whole blocks without an end mark");
                return Err(Error::truncated(FilePosition::Offset(*offset), reason));
            };
            *offset = next;
            *whole += 1;
            let mode = self.heading.mode;
            match block.kind {
                k if k == BlockKind::Info as u8 || k == BlockKind::Sections as u8 => {
                    block.describe(&mut self.heading)?;
                }
                k if k == BlockKind::Samples as u8 && mode == Mode::RecordAll => {
                    *current = Current::Samples(Samples::new(block, &self.heading.sets)?);
                    return Ok(());
                }
                k if (k == BlockKind::Stats as u8 && mode == Mode::RecordAverage)
                    || (k == BlockKind::Histograms as u8 && mode == Mode::RecordHistogram) =>
                {
                    *current = Current::Sums(Sums::new(block, &self.heading.sets));
                    return Ok(());
                }
                k if k == BlockKind::End as u8 => {
                    let said = Cursor::new(&block.contents).number();
                    if said != Some(self.records) {
                        let said = said.unwrap_or(0);
                        let reason = format!(
                            "has {said} records by its end mark, but {} were read",
                            self.records
                        );
                        return Err(block.bad(&reason));
                    }
                    self.done = true;
                    return Ok(());
                }
                k if k <= BlockKind::End as u8 => return Err(block.bad("does not fit the mode")),
                _ => {}
            }
        }
    }
}

/// Reads line `number` of the heading; its length is limited.
fn line(input: &mut Input, number: u64) -> Result<String> {
    let mut bytes = Vec::new();
    let most = (MAX_SETS * 4 + 100) as u64;
    let position = FilePosition::Line(number);
    let read = input.by_ref().take(most).read_until(b'\n', &mut bytes);
    read.map_err(|e| Error::reading(position, &e))?;
    if bytes.pop() != Some(b'\n') {
        let reason = "the heading is not whole";
        return Err(if bytes.len() as u64 + 1 < most {
            Error::truncated(position, reason)
        } else {
            Error::syntax(position, reason)
        });
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    String::from_utf8(bytes).map_err(|_| Error::syntax(position, "it is no text"))
}

/// Reads the two lines of the heading. The number is their size in bytes.
fn read_heading(input: &mut Input) -> Result<(Format, Heading, u64)> {
    let start = input
        .fill_buf()
        .map_err(|e| Error::reading(FilePosition::Offset(0), &e))?;
    let seen = start.len().min(TITLE.len());
    if start.is_empty() {
        return Err(Error::truncated(FilePosition::Offset(0), "it is empty"));
    }
    if start[..seen] != TITLE.as_bytes()[..seen] {
        return Err(Error::syntax(
            FilePosition::Offset(0),
            "it is no ARP data file of version 1.1",
        ));
    }
    let title = line(input, 1)?;
    if title != TITLE {
        return Err(Error::syntax(
            FilePosition::Line(1),
            "it is no ARP data file of version 1.1",
        ));
    }
    let text = line(input, 2)?;
    let bad = |reason: &str| Error::syntax(FilePosition::Line(2), reason);
    let numbers: Option<Vec<u64>> = text
        .split_ascii_whitespace()
        .map(|n| n.parse().ok())
        .collect();
    let numbers = numbers.ok_or_else(|| bad("numbers are expected here"))?;
    let [format, mode, sets, types @ ..] = &numbers[..] else {
        return Err(bad(
            "format, mode, number of callbacks and types are expected here",
        ));
    };
    let format = match format {
        0 => Format::Ascii,
        1 => Format::Binary,
        _ => return Err(bad("the file format is not known")),
    };
    let mode = Mode::from_number(*mode).filter(|m| *m != Mode::Playback);
    let mode = mode.ok_or_else(|| bad("the mode is none of those that record"))?;
    if *sets != types.len() as u64 || *sets == 0 || *sets > MAX_SETS as u64 {
        return Err(bad("the number of types is not the number of callbacks"));
    }
    let mut heading = Heading {
        mode,
        sets: Vec::new(),
        info: Vec::new(),
        sections: Vec::new(),
    };
    for ty in types {
        let data_type = DataType::from_number(*ty).ok_or_else(|| bad("a type is not known"))?;
        heading.sets.push(ValueSet {
            data_type,
            name: String::new(),
        });
    }
    let size = (TITLE.len() + text.len() + 2) as u64;
    Ok((format, heading, size))
}
