//! Reading of traces.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};

use miniz_oxide::inflate::decompress_to_vec;

use crate::{ENTRIES, Entry, GROUPS, MAGIC, Member, OBJECTS, Prediction};

/// Bits of an address below the number of its object.
const OBJECT_SHIFT: u32 = 32;
/// Largest length of a chunk in bytes.
const MOST: u64 = 1 << 30;

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

/// A reference to memory.
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
    /// [`READ`](crate::READ), [`WRITE`](crate::WRITE) or both.
    pub access: u8,
}

/// A group: references with constant distances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// True if the references are repeated.
    pub is_repeated: bool,
    /// The references in order.
    pub members: Vec<Member>,
}

/// Reads a trace chunk by chunk.
pub struct Reader<R> {
    from: R,
    objects: Vec<String>,
    groups: HashMap<u32, Group>,
    prediction: Prediction,
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
    decompress_to_vec(bytes).map_err(|_| Error::Damaged("compressed data"))
}

fn group(mut bytes: &[u8]) -> Result<Group, Error> {
    let is_repeated = split(&mut bytes, 1)? == [1];
    let mut members = Vec::new();
    for _ in 0..number(&mut bytes)? {
        let [pc, offset, size] = [
            number(&mut bytes)?,
            number(&mut bytes)?,
            number(&mut bytes)?,
        ];
        let access = split(&mut bytes, 1)?[0];
        members.push(Member {
            pc,
            offset,
            size,
            access,
        });
    }
    match members.is_empty() || is_repeated && members.len() > 2 {
        true => Err(Error::Damaged("a group")),
        false => Ok(Group {
            is_repeated,
            members,
        }),
    }
}

impl<R: Read> Reader<R> {
    /// Begins to read a trace. Each read asks for few bytes, so `from` should have a buffer.
    pub fn new(mut from: R) -> Result<Self, Error> {
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(Error::Magic);
        }
        Ok(Self {
            from,
            objects: Vec::new(),
            groups: HashMap::new(),
            prediction: Prediction::default(),
        })
    }

    /// An address of an instruction as a text: `0x1234` in the program, `libc.so.6+0x1234` in another object.
    pub fn place(&self, pc: u64) -> String {
        let in_file = pc & ((1 << OBJECT_SHIFT) - 1);
        match self.objects.get((pc >> OBJECT_SHIFT) as usize) {
            Some(name) if pc >> OBJECT_SHIFT != 0 => format!("{name}+{in_file:#x}"),
            _ => format!("{pc:#x}"),
        }
    }

    /// The references of the next chunk, all of one thread and in their order; `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<Reference>>, Error> {
        loop {
            let mut kind = [0];
            if self.from.read(&mut kind)? == 0 {
                return Ok(None);
            }
            let payload = self.payload()?;
            match kind[0] {
                OBJECTS => self.read_objects(&payload)?,
                GROUPS => self.read_groups(&inflate(&payload)?)?,
                ENTRIES => return self.read_entries(&payload).map(Some),
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
        match read as u64 == len {
            true => Ok(payload),
            false => Err(Error::Damaged("it ends within a chunk")),
        }
    }

    fn read_objects(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let len = number(&mut bytes)?;
            let name = split(&mut bytes, len)?;
            self.objects
                .push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    }

    fn read_groups(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let [id, len] = [number(&mut bytes)?, number(&mut bytes)?];
            let description = split(&mut bytes, len)?;
            self.groups.insert(id as u32, group(description)?);
        }
        Ok(())
    }

    fn read_entries(&mut self, mut bytes: &[u8]) -> Result<Vec<Reference>, Error> {
        let [thread, count, control] = [
            number(&mut bytes)?,
            number(&mut bytes)?,
            number(&mut bytes)?,
        ];
        let streams = inflate(bytes)?;
        let mut addresses = &streams[..];
        let mut control = split(&mut addresses, control)?;
        let mut found = Vec::new();
        self.prediction.begin();
        let mut run = number(&mut control)?;
        for _ in 0..count {
            let id = if run > 0 {
                run -= 1;
                self.prediction.expected()
            } else {
                let id = number(&mut control)? as u32;
                run = number(&mut control)?;
                id
            };
            let group = self
                .groups
                .get(&id)
                .ok_or(Error::Damaged("the number of a group"))?;
            self.prediction.follow(id);
            let known = self.prediction.of(id);
            known.distance = known.distance.wrapping_add(distance(&mut addresses)?);
            known.address = known.address.wrapping_add(known.distance);
            let mut entry = Entry {
                group: id,
                address: known.address,
                ..Entry::default()
            };
            if group.is_repeated {
                entry.second = entry.address.wrapping_add(distance(&mut addresses)?);
                let times = number(&mut addresses)?;
                (entry.times, entry.down) = (Some(times >> 1), times & 1 != 0);
            }
            expand(thread, group, entry, &mut found);
        }
        Ok(found)
    }
}

/// Appends the references of an entry.
fn expand(thread: u64, group: &Group, entry: Entry, to: &mut Vec<Reference>) {
    let reference = |member: &Member, address: u64| Reference {
        thread,
        pc: member.pc,
        address,
        size: member.size,
        access: member.access,
    };
    let Some(times) = entry.times else {
        let address = |member: &Member| entry.address.wrapping_add(member.offset);
        return to.extend(group.members.iter().map(|m| reference(m, address(m))));
    };
    for i in 0..times {
        for (member, start) in group.members.iter().zip([entry.address, entry.second]) {
            let far = member.size.wrapping_mul(i);
            let address = match entry.down {
                true => start.wrapping_sub(far),
                false => start.wrapping_add(far),
            };
            to.push(reference(member, address));
        }
    }
}
