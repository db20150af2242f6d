//! Exception tables of the rewritten program.
//!
//! Return addresses on the stack point into new text, so unwinding works only
//! if the tables describe it: rows of `.eh_frame`, landing pads in
//! `.gcc_except_table`, and the sorted index `.eh_frame_hdr` through which the
//! unwinder finds a row. A program has one index, so what is written here is
//! complete: every original FDE again (old text keeps procedures that were not
//! moved, and the places where control enters old text on its way to new text)
//! and one more for each moved piece.
//!
//! The original tables stay in the program's image. The new tables refer to the original LSDAs, and
//! to slots in the original tables that the dynamic loader fills in.

mod cfi;
mod expression;
mod frames;
mod lsda;
mod moves;
mod own;
mod state;
mod translate;

use std::ops::Range;

use rayon::prelude::*;

use crate::error::ErrorKind;
use crate::unwind::{Fde, Lsda, UnwindTable};
use crate::{Error, Result};
use frames::FrameWriter;
pub use moves::{AddressMap, Inserted, MovedRange, OutOfLine, StackAdjustment};
use moves::{Moves, in_place};
pub use own::{Own, Rows};
use translate::{Translated, translate};

const DOING: &str = "writing exception tables";

/// Alignment of each table in bytes.
const ALIGNMENT: u64 = 16;

/// A table and its address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blob {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes of the table.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// The address after the table.
    pub fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }
}

/// A piece of moved code that the new tables do not describe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undescribed {
    /// Start of the original FDE.
    pub fde_start: u64,
    /// The moved range, cut to what the FDE covers.
    pub range: MovedRange,
    /// Reason.
    pub reason: String,
}

/// The new tables, in the order of their addresses.
#[derive(Clone, Debug, Default)]
pub struct UnwindBlobs {
    /// `.gcc_except_table`.
    pub except_table: Blob,
    /// `.eh_frame`.
    pub eh_frame: Blob,
    /// `.eh_frame_hdr`, for `PT_GNU_EH_FRAME`.
    pub eh_frame_hdr: Blob,
    /// Instructions of [`Additions::start`] in `eh_frame`, to be filled in.
    pub start_rows: Range<usize>,
    /// Entries of the index that describe the tool's code; see [`UnwindBlobs::place_tool`].
    tool: Range<usize>,
    /// Moved code through which an exception cannot pass. Empty if every FDE
    /// of moved code passes [`check`].
    pub undescribed: Vec<Undescribed>,
}

/// Fails if code that an FDE covers cannot be described at another address.
///
/// Such code should stay where it is.
pub fn check(table: &UnwindTable<'_>, fde: &Fde) -> Result<()> {
    let whole = in_place(fde);
    table.lsda(fde)?;
    cfi::check_initial(table, table.cie(fde))
        .and_then(|()| {
            if cfi::is_plain(table, fde) {
                Ok(())
            } else {
                cfi::rewrite(table, fde, &whole, &mut Vec::new())
            }
        })
        .map_err(|reason| Error::new(DOING, reason).address(fde.start))
}

/// Code beside the program's own that the tables describe.
#[derive(Clone, Copy, Default)]
pub struct Additions<'a> {
    /// Code without an original.
    pub own: &'a [Own],
    /// Pieces that are apart from moved code: an original address at which the frame is as at their start, and
    /// their rows.
    pub entries: &'a [(u64, MovedEntry)],
    /// Start and end of the start-up code.
    pub start: Option<(u64, u64)>,
    /// The tables of the tool's file.
    pub tool: Option<&'a UnwindTable<'a>>,
}

/// A piece of inserted code, for which the frame description of the original code holds: the row of one original address,
/// or the rows of several addresses of one description.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedEntry {
    /// First address.
    pub start: u64,
    /// The address after the piece.
    pub end: u64,
    /// Changes of the stack pointer in the piece. Code out of line, if there is any, is one after the other from its start on.
    pub inserted: Inserted,
    /// True if it leaves alone what is below rsp.
    pub keeps_below: bool,
}

impl AddressMap for MovedEntry {
    fn new_address(&self, _: u64) -> Option<u64> {
        Some(self.start)
    }

    fn keeps_below(&self, _: u64) -> bool {
        self.keeps_below
    }

    fn inserted(&self, _: &MovedRange) -> Inserted {
        self.inserted.clone()
    }
}

/// Largest size in bytes of the rows of the start-up code.
pub const START_ROWS: usize = 256;

impl UnwindBlobs {
    /// Sets the address of the tool's code.
    pub fn place_tool(&mut self, address: u64) -> Result<()> {
        let far = || Error::new(DOING, "the tool's code is too far away").address(address);
        let moved = i32::try_from(address.wrapping_sub(self.eh_frame.address) as i64);
        let moved = moved.map_err(|_| far())?;
        for i in self.tool.clone() {
            let entry = 12 + 8 * i;
            let add = |bytes: &mut [u8], at: usize| {
                let field: [u8; 4] = bytes[at..at + 4].try_into().ok()?;
                let value = i32::from_le_bytes(field).checked_add(moved)?;
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                Some(())
            };
            let header = &mut self.eh_frame_hdr;
            let fde: [u8; 4] = header.bytes[entry + 4..entry + 8].try_into().expect("four");
            let fde = header
                .address
                .wrapping_add_signed(i32::from_le_bytes(fde).into());
            let fde = (fde - self.eh_frame.address) as usize;
            add(&mut header.bytes, entry)
                .and_then(|()| add(&mut self.eh_frame.bytes, fde + 8))
                .ok_or_else(far)?;
        }
        Ok(())
    }
}

/// Builds the tables for a program whose code moved.
///
/// `moved` is sorted by original address. The tables are one after the other
/// from `start_address` on. Fails if something is further than 2 GiB away.
pub fn build(
    table: &UnwindTable<'_>,
    moved: &[MovedRange],
    map: &dyn AddressMap,
    start_address: u64,
) -> Result<UnwindBlobs> {
    let moved = [(moved.to_vec(), map)];
    build_with(table, &moved, &Additions::default(), start_address)
}

/// Builds the tables as [`build`] does, for code that was copied once or several times, with descriptions of other code. Landing
/// pads are in the same copy as the calls from which they are reached.
pub fn build_with<'a>(
    table: &'a UnwindTable<'a>,
    copies: &[(Vec<MovedRange>, &dyn AddressMap)],
    additions: &Additions<'a>,
    start_address: u64,
) -> Result<UnwindBlobs> {
    let moves = copies.iter().map(|(moved, map)| Moves::new(moved, *map));
    let moves = moves.collect::<Result<Vec<_>>>()?;
    let mut blobs = UnwindBlobs::default();
    blobs.except_table.address = start_address.next_multiple_of(ALIGNMENT);
    let translated = moves.iter().map(|moves| translate(table, moves));
    let translated = translated.collect::<Result<Vec<_>>>()?;
    let planned = moves.iter().zip(&translated);
    let planned = planned.map(|(moves, done)| plan(table, moves, done, &mut blobs));
    let planned = planned.collect::<Result<Vec<_>>>()?;

    blobs.eh_frame.address = blobs.except_table.end().next_multiple_of(ALIGNMENT);
    let mut writer = FrameWriter::new(table, blobs.eh_frame.address);
    let mut pieces: Vec<_> = planned.iter().map(|p| p.iter().peekable()).collect();
    let verbatim = translated[..1].iter().flatten().flat_map(|t| &t.verbatim);
    for ((index, fde), verbatim) in table.fdes.iter().enumerate().zip(verbatim) {
        writer.original(fde, *verbatim)?;
        for pieces in &mut pieces {
            while let Some(piece) = pieces.next_if(|piece| piece.fde == index) {
                writer.moved(fde, &piece.range, piece.lsda, piece.cfi)?;
            }
        }
    }
    for own in additions.own {
        writer.own(own)?;
    }
    let entries = additions.entries.par_iter().with_min_len(64);
    let entries: Vec<_> = entries
        .map(|(old, entry)| described_entry(table, *old, entry))
        .collect::<Result<_>>()?;
    for piece in entries.iter().flatten() {
        writer.moved(piece.fde, &piece.range, None, &piece.cfi)?;
    }
    if let Some((start, end)) = additions.start {
        let rows = Rows::reserved(start, START_ROWS);
        blobs.start_rows = writer.own(&Own { start, end, rows })?;
    }
    if let Some(tool) = additions.tool {
        writer.foreign(tool)?;
    }
    let finished = writer.finish();
    blobs.eh_frame.bytes = finished.bytes;
    blobs.tool = finished.foreign;
    let index = &finished.index;
    blobs.eh_frame_hdr.address = blobs.eh_frame.end().next_multiple_of(ALIGNMENT);
    blobs.eh_frame_hdr.bytes =
        frames::header(blobs.eh_frame_hdr.address, blobs.eh_frame.address, index)?;
    Ok(blobs)
}

/// A description of a piece that is apart from moved code.
struct EntryPiece<'a> {
    fde: &'a Fde,
    range: MovedRange,
    cfi: Vec<u8>,
}

/// Describes a piece that is apart from moved code; not if its FDE is not understood.
fn described_entry<'a>(
    table: &'a UnwindTable<'a>,
    old: u64,
    entry: &MovedEntry,
) -> Result<Vec<EntryPiece<'a>>> {
    let Some(fde) = table.find(old).map(|i| &table.fdes[i]) else {
        return Ok(Vec::new());
    };
    let out_of_line = entry.inserted.out_of_line.iter().map(|code| code.old);
    let range = MovedRange {
        old_start: out_of_line.clone().fold(old, u64::min),
        old_end: out_of_line.fold(old, u64::max) + 1,
        new_start: entry.start,
        new_end: entry.end,
    };
    let ranges = [range];
    let moves = Moves::new(&ranges, entry)?;
    let mut described = Vec::new();
    for piece in moves.pieces(fde) {
        let mut cfi = Vec::new();
        let initial = cfi::check_initial(table, table.cie(fde));
        let written = initial.and_then(|()| cfi::rewrite(table, fde, &piece, &mut cfi));
        if written.is_ok() {
            let range = piece.range;
            described.push(EntryPiece { fde, range, cfi });
        }
    }
    Ok(described)
}

/// A moved piece that will be described.
struct PlannedPiece<'m> {
    /// Index of the FDE.
    fde: usize,
    range: MovedRange,
    lsda: Option<u64>,
    cfi: &'m [u8],
}

/// Writes `.gcc_except_table` for the translated pieces.
fn plan<'m>(
    table: &UnwindTable<'_>,
    moves: &Moves<'_>,
    translated: &'m [Translated<'_>],
    blobs: &mut UnwindBlobs,
) -> Result<Vec<PlannedPiece<'m>>> {
    let mut planned = Vec::with_capacity(translated.iter().map(|t| t.pieces.len()).sum());
    let mut budget = 4 * table.memory_size() + (1 << 20);
    for (all, piece) in translated
        .iter()
        .flat_map(|t| t.pieces.iter().map(move |p| (t, p)))
    {
        let (fde, range) = (&table.fdes[piece.fde], piece.piece.range);
        let known = match &piece.cfi {
            Ok(cfi) => table
                .lsda(fde)
                .map_err(|e| e.to_string())
                .map(|lsda| (cfi, lsda)),
            Err(reason) => Err(reason.clone()),
        };
        let (cfi, lsda) = match known {
            Ok(known) => known,
            Err(reason) => {
                blobs.undescribed.push(Undescribed {
                    fde_start: fde.start,
                    range,
                    reason,
                });
                continue;
            }
        };
        let mut address = None;
        if let Some(lsda) = lsda {
            budget = budget.checked_sub(cost(&lsda)).ok_or_else(|| {
                Error::new(DOING, "language-specific data areas overlap").address(lsda.vaddr)
            })?;
            let out = &mut blobs.except_table;
            let written = lsda::write(&lsda, &piece.piece, moves, &mut out.bytes, out.address)?;
            address = Some(written);
        }
        planned.push(PlannedPiece {
            fde: piece.fde,
            range,
            lsda: address,
            cfi: &all.cfi[cfi.clone()],
        });
    }
    Ok(planned)
}

/// A lower bound of an LSDA's size in the file. Areas of different FDEs do not overlap, so a sum
/// beyond the file's size shows a hostile table.
fn cost(lsda: &Lsda<'_>) -> usize {
    let types = lsda.types.as_ref();
    let types = types.map_or(0, |t| t.entries.len() + t.specifications.len());
    lsda.call_sites.len() + lsda.actions.len() + types
}

/// Appends the distance to `target` from the place where it is written.
fn pcrel(out: &mut Vec<u8>, base: u64, target: u64) -> Result<()> {
    let from = base.wrapping_add(out.len() as u64);
    out.extend(distance(from, target)?.to_le_bytes());
    Ok(())
}

fn distance(from: u64, to: u64) -> Result<i32> {
    i32::try_from(to.wrapping_sub(from) as i64).map_err(|_| {
        let reason = format!("{to:#x} is more than 2 GiB from the table at {from:#x}");
        // In a region nearer to the program it may fit.
        let kind = ErrorKind::TooLarge;
        let error = Error::new(DOING, reason).address(to);
        Error { kind, ..error }.advice("instrument fewer procedures")
    })
}
