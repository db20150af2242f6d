//! Reading of traces.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use miniz_oxide::inflate::decompress_to_vec_with_limit;

use crate::{
    BATCHES, BEGIN, COMPRESSED, ENTRIES, EXECUTED, GROUP, Item, LENGTHS, MAGIC, MOST_VALUES,
    OBJECTS,
};

/// Bits of an address below the number of its object.
const OBJECT_SHIFT: u32 = 32;
/// Largest length of a chunk in bytes, also of one that was compressed.
const MOST: u64 = 1 << 30;
/// Largest number of repetitions: each has a byte of memory at least, below 128 TiB.
const MOST_REPETITIONS: u64 = 1 << 47;
/// Number of references from which on they are given back: a few instructions may make millions.
const AT_ONCE: usize = 1 << 20;

/// Why a trace cannot be read.
#[derive(Debug)]
pub enum Error {
    /// Reading failed.
    Io(io::Error),
    /// The file is not a trace, or one of another version.
    Magic,
    /// A part of the file is not as it should be; the text says which.
    Damaged(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Magic => f.write_str("it is not a trace of memtrace, or one of another version"),
            Self::Damaged(what) => write!(f, "the trace is damaged: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("it ends within a chunk"),
            _ => Self::Io(error),
        }
    }
}

/// A reference to memory, or an executed instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    /// Number of the thread, from 1 on.
    pub thread: u64,
    /// Address of the instruction; [`Reader::place`] makes a text of it.
    pub pc: u64,
    /// The address at run time.
    pub address: u64,
    /// Size in bytes; 1 if only the processor knows it.
    pub size: u64,
    /// [`READ`](crate::READ), [`WRITE`](crate::WRITE) or both; [`EXECUTED`](crate::EXECUTED) for an executed instruction, whose
    /// address and size are the instruction's own.
    pub access: u8,
}

/// An object of the process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its name in reports.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Its build-id; empty if it has none.
    pub build_id: Vec<u8>,
}

/// What is executed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// True if the references are repeated.
    pub is_repeated: bool,
    /// Number of values.
    pub values: usize,
    /// The items in order.
    pub items: Vec<Item>,
}

/// A batch with its place among others.
struct Described {
    batch: Batch,
    /// The place of its first word among [`Thread::slots`].
    first: usize,
}

/// What a thread's next words are predicted from.
#[derive(Default)]
struct Thread {
    /// The last words: for each batch those of its values, and the word after it. The first one belongs to batch 0.
    slots: Vec<u64>,
    /// The next word's place.
    at: usize,
}

/// A chunk of entries whose words are being taken.
struct Open {
    /// Number of its thread.
    id: u64,
    bytes: Vec<u8>,
    /// The first byte that has not been taken.
    at: usize,
    /// Number of words that have been taken, and of all.
    taken: u64,
    count: u64,
    /// Of the running group: two bits for each word that has not been taken.
    bits: u8,
    /// The running entry.
    entry: Option<Entry>,
    /// Of a repeated instruction: the next one of its repetitions.
    next: u64,
}

/// An entry, or as much of it as has been taken.
#[derive(Clone, Copy)]
struct Entry {
    /// The place of its batch.
    batch: usize,
    values: [u64; MOST_VALUES],
    /// Number of values that have been taken.
    len: usize,
}

/// Reads a trace chunk by chunk.
pub struct Reader<R> {
    from: R,
    open: Option<Open>,
    objects: Vec<Object>,
    numbers: HashMap<u32, usize>,
    batches: Vec<Described>,
    threads: HashMap<u64, Thread>,
}

/// Takes numbers from bytes.
fn number(bytes: &mut &[u8]) -> Result<u64, Error> {
    leb128::take(bytes).map_err(|_| Error::Damaged("a number"))
}

fn distance(bytes: &mut &[u8]) -> Result<u64, Error> {
    let zigzag = number(bytes)?;
    Ok(zigzag >> 1 ^ (zigzag & 1).wrapping_neg())
}

fn split<'a>(bytes: &mut &'a [u8], len: u64) -> Result<&'a [u8], Error> {
    let cut = usize::try_from(len)
        .ok()
        .and_then(|len| bytes.split_at_checked(len));
    let (first, rest) = cut.ok_or(Error::Damaged("a length"))?;
    *bytes = rest;
    Ok(first)
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let inflated = decompress_to_vec_with_limit(bytes, MOST as usize);
    inflated.map_err(|_| Error::Damaged("compressed data"))
}

impl Batch {
    /// The batch with a description as [`describe`](crate::describe) makes it.
    pub fn parse(description: &[u8]) -> Result<Self, Error> {
        batch(description)
    }
}

fn batch(mut bytes: &[u8]) -> Result<Batch, Error> {
    let damaged = || Error::Damaged("a batch");
    let head = split(&mut bytes, 2)?;
    let (is_repeated, values) = (head[0] == 1, usize::from(head[1]));
    let (mut items, mut pc) = (Vec::new(), 0u64);
    for _ in 0..number(&mut bytes)? {
        let access = split(&mut bytes, 1)?[0];
        let size = number(&mut bytes)?;
        pc = pc.wrapping_add(distance(&mut bytes)?);
        let (value, offset) = match access {
            EXECUTED => (0, 0),
            _ => (split(&mut bytes, 1)?[0], distance(&mut bytes)? as i64),
        };
        if access != EXECUTED && usize::from(value) >= values {
            return Err(damaged());
        }
        items.push(Item {
            pc,
            access,
            size,
            value,
            offset,
        });
    }
    let is_right = if is_repeated {
        values == 3 && items.len() <= 2
    } else {
        values <= MOST_VALUES
    };
    if is_right {
        Ok(Batch {
            is_repeated,
            values,
            items,
        })
    } else {
        Err(damaged())
    }
}

/// Bytes from a stream as a signed number.
fn signed(bytes: &mut &[u8], len: usize) -> Result<u64, Error> {
    let taken = split(bytes, len as u64)?;
    let sign = taken.last().is_some_and(|last| last & 0x80 != 0);
    let mut all = [if sign { 0xff } else { 0 }; 8];
    all[..len].copy_from_slice(taken);
    Ok(u64::from_le_bytes(all))
}

impl<R: Read> Reader<R> {
    /// Begins to read a trace. Each read asks for few bytes, so `from` should have a buffer.
    pub fn new(mut from: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        match from.read_exact(&mut magic) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error.into()),
            Ok(()) if magic == *MAGIC => {}
            _ => return Err(Error::Magic),
        }
        Ok(Self {
            from,
            open: None,
            objects: Vec::new(),
            numbers: HashMap::new(),
            batches: Vec::new(),
            threads: HashMap::new(),
        })
    }

    /// An address of an instruction as a text: `0x1234` in the program, `libc.so.6+0x1234` in another object.
    pub fn place(&self, pc: u64) -> String {
        let in_file = pc & ((1 << OBJECT_SHIFT) - 1);
        match self.objects.get((pc >> OBJECT_SHIFT) as usize) {
            Some(object) if pc >> OBJECT_SHIFT != 0 => format!("{}+{in_file:#x}", object.name),
            _ => format!("{pc:#x}"),
        }
    }

    /// The objects of the process by their numbers, as far as they were read: each comes before the first reference of its code.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The next references, all of one thread and in their order: those of a chunk, or of a part of it; `None` at the end.
    ///
    /// # Errors
    /// If reading fails, or the file is damaged.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<Reference>>, Error> {
        loop {
            if let Some(open) = self.open.take() {
                return self.take_entries(open).map(Some);
            }
            let mut kind = [0];
            if self.from.read(&mut kind)? == 0 {
                return Ok(None);
            }
            let payload = self.payload()?;
            match kind[0] {
                OBJECTS => self.read_objects(&payload)?,
                BATCHES => self.read_batches(&inflate(&payload)?)?,
                ENTRIES | COMPRESSED => {
                    self.open = Some(Open::new(payload, kind[0] == COMPRESSED)?);
                }
                // Later versions may have further kinds.
                _ => {}
            }
        }
    }

    fn payload(&mut self) -> Result<Vec<u8>, Error> {
        let (mut len, mut shift) = (0, 0);
        loop {
            let mut byte = [0];
            self.from.read_exact(&mut byte)?;
            len |= u64::from(byte[0] & 0x7f) << shift;
            shift += 7;
            if byte[0] & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return Err(Error::Damaged("a length"));
            }
        }
        if len > MOST {
            return Err(Error::Damaged("a length"));
        }
        let mut payload = Vec::new();
        let read = self.from.by_ref().take(len).read_to_end(&mut payload)?;
        if read as u64 == len {
            Ok(payload)
        } else {
            Err(Error::Damaged("it ends within a chunk"))
        }
    }

    fn read_objects(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let mut next = || {
                let len = number(&mut bytes)?;
                split(&mut bytes, len)
            };
            let [name, path, build_id] = [next()?, next()?, next()?];
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.objects.push(Object {
                name: text(name),
                path: text(path),
                build_id: build_id.to_vec(),
            });
        }
        Ok(())
    }

    fn read_batches(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let mut first = self.slots();
        while !bytes.is_empty() {
            let [id, len] = [number(&mut bytes)?, number(&mut bytes)?];
            let batch = batch(split(&mut bytes, len)?)?;
            let place = self.batches.len();
            if self.numbers.insert(id as u32, place).is_some() {
                return Err(Error::Damaged("a batch is there twice"));
            }
            let values = batch.values;
            self.batches.push(Described { batch, first });
            first += values + 1;
        }
        Ok(())
    }

    /// Number of places for the words of a thread.
    fn slots(&self) -> usize {
        let last = self.batches.last();
        last.map_or(1, |last| last.first + last.batch.values + 1)
    }

    /// The place of the batch of which a word begins an entry.
    fn begun(&self, word: u64) -> Option<usize> {
        let state = word ^ BEGIN;
        let place = *self.numbers.get(&u32::try_from(state >> 3).ok()?)?;
        let values = self.batches[place].batch.values;
        (state <= u64::MAX ^ BEGIN && values as u64 == state & 7).then_some(place)
    }

    /// Takes entries of a chunk until it ends or there are many references. A chunk that has not ended is kept.
    fn take_entries(&mut self, mut open: Open) -> Result<Vec<Reference>, Error> {
        let mut thread = self.threads.remove(&open.id).unwrap_or_default();
        thread.slots.resize(self.slots(), 0);
        let mut found = Vec::new();
        while found.len() < AT_ONCE {
            match open.entry {
                Some(entry) if entry.len == self.batches[entry.batch].batch.values => {
                    let batch = &self.batches[entry.batch].batch;
                    if expand(open.id, batch, entry.values, &mut open.next, &mut found)? {
                        open.entry = None;
                    }
                }
                _ if open.taken == open.count => break,
                entry => {
                    let word = open.word(&mut thread)?;
                    open.entry = self.go_on(entry, word, &mut thread);
                }
            }
        }
        let is_whole = open
            .entry
            .is_some_and(|entry| entry.len == self.batches[entry.batch].batch.values);
        let has_ended = open.taken == open.count && !is_whole;
        if has_ended && open.entry.is_some() {
            thread.at = 0;
        }
        self.threads.insert(open.id, thread);
        self.open = Some(open).filter(|_| !has_ended);
        Ok(found)
    }

    /// The running entry with another word, which may begin one.
    fn go_on(&self, entry: Option<Entry>, word: u64, thread: &mut Thread) -> Option<Entry> {
        if let Some(mut entry) = entry {
            entry.values[entry.len] = word;
            entry.len += 1;
            thread.at += 1;
            return Some(entry);
        }
        let begun = self.begun(word);
        thread.at = begun.map_or(0, |batch| self.batches[batch].first);
        begun.map(|batch| Entry {
            batch,
            values: [0; MOST_VALUES],
            len: 0,
        })
    }
}

impl Open {
    fn new(payload: Vec<u8>, is_compressed: bool) -> Result<Self, Error> {
        let mut bytes = &payload[..];
        let [id, count] = [number(&mut bytes)?, number(&mut bytes)?];
        let (bytes, at) = if is_compressed {
            (inflate(bytes)?, 0)
        } else {
            let at = payload.len() - bytes.len();
            (payload, at)
        };
        Ok(Self {
            id,
            bytes,
            at,
            taken: 0,
            count,
            bits: 0,
            entry: None,
            next: 0,
        })
    }

    /// Takes the next word of a thread.
    fn word(&mut self, thread: &mut Thread) -> Result<u64, Error> {
        let mut bytes = &self.bytes[self.at..];
        if self.taken.is_multiple_of(GROUP as u64) {
            self.bits = split(&mut bytes, 1)?[0];
        }
        let distance = signed(&mut bytes, LENGTHS[usize::from(self.bits & 3)])?;
        self.bits >>= 2;
        self.taken += 1;
        self.at = self.bytes.len() - bytes.len();
        let last = &mut thread.slots[thread.at];
        *last = last.wrapping_add(distance);
        Ok(*last)
    }
}

/// Appends the references of an entry, of a repeated instruction from the repetition `next` on and not too many. True if these
/// were all; `next` is 0 again then.
fn expand(
    thread: u64,
    batch: &Batch,
    values: [u64; MOST_VALUES],
    next: &mut u64,
    to: &mut Vec<Reference>,
) -> Result<bool, Error> {
    let reference = |item: &Item, address: u64| Reference {
        thread,
        pc: item.pc,
        address,
        size: item.size,
        access: item.access,
    };
    if !batch.is_repeated {
        let items = batch.items.iter();
        to.extend(items.map(|item| reference(item, item.address(&values))));
        return Ok(true);
    }
    let (times, down) = (values[2] >> 1, values[2] & 1 != 0);
    if times > MOST_REPETITIONS {
        return Err(Error::Damaged("a number of repetitions"));
    }
    let times = if batch.items.is_empty() { 0 } else { times };
    let end = times.min(*next + AT_ONCE as u64);
    for i in *next..end {
        for item in &batch.items {
            let (start, far) = (item.address(&values), item.size.wrapping_mul(i));
            let address = if down {
                start.wrapping_sub(far)
            } else {
                start.wrapping_add(far)
            };
            to.push(reference(item, address));
        }
    }
    *next = if end == times { 0 } else { end };
    Ok(end == times)
}
