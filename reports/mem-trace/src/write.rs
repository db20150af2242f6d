//! Writing of traces.

use miniz_oxide::deflate::compress_to_vec;

use crate::{BATCHES, COMPRESSED, ENTRIES, EXECUTED, Item, OBJECTS};

/// Level of compression: the quickest, since the program waits for it.
const LEVEL: u8 = 1;

/// Appends a signed number, given by its bits.
fn push_distance(to: &mut Vec<u8>, distance: u64) {
    let signed = distance as i64;
    leb128::push(to, (signed << 1 ^ signed >> 63) as u64);
}

fn push_chunk(to: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    to.push(kind);
    leb128::push(to, payload.len() as u64);
    to.extend(payload);
}

/// Appends the chunk with the objects in the order of their numbers: name, path, build-id.
pub fn objects(to: &mut Vec<u8>, objects: &[(&str, &str, &[u8])]) {
    let mut payload = Vec::new();
    for (name, path, build_id) in objects {
        for bytes in [name.as_bytes(), path.as_bytes(), build_id] {
            leb128::push(&mut payload, bytes.len() as u64);
            payload.extend(bytes);
        }
    }
    push_chunk(to, OBJECTS, &payload);
}

/// The description of a batch.
pub fn describe(is_repeated: bool, values: u8, items: &[Item]) -> Vec<u8> {
    let mut bytes = vec![u8::from(is_repeated), values];
    leb128::push(&mut bytes, items.len() as u64);
    let mut pc = 0;
    for item in items {
        bytes.push(item.access);
        leb128::push(&mut bytes, item.size);
        push_distance(&mut bytes, item.pc.wrapping_sub(pc));
        pc = item.pc;
        if item.access != EXECUTED {
            bytes.push(item.value);
            push_distance(&mut bytes, item.offset as u64);
        }
    }
    bytes
}

/// Appends a chunk with descriptions of batches, given by their numbers.
pub fn descriptions(to: &mut Vec<u8>, batches: &[(u32, &[u8])]) {
    let mut payload = Vec::new();
    for (number, description) in batches {
        leb128::push(&mut payload, u64::from(*number));
        leb128::push(&mut payload, description.len() as u64);
        payload.extend(*description);
    }
    push_chunk(to, BATCHES, &compress_to_vec(&payload, LEVEL));
}

/// The encoded words of a chunk.
#[derive(Default)]
pub struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// Number of words.
    pub(crate) count: u64,
}

impl Stream {
    /// True if there are no words.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Appends a chunk with the words of a thread, and empties the stream.
pub fn chunk(to: &mut Vec<u8>, thread: u64, stream: &mut Stream, is_compressed: bool) {
    let mut head = Vec::new();
    leb128::push(&mut head, thread);
    leb128::push(&mut head, stream.count);
    if is_compressed {
        head.extend(compress_to_vec(&stream.bytes, LEVEL));
        push_chunk(to, COMPRESSED, &head);
    } else {
        to.push(ENTRIES);
        leb128::push(to, (head.len() + stream.bytes.len()) as u64);
        to.extend(head);
        to.extend_from_slice(&stream.bytes);
    }
    stream.bytes.clear();
    stream.count = 0;
}
