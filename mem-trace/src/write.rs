//! Writing of traces.

use miniz_oxide::deflate::compress_to_vec;

use crate::{ENTRIES, Entry, GROUPS, Member, OBJECTS, Prediction};

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

/// Appends the chunk with the names of the objects, in the order of their numbers.
pub fn objects(to: &mut Vec<u8>, names: &[&str]) {
    let mut payload = Vec::new();
    for name in names {
        leb128::push(&mut payload, name.len() as u64);
        payload.extend(name.as_bytes());
    }
    push_chunk(to, OBJECTS, &payload);
}

/// The description of a group.
pub fn describe(is_repeated: bool, members: &[Member]) -> Vec<u8> {
    let mut bytes = vec![u8::from(is_repeated)];
    leb128::push(&mut bytes, members.len() as u64);
    for member in members {
        leb128::push(&mut bytes, member.pc);
        leb128::push(&mut bytes, member.offset);
        leb128::push(&mut bytes, member.size);
        bytes.push(member.access);
    }
    bytes
}

/// Appends a chunk with descriptions of groups, given by their numbers.
pub fn descriptions(to: &mut Vec<u8>, groups: &[(u32, &[u8])]) {
    let mut payload = Vec::new();
    for (number, description) in groups {
        leb128::push(&mut payload, u64::from(*number));
        leb128::push(&mut payload, description.len() as u64);
        payload.extend(*description);
    }
    push_chunk(to, GROUPS, &compress_to_vec(&payload, LEVEL));
}

/// Makes chunks of entries.
#[derive(Default)]
pub struct Encoder {
    prediction: Prediction,
    control: Vec<u8>,
    addresses: Vec<u8>,
    /// Number of entries since the last one whose group was not expected.
    run: u64,
    count: u64,
}

impl Encoder {
    /// Number of entries of the chunk.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True if the chunk has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an entry.
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        if self.count == 0 {
            self.prediction.begin();
        }
        self.count += 1;
        if self.prediction.expected() == entry.group {
            self.run += 1;
        } else {
            leb128::push(&mut self.control, self.run);
            leb128::push(&mut self.control, u64::from(entry.group));
            self.run = 0;
        }
        self.prediction.follow(entry.group);
        let known = self.prediction.of(entry.group);
        let distance = entry.address.wrapping_sub(known.address);
        push_distance(&mut self.addresses, distance.wrapping_sub(known.distance));
        (known.address, known.distance) = (entry.address, distance);
        if let Some(times) = entry.times {
            push_distance(
                &mut self.addresses,
                entry.second.wrapping_sub(entry.address),
            );
            leb128::push(&mut self.addresses, times << 1 | u64::from(entry.down));
        }
    }
}

/// Appends a chunk with the entries of a thread, and empties the encoder.
pub fn chunk(to: &mut Vec<u8>, thread: u64, encoder: &mut Encoder) {
    leb128::push(&mut encoder.control, encoder.run);
    let mut payload = Vec::new();
    for number in [thread, encoder.count, encoder.control.len() as u64] {
        leb128::push(&mut payload, number);
    }
    encoder.control.append(&mut encoder.addresses);
    payload.extend(compress_to_vec(&encoder.control, LEVEL));
    push_chunk(to, ENTRIES, &payload);
    encoder.control.clear();
    (encoder.run, encoder.count) = (0, 0);
}
