//! The output file as it will be written: parts that lie beside each other and
//! small changes of them.
//!
//! The largest parts are those of the original file, which is mapped; they are
//! never copied as a whole, only piece by piece on their way out.

use std::borrow::Cow;
use std::io::{self, Write};

/// How much is put together at a time.
const WINDOW: usize = 1 << 20;

/// A file to be written.
#[derive(Default)]
pub struct Output<'a> {
    /// Offsets and contents; what lies between them is zero.
    parts: Vec<(u64, Cow<'a, [u8]>)>,
    /// What is written over parts: offset, and range of `bytes`.
    changes: Vec<(u64, u32, u32)>,
    bytes: Vec<u8>,
    len: u64,
}

impl<'a> Output<'a> {
    /// Puts contents at an offset. Parts must not overlap.
    pub(super) fn put(&mut self, offset: u64, contents: impl Into<Cow<'a, [u8]>>) {
        let contents = contents.into();
        if !contents.is_empty() {
            self.grow(offset + contents.len() as u64);
            self.parts.push((offset, contents));
        }
    }

    /// Puts contents at the end, aligned; yields their offset (also of nothing).
    pub(super) fn append(&mut self, align: u64, contents: impl Into<Cow<'a, [u8]>>) -> u64 {
        let offset = self.len.next_multiple_of(align);
        self.put(offset, contents);
        offset
    }

    /// Writes over what lies at an offset; of two changes the later one stays.
    pub(super) fn change(&mut self, offset: u64, bytes: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        self.changes.push((offset, start, self.bytes.len() as u32));
        self.grow(offset + bytes.len() as u64);
    }

    /// Makes the file at least this long.
    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// No more is added: brings everything into the order of offsets.
    pub(super) fn close(&mut self) {
        self.parts.sort_by_key(|p| p.0);
        // A stable sort: the order of changes of one place is kept.
        self.changes.sort_by_key(|c| c.0);
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes it from the first byte to the last.
    pub fn write_to(&self, file: &mut dyn Write) -> io::Result<()> {
        let mut window = Vec::with_capacity(WINDOW);
        let (mut parts, mut changes) = (&self.parts[..], &self.changes[..]);
        let mut start = 0;
        while start < self.len {
            let end = self.len.min(start + WINDOW as u64);
            window.clear();
            window.resize((end - start) as usize, 0);
            // What ends in this window is done with.
            let is_over = |offset: u64, len: usize| offset + len as u64 <= end;
            for (offset, contents) in parts.iter().take_while(|p| p.0 < end) {
                overlay(&mut window, start, *offset, contents);
            }
            let done = parts.iter().take_while(|p| is_over(p.0, p.1.len()));
            parts = &parts[done.count()..];
            for (offset, from, to) in changes.iter().take_while(|c| c.0 < end) {
                let bytes = &self.bytes[*from as usize..*to as usize];
                overlay(&mut window, start, *offset, bytes);
            }
            let done = changes.iter();
            let done = done.take_while(|c| is_over(c.0, (c.2 - c.1) as usize));
            changes = &changes[done.count()..];
            file.write_all(&window)?;
            start = end;
        }
        Ok(())
    }

    /// The whole file.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len as usize);
        self.write_to(&mut all)
            .expect("a vector takes what is written to it");
        all
    }
}

/// Copies what of `bytes`, which belong at `offset`, lies in a window at `start`.
fn overlay(window: &mut [u8], start: u64, offset: u64, bytes: &[u8]) {
    let end = start + window.len() as u64;
    let from = offset.max(start);
    let to = end.min(offset + bytes.len() as u64);
    if from < to {
        window[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&bytes[(from - offset) as usize..(to - offset) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_changes_across_windows() {
        let mut output = Output::default();
        let size = 2 * WINDOW + 100;
        let original: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let mut expected = original.clone();
        output.put(0, &original[..]);
        for (at, len) in [(0, 3), (WINDOW - 2, 5), (2 * WINDOW, 7), (500, WINDOW)] {
            let bytes = vec![at as u8 ^ 0x55; len];
            output.change(at as u64, &bytes);
            expected[at..at + len].copy_from_slice(&bytes);
        }
        output.change(501, &[1, 2]);
        output.change(502, &[3]);
        expected[501..503].copy_from_slice(&[1, 3]);
        let tail = output.append(4096, vec![9; 10]);
        expected.resize(tail as usize, 0);
        expected.extend([9; 10]);
        output.grow(tail + 20);
        expected.resize(tail as usize + 20, 0);
        output.close();
        assert_eq!(output.len(), expected.len() as u64);
        assert!(output.to_vec() == expected);
    }
}
