//! What stays where it is when a library is added to a running process.
//!
//! The instrument routine runs again for all objects, the new library last, and its calls are planned again. Only
//! the code of the library is used. For that code to work beside the code that is there, the running process must
//! lack nothing of what the routine has done now:
//!
//! - the calls on the objects that are there are the same, with the same arguments;
//! - what is written while the program runs is at the same places: the tool's pieces of data, a thread's block, the
//!   counters of edges, the load biases. All of these have space to grow, so pieces only become longer;
//! - what calls may read while the program runs is the same, so that counters of edges may continue standing for the rest.
//!
//! [`Kept`] is what one run leaves for the next one to compare. What differs and may differ is replaced in the running
//! process: the number of rows at the start of a table, the records of strings and arrays that the calls at
//! ProgramAfter get. Any other difference is an error, and the library runs as it is.

use std::hash::{Hash, Hasher};

use atom_abi::{FileIdentity, MOST_OBJECTS, THREAD_HEADER};
use rayon::prelude::*;
use rustc_hash::FxHasher;

use super::private_stack::PRIVATE_SIZE;
use crate::cfg::Numbers;
use crate::error::{Error, Result};
use crate::tool::space::{Piece, Space};
use crate::tool::{Argument, Call, CallPlace, Calls, Scope};

/// Most counters of edges.
const MOST_EDGES: u32 = 2 << 20;
/// Alignment in bytes of what has a place of its own: a page.
const ALIGN: u32 = 4096;

/// Whether libraries may be added.
pub enum Late<'a> {
    /// No: nothing has space.
    Never,
    /// Yes: everything gets space.
    Possible,
    /// One is added now, to a process of which this was kept.
    Added(&'a Kept),
}

/// Offsets in the data of what stays in its place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fixed {
    /// The main block of threads.
    pub block: u32,
    /// Size of a block in bytes.
    pub block_size: u32,
    /// The counters of edges, where they are not in the blocks.
    pub edges: u32,
    /// The load biases, and after [`Fixed::BIASES`] bytes the identities of the files.
    pub biases: u32,
    /// A page for what decides between two versions.
    pub control: u32,
    /// Everything else, which each added library has anew.
    pub rest: u32,
}

impl Fixed {
    /// Bytes for the load biases.
    pub const BIASES: usize = 8 * MOST_OBJECTS;
    /// Bytes for the load biases and the identities.
    const OBJECTS: usize = Self::BIASES + size_of::<FileIdentity>() * MOST_OBJECTS;
}

/// The counters that there are, to which those of a further object are added.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EdgeFacts {
    /// Number of counters.
    pub count: u32,
    /// Number of values of the largest record in the table.
    pub most: u32,
    /// The table. Its records depend on nothing but the counters' order.
    pub table: Vec<u8>,
}

/// What is kept of a piece of the tool's data.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct KeptPiece {
    size: u32,
    space: u32,
    /// The first two words of its initial contents.
    head: [u64; 2],
    /// Hash of its initial contents without the first two words.
    hash: u64,
}

/// What one run leaves for the next.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Kept {
    /// Number of objects.
    pub objects: usize,
    /// What stays in its place. `rest` is where the next library's data goes.
    pub fixed: Fixed,
    /// Offset of the `atom_abi::ThreadInfo` was told to the process or not, and other decisions for all objects.
    decisions: u64,
    /// Hash of the calls on the objects.
    calls: u64,
    /// Hash of the calls on the program, without the records that may be replaced.
    program: u64,
    /// Offsets of these records.
    records: Vec<u32>,
    /// The counters of edges.
    edges: EdgeFacts,
    /// Hash of which pieces of data calls may read while the program runs. Their cells are not counted by edges.
    open: u64,
    placed: Vec<KeptPiece>,
    threads: Vec<KeptPiece>,
}

/// Words to be replaced in the running process.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Replaced {
    /// Offsets in the data and values.
    pub words: Vec<(u32, u64)>,
    /// Offsets in each thread's block and values.
    pub block_words: Vec<(u32, u64)>,
    /// Offsets in the data of 16-byte records, and of the new records whose contents they get.
    pub records: Vec<(u32, u32)>,
}

impl Late<'_> {
    /// The space of pieces of data.
    pub fn spaces(&self) -> [Space; 2] {
        let kept = |pieces: &[KeptPiece]| Space::Kept(pieces.iter().map(|p| p.space).collect());
        match self {
            Self::Never => [Space::None, Space::None],
            Self::Possible => [Space::Ample, Space::Ample],
            Self::Added(kept_here) => [kept(&kept_here.placed), kept(&kept_here.threads)],
        }
    }

    /// Number of objects whose code is there already.
    pub(super) fn objects_before(&self) -> usize {
        match self {
            Self::Added(kept) => kept.objects,
            _ => 0,
        }
    }

    /// The counters of edges that are there already.
    pub(super) fn edges_before(&self) -> Option<&EdgeFacts> {
        match self {
            Self::Added(kept) => Some(&kept.edges),
            _ => None,
        }
    }

    /// Places for what stays.
    pub(super) fn fixed(&self, calls: &Calls) -> Option<Fixed> {
        match self {
            Self::Never => None,
            Self::Added(kept) => Some(kept.fixed),
            Self::Possible => {
                let mut at = calls.placed.len() as u32;
                let mut take = |size: usize| {
                    let own = at.next_multiple_of(ALIGN);
                    at = own + size as u32;
                    own
                };
                let head = THREAD_HEADER.next_multiple_of(64) + 128;
                let edges = 8 * MOST_EDGES as usize;
                let space = edges + PRIVATE_SIZE as usize;
                let block_size = head + calls.thread_data.len as usize + space;
                Some(Fixed {
                    block: take(block_size),
                    block_size: block_size.next_multiple_of(64) as u32,
                    edges: take(edges),
                    biases: take(Fixed::OBJECTS),
                    control: take(ALIGN as usize),
                    rest: take(0),
                })
            }
        }
    }

    /// Numbers of the arguments whose strings and arrays may be replaced, ascending; none if no library can be added.
    pub(super) fn replaceable(&self, calls: &Calls) -> Vec<u32> {
        if matches!(self, Self::Never) {
            return Vec::new();
        }
        let is_one = |c: &&Call| c.scope == Scope::Program && may_be_replaced(calls, c);
        let mut numbers: Vec<u32> = calls
            .calls
            .iter()
            .filter(is_one)
            .flat_map(|c| c.args.clone())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// True if the strings and arrays of a call on the program may be replaced: no routine has them yet, or the tool looks them
/// up anew each time.
fn may_be_replaced(calls: &Calls, call: &Call) -> bool {
    call.place == CallPlace::After || calls.tables_may_grow
}

/// A hash of a value.
fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The bytes that an argument leads to.
fn contents<'a>(calls: &'a Calls, argument: &Argument) -> &'a [u8] {
    match *argument {
        Argument::Str(start, end)
        | Argument::CStr(start, end)
        | Argument::Array(start, end, _)
        | Argument::CArray(start, end, _) => calls
            .data
            .get(start as usize..end as usize)
            .unwrap_or_default(),
        _ => &[],
    }
}

/// A hash of a call on the thing `own` of an object. `at_end`: without the contents of records.
fn hash_of_call(calls: &Calls, call: &Call, own: (usize, u32), at_end: bool) -> u64 {
    let mut hasher = FxHasher::default();
    let head = (own, call.scope as u8, call.place as u8, call.routine.get());
    head.hash(&mut hasher);
    for argument in &calls.args[call.args.start as usize..call.args.end as usize] {
        match argument {
            Argument::Str(..) | Argument::Array(..) if at_end => "record".hash(&mut hasher),
            Argument::Str(..) | Argument::CStr(..) => {
                ("text", contents(calls, argument)).hash(&mut hasher);
            }
            Argument::Array(_, _, size) | Argument::CArray(_, _, size) => {
                (size, contents(calls, argument)).hash(&mut hasher);
            }
            other => other.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// Factor of a hash of a sequence: the sum of the elements' hashes, each times a power of it.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Hash of the calls on the first `objects` objects, in their order, whatever is between them.
fn hash_of_calls(calls: &Calls, numbers: &[Numbers], objects: usize) -> u64 {
    let of_chunk = |some: &[Call]| {
        let own = |call: &Call| {
            let own = call.scope.locate(call.id, numbers)?;
            (own.0 < objects).then(|| hash_of_call(calls, call, own, false))
        };
        let add = |(sum, power): (u64, u64), hash: u64| {
            (
                sum.wrapping_mul(FACTOR).wrapping_add(hash),
                power.wrapping_mul(FACTOR),
            )
        };
        some.iter().filter_map(own).fold((0, 1), add)
    };
    let chunks: Vec<(u64, u64)> = calls.calls.par_chunks(1 << 14).map(of_chunk).collect();
    chunks.iter().fold(0u64, |sum, chunk| {
        sum.wrapping_mul(chunk.1).wrapping_add(chunk.0)
    })
}

/// Hash of the calls on the program. Calls at ProgramBefore have been made when a library is added.
fn hash_of_program(calls: &Calls) -> u64 {
    let of_program = calls.calls.iter().filter(|c| c.scope == Scope::Program);
    let hashes =
        of_program.map(|call| hash_of_call(calls, call, (0, 0), may_be_replaced(calls, call)));
    hash_of(hashes.collect::<Vec<u64>>())
}

/// A word of a piece's initial contents.
fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(bytes.iter().skip(at)) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// Hash of a piece's initial contents up to `size`, without the first two words. Zeros at the end do not count.
fn hash_of_piece(bytes: &[u8], size: u32) -> u64 {
    let bytes = bytes.get(..size as usize).unwrap_or(bytes);
    let end = bytes
        .iter()
        .rposition(|b| *b != 0)
        .map_or(0, |last| last + 1);
    // The second word may be cut off.
    let start = if size < 16 { 8 } else { 16 };
    hash_of(bytes.get(start..end).unwrap_or_default())
}

/// True if a piece is a table whose first word is the number of its rows, before and now: of cells of 8 bytes, whose
/// number in a row follows, or of rows of another size.
fn has_grown_by_rows(before: &KeptPiece, head: [u64; 2], size: u32) -> bool {
    let [rows_before, cells_before] = before.head;
    let [rows, cells] = head;
    let of_cells = |rows: u64, size: u32| {
        let inner = rows.checked_mul(cells).and_then(|n| n.checked_mul(8));
        inner.and_then(|n| n.checked_add(16)) == Some(size.into())
    };
    if cells != 0
        && cells == cells_before
        && of_cells(rows_before, before.size)
        && of_cells(rows, size)
    {
        return true;
    }
    let (inner_before, inner) = (
        u64::from(before.size).checked_sub(8),
        u64::from(size).checked_sub(8),
    );
    let (Some(inner_before), Some(inner)) = (inner_before, inner) else {
        return false;
    };
    let row = match inner.checked_rem(rows) {
        Some(0) => inner / rows,
        _ => return false,
    };
    row != 0 && rows_before.checked_mul(row) == Some(inner_before)
}

/// True for rows of threads: the first word is the place of the piece in a thread's block, the second one the number of rows,
/// which follow it, before and now.
fn has_grown_behind(before: &KeptPiece, place: u32, rows: u64, size: u32) -> bool {
    let [inner_before, inner] = [before.size, size].map(|size| u64::from(size).checked_sub(16));
    let (Some(inner_before), Some(inner)) = (inner_before, inner) else {
        return false;
    };
    let row = match inner.checked_rem(rows) {
        Some(0) => inner / rows,
        _ => return false,
    };
    row != 0
        && before.head[0] == u64::from(place)
        && before.head[1].checked_mul(row) == Some(inner_before)
}

/// What is compared and kept of a run, before the calls are taken apart.
pub(super) struct Summary {
    kept: Kept,
    /// Hashes of the calls on the objects that were there before.
    old_calls: u64,
    /// Initial contents of each piece, shared ones and those of threads, without zeros at the end.
    contents: [Vec<(Piece, Vec<u8>)>; 2],
}

impl Summary {
    /// Takes what is needed from the calls; `None` if no library can be added.
    pub fn take(
        calls: &Calls,
        late: &Late<'_>,
        numbers: &[Numbers],
        decisions: [bool; 5],
    ) -> Option<Self> {
        let old = match late {
            Late::Never => return None,
            Late::Possible => 0,
            Late::Added(kept) => kept.objects,
        };
        let trimmed = |bytes: &[u8]| {
            let end = bytes
                .iter()
                .rposition(|b| *b != 0)
                .map_or(0, |last| last + 1);
            bytes[..end].to_vec()
        };
        let placed = calls.pieces.iter().map(|piece| {
            let (start, size) = (piece.start as usize, piece.size as usize);
            (*piece, trimmed(&calls.placed[start..start + size]))
        });
        let threads = &calls.thread_data;
        let of_threads = threads.pieces.iter().map(|piece| {
            let initial = threads
                .initial
                .iter()
                .find(|(at, _)| *at == piece.start && piece.size != 0);
            let bytes = initial.map_or(&[][..], |(_, range)| {
                &threads.contents[range.start as usize..range.end as usize]
            });
            (*piece, trimmed(bytes))
        });
        let contents = [placed.collect::<Vec<_>>(), of_threads.collect::<Vec<_>>()];
        let keep = |pieces: &[(Piece, Vec<u8>)]| {
            let keep = |(piece, bytes): &(Piece, Vec<u8>)| KeptPiece {
                size: piece.size,
                space: piece.space,
                head: [word(bytes, 0), word(bytes, 8)],
                hash: hash_of_piece(bytes, piece.size),
            };
            pieces.iter().map(keep).collect()
        };
        let initial = calls.thread_data.initial.iter();
        let initial: Vec<(u32, usize)> = initial.map(|(at, range)| (*at, range.len())).collect();
        Some(Self {
            kept: Kept {
                objects: numbers.len(),
                decisions: hash_of((
                    decisions,
                    initial,
                    calls.maps_returns,
                    calls.thread_data.len,
                    calls.placed.len(),
                )),
                calls: hash_of_calls(calls, numbers, numbers.len()),
                program: hash_of_program(calls),
                placed: keep(&contents[0]),
                threads: keep(&contents[1]),
                ..Kept::default()
            },
            old_calls: hash_of_calls(calls, numbers, old),
            contents,
        })
    }

    /// What is kept for the next library, and what this one replaces in the process.
    pub fn finish(
        mut self,
        late: &Late<'_>,
        (fixed, records): (Option<Fixed>, &[u32]),
        edges: EdgeFacts,
        is_open: &[bool],
    ) -> Result<(Kept, Replaced)> {
        self.kept.fixed = fixed.unwrap_or_default();
        self.kept.records = records.to_vec();
        self.kept.open = hash_of(is_open);
        self.kept.edges = edges;
        if self.kept.edges.count > MOST_EDGES || self.kept.objects > MOST_OBJECTS {
            let what = "the counters and the table of objects do";
            return Err(Error::too_large(
                "leaving space for libraries that come later",
                what,
            ));
        }
        let Late::Added(kept) = late else {
            return Ok((self.kept, Replaced::default()));
        };
        let replaced = self.compare(kept, records)?;
        // The process continues with the records that it has.
        self.kept.records = kept.records.clone();
        Ok((self.kept, replaced))
    }

    fn compare(&self, kept: &Kept, records: &[u32]) -> Result<Replaced> {
        let own = &self.kept;
        if own.decisions != kept.decisions {
            return Err(differs("the process would need other per-thread data"));
        }
        if self.old_calls != kept.calls {
            return Err(differs(
                "the tool would add other calls to the objects that are there",
            ));
        }
        if own.program != kept.program || records.len() != kept.records.len() {
            return Err(differs(
                "the tool would pass other values at the program's start or end",
            ));
        }
        if own.open != kept.open {
            return Err(differs(
                "the tool would read other data while the program runs",
            ));
        }
        let mut replaced = Replaced {
            records: kept
                .records
                .iter()
                .copied()
                .zip(records.iter().copied())
                .collect(),
            ..Replaced::default()
        };
        let lists = [
            (&kept.placed, &self.contents[0], &mut replaced.words, 0),
            (
                &kept.threads,
                &self.contents[1],
                &mut replaced.block_words,
                THREAD_HEADER as u32,
            ),
        ];
        for (before, now, words, base) in lists {
            if before.len() != now.len() {
                return Err(differs("the tool places other data"));
            }
            for (before, (piece, bytes)) in before.iter().zip(now) {
                replace_piece(before, piece, bytes, base, words)?;
            }
        }
        Ok(replaced)
    }
}

/// Adds the words of a piece that have to be replaced.
fn replace_piece(
    before: &KeptPiece,
    piece: &Piece,
    bytes: &[u8],
    base: u32,
    words: &mut Vec<(u32, u64)>,
) -> Result<()> {
    let head = [word(bytes, 0), word(bytes, 8)];
    if hash_of_piece(bytes, before.size) != before.hash || piece.size < before.size {
        return Err(differs("data that the tool places begins in another way"));
    }
    let other = [0, 1].map(|i| before.size as usize >= 8 * (i + 1) && head[i] != before.head[i]);
    let is_table = match other {
        [false, false] => true,
        [true, false] => has_grown_by_rows(before, head, piece.size),
        [false, true] => {
            // Only blocks of threads have a header, whose size the base is.
            base != 0 && has_grown_behind(before, base + piece.start, head[1], piece.size)
        }
        [true, true] => false,
    };
    if !is_table {
        return Err(differs(
            "data that the tool places begins with another number",
        ));
    }
    for (at, number) in [(0, head[0]), (8, head[1])] {
        if other[at as usize / 8] {
            words.push((base + piece.start + at, number));
        }
    }
    // What is new at the end.
    for at in (before.size as usize & !7..bytes.len()).step_by(8) {
        let new = word(bytes, at);
        if new != 0 && at >= 8 {
            if at < before.size as usize {
                return Err(differs(
                    "data that the tool places ends in the middle of a word",
                ));
            }
            words.push((base + piece.start + at as u32, new));
        }
    }
    Ok(())
}

fn differs(reason: &str) -> Error {
    Error::new("adding a library to the running process", reason)
}

impl Kept {
    /// As numbers, to be written to a file.
    pub fn to_words(&self) -> Vec<u64> {
        let f = &self.fixed;
        let mut words = vec![self.objects as u64];
        let fixed = [f.block, f.block_size, f.edges, f.biases, f.control, f.rest];
        words.extend(fixed.map(u64::from));
        words.extend([self.decisions, self.calls, self.program]);
        words.extend([self.open, self.edges.count.into(), self.edges.most.into()]);
        words.push(self.edges.table.len() as u64);
        words.extend(self.edges.table.chunks(8).map(|chunk| word(chunk, 0)));
        words.push(self.records.len() as u64);
        words.extend(self.records.iter().map(|r| u64::from(*r)));
        for pieces in [&self.placed, &self.threads] {
            words.push(pieces.len() as u64);
            for p in pieces {
                words.extend([
                    u64::from(p.size),
                    p.space.into(),
                    p.head[0],
                    p.head[1],
                    p.hash,
                ]);
            }
        }
        words
    }

    /// From these numbers; `None` if they are others.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let mut words = words.iter().copied();
        let mut next = || words.next();
        let objects = next()? as usize;
        let mut small = || u32::try_from(next()?).ok();
        let fixed = Fixed {
            block: small()?,
            block_size: small()?,
            edges: small()?,
            biases: small()?,
            control: small()?,
            rest: small()?,
        };
        let mut kept = Self {
            objects,
            fixed,
            decisions: next()?,
            calls: next()?,
            program: next()?,
            open: next()?,
            ..Self::default()
        };
        kept.edges.count = next()? as u32;
        kept.edges.most = next()? as u32;
        let size = next()? as usize;
        for _ in 0..size.div_ceil(8) {
            kept.edges.table.extend(next()?.to_le_bytes());
        }
        kept.edges.table.truncate(size);
        for _ in 0..next()? {
            kept.records.push(next()? as u32);
        }
        for pieces in [&mut kept.placed, &mut kept.threads] {
            for _ in 0..next()? {
                pieces.push(KeptPiece {
                    size: next()? as u32,
                    space: next()? as u32,
                    head: [next()?, next()?],
                    hash: next()?,
                });
            }
        }
        Some(kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept_of(bytes: &[u8]) -> KeptPiece {
        let size = bytes.len() as u32;
        KeptPiece {
            size,
            space: size + 1000,
            head: [word(bytes, 0), word(bytes, 8)],
            hash: hash_of_piece(bytes, size),
        }
    }

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    /// The words that are replaced where one piece becomes the other at offset 32; `None` if it cannot.
    fn replaced(before: &[u64], now: &[u64]) -> Option<Vec<(u32, u64)>> {
        let now = bytes(now);
        let piece = Piece {
            start: 32,
            size: now.len() as u32,
            space: 2000,
        };
        let mut words = Vec::new();
        let kept = kept_of(&bytes(before));
        replace_piece(&kept, &piece, &now, 0, &mut words).ok()?;
        Some(words)
    }

    #[test]
    fn tables_grow_by_rows() {
        // Two and three rows of one counter.
        assert_eq!(
            replaced(&[2, 1, 0, 0], &[3, 1, 0, 0, 0]),
            Some(vec![(32, 3)])
        );
        // One and two rows of three words, which are not zeros at first.
        let now = [2, 7, 8, 9, 17, 0, 19];
        assert_eq!(
            replaced(&[1, 7, 8, 9], &now),
            Some(vec![(32, 2), (64, 17), (80, 19)])
        );
        // None at first.
        assert_eq!(replaced(&[0], &[1, 5]), Some(vec![(32, 1), (40, 5)]));
        // What does not grow.
        assert_eq!(replaced(&[5, 6, 7], &[5, 6, 7]), Some(Vec::new()));
    }

    #[test]
    fn rows_of_threads_grow_behind_their_place() {
        let replaced = |before: &[u64], now: &[u64], base: u32| {
            let (kept, now) = (kept_of(&bytes(before)), bytes(now));
            let piece = Piece {
                start: 32,
                size: now.len() as u32,
                space: 2000,
            };
            let mut words = Vec::new();
            let done = replace_piece(&kept, &piece, &now, base, &mut words);
            done.ok().map(|()| words)
        };
        let now = [96, 3, 0, 0, 0];
        assert_eq!(replaced(&[96, 1, 0], &now, 64), Some(vec![(104, 3)]));
        // Another place, another size of a row, data that all threads share.
        assert_eq!(replaced(&[97, 1, 0], &[97, 3, 0, 0, 0], 64), None);
        assert_eq!(replaced(&[96, 1, 0], &[96, 3, 0, 0, 0, 0], 64), None);
        assert_eq!(replaced(&[32, 1, 0], &[32, 3, 0, 0, 0], 0), None);
    }

    #[test]
    fn other_changes_are_refused() {
        for (before, now) in [
            // Another first word that is no number of rows.
            (&[100, 6, 7][..], &[101, 6, 7][..]),
            // Other contents, fewer rows, another row.
            (&[1, 7, 8, 9], &[2, 7, 8, 10, 0, 0, 0]),
            (&[2, 1, 0, 0], &[1, 1, 0]),
            (&[2, 1, 0, 0], &[2, 2, 0, 0, 0, 0]),
        ] {
            assert_eq!(replaced(before, now), None, "{before:?} {now:?}");
        }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let kept = Kept {
            objects: 7,
            fixed: Fixed {
                block: 1,
                block_size: 2,
                edges: 3,
                biases: 4,
                control: 6,
                rest: 5,
            },
            decisions: 8,
            calls: 9,
            program: 10,
            records: vec![11, 12, 13],
            edges: EdgeFacts {
                count: 14,
                most: 15,
                table: (0..27).collect(),
            },
            open: 16,
            placed: vec![kept_of(&[1; 40])],
            threads: vec![kept_of(&[2; 30]), KeptPiece::default()],
        };
        let words = kept.to_words();
        assert_eq!(Kept::from_words(&words), Some(kept));
        assert_eq!(Kept::from_words(&words[..words.len() - 1]), None);
    }
}
