//! What the runtime is told of the objects of a process: an `atom_abi::ProcessInfo` and the tables that it names.

use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use atom_abi::{ObjectInfo, ProcessInfo, TextPlace};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::{Image, ObjectKind};
use crate::layout::Placed;

/// Bytes with slots that hold addresses inside them, relative to their start.
#[derive(Default, Debug)]
pub struct Facts {
    /// The bytes. The first are a `ProcessInfo`.
    pub bytes: Vec<u8>,
    /// Offsets of 8-byte slots to which the bytes' address is added.
    pub relocs: Vec<u32>,
}

impl Facts {
    /// Space for the `ProcessInfo`.
    fn new() -> Self {
        Self {
            bytes: vec![0; size_of::<ProcessInfo>()],
            relocs: Vec::new(),
        }
    }

    /// Adds bytes at the next multiple of 8; returns their offset.
    fn add(&mut self, bytes: &[u8]) -> usize {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        at
    }

    /// Writes a number.
    fn put(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// A number that was written.
    pub(super) fn number(&self, at: usize) -> u64 {
        let bytes = self.bytes[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("eight bytes"))
    }

    /// Writes the address of what is at an offset.
    fn put_address(&mut self, at: usize, offset: usize) {
        self.put(at, offset as u64);
        self.relocs.push(at as u32);
    }

    /// Writes a `StrRef` to text, which is added with a null after it.
    fn put_text(&mut self, at: usize, text: &[u8]) {
        let place = self.add(&[text, b"\0"].concat());
        self.put_address(at, place);
        self.put(at + 8, text.len() as u64);
    }
}

/// An object of the process.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    /// Path of the original, as the loader finds it.
    pub path: &'a Path,
    /// Path of the instrumented file.
    pub instrumented: &'a Path,
    /// The original.
    pub image: &'a Image,
}

/// Addresses in an object that the runtime is told when it is placed; 0 for what there is not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Places {
    /// End of the image.
    image_end: u64,
    /// The table of return addresses.
    returns: u64,
    /// The table of instruction boundaries.
    boundaries: u64,
    /// The table of the moved code.
    text: u64,
    /// Start and end of the moved code.
    moved: (u64, u64),
}

impl Places {
    /// Those of an object that is placed.
    pub fn of(placed: &Placed<'_>) -> Self {
        let layout = &placed.layout;
        let text = placed.placement.text.as_ref();
        Self {
            image_end: placed.object.image.end.max(placed.placement.end),
            returns: layout.return_map().unwrap_or(0),
            boundaries: layout.boundaries().unwrap_or(0),
            text: text.map_or(0, |text| text.address),
            moved: text.map_or((0, 0), |text| text.range),
        }
    }
}

impl Facts {
    /// The facts of a process of these objects, whose interpreter has this number. `named` is the path by which
    /// the program is run, `link` a symbolic link to its original.
    pub fn of_process(
        members: &[Member<'_>],
        interpreter: Option<usize>,
        named: &Path,
        link: &Path,
    ) -> Result<Self> {
        let mut facts = Self::new();
        let count = members.len();
        let table = facts.add(&vec![0; size_of::<ObjectInfo>() * count]);
        facts.put_address(offset_of!(ProcessInfo, objects), table);
        facts.put(offset_of!(ProcessInfo, object_count), count as u64);
        // Without an interpreter it is the number of no object.
        let interpreter = interpreter.unwrap_or(count);
        facts.put(offset_of!(ProcessInfo, interpreter), interpreter as u64);
        let entry = members.first().and_then(|program| program.image.entry);
        facts.put(offset_of!(ProcessInfo, entry), entry.unwrap_or(0));
        facts.put_text(offset_of!(ProcessInfo, named), named.as_os_str().as_bytes());
        facts.put_text(offset_of!(ProcessInfo, link), link.as_os_str().as_bytes());
        for tables in [
            offset_of!(ProcessInfo, returns),
            offset_of!(ProcessInfo, boundaries),
        ] {
            let each = facts.add(&vec![0; size_of::<u64>() * count]);
            facts.put_address(tables, each);
        }
        let texts = facts.add(&vec![0; size_of::<TextPlace>() * count]);
        facts.put_address(offset_of!(ProcessInfo, texts), texts);
        for (i, member) in members.iter().enumerate() {
            facts.add_object(table + i * size_of::<ObjectInfo>(), member)?;
        }
        Ok(facts)
    }

    /// Fills the `ObjectInfo` at an offset.
    fn add_object(&mut self, at: usize, member: &Member<'_>) -> Result<()> {
        let stat = std::fs::metadata(member.path)
            .map_err(|e| Error::new("looking at an object", e).file(member.path))?;
        let path = member.path.as_os_str().as_bytes();
        self.put_text(at + offset_of!(ObjectInfo, path), path);
        // The kernel opens the program and the interpreter; nobody else may get the new ones.
        if member.image.kind == ObjectKind::SharedObject {
            let path = member.instrumented.as_os_str().as_bytes();
            self.put_text(at + offset_of!(ObjectInfo, instrumented), path);
        }
        for (field, value) in [
            (offset_of!(ObjectInfo, device), stat.dev()),
            (offset_of!(ObjectInfo, inode), stat.ino()),
            (offset_of!(ObjectInfo, size), stat.size()),
            (offset_of!(ObjectInfo, modified), stat.mtime() as u64),
            (
                offset_of!(ObjectInfo, modified_nanoseconds),
                stat.mtime_nsec() as u64,
            ),
            (offset_of!(ObjectInfo, base), member.image.base),
        ] {
            self.put(at + field, value);
        }
        Ok(())
    }

    /// Adds where the objects' images end and where the tables by which the runtime looks up addresses are, which is
    /// known when all is placed.
    pub fn put_places(&mut self, all: &[Places]) {
        let table = |field: usize| self.number(field) as usize;
        let objects = table(offset_of!(ProcessInfo, objects));
        let returns = table(offset_of!(ProcessInfo, returns));
        let texts = table(offset_of!(ProcessInfo, texts));
        let boundaries = table(offset_of!(ProcessInfo, boundaries));
        for (i, places) in all.iter().enumerate() {
            let object = objects + i * size_of::<ObjectInfo>();
            self.put(object + offset_of!(ObjectInfo, end), places.image_end);
            self.put(returns + i * size_of::<u64>(), places.returns);
            self.put(boundaries + i * size_of::<u64>(), places.boundaries);
            let text = texts + i * size_of::<TextPlace>();
            self.put(text + offset_of!(TextPlace, table), places.text);
            self.put(text + offset_of!(TextPlace, start), places.moved.0);
            self.put(text + offset_of!(TextPlace, end), places.moved.1);
        }
    }
}
