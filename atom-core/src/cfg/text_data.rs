//! Bytes of the text that are data: counter-evidence against code.

use std::collections::BTreeSet;

use super::seeds::Seed;
use super::traverse::{Body, mark};
use super::type_hash::is_type_hash;
use crate::image::Image;

/// Bytes of the text that are data.
#[derive(Clone, Debug, Default)]
pub(super) struct TextData {
    /// Start and end of objects that have symbols, in the order of addresses.
    pub(super) objects: Vec<(u64, u64)>,
    /// Addresses that proven code reads, or to which it adds an index to read.
    pub(super) read: BTreeSet<u64>,
}

impl TextData {
    /// The objects that symbols name, without procedures that are in them, and the bytes that are known to be read.
    pub(super) fn new(image: &Image, seeds: &[Box<Seed>], read: BTreeSet<u64>) -> Self {
        let symbols = image.symbols.iter().chain(&image.dynamic_symbols);
        let mut objects: Vec<(u64, u64)> = symbols
            .filter(|s| (s.is_object && !s.is_undefined) || is_type_hash(image, s))
            .filter(|s| s.size > 0 && image.is_code(s.address))
            .map(|s| {
                let next = seeds.partition_point(|seed| seed.start < s.address);
                let code = seeds.get(next).map_or(u64::MAX, |seed| seed.start);
                (s.address, s.address.saturating_add(s.size).min(code))
            })
            .filter(|(start, end)| start < end)
            .collect();
        objects.sort_unstable();
        Self { objects, read }
    }

    /// True if a byte is known to be data.
    pub(super) fn contains(&self, address: u64) -> bool {
        let after = self.objects.partition_point(|o| o.0 <= address);
        let in_object = after > 0 && address < self.objects[after - 1].1;
        in_object || self.read.contains(&address)
    }

    /// The first byte from an address on that is known to be data.
    pub(super) fn next_from(&self, address: u64) -> u64 {
        if self.contains(address) {
            return address;
        }
        let after = self.objects.partition_point(|o| o.0 <= address);
        let object = self.objects.get(after).map_or(u64::MAX, |o| o.0);
        let read = self.read.range(address..).next();
        read.map_or(object, |read| object.min(*read))
    }

    /// Sets the marks of data in a body.
    pub(super) fn mark(&self, body: &mut Body) {
        let (start, end) = (body.start, body.end);
        let first = self.objects.partition_point(|o| o.1 <= start);
        let objects = self.objects[first..].iter().take_while(|o| o.0 < end);
        for (from, to) in objects {
            let (from, to) = ((*from).max(start), (*to).min(end));
            for m in &mut body.marks[(from - start) as usize..(to - start) as usize] {
                *m |= mark::DATA;
            }
        }
        if self.read.is_empty() || start >= end {
            return;
        }
        for address in self.read.range(start..end) {
            body.add_mark(*address, mark::DATA);
        }
    }

    /// The addresses that are read.
    pub(super) fn into_read(self) -> BTreeSet<u64> {
        self.read
    }
}
