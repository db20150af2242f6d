//! Writes whole files: the sums of a session, and one format converted to another.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::ascii::AsciiWriter;
use crate::file::blocks::{self, BlockKind};
use crate::file::order::{Order, SortKey};
use crate::file::output::OutputFile;
use crate::file::reader::Reader;
use crate::file::record::Data;
use crate::file::samples::Samples;
use crate::file::{Heading, sums};
use crate::profile::Profile;
use crate::record::session::{Aggregate, Collected};
use crate::types::{Format, Mode, Sid, Step, Tid};
use crate::value::Value;

/// Approximate size in bytes of a block of sums.
const SUMS: usize = 256 << 10;

/// Writes sums by thread and path. An ASCII file has no threads, so the sums of all threads are added.
pub(crate) fn aggregates(
    path: &Path,
    format: Format,
    gzip: bool,
    heading: &Heading,
    mut collected: Collected,
) -> Result<()> {
    if format == Format::Ascii {
        let mut merged = Collected::new();
        for ((_, stack), aggregate) in collected {
            match merged.entry((Tid(0), stack)) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(aggregate);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => {
                    slot.get_mut().merge(aggregate);
                }
            }
        }
        collected = merged;
    }
    let records = collected.len() as u64;
    let mut writer = FileWriter::create(path, format, gzip, heading, records)?;
    for ((tid, path), aggregate) in &collected {
        match aggregate {
            Aggregate::Stats(stats) => writer.sums(*tid, path, Data::Stats(stats))?,
            Aggregate::Histograms(all) => writer.sums(*tid, path, Data::Histograms(all))?,
        }
    }
    writer.finish()
}

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

/// Converts the file `from` to `to`, which may be the same file.
pub fn file(from: &Path, to: &Path, format: Format, gzip: bool) -> Result<()> {
    let reader = Reader::open(from)?;
    let streams = reader.format() == Format::Binary
        && reader.mode() == Mode::RecordAll
        && format == Format::Ascii
        && !reader.is_gzip();
    drop(reader);
    if streams {
        return stream(from, to, gzip).map_err(|e| e.of_file(from));
    }
    let mut profile = Profile::load(from)?;
    match profile.take_damage() {
        Some(damage) => Err(damage),
        None => profile.save(to, format, gzip),
    }
}

/// A record that comes earlier in the ASCII order than in the order of recording.
struct Early {
    key: SortKey,
    stack: Vec<Step>,
    values: Vec<Value>,
}

#[derive(Default)]
struct Thread {
    order: Order,
    /// Offsets of its blocks.
    offsets: Vec<u64>,
    early: Vec<Early>,
}

/// Writes samples as text in two passes. The first finds the records that contain others and keeps
/// them in memory; the second writes them at their positions and streams the other records.
fn stream(from: &Path, to: &Path, gzip: bool) -> Result<()> {
    let mut threads: BTreeMap<Tid, Thread> = BTreeMap::new();
    let mut reader = Reader::open(from)?;
    let mut records = 0;
    while let Some(record) = reader.next_record()? {
        records += 1;
        let thread = threads
            .entry(record.thread.unwrap_or_default())
            .or_default();
        let key = thread.order.key(record.stack);
        if !key.own
            && let Data::Sample(values) = record.data
        {
            let (stack, values) = (record.stack.to_vec(), values.to_vec());
            thread.early.push(Early { key, stack, values });
        }
        let offset = reader.block_offset();
        if thread.offsets.last() != Some(&offset) {
            thread.offsets.push(offset);
        }
    }
    let heading = reader.into_heading();
    let mut writer = FileWriter::create(to, Format::Ascii, gzip, &heading, records)?;
    let source = File::open(from).map_err(|e| Error::io("open", from, &e))?;
    let mut source = BufReader::with_capacity(1 << 16, source);
    for thread in threads.values_mut() {
        thread.early.sort_by_key(|early| early.key);
        let mut early = thread.early.iter().peekable();
        let mut order = Order::default();
        let mut index = 0;
        for offset in &thread.offsets {
            source
                .seek(SeekFrom::Start(*offset))
                .map_err(|e| Error::io("read", from, &e))?;
            let Some((block, _)) = blocks::read(&mut source, *offset)? else {
                break;
            };
            let mut samples = Samples::new(block, &heading.sets)?;
            while samples.advance()? {
                while let Some(next) = early.next_if(|e| e.key.index == index) {
                    writer.text(&next.stack, Data::Sample(&next.values))?;
                }
                let (stack, values) = samples.current();
                if order.key(stack).own {
                    writer.text(stack, Data::Sample(values))?;
                }
                index += 1;
            }
        }
    }
    writer.finish()
}
