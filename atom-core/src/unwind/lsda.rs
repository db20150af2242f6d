//! Language-specific data areas (LSDAs): the landing pads of calls.
//!
//! An LSDA says for ranges of a procedure's code (*call sites*) where control
//! goes when an exception passes through (the *landing pad*) and what it is
//! compared with (*actions*, which refer to types and to exception
//! specifications). The format is not in any standard; it is what the
//! personality routines of gcc's and LLVM's languages agree on:
//!
//! - base of landing pads (default: the FDE's start), an encoded pointer;
//! - encoding of type entries, and how far ahead their table's *end* is:
//!   entry n is the n-th before that point, exception specifications follow it;
//! - encoding of call sites and the length of their table, then each as start,
//!   length, landing pad (0 = none), action (0 = clean-up only, else offset + 1);
//! - action records: a signed filter and the signed distance from that second
//!   field to the next record. A filter > 0 is a type, < 0 a specification.
//!
//! Where a procedure is in many pieces, LLVM gives each piece an LSDA of its own, one after the
//! other; actions and types follow the last, and the length of each one's call sites reaches to there. So
//! an LSDA's call sites end where the header of the next one starts. A piece without instructions has
//! an LSDA, too, but no FDE. So the next header is found by its bytes: it states the same base of landing
//! pads (these areas state it always), the same type table and the same end of call sites.
//!
//! How long the action table and the type table are is nowhere said: it
//! follows from what is reachable from the call sites.

use std::collections::HashSet;

use super::cursor::{Cursor, OMIT, Read, encoded_size};

/// Largest size of a table. No real table comes near, and a hostile one is refused before it takes
/// memory.
const TABLE_LIMIT: usize = 1 << 20;

/// One row of the call-site table, with absolute addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSite {
    /// First address of the range.
    pub start: u64,
    /// Size of the range in bytes.
    pub size: u64,
    /// Where control goes when an exception passes, if anywhere.
    pub landing_pad: Option<u64>,
    /// 0: clean-up only; else 1 + offset of the first record in the action table.
    pub action: u64,
}

/// An entry of the type table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeEntry {
    /// No type: catches everything.
    Null,
    /// The type's description is at this address.
    Direct(u64),
    /// The address of the type's description is stored at this address.
    Indirect(u64),
}

/// The types and exception specifications that actions refer to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeTable<'a> {
    /// Encoding of the entries in the original table (`DW_EH_PE`).
    pub encoding: u8,
    /// Entries that are used; the type with number n is `entries[n - 1]`.
    pub entries: Vec<TypeEntry>,
    /// Exception specifications: lists of type numbers, each ended by 0.
    pub specifications: &'a [u8],
}

impl TypeTable<'_> {
    /// The type numbers of the specification that a negative filter names.
    pub fn specification(&self, filter: i64) -> Option<Vec<u64>> {
        let start = usize::try_from(filter.checked_neg()?.checked_sub(1)?).ok()?;
        let mut cursor = Cursor::new(self.specifications, start, 0);
        let mut types = Vec::new();
        loop {
            match cursor.uleb().ok()? {
                0 => return Some(types),
                number => types.push(number),
            }
        }
    }
}

/// A parsed language-specific data area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lsda<'a> {
    /// Its address.
    pub vaddr: u64,
    /// Address from which landing pads count.
    pub landing_pad_base: u64,
    /// The call sites, in the order of the table.
    pub call_sites: Vec<CallSite>,
    /// The action records that call sites reach.
    pub actions: &'a [u8],
    /// The types, if the table has any.
    pub types: Option<TypeTable<'a>>,
}

/// What an LSDA states before its call sites.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    /// Address from which landing pads count, if it is stated.
    landing_pad_base: Option<u64>,
    type_encoding: u8,
    /// Offset of the end of the type table in the bytes, if there is one.
    type_base: Option<usize>,
    /// Encoding of call sites.
    encoding: u8,
    /// Offset of the end of the call sites in the bytes, those of other areas included.
    end: usize,
}

impl Header {
    /// The header at an offset of the bytes, whose first is at `vaddr`; and the offset of the first call site.
    fn read(bytes: &[u8], at: usize, vaddr: u64) -> Read<(Header, usize)> {
        let mut c = Cursor::new(bytes, at, vaddr);
        let mut landing_pad_base = None;
        let base_encoding = c.u8()?;
        if base_encoding != OMIT {
            let base = c.encoded(base_encoding)?;
            if base.indirect {
                return Err("the base of landing pads is given indirectly");
            }
            // Readers keep a zero as it is, whatever its encoding is.
            landing_pad_base = Some(if base.null { 0 } else { base.value });
        }
        let type_encoding = c.u8()?;
        let mut type_base = None;
        if type_encoding != OMIT {
            let distance = c.uleb()?;
            let base = usize::try_from(distance)
                .ok()
                .and_then(|d| d.checked_add(c.pos()));
            let base = base.filter(|&b| b <= bytes.len());
            type_base = Some(base.ok_or("the type table lies outside")?);
        }
        let encoding = c.u8()?;
        if encoding & 0xf0 != 0 {
            return Err("call sites are encoded in an unknown way");
        }
        let length = usize::try_from(c.uleb()?).map_err(|_| "a length overflows")?;
        let start = c.pos();
        c.take(length)
            .map_err(|_| "the call-site table lies outside")?;
        let end = c.pos();
        if type_base.is_some_and(|base| base < end) {
            return Err("the type table overlaps the call sites");
        }
        let header = Header {
            landing_pad_base,
            type_encoding,
            type_base,
            encoding,
            end,
        };
        Ok((header, start))
    }
}

/// The part of an LSDA up to the end of the call sites.
pub(super) struct CallSites<'a> {
    table: Cursor<'a>,
    header: Header,
    region: u64,
    /// Offset of the end of its call sites.
    own_end: usize,
}

impl<'a> CallSites<'a> {
    /// Reads the header. `bytes` start with the LSDA and may continue beyond it.
    pub fn new(bytes: &'a [u8], vaddr: u64, region: u64) -> Read<Self> {
        let (header, start) = Header::read(bytes, 0, vaddr)?;
        let is_next = |at: &usize| {
            let is_likely = bytes[*at] == bytes[0];
            is_likely && Header::read(bytes, *at, vaddr).is_ok_and(|(next, _)| next == header)
        };
        let next = match header.landing_pad_base {
            Some(_) => (start..header.end).find(is_next),
            None => None,
        };
        let own_end = next.unwrap_or(header.end);
        let table = Cursor::new(&bytes[..own_end], start, vaddr);
        Ok(Self {
            table,
            header,
            region,
            own_end,
        })
    }

    /// Address from which landing pads count.
    fn landing_pad_base(&self) -> u64 {
        self.header.landing_pad_base.unwrap_or(self.region)
    }

    /// Bytes of the call-site table not yet read.
    pub fn remaining(&self) -> usize {
        self.own_end - self.table.pos()
    }

    /// The next call site, or `None` at the end of the table.
    pub fn next(&mut self) -> Read<Option<CallSite>> {
        // Between areas there may be up to three bytes of padding; a call site has four at least.
        let is_padding = self.own_end < self.header.end && self.remaining() < 4;
        if self.table.at_end() || is_padding {
            return Ok(None);
        }
        let start = self.table.encoded(self.header.encoding)?.value;
        let size = self.table.encoded(self.header.encoding)?.value;
        let pad = self.table.encoded(self.header.encoding)?.value;
        let action = self.table.uleb()?;
        let start = self
            .region
            .checked_add(start)
            .ok_or("a call site lies outside")?;
        start.checked_add(size).ok_or("a call site lies outside")?;
        let landing_pad = (pad != 0).then(|| self.landing_pad_base().wrapping_add(pad));
        Ok(Some(CallSite {
            start,
            size,
            landing_pad,
            action,
        }))
    }
}

impl<'a> Lsda<'a> {
    /// Parses the LSDA at `vaddr` of the FDE that starts at `region`.
    pub(crate) fn parse(bytes: &'a [u8], vaddr: u64, region: u64) -> Read<Self> {
        let mut sites = CallSites::new(bytes, vaddr, region)?;
        let mut call_sites = Vec::with_capacity(sites.remaining() / 4);
        while let Some(site) = sites.next()? {
            call_sites.push(site);
        }
        let limit = sites.header.type_base.unwrap_or(bytes.len());
        let mut reach = Reach::new(&bytes[sites.header.end..limit]);
        for site in &call_sites {
            reach.follow(site.action)?;
        }
        let actions = &bytes[sites.header.end..sites.header.end + reach.actions_end];
        let types = match sites.header.type_base {
            Some(base) => Some(read_types(bytes, vaddr, &sites, base, &mut reach)?),
            None if reach.max_type > 0 || reach.min_filter < 0 => {
                return Err("an action names a type, but there is no type table");
            }
            None => None,
        };
        let landing_pad_base = sites.landing_pad_base();
        Ok(Self {
            vaddr,
            landing_pad_base,
            call_sites,
            actions,
            types,
        })
    }
}

/// The action records and types that the call sites' actions reach.
struct Reach<'a> {
    table: &'a [u8],
    seen: HashSet<usize>,
    filters: Vec<i64>,
    actions_end: usize,
    max_type: u64,
    min_filter: i64,
}

impl<'a> Reach<'a> {
    fn new(table: &'a [u8]) -> Self {
        let seen = HashSet::new();
        Self {
            table,
            seen,
            filters: Vec::new(),
            actions_end: 0,
            max_type: 0,
            min_filter: 0,
        }
    }

    fn follow(&mut self, action: u64) -> Read<()> {
        if action == 0 {
            return Ok(());
        }
        let mut at = usize::try_from(action - 1).map_err(|_| "an action lies outside")?;
        while self.seen.insert(at) {
            if at > TABLE_LIMIT {
                return Err("the action table is too large");
            }
            let mut c = Cursor::new(self.table, at, 0);
            let filter = c.sleb().map_err(|_| "an action lies outside")?;
            let field = c.pos();
            let next = c.sleb().map_err(|_| "an action lies outside")?;
            self.actions_end = self.actions_end.max(c.pos());
            if let Ok(number) = u64::try_from(filter) {
                self.max_type = self.max_type.max(number);
            } else {
                self.min_filter = self.min_filter.min(filter);
                self.filters.push(filter);
            }
            if next == 0 {
                break;
            }
            let target = (field as i64)
                .checked_add(next)
                .and_then(|t| usize::try_from(t).ok());
            at = target.ok_or("an action lies outside")?;
        }
        Ok(())
    }
}

fn read_types<'a>(
    bytes: &'a [u8],
    vaddr: u64,
    sites: &CallSites<'a>,
    base: usize,
    reach: &mut Reach<'a>,
) -> Read<TypeTable<'a>> {
    let after = &bytes[base..];
    let mut specifications_end = 0;
    let mut seen = HashSet::new();
    for filter in std::mem::take(&mut reach.filters) {
        let start = usize::try_from(-(filter + 1)).map_err(|_| "a specification lies outside")?;
        if !seen.insert(start) {
            continue;
        }
        let mut c = Cursor::new(after, start, 0);
        loop {
            if c.pos() > TABLE_LIMIT {
                return Err("an exception specification does not end");
            }
            match c.uleb().map_err(|_| "a specification lies outside")? {
                0 => break,
                number => reach.max_type = reach.max_type.max(number),
            }
        }
        specifications_end = specifications_end.max(c.pos());
    }
    let space = base - sites.header.end;
    let encoding = sites.header.type_encoding;
    let mut entries = Vec::new();
    if reach.max_type > 0 {
        let size = encoded_size(encoding).ok_or("types are encoded in an unknown way")?;
        let count = usize::try_from(reach.max_type).unwrap_or(usize::MAX);
        if count > space / size {
            return Err("an action names a type outside the type table");
        }
        entries.reserve(count);
        for number in 1..=count {
            let mut c = Cursor::new(bytes, base - number * size, vaddr);
            let pointer = c.encoded(encoding)?;
            entries.push(match encoding {
                // A full absolute pointer may be filled in by the dynamic loader
                // (even where the file holds zero): refer to the slot, not to its value.
                0x00 => TypeEntry::Indirect(pointer.at),
                _ if pointer.null => TypeEntry::Null,
                _ if pointer.indirect => TypeEntry::Indirect(pointer.value),
                _ => TypeEntry::Direct(pointer.value),
            });
        }
    }
    Ok(TypeTable {
        encoding,
        entries,
        specifications: &after[..specifications_end],
    })
}
