//! `gmon.out`: the file that a program compiled with `-pg` writes.
//!
//! Format: as glibc writes it on x86-64 (numbers have their lowest byte first):
//! "gmon", a version (u32, 1), twelve unused bytes; then records, each preceded by a byte
//! with its kind. 0, a histogram: lowest and highest address (u64 each), number
//! of bins and samples per second (u32 each), the unit's name (15 bytes) and its
//! abbreviation, then the bins (u16). 1, an arc: address in the caller, address of
//! the callee (u64 each), number of calls (u32). 2, counts of basic blocks: their
//! number (u32), for each an address and a count (u64 each).
//! Addresses of a position-independent program do not include the load bias.

use std::path::Path;

use crate::{Error, Location, Result};

/// Numbers of samples by address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    /// The first address.
    pub low: u64,
    /// The address after the last one.
    pub high: u64,
    /// Samples per second.
    pub rate: u32,
    /// Number of samples in each of the equal parts of the range.
    pub bins: Vec<u16>,
}

/// Calls of one procedure from one call site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arc {
    /// An address in the caller; outside of the program for its start.
    pub from: u64,
    /// An address in the callee.
    pub to: u64,
    /// Number of calls.
    pub count: u32,
}

/// Contents of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Gmon {
    /// The histograms, one for each range of addresses.
    pub histograms: Vec<Histogram>,
    /// The calls.
    pub arcs: Vec<Arc>,
}

/// Reads numbers from bytes.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let part = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(part)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
}

/// Reads a file.
///
/// # Errors
/// Says that this is no `gmon.out`, or names the byte where it is damaged.
pub fn read(file: &Path) -> Result<Gmon> {
    let bytes = std::fs::read(file).map_err(|e| Error::new(file, e.to_string()))?;
    parse(&bytes, file)
}

/// Decodes the contents of a file, whose name is for errors.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8], file: &Path) -> Result<Gmon> {
    let mut from = Cursor { bytes, at: 0 };
    if from.take(4) != Some(b"gmon") {
        let error = Error::new(file, "this is no gmon.out");
        return Err(error.advice("a program compiled and linked with -pg writes one when it ends"));
    }
    let version = from.u32();
    if version != Some(1) || from.take(12).is_none() {
        return Err(Error::new(file, "this is a gmon.out of another version"));
    }
    let mut gmon = Gmon::default();
    loop {
        let start = from.at as u64;
        let fail = |reason: &str| Error::new(file, reason).at(Location::Offset(start));
        match from.take(1) {
            None => return Ok(gmon),
            Some([0]) => {
                let histogram = histogram(&mut from);
                let histogram = histogram.ok_or_else(|| fail("the histogram is damaged"))?;
                gmon.histograms.push(histogram);
            }
            Some([1]) => {
                let mut arc = || {
                    Some(Arc {
                        from: from.u64()?,
                        to: from.u64()?,
                        count: from.u32()?,
                    })
                };
                gmon.arcs
                    .push(arc().ok_or_else(|| fail("an arc is cut off"))?);
            }
            Some([2]) => {
                let size = from.u32().and_then(|n| (n as usize).checked_mul(16));
                let blocks = size.and_then(|size| from.take(size));
                blocks.ok_or_else(|| fail("the counts of blocks are cut off"))?;
            }
            Some(_) => return Err(fail("a record has no known kind")),
        }
    }
}

/// Decodes a histogram; `None` if it is cut off or makes no sense.
fn histogram(from: &mut Cursor<'_>) -> Option<Histogram> {
    let (low, high) = (from.u64()?, from.u64()?);
    let (count, rate) = (from.u32()?, from.u32()?);
    from.take(16)?;
    let bins = from.take((count as usize).checked_mul(2)?)?;
    let is_sound = low < high && rate != 0 && count != 0;
    is_sound.then(|| Histogram {
        low,
        high,
        rate,
        bins: bins
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
            .collect(),
    })
}

impl Histogram {
    /// Number of samples in a range of addresses. A bin that is partly in the range counts in proportion.
    pub fn samples(&self, start: u64, end: u64) -> f64 {
        let width = (self.high - self.low) as f64 / self.bins.len() as f64;
        let offset = |address: u64| {
            let address = address.clamp(self.low, self.high);
            (address - self.low) as f64 / width
        };
        let (from, to) = (offset(start), offset(end));
        if from >= to {
            return 0.0;
        }
        let first = from as usize;
        let last = (to.ceil() as usize).min(self.bins.len());
        self.bins[first.min(last)..last]
            .iter()
            .zip(first..)
            .map(|(samples, bin)| {
                let overlap = (to.min(bin as f64 + 1.0) - from.max(bin as f64)).max(0.0);
                f64::from(*samples) * overlap
            })
            .sum()
    }

    /// Number of all samples.
    pub fn total(&self) -> u64 {
        self.bins.iter().map(|b| u64::from(*b)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        let mut bytes = b"gmon\x01\0\0\0".to_vec();
        bytes.extend([0; 12]);
        bytes.push(0);
        bytes.extend(0x1000u64.to_le_bytes());
        bytes.extend(0x1040u64.to_le_bytes());
        bytes.extend(4u32.to_le_bytes());
        bytes.extend(100u32.to_le_bytes());
        bytes.extend(b"seconds\0\0\0\0\0\0\0\0s");
        for bin in [1u16, 20, 0, 8] {
            bytes.extend(bin.to_le_bytes());
        }
        bytes.push(1);
        bytes.extend(0x1008u64.to_le_bytes());
        bytes.extend(0x1010u64.to_le_bytes());
        bytes.extend(7u32.to_le_bytes());
        bytes
    }

    #[test]
    fn records_are_read() {
        let gmon = parse(&example(), Path::new("gmon.out")).unwrap();
        let arc = Arc {
            from: 0x1008,
            to: 0x1010,
            count: 7,
        };
        assert_eq!(gmon.arcs, [arc]);
        let histogram = &gmon.histograms[0];
        assert_eq!((histogram.rate, histogram.total()), (100, 29));
        assert_eq!(histogram.samples(0x1000, 0x1010), 1.0);
        assert_eq!(histogram.samples(0x1018, 0x1034), 10.0 + 2.0);
        assert_eq!(histogram.samples(0, u64::MAX), 29.0);
        assert_eq!(histogram.samples(0x2000, 0x3000), 0.0);
    }

    #[test]
    fn damage_is_told() {
        let whole = example();
        for len in 0..whole.len() {
            // A file may end between two records.
            let ends = [20, 20 + 1 + 40 + 8].contains(&len);
            assert_eq!(parse(&whole[..len], Path::new("g")).is_ok(), ends, "{len}");
        }
        let mut other = whole.clone();
        other[20] = 9;
        assert!(parse(&other, Path::new("g")).is_err());
    }
}
