//! One data file from several.
//!
//! Single values stream from the old files to the new one. Averages and histograms of the same thread and
//! call path are added. Every file is read twice, because descriptions of sections may follow the records.
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::convert::convert;
use crate::error::{Error, ErrorKind, Result};
use crate::file::reader::Reader;
use crate::file::record::Data;
use crate::file::writer::FileWriter;
use crate::file::{Heading, blocks};
use crate::histogram::Histogram;
use crate::profile::Rerecorder;
use crate::record::collected::{self, Aggregate, Collected};
use crate::stats::Stats;
use crate::types::{Format, Mode, Section, Sid, Tid, ValueSet};
use crate::unrecorded;
use crate::value::Area;

/// Options for combining data files.
#[derive(Clone, Debug, Default)]
pub struct Combine {
    /// The format of the new file.
    pub format: Format,
    /// Whether it is compressed with gzip.
    pub gzip: bool,
    /// Its mode; the mode of the first file by default.
    pub mode: Option<Mode>,
    /// Whether the threads of each file after the first get new numbers. If not, threads with the same number are merged.
    pub renumber: bool,
    /// Whether the valid part of a damaged file is used. If not, a damaged file is an error.
    pub partial: bool,
}

/// The input files with their complete headings, later descriptions included.
struct Inputs {
    heading: Heading,
    /// Offset that is added to the thread numbers of each file.
    offsets: Vec<u32>,
    damage: Vec<Error>,
}

/// Writes the records of all `inputs` to the file `to`, which may be one of them. Returns the errors in the
/// inputs, if [`partial`](Combine::partial) allows them.
pub fn combine(inputs: &[PathBuf], to: &Path, options: &Combine) -> Result<Vec<Error>> {
    let to = &target(to)?;
    let Inputs {
        heading,
        offsets,
        damage,
    } = survey(inputs, options)?;
    if heading.mode != Mode::RecordAll {
        let sums = add_up(inputs, &heading, &offsets)?;
        collected::write(to, options.format, options.gzip, &heading, sums)?;
        return Ok(damage);
    }
    match options.format {
        Format::Binary => samples(inputs, to, options.gzip, &heading, &offsets)?,
        Format::Ascii => {
            // Text has another order, which needs two passes over a binary file.
            let mut name = to.file_name().unwrap_or_default().to_os_string();
            name.push(format!(".bin{}", std::process::id()));
            let binary = Temporary(to.with_file_name(name));
            samples(inputs, &binary.0, false, &heading, &offsets)?;
            convert(&binary.0, to, Format::Ascii, options.gzip)?;
        }
    }
    Ok(damage)
}

/// The regular file that is made or replaced: links are followed, devices are refused.
fn target(to: &Path) -> Result<PathBuf> {
    let to = to.canonicalize().unwrap_or_else(|_| to.to_path_buf());
    if std::fs::metadata(&to).is_ok_and(|m| !m.is_file()) {
        return Err(Error::usage("write", "it is no regular file").of_file(&to));
    }
    Ok(to)
}

/// A temporary file, removed when it is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads all inputs once.
fn survey(inputs: &[PathBuf], options: &Combine) -> Result<Inputs> {
    let mut heading: Option<Heading> = None;
    let mut offsets = Vec::new();
    let mut damage = Vec::new();
    let mut free = 0u32;
    let mut left_out = unrecorded::All::new();
    for path in inputs {
        let mut reader = Reader::open(path)?;
        let mut highest: Option<Tid> = None;
        loop {
            match reader.next_record() {
                Ok(Some(record)) => highest = highest.max(record.thread.or(Some(Tid(0)))),
                Ok(None) => break,
                Err(error) if options.partial => {
                    damage.push(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        let offset = if options.renumber { free } else { 0 };
        offsets.push(offset);
        if let Some(Tid(highest)) = highest.filter(|_| options.renumber) {
            let next = highest.checked_add(offset).and_then(|n| n.checked_add(1));
            let too_many = || usage(path, "there are no more thread numbers".into());
            free = free.max(next.ok_or_else(too_many)?);
        }
        let mut new = reader.into_heading();
        unrecorded::take(&mut new.info, &mut left_out);
        match &mut heading {
            None => {
                let mut first = new;
                first.mode = mode(path, first.mode, options.mode.unwrap_or(first.mode))?;
                heading = Some(first);
            }
            Some(heading) => {
                mode(path, new.mode, heading.mode)?;
                add_heading(path, heading, new)?;
            }
        }
    }
    let mut heading = heading.ok_or_else(|| Error::usage("merge", "there is no file"))?;
    heading.info.extend(unrecorded::notes(&left_out));
    Ok(Inputs {
        heading,
        offsets,
        damage,
    })
}

fn usage(path: &Path, reason: String) -> Error {
    Error::usage("merge", reason).of_file(path)
}

/// The mode `wanted`, or an error if records of mode `has` cannot be converted to it.
fn mode(path: &Path, has: Mode, wanted: Mode) -> Result<Mode> {
    let possible = match wanted {
        Mode::RecordAverage => true,
        Mode::RecordHistogram => has != Mode::RecordAverage,
        _ => has == wanted,
    };
    if possible {
        return Ok(wanted);
    }
    Err(Error {
        advice: "choose a mode to which all files can be brought, in the end record_average",
        ..usage(
            path,
            format!("records of mode {has} do not have what {wanted} needs"),
        )
    })
}

/// Merges another file's heading. Its sets must be the same; its sections must not contradict.
fn add_heading(path: &Path, heading: &mut Heading, new: Heading) -> Result<()> {
    let types = |sets: &[ValueSet]| -> Vec<_> { sets.iter().map(|s| s.data_type).collect() };
    let (mine, other) = (types(&heading.sets), types(&new.sets));
    if mine != other {
        let list = |types: &[crate::DataType]| {
            let types: Vec<_> = types.iter().map(ToString::to_string).collect();
            types.join(", ")
        };
        let reason = format!(
            "its values are {}, those of the first file {}",
            list(&other),
            list(&mine)
        );
        return Err(usage(path, reason));
    }
    for (mine, other) in heading.sets.iter_mut().zip(new.sets) {
        match (mine.name.is_empty(), other.name.is_empty()) {
            (true, _) => mine.name = other.name,
            (false, false) if mine.name != other.name => {
                let reason = format!(
                    "its values are called {}, those before {}",
                    other.name, mine.name
                );
                return Err(usage(path, reason));
            }
            _ => {}
        }
    }
    let mut known: HashMap<Sid, Section> = heading
        .sections
        .drain(..)
        .map(|section| (section.sid, section))
        .collect();
    for section in new.sections {
        match known.get(&section.sid) {
            Some(old) if !old.name.is_empty() && section.name.is_empty() => {}
            Some(old) if !old.name.is_empty() && old.name != section.name => {
                return Err(Error {
                    advice: "only recordings of the same program can be merged",
                    ..usage(
                        path,
                        format!(
                            "section {} is {} there and {} before",
                            section.sid, section.name, old.name
                        ),
                    )
                });
            }
            _ => {
                known.insert(section.sid, section);
            }
        }
    }
    heading.sections = known.into_values().collect();
    heading.sections.sort_by_key(|section| section.sid);
    // Only notes that are the same in all files hold for the combination.
    heading.info.retain(|note| new.info.contains(note));
    Ok(())
}

/// Runs `each` on the records of a file up to its damage, which the survey has reported.
fn records(path: &Path, mut each: impl FnMut(&crate::Record<'_>) -> Result<()>) -> Result<()> {
    let mut reader = Reader::open(path)?;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => each(&record)?,
            Ok(None) => return Ok(()),
            Err(error) if error.kind == ErrorKind::Io => return Err(error),
            Err(_) => return Ok(()),
        }
    }
}

fn add_up(inputs: &[PathBuf], heading: &Heading, offsets: &[u32]) -> Result<Collected> {
    let mut sums = Collected::new();
    let empty = || match heading.mode {
        Mode::RecordHistogram => Aggregate::Histograms(
            heading
                .sets
                .iter()
                .map(|s| Histogram::new(s.data_type))
                .collect(),
        ),
        _ => Aggregate::Stats(
            heading
                .sets
                .iter()
                .map(|s| Stats::new(s.data_type))
                .collect(),
        ),
    };
    for (path, offset) in inputs.iter().zip(offsets) {
        let mut key = (Tid(0), Vec::new());
        records(path, |record| {
            key.0 = Tid(record.thread.unwrap_or_default().0 + offset);
            key.1.clear();
            key.1.extend(record.stack.iter().map(|step| step.sid));
            if !sums.contains_key(&key) {
                sums.insert(key.clone(), empty());
            }
            match (sums.get_mut(&key), record.data) {
                (Some(Aggregate::Stats(mine)), Data::Sample(values)) => {
                    mine.iter_mut().zip(values).for_each(|(a, b)| a.add(*b));
                }
                (Some(Aggregate::Stats(mine)), Data::Stats(more)) => {
                    mine.iter_mut().zip(more).for_each(|(a, b)| a.merge(b));
                }
                (Some(Aggregate::Stats(mine)), Data::Histograms(more)) => {
                    let more = more.iter().map(|h| &h.stats);
                    mine.iter_mut().zip(more).for_each(|(a, b)| a.merge(b));
                }
                (Some(Aggregate::Histograms(mine)), Data::Sample(values)) => {
                    mine.iter_mut().zip(values).for_each(|(a, b)| a.add(*b));
                }
                (Some(Aggregate::Histograms(mine)), Data::Histograms(more)) => {
                    mine.iter_mut().zip(more).for_each(|(a, b)| a.merge(b));
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(sums)
}

/// Writes a binary file of single values.
fn samples(
    inputs: &[PathBuf],
    to: &Path,
    gzip: bool,
    heading: &Heading,
    offsets: &[u32],
) -> Result<()> {
    let mut writer = FileWriter::create(to, Format::Binary, gzip, heading, 0)?;
    for (path, offset) in inputs.iter().zip(offsets) {
        let mut threads: BTreeMap<Tid, Rerecorder> = BTreeMap::new();
        let mut areas = vec![Area::default(); heading.sets.len()];
        records(path, |record| {
            let Data::Sample(values) = record.data else {
                return Ok(());
            };
            let tid = Tid(record.thread.unwrap_or_default().0 + offset);
            let recorder = threads
                .entry(tid)
                .or_insert_with(|| Rerecorder::new(&heading.sets));
            for ((area, value), set) in areas.iter_mut().zip(values).zip(&heading.sets) {
                area.set(set.data_type, *value);
            }
            recorder.add(record.stack, &areas);
            if recorder.encoder.is_full() {
                flush(&mut writer, tid, recorder)?;
            }
            Ok(())
        })?;
        for (tid, recorder) in &mut threads {
            flush(&mut writer, *tid, recorder)?;
        }
    }
    writer.finish()
}

fn flush(writer: &mut FileWriter<'_>, tid: Tid, recorder: &mut Rerecorder) -> Result<()> {
    if recorder.encoder.records() == 0 {
        return Ok(());
    }
    let mut payload = Vec::new();
    let records = recorder.encoder.take(&mut payload);
    let frame = blocks::samples(tid, records, &payload);
    writer.samples(&frame, records)
}
