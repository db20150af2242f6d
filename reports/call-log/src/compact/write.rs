//! Writing the compact format, block by block, to memory. The tool decides when to write to a file.

use super::{CHECKPOINT, END, EVENTS, HEADER, Header, MAGIC, PROCEDURES, Tail, VERSION, number_of};
use crate::bytes::put_bytes;
use crate::{Event, Procedure};

/// Appends a block.
fn block(to: &mut Vec<u8>, letter: u8, contents: &[u8]) {
    to.push(letter);
    put_bytes(to, contents);
}

/// Appends the magic bytes and the header.
pub fn header_block(to: &mut Vec<u8>, header: &Header) {
    let mut bytes = Vec::new();
    leb128::push(&mut bytes, VERSION);
    bytes.push(header.clock as u8);
    leb128::push(&mut bytes, u64::from(header.process));
    leb128::push(&mut bytes, u64::from(header.parent));
    leb128::push(&mut bytes, header.start);
    bytes.extend(header.ticks_per_second.to_le_bytes());
    leb128::push(&mut bytes, header.unix_nanos);
    put_bytes(&mut bytes, header.program.as_bytes());
    to.extend(MAGIC);
    block(to, HEADER, &bytes);
}

/// Appends a block that names procedures.
pub fn procedures_block(to: &mut Vec<u8>, procs: &[Procedure]) {
    let mut bytes = Vec::new();
    for proc in procs {
        leb128::push(&mut bytes, u64::from(proc.number));
        leb128::push(&mut bytes, proc.pc);
        put_bytes(&mut bytes, proc.name.as_bytes());
        put_bytes(&mut bytes, proc.file.as_bytes());
        leb128::push(&mut bytes, u64::from(proc.line));
    }
    block(to, PROCEDURES, &bytes);
}

/// Appends the end block, or without `is_end` a checkpoint.
pub fn end_block(to: &mut Vec<u8>, tail: &Tail, is_end: bool) {
    let mut bytes = Vec::new();
    leb128::push(&mut bytes, tail.end);
    bytes.extend(tail.ticks_per_second.to_le_bytes());
    for number in [tail.events, tail.unmatched, tail.left, tail.lost] {
        leb128::push(&mut bytes, number);
    }
    block(to, if is_end { END } else { CHECKPOINT }, &bytes);
}

/// Collects paired events of one thread for a block.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    count: u64,
    /// Clock before the first event, and at the last one.
    before: u64,
    last: u64,
}

impl Encoder {
    /// Has no events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of collected events.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Takes an event, whose clock is not smaller than the clock of the event before.
    pub fn push(&mut self, event: Event) {
        if self.count == 0 {
            self.before = event.clock;
            self.last = event.clock;
        }
        // 62 bits of ticks are more than a century of any clock.
        let ticks = event.clock.saturating_sub(self.last).min(u64::MAX >> 2);
        leb128::push(&mut self.bytes, ticks << 2 | number_of(event.kind));
        if event.kind.opens() {
            leb128::push(&mut self.bytes, u64::from(event.proc));
        }
        self.last = event.clock.max(self.last);
        self.count += 1;
    }

    /// Appends the collected events as a block, if there are any, and forgets them.
    pub fn take_block(&mut self, thread: u32, tid: u32, to: &mut Vec<u8>) {
        if self.count == 0 {
            return;
        }
        let mut head = Vec::with_capacity(32);
        leb128::push(&mut head, u64::from(thread));
        leb128::push(&mut head, u64::from(tid));
        leb128::push(&mut head, self.count);
        leb128::push(&mut head, self.before);
        to.push(EVENTS);
        leb128::push(to, (head.len() + self.bytes.len()) as u64);
        to.extend(head);
        to.append(&mut self.bytes);
        self.count = 0;
    }
}
