//! Sums of a session by thread and call path.
use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;
use crate::file::Heading;
use crate::file::record::Data;
use crate::file::writer::FileWriter;
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{Format, Sid, Tid};

/// Sums of one call path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Aggregate {
    Stats(Vec<Stats>),
    Histograms(Vec<Histogram>),
}

impl Aggregate {
    pub fn merge(&mut self, other: Self) {
        match (self, other) {
            (Self::Stats(mine), Self::Stats(other)) => {
                mine.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
            }
            (Self::Histograms(mine), Self::Histograms(other)) => {
                mine.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
            }
            _ => {}
        }
    }
}

/// Sums by thread and call path.
pub(crate) type Collected = BTreeMap<(Tid, Vec<Sid>), Aggregate>;

/// Writes the sums. An ASCII file has no threads, so the sums of all threads are added.
pub(crate) fn write(
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
