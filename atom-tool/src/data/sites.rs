//! Sites of the program as one argument: address, procedure, source line.
//!
//! Nearly every report tells where something happened, and only the instrument routine knows
//! names and lines. A [`SiteList`] collects sites and keeps each name once.
//!
//! Layout, as one array of bytes: the number of sites (u64), for each site the eight u32 of
//! [`Row`], then the strings as in a [`StringList`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Array, Param, code};
use crate::calls::proto::{NamedArg, PlacedType};
use crate::calls::typed::{Arg, array};
use crate::data::strings::{self, StringList};
use crate::navigation::address::Address;
use crate::navigation::handle::{Block, Inst, Proc};

const WORDS: usize = 8;
const HEADER: usize = 8;

/// Address (two words), its procedure's address (two words), keys of the names of
/// procedure and file, line, length in bytes.
type Row = [u32; WORDS];

/// Instrument side: a list of sites. Pass `&list` to a parameter [`Sites`].
#[derive(Default, Clone, Debug)]
pub struct SiteList {
    rows: Vec<Row>,
    names: StringList,
    encoded: OnceLock<Vec<u8>>,
}

impl SiteList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of sites.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there are no sites.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends an instruction; returns its number in the list.
    pub fn push(&mut self, inst: Inst<'_>) -> usize {
        self.add(inst.pc(), inst.proc(), inst.line(), inst.size() as u32)
    }

    /// Appends a block, with the source line of its first instruction; returns its number in the list.
    pub fn push_block(&mut self, block: Block<'_>) -> usize {
        let line = block.first_inst().line();
        self.add(block.pc(), block.proc(), line, 0)
    }

    /// Appends a procedure, with the source line of its first instruction; returns its number in the
    /// list.
    pub fn push_proc(&mut self, proc: Proc<'_>) -> usize {
        let line = proc.first_block().and_then(|b| b.first_inst().line());
        self.add(proc.pc(), proc, line, 0)
    }

    fn add(&mut self, pc: u64, proc: Proc<'_>, line: Option<(&str, u32)>, len: u32) -> usize {
        self.encoded.take();
        let (file, line) = line.unwrap_or(("", 0));
        let start = proc.pc();
        self.rows.push([
            pc as u32,
            (pc >> 32) as u32,
            start as u32,
            (start >> 32) as u32,
            self.names.intern(proc.name()),
            self.names.intern(file),
            line,
            len,
        ]);
        self.rows.len() - 1
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.encoded.get_or_init(|| self.encode())
    }

    fn encode(&self) -> Vec<u8> {
        let names = self.names.bytes();
        let mut bytes = Vec::with_capacity(HEADER + self.rows.len() * WORDS * 4 + names.len());
        bytes.extend((self.rows.len() as u64).to_le_bytes());
        for word in self.rows.iter().flatten() {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(names);
        bytes
    }
}

impl Arg<Sites> for &SiteList {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::Array, self.bytes())
    }
}

impl<'a> From<&'a SiteList> for NamedArg<'a> {
    fn from(sites: &'a SiteList) -> Self {
        Self::Encoded(PlacedType::Sites, sites.bytes())
    }
}

/// Analysis side: a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Site {
    /// Its address in the original program.
    pub pc: u64,
    /// The name of its procedure.
    pub proc: &'static str,
    /// The address of its procedure.
    pub proc_pc: u64,
    /// The source file; empty if it is not known.
    pub file: &'static str,
    /// The line; 0 if it is not known.
    pub line: u32,
    /// Its length in bytes if it is an instruction, else 0.
    pub len: u32,
}

/// The names of the procedures of a call path, one after the other: the object is in front where it is another one than the
/// object of the procedure before, and not the program.
#[derive(Default)]
pub struct PathNames {
    /// Number of the object of the procedure before.
    object: usize,
}

impl PathNames {
    /// The name of the next procedure; `None` if it is not known.
    pub fn next(&mut self, site: Option<&Site>) -> Option<String> {
        let object = site.map_or(0, |site| Address(site.proc_pc).object_number());
        let is_same = std::mem::replace(&mut self.object, object) == object;
        let site = site?;
        Some(if is_same {
            site.proc.to_owned()
        } else {
            site.proc_of_process().into_owned()
        })
    }
}

impl Site {
    /// The name of its procedure, with the object in front if that is another one than the program:
    /// `main`, `libz.so.1:deflate`. The options `--only` and `--skip` take it.
    pub fn proc_of_process(&self) -> Cow<'static, str> {
        match Address(self.proc_pc).object() {
            Some(object) => format!("{object}:{}", self.proc).into(),
            None => self.proc.into(),
        }
    }

    /// What a line is in a table by line: two objects may contain code of one source file.
    fn row(&self) -> (usize, &'static str, u32) {
        let object = Address(self.proc_pc).object_number();
        (object, self.file, self.line)
    }

    /// The source file without its folder, and the line: `tree.c:17`. `None` if the line is not known.
    pub fn short_line(&self) -> Option<String> {
        let file = self.file.rsplit('/').next().unwrap_or(self.file);
        (self.line != 0).then(|| format!("{file}:{}", self.line))
    }
}

/// Analysis side: which procedures contain code of each source line. Code of an inlined function is in all procedures
/// that it was inlined into.
#[derive(Debug, Default)]
pub struct LineProcs(BTreeMap<(usize, &'static str, u32), BTreeSet<u64>>);

impl LineProcs {
    /// Adds the procedure of a site to those of its line.
    pub fn add(&mut self, site: &Site) {
        self.0.entry(site.row()).or_default().insert(site.proc_pc);
    }

    /// The procedure of a site's line as [`Site::proc_of_process`] gives it, or `3 procedures`.
    pub fn label(&self, site: &Site) -> Cow<'static, str> {
        match self.0.get(&site.row()).map_or(0, BTreeSet::len) {
            0 | 1 => site.proc_of_process(),
            n => format!("{n} procedures").into(),
        }
    }
}

/// Analysis side: a list of sites.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Sites(Array<u8>);

// SAFETY: transparent over an array, which is one pointer.
unsafe impl Param for Sites {
    const CODE: u8 = code::OTHER;
}

impl Sites {
    /// Number of sites.
    pub fn len(self) -> usize {
        count(self.0.as_slice())
    }

    /// True if there are no sites.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The site with this number.
    pub fn get(self, i: usize) -> Option<Site> {
        get(self.0.as_slice(), i)
    }

    /// The address of the site with this number, which is found without reading the site's names.
    pub fn pc(self, i: usize) -> Option<u64> {
        let row = self.0.as_slice().get(HEADER + i * WORDS * 4..)?;
        let pc = row.first_chunk().filter(|_| i < self.len())?;
        Some(u64::from_le_bytes(*pc))
    }

    /// The sites for which `of` has something, given their numbers. Only these are read, which matters where most
    /// sites were never reached.
    pub fn with<T>(self, of: impl Fn(usize) -> Option<T>) -> impl Iterator<Item = (Site, T)> {
        (0..self.len()).filter_map(move |i| {
            let value = of(i)?;
            Some((self.get(i)?, value))
        })
    }

    /// All sites in the order in which they were added.
    pub fn iter(self) -> impl Iterator<Item = Site> {
        (0..self.len()).map_while(move |i| self.get(i))
    }
}

fn count(bytes: &[u8]) -> usize {
    bytes
        .first_chunk()
        .map_or(0, |n| u64::from_le_bytes(*n) as usize)
}

fn get(bytes: &'static [u8], i: usize) -> Option<Site> {
    let rows = count(bytes);
    if i >= rows {
        return None;
    }
    let row = bytes.get(HEADER + i * WORDS * 4..)?;
    let word = |n: usize| {
        let word = row.get(n * 4..).and_then(|w| w.first_chunk());
        word.map_or(0, |w| u32::from_le_bytes(*w))
    };
    let long = |n: usize| u64::from(word(n)) | u64::from(word(n + 1)) << 32;
    let names = bytes.get(HEADER + rows * WORDS * 4..)?;
    let name = |n: usize| strings::read(names, word(n) as usize).map_or("", |(text, _)| text);
    Some(Site {
        pc: long(0),
        proc: name(4),
        proc_pc: long(2),
        file: name(5),
        line: word(6),
        len: word(7),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;

    #[test]
    fn what_is_pushed_is_found() {
        let mut list = SiteList::new();
        let names = ["main", "größe", "src/a.c"].map(|n| list.names.intern(n));
        list.rows.push([1, 2, 3, 4, names[0], names[2], 17, 5]);
        list.rows.push([6, 0, 6, 0, names[1], names[2], 0, 1]);
        let bytes: &'static [u8] = list.encode().leak();
        assert_eq!(count(bytes), 2);
        let first = get(bytes, 0).unwrap();
        assert_eq!(
            first,
            Site {
                pc: 2 << 32 | 1,
                proc: "main",
                proc_pc: 4 << 32 | 3,
                file: "src/a.c",
                line: 17,
                len: 5
            }
        );
        assert_eq!(first.place(), Cell::place("src/a.c", 17));
        let second = get(bytes, 1).unwrap();
        assert_eq!((second.proc, second.place()), ("größe", Cell::Empty));
        assert_eq!(get(bytes, 2), None);
        assert_eq!(count(&[]), 0);
    }
}
