//! The output file as it will be written: parts that are beside each other and
//! small changes of them.
//!
//! The largest parts are the original file, which is mapped, and the new text, which is encoded
//! while it is written. Neither is ever in memory as a whole.

use std::borrow::Cow;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::mpsc::{channel, sync_channel};

use crate::PAGE;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::rewrite::{NewText, overlay};

/// Size in bytes of the window that is put together at a time.
const WINDOW: usize = 1 << 20;

/// Least length in bytes of a run of zeros that is skipped instead of written.
const HOLE: u64 = 1 << 16;

/// A file, or another place, to which an output is written.
pub trait Sink: Write {
    /// Writes `zeros` zero bytes, or leaves a hole of that size.
    fn skip(&mut self, zeros: u64) -> io::Result<()>;
}

impl Sink for Vec<u8> {
    fn skip(&mut self, zeros: u64) -> io::Result<()> {
        self.resize(self.len() + zeros as usize, 0);
        Ok(())
    }
}

/// A piece of the output.
enum Window {
    Bytes(Vec<u8>),
    Zeros(u64),
}

/// Contents of a part.
enum Part<'a> {
    Bytes(Cow<'a, [u8]>),
    /// A range of the original file, in bytes. It is written to the same offset of the output file.
    Original(&'a Image, Range<usize>),
    Text(NewText<'a>),
}

impl Part<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Original(_, range) => range.len() as u64,
            Self::Text(text) => text.size(),
        }
    }
}

/// The contents of a file to be written.
#[derive(Default)]
pub struct Output<'a> {
    /// Offsets and contents of parts. The bytes between parts are zero.
    parts: Vec<(u64, Part<'a>)>,
    /// Changes that are written over parts: offset, and range of `bytes`.
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
            self.parts.push((offset, Part::Bytes(contents)));
        }
    }

    /// Puts the original file at the start, with zeros in the place of the ranges that the output does not need.
    pub(super) fn put_original(&mut self, image: &'a Image, unneeded: &[Range<u64>]) {
        let mut unneeded = unneeded.to_vec();
        unneeded.sort_by_key(|range| range.start);
        let length = image.file.len() as u64;
        let mut at = 0;
        for range in unneeded.into_iter().chain(std::iter::once(length..length)) {
            if at < range.start {
                let part = Part::Original(image, at as usize..range.start as usize);
                self.parts.push((at, part));
            }
            at = at.max(range.end);
        }
        self.grow(length);
    }

    /// Puts the new text at an offset.
    pub(super) fn put_text(&mut self, offset: u64, text: NewText<'a>) {
        self.grow(offset + text.size());
        self.parts.push((offset, Part::Text(text)));
    }

    /// Puts contents at the end, aligned, and yields their offset. Empty contents have an offset
    /// too.
    pub(super) fn append(&mut self, align: u64, contents: impl Into<Cow<'a, [u8]>>) -> u64 {
        let offset = self.len.next_multiple_of(align);
        self.put(offset, contents);
        offset
    }

    /// Writes over the bytes at an offset. Where two changes overlap, the later one stays.
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

    /// Ends the building: brings parts and changes into the order of offsets.
    pub(super) fn close(&mut self) {
        self.parts.sort_by_key(|p| p.0);
        self.changes.sort_unstable_by_key(|c| c.0);
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True if the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes the contents from the first byte to the last. While one window is written, the next
    /// one is made. A failure other than of writing is an [`Error`](crate::Error) inside of the
    /// `io::Error`.
    pub fn write_to(&self, file: &mut dyn Sink) -> io::Result<()> {
        let (full, made) = sync_channel::<io::Result<Window>>(1);
        let (empty, used) = channel::<Vec<u8>>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut cursor = Windows::new(self);
                loop {
                    let window = used.try_recv().unwrap_or_default();
                    let Some(window) = cursor.next(window).transpose() else {
                        return;
                    };
                    let failed = window.is_err();
                    // Sending fails if writing has failed.
                    if full.send(window).is_err() || failed {
                        return;
                    }
                }
            });
            for window in made {
                match window? {
                    Window::Bytes(window) => {
                        file.write_all(&window)?;
                        // At the end no window is needed any more.
                        let _ = empty.send(window);
                    }
                    Window::Zeros(count) => file.skip(count)?,
                }
            }
            Ok(())
        })
    }

    /// The whole contents.
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(self.len as usize);
        match self.write_to(&mut all) {
            Ok(()) => Ok(all),
            Err(e) => Err(match e.downcast::<Error>() {
                Ok(e) => e,
                Err(e) => Error::new("writing the output", e),
            }),
        }
    }
}

/// Makes an output piece by piece.
struct Windows<'o, 'a> {
    output: &'o Output<'a>,
    /// Parts that are not wholly before `start`.
    parts: &'o [(u64, Part<'a>)],
    changes: &'o [(u64, u32, u32)],
    start: u64,
}

impl<'o, 'a> Windows<'o, 'a> {
    fn new(output: &'o Output<'a>) -> Self {
        Self {
            output,
            parts: &output.parts,
            changes: &output.changes,
            start: 0,
        }
    }

    /// The next piece, in the storage of `window`; `None` after the last one.
    fn next(&mut self, mut window: Vec<u8>) -> io::Result<Option<Window>> {
        let start = self.start;
        if start >= self.output.len {
            return Ok(None);
        }
        let (zeros, end) = self.zeros();
        if zeros != 0 {
            self.start += zeros;
            return Ok(Some(Window::Zeros(zeros)));
        }
        // The storage may still hold another window, of which no byte must stay.
        window.resize((end - start) as usize, 0);
        let mut covered = 0;
        for (offset, contents) in self.parts.iter().take_while(|p| p.0 < end) {
            let [from, to] = [*offset, offset + contents.len()];
            window[covered..(from.max(start) - start) as usize].fill(0);
            covered = (to.min(end) - start) as usize;
            match contents {
                Part::Bytes(bytes) => overlay(&mut window, start, *offset, bytes),
                Part::Original(image, range) => {
                    overlay(&mut window, start, *offset, &image.file[range.clone()]);
                    // The copied pages are not read again.
                    image.release_pages();
                }
                Part::Text(text) => {
                    let from = start.max(*offset);
                    let to = end.min(offset + text.size()).max(from);
                    let place = &mut window[(from - start) as usize..(to - start) as usize];
                    text.fill(from - offset, place).map_err(io::Error::other)?;
                }
            }
        }
        window[covered..].fill(0);
        // Parts and changes that end in this window are done.
        let is_over = |offset: u64, len: u64| offset + len <= end;
        let parts = self.parts.iter();
        let done = parts.take_while(|p| is_over(p.0, p.1.len())).count();
        self.parts = &self.parts[done..];
        // Changes apply in the order in which they were made, which is the order of their bytes.
        let mut here: Vec<_> = self.changes.iter().take_while(|c| c.0 < end).collect();
        here.sort_unstable_by_key(|c| c.1);
        for (offset, from, to) in here {
            let bytes = &self.output.bytes[*from as usize..*to as usize];
            overlay(&mut window, start, *offset, bytes);
        }
        let changes = self.changes.iter();
        let done = changes.take_while(|c| is_over(c.0, u64::from(c.2 - c.1)));
        self.changes = &self.changes[done.count()..];
        self.start = end;
        Ok(Some(Window::Bytes(window)))
    }

    /// Number of zeros to skip at the window's start, 0 if they are few; and the offset at which
    /// the window ends, which is where a long run of zeros begins or where the window is full.
    fn zeros(&self) -> (u64, u64) {
        let limit = self.output.len.min(self.start + WINDOW as u64);
        let parts = self.parts.iter().map(|p| (p.0, p.0 + p.1.len()));
        let changes = self.changes.iter();
        let changes = changes.map(|c| (c.0, c.0 + u64::from(c.2 - c.1)));
        // End of all parts and changes seen so far.
        let mut covered = self.start;
        let (mut parts, mut changes) = (parts.peekable(), changes.peekable());
        loop {
            let by_part = parts.peek().map_or(u64::MAX, |p| p.0);
            let by_change = changes.peek().map_or(u64::MAX, |c| c.0);
            let next = by_part.min(by_change).min(self.output.len);
            let from = covered.next_multiple_of(PAGE);
            let to = next & !(PAGE - 1);
            if to >= from + HOLE {
                return if from == self.start {
                    (to - from, to)
                } else {
                    (0, from.min(limit))
                };
            }
            if next >= limit {
                return (0, limit);
            }
            let piece = if by_part <= by_change {
                parts.next()
            } else {
                changes.next()
            };
            covered = covered.max(piece.map_or(0, |p| p.1));
            if covered >= limit {
                return (0, limit);
            }
        }
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
        // Long gaps, with a change in one of them and one at the end.
        let far = output.append(4096, vec![8; 5000]) + 3_000_000;
        output.change(far + 100_000, &[6; 3]);
        output.put(far + 300_000, vec![7; 70_000]);
        output.grow(far + 500_000);
        expected.resize((far - 3_000_000) as usize, 0);
        expected.extend([8; 5000]);
        expected.resize(far as usize + 500_000, 0);
        expected[far as usize + 100_000..][..3].fill(6);
        expected[far as usize + 300_000..][..70_000].fill(7);
        output.close();
        assert_eq!(output.len(), expected.len() as u64);
        assert!(output.to_vec().unwrap() == expected);
        let mut windows = Windows::new(&output);
        let mut skipped = 0;
        while let Some(window) = windows.next(Vec::new()).unwrap() {
            skipped += match window {
                Window::Zeros(count) => count,
                Window::Bytes(bytes) => {
                    assert!(bytes.len() <= WINDOW);
                    0
                }
            };
        }
        assert!(skipped > 3_200_000, "{skipped}");
    }
}
