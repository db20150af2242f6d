//! Converts one format to another.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::file::blocks;
use crate::file::order::{Order, SortKey};
use crate::file::reader::Reader;
use crate::file::record::Data;
use crate::file::samples::Samples;
use crate::file::writer::FileWriter;
use crate::profile::Profile;
use crate::types::{Format, Mode, Step, Tid};
use crate::value::Value;

/// Converts the file `from` to `to`, which may be the same file.
pub fn convert(from: &Path, to: &Path, format: Format, gzip: bool) -> Result<()> {
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
