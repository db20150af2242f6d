//! The contents of a block of averages or histograms.
//!
//! A record has the length of the path, the numbers of its sections, and for each set of values
//! - the number of values; then sum, minimum and maximum, as wide signed numbers for integer types, else as `f64`;
//! - in a histogram the number of buckets that are not empty, and for each of them the difference
//!   of its key from the previous key (from 0 for the first) and its count. See [`Histogram`] for the keys.
use crate::error::Result;
use crate::file::blocks::{Block, BlockKind};
use crate::file::bytes::Cursor;
use crate::file::{MAX_OCTAVES, MAX_STACK};
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{DataType, Sid, Step, ValueSet};

fn put_stats(out: &mut Vec<u8>, stats: &Stats) {
    leb128::push(out, stats.count());
    match stats {
        Stats::Integer { sum, min, max, .. } => {
            for n in [sum, min, max] {
                leb128::push(out, leb128::zigzag(*n));
            }
        }
        Stats::Float { sum, min, max, .. } => {
            for x in [sum, min, max] {
                out.extend_from_slice(&x.to_le_bytes());
            }
        }
    }
}

fn get_stats(cursor: &mut Cursor<'_>, ty: DataType) -> Option<Stats> {
    let count = cursor.number()?;
    if ty.is_float() {
        let mut next = || Some(f64::from_le_bytes(cursor.array()?));
        let (sum, min, max) = (next()?, next()?, next()?);
        return Some(Stats::Float {
            count,
            sum,
            min,
            max,
        });
    }
    let (sum, min, max) = (cursor.wide()?, cursor.wide()?, cursor.wide()?);
    Some(Stats::Integer {
        count,
        sum,
        min,
        max,
    })
}

fn put_path(out: &mut Vec<u8>, path: &[Sid]) {
    leb128::push(out, path.len() as u64);
    path.iter()
        .for_each(|sid| leb128::push(out, u64::from(sid.0)));
}

/// Appends a record of averages.
pub(crate) fn put_average(out: &mut Vec<u8>, path: &[Sid], sets: &[Stats]) {
    put_path(out, path);
    sets.iter().for_each(|stats| put_stats(out, stats));
}

/// Appends a record of histograms.
pub(crate) fn put_histogram(out: &mut Vec<u8>, path: &[Sid], sets: &[Histogram]) {
    put_path(out, path);
    for histogram in sets {
        put_stats(out, &histogram.stats);
        leb128::push(out, histogram.buckets().count() as u64);
        let mut last = 0;
        for bucket in histogram.buckets() {
            leb128::push(out, u64::from(bucket.key - last));
            leb128::push(out, bucket.count);
            last = bucket.key;
        }
    }
}

/// Decodes a block.
pub(crate) struct Sums {
    block: Block,
    types: Vec<DataType>,
    at: usize,
    left: u32,
    pub stack: Vec<Step>,
    pub stats: Vec<Stats>,
    pub histograms: Vec<Histogram>,
}

impl Sums {
    pub fn new(block: Block, sets: &[ValueSet]) -> Self {
        Self {
            types: sets.iter().map(|s| s.data_type).collect(),
            at: 0,
            left: block.records,
            block,
            stack: Vec::new(),
            stats: Vec::new(),
            histograms: Vec::new(),
        }
    }

    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Moves to the next record, whose contents are then in the fields. False if there is none.
    pub fn advance(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        if self.record().is_none() {
            self.left = 0;
            return Err(self.block.bad("has a record that makes no sense"));
        }
        Ok(true)
    }

    fn record(&mut self) -> Option<()> {
        let mut cursor = Cursor::new(&self.block.contents[self.at..]);
        self.stack.clear();
        self.stats.clear();
        self.histograms.clear();
        let depth = usize::try_from(cursor.number()?).ok()?;
        if depth == 0 || depth > MAX_STACK || depth > cursor.left() {
            return None;
        }
        for _ in 0..depth {
            let sid = Sid(cursor.number32()?);
            self.stack.push(Step { sid, counter: 0 });
        }
        let mut octaves = 0;
        for ty in &self.types {
            let stats = get_stats(&mut cursor, *ty)?;
            if self.block.kind == BlockKind::Stats as u8 {
                self.stats.push(stats);
                continue;
            }
            let mut histogram = Histogram::new(*ty);
            histogram.stats = stats;
            let mut key = 0u32;
            for _ in 0..cursor.number()? {
                key = key.checked_add(cursor.number32()?)?;
                let count = cursor.number()?;
                if !histogram.add_key(key, count) || octaves + histogram.octaves() > MAX_OCTAVES {
                    return None;
                }
            }
            octaves += histogram.octaves();
            self.histograms.push(histogram);
        }
        self.at += cursor.position();
        Some(())
    }
}
