//! Writing it, block by block. Nothing here touches a file: the tool decides when it may.

use super::{CHECKPOINT, END, EVENTS, HEADER, Header, MAGIC, PROCEDURES, Tail, VERSION, number_of};
use crate::varint::{put, put_bytes};
use crate::{Event, Procedure};

/// Appends a block.
fn block(to: &mut Vec<u8>, letter: u8, contents: &[u8]) {
    to.push(letter);
    put_bytes(to, contents);
}

/// Appends the magic bytes and the header.
pub fn header_block(to: &mut Vec<u8>, header: &Header) {
    let mut bytes = Vec::new();
    put(&mut bytes, VERSION);
    bytes.push(header.clock as u8);
    put(&mut bytes, header.process.into());
    put(&mut bytes, header.parent.into());
    put(&mut bytes, header.start);
    bytes.extend(header.ticks_per_second.to_le_bytes());
    put(&mut bytes, header.unix_nanos);
    put_bytes(&mut bytes, header.program.as_bytes());
    to.extend(MAGIC);
    block(to, HEADER, &bytes);
}

/// Appends names of procedures.
pub fn procedures_block(to: &mut Vec<u8>, procs: &[Procedure]) {
    let mut bytes = Vec::new();
    for proc in procs {
        put(&mut bytes, proc.number.into());
        put(&mut bytes, proc.pc);
        put_bytes(&mut bytes, proc.name.as_bytes());
        put_bytes(&mut bytes, proc.file.as_bytes());
        put(&mut bytes, proc.line.into());
    }
    block(to, PROCEDURES, &bytes);
}

/// Appends the end, or how far the log has come.
pub fn end_block(to: &mut Vec<u8>, tail: &Tail, is_end: bool) {
    let mut bytes = Vec::new();
    put(&mut bytes, tail.end);
    bytes.extend(tail.ticks_per_second.to_le_bytes());
    for number in [tail.events, tail.unmatched, tail.left, tail.lost] {
        put(&mut bytes, number);
    }
    block(to, if is_end { END } else { CHECKPOINT }, &bytes);
}

/// Collects events of one thread, which pair.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    count: u64,
    before: u64,
    last: u64,
}

impl Encoder {
    /// Nothing is collected.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many events are collected.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes an event; its clock is not smaller than that of the one before.
    pub fn push(&mut self, event: Event) {
        if self.count == 0 {
            self.before = event.clock;
            self.last = event.clock;
        }
        // 62 bits of ticks are more than a century of any clock.
        let ticks = event.clock.saturating_sub(self.last).min(u64::MAX >> 2);
        put(&mut self.bytes, ticks << 2 | number_of(event.kind));
        if event.kind.opens() {
            put(&mut self.bytes, event.proc.into());
        }
        self.last = event.clock.max(self.last);
        self.count += 1;
    }

    /// Appends what is collected as a block, if there is anything, and forgets it.
    pub fn take_block(&mut self, thread: u32, tid: u32, to: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        let mut head = Vec::with_capacity(32);
        put(&mut head, thread.into());
        put(&mut head, tid.into());
        put(&mut head, self.count);
        put(&mut head, self.before);
        to.push(EVENTS);
        put(to, (head.len() + self.bytes.len()) as u64);
        to.extend(head);
        to.append(&mut self.bytes);
        self.count = 0;
    }
}
