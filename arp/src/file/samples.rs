//! The contents of a block of samples.
//!
//! A block has the number of records, then one stream for the records' *shape* and one for each set of
//! values, each preceded by its length. Numbers are in LEB128, *signed* ones in zigzag form.
//!
//! A *path* is a list of sections. Paths are numbered from 1 in the order of their first records in the block.
//! The shape of a record is
//! - 0, the length of a new path, and for each of its sections the number and the signed counter; or
//! - the number of a known path, then 2*n*, or 2*n* + 1 if differences follow. The innermost *n* counters differ from
//!   the path's last record. The differences are signed, one for each of these counters. Without differences the
//!   outermost of the *n* counters is greater by 1 than in the last record, and the others are 0.
//!
//! A value of an integer type is stored as the signed difference, modulo 2^64, to the value of the path's last record
//! in the block, or to 0 in the first record. A `float` takes 4 bytes, a `double` 8, a `long double` 10.
use crate::error::Result;
use crate::file::MAX_STACK;
use crate::file::blocks::Block;
use crate::file::bytes::Cursor;
use crate::types::{DataType, Sid, Step, ValueSet};
use crate::value::{Area, Value};

struct Path {
    steps: Vec<Step>,
    last: Vec<u64>,
}

/// Decodes a block.
pub(crate) struct Samples {
    block: Block,
    types: Vec<DataType>,
    shape: Stream,
    streams: Vec<Stream>,
    left: u64,
    paths: Vec<Path>,
    current: usize,
    values: Vec<Value>,
}

/// The unread rest of a stream.
#[derive(Clone, Copy)]
struct Stream {
    at: usize,
    end: usize,
}

impl Stream {
    /// Runs `read` on the unread rest.
    #[inline]
    fn read<T>(
        &mut self,
        bytes: &[u8],
        read: impl FnOnce(&mut Cursor<'_>) -> Option<T>,
    ) -> Option<T> {
        let mut cursor = Cursor::new(&bytes[self.at..self.end]);
        let result = read(&mut cursor);
        self.at += cursor.position();
        result
    }
}

impl Samples {
    pub fn new(block: Block, sets: &[ValueSet]) -> Result<Self> {
        let mut whole = Stream {
            at: 0,
            end: block.contents.len(),
        };
        let Some(left) = whole.read(&block.contents, |cursor| cursor.number()) else {
            return Err(block.bad("has no samples"));
        };
        let mut streams = Vec::new();
        for _ in 0..=sets.len() {
            let len = whole.read(&block.contents, |cursor| cursor.number());
            let len = len.and_then(|len| usize::try_from(len).ok());
            let Some(len) = len.filter(|len| *len <= whole.end - whole.at) else {
                return Err(block.bad("is shorter than it says"));
            };
            streams.push(Stream {
                at: whole.at,
                end: whole.at + len,
            });
            whole.at += len;
        }
        let shape = streams.remove(0);
        Ok(Self {
            types: sets.iter().map(|s| s.data_type).collect(),
            block,
            shape,
            streams,
            left,
            paths: Vec::new(),
            current: 0,
            values: Vec::new(),
        })
    }

    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Moves to the next record. False if there is none.
    pub fn advance(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        match self.record() {
            Some(path) => self.current = path,
            None => {
                self.left = 0;
                return Err(self.block.bad("has a record that makes no sense"));
            }
        }
        Ok(true)
    }

    /// Stack and values of the current record.
    pub fn current(&self) -> (&[Step], &[Value]) {
        (&self.paths[self.current].steps, &self.values)
    }

    fn record(&mut self) -> Option<usize> {
        let bytes = &self.block.contents[..];
        let paths = &mut self.paths;
        let sets = self.types.len();
        let path = self.shape.read(bytes, |cursor| {
            let reference = usize::try_from(cursor.number()?).ok()?;
            if reference == 0 {
                let depth = usize::try_from(cursor.number()?).ok()?;
                // A step takes at least two bytes.
                if depth == 0 || depth > MAX_STACK || depth * 2 > cursor.left() {
                    return None;
                }
                let mut steps = Vec::with_capacity(depth);
                for _ in 0..depth {
                    let sid = Sid(cursor.number32()?);
                    let counter = cursor.signed()?;
                    steps.push(Step { sid, counter });
                }
                paths.push(Path {
                    steps,
                    last: vec![0; sets],
                });
                return Some(paths.len() - 1);
            }
            let steps = &mut paths.get_mut(reference - 1)?.steps;
            let code = cursor.number()?;
            let changed = usize::try_from(code >> 1).ok()?;
            let first = steps.len().checked_sub(changed)?;
            let changed = &mut steps[first..];
            if code & 1 == 1 {
                for step in changed {
                    step.counter = step.counter.wrapping_add(cursor.signed()?);
                }
            } else if let Some((first, deeper)) = changed.split_first_mut() {
                first.counter = first.counter.wrapping_add(1);
                deeper.iter_mut().for_each(|step| step.counter = 0);
            }
            Some(reference - 1)
        })?;
        self.values.clear();
        let last = &mut paths[path].last;
        for ((ty, stream), last) in self.types.iter().zip(&mut self.streams).zip(last) {
            let value = stream.read(bytes, |cursor| {
                let mut area = Area::default();
                match ty {
                    DataType::Float => area.0[..4].copy_from_slice(cursor.take(4)?),
                    DataType::Double => area.0[..8].copy_from_slice(cursor.take(8)?),
                    DataType::LongDouble => area.0[..10].copy_from_slice(cursor.take(10)?),
                    _ => {
                        *last = last.wrapping_add(cursor.signed()? as u64);
                        area.set_word(*last);
                    }
                }
                Some(area.get(*ty))
            });
            self.values.push(value?);
        }
        Some(path)
    }
}
