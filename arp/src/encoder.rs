//! Encoder of one thread's samples into blocks of the data file.
//!
//! It gets one record for each execution of a measured section, which costs a few instructions. A
//! block can be read without any other block. The format of a block is described with its
//! reader, [`samples`](crate::file::samples).
use crate::tree::{NONE, ROOT, Tree};
use crate::types::{DataType, ValueSet};
use crate::value::Area;

/// Number of records in a thread's first block. Each block may have twice as many as the previous
/// one, so the file of a program that is killed has at least about half of the records.
const FIRST_BLOCK: u32 = 64;
/// Largest number of records in a block.
const MOST_RECORDS: u32 = 1 << 16;
/// Bytes after which a block is full.
const MOST_BYTES: usize = 512 << 10;

/// An open section as the encoder sees it.
pub(crate) trait Open {
    /// Serial number of the execution; a later execution has a greater one.
    fn serial(&self) -> u64;
    /// Index of its node in the tree of call paths.
    fn node(&self) -> u32;
}

pub(crate) struct Encoder {
    types: Box<[DataType]>,
    /// Number of the block that is being filled, from 1.
    block: u32,
    limit: u32,
    records: u32,
    paths: u32,
    shape: Vec<u8>,
    values: Box<[Vec<u8>]>,
    /// Counters of each path's last record in this block.
    last_counters: Vec<i64>,
    /// Values of each path's last record in this block.
    last_values: Vec<u64>,
}

impl Encoder {
    pub fn new(sets: &[ValueSet]) -> Self {
        Self {
            types: sets.iter().map(|s| s.data_type).collect(),
            block: 1,
            limit: FIRST_BLOCK,
            records: 0,
            paths: 0,
            shape: Vec::new(),
            values: sets.iter().map(|_| Vec::new()).collect(),
            last_counters: Vec::new(),
            last_values: Vec::new(),
        }
    }

    /// Records that are not yet in the file.
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Whether the block is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.records >= self.limit || self.shape.len() >= MOST_BYTES
    }

    /// Whether the block will be full soon.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        self.records + 8 >= self.limit || self.shape.len() >= MOST_BYTES / 2
    }

    /// Adds a record of the innermost section of `open`, whose node is `node`. `serial` is the serial number of
    /// the latest execution. `open` starts with the root.
    #[inline]
    pub fn add<F: Open>(
        &mut self,
        tree: &mut Tree,
        open: &[F],
        node: u32,
        serial: u64,
        areas: &[Area],
    ) {
        let encoded = tree.nodes[node as usize].encoded;
        if encoded.block != self.block {
            self.define(tree, node, serial);
        } else {
            tree.nodes[node as usize].encoded.serial = serial;
            leb128::push(&mut self.shape, u64::from(encoded.path));
            // Executions that were already open at the path's last record have the same counters.
            let depth = open.len() - 1;
            let mut changed = 1;
            while changed < depth && open[depth - changed].serial() > encoded.serial {
                changed += 1;
            }
            let last = encoded.counters as usize..encoded.counters as usize + depth;
            let last = &mut self.last_counters[last];
            let first = depth - changed;
            let mut counter = tree.nodes[open[first + 1].node() as usize].counter;
            let before = last[first];
            let mut usual = counter == before.wrapping_add(1);
            last[first] = counter;
            if changed == 1 && usual {
                // The next iteration of an innermost loop.
                self.shape.push(1 << 1);
            } else {
                for at in first + 1..depth {
                    usual &= tree.nodes[open[at + 1].node() as usize].counter == 0;
                }
                if usual {
                    leb128::push(&mut self.shape, (changed as u64) << 1);
                    for counter in &mut last[first + 1..] {
                        *counter = 0;
                    }
                } else {
                    leb128::push(&mut self.shape, (changed as u64) << 1 | 1);
                    leb128::push(
                        &mut self.shape,
                        leb128::zigzag(counter.wrapping_sub(before)),
                    );
                    for at in first + 1..depth {
                        counter = tree.nodes[open[at + 1].node() as usize].counter;
                        leb128::push(
                            &mut self.shape,
                            leb128::zigzag(counter.wrapping_sub(last[at])),
                        );
                        last[at] = counter;
                    }
                }
            }
        }
        let values = tree.nodes[node as usize].encoded.values as usize;
        for (set, (out, area)) in self.values.iter_mut().zip(areas).enumerate() {
            match self.types[set] {
                DataType::Float => out.extend_from_slice(&area.0[..4]),
                DataType::Double => out.extend_from_slice(&area.0[..8]),
                DataType::LongDouble => out.extend_from_slice(&area.0[..10]),
                ty => {
                    let bits = area.bits(ty);
                    let last = &mut self.last_values[values + set];
                    leb128::push(out, leb128::zigzag(bits.wrapping_sub(*last) as i64));
                    *last = bits;
                }
            }
        }
        self.records += 1;
    }

    /// Writes a path's first record in this block: all open sections with their counters.
    #[cold]
    fn define(&mut self, tree: &mut Tree, node: u32, serial: u64) {
        let depth = tree.nodes[node as usize].depth as usize;
        let counters = self.last_counters.len();
        self.last_counters.resize(counters + depth, 0);
        let mut sids = vec![0; depth];
        let mut at = node;
        for slot in (0..depth).rev() {
            debug_assert!(at != ROOT && at != NONE);
            sids[slot] = tree.nodes[at as usize].sid.0;
            self.last_counters[counters + slot] = tree.nodes[at as usize].counter;
            at = tree.nodes[at as usize].parent;
        }
        leb128::push(&mut self.shape, 0u64);
        leb128::push(&mut self.shape, depth as u64);
        for (sid, counter) in sids.into_iter().zip(&self.last_counters[counters..]) {
            leb128::push(&mut self.shape, u64::from(sid));
            leb128::push(&mut self.shape, leb128::zigzag(*counter));
        }
        self.paths += 1;
        let encoded = &mut tree.nodes[node as usize].encoded;
        encoded.block = self.block;
        encoded.path = self.paths;
        encoded.serial = serial;
        encoded.counters = counters as u32;
        encoded.values = self.last_values.len() as u32;
        self.last_values
            .resize(self.last_values.len() + self.types.len(), 0);
    }

    /// Appends the block's payload to `out` and starts a new block. Returns the number of records.
    pub fn take(&mut self, out: &mut Vec<u8>) -> u32 {
        leb128::push(out, u64::from(self.records));
        leb128::push(out, self.shape.len() as u64);
        out.extend_from_slice(&self.shape);
        for values in &mut self.values {
            leb128::push(out, values.len() as u64);
            out.extend_from_slice(values);
        }
        let records = self.records;
        self.limit = (self.limit * 2).min(MOST_RECORDS);
        self.clear();
        records
    }

    /// Drops the records that are not yet in the file.
    pub fn clear(&mut self) {
        self.records = 0;
        self.paths = 0;
        self.shape.clear();
        self.values.iter_mut().for_each(Vec::clear);
        self.last_counters.clear();
        self.last_values.clear();
        self.block = self.block.checked_add(1).unwrap_or(1);
    }
}
