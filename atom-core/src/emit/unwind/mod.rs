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
//! The original tables stay in the program's image; what is written refers to
//! their LSDAs and to slots in them that the dynamic loader fills in.

mod cfi;
mod expression;
mod frames;
mod lsda;
mod moves;
mod state;

use std::ops::Range;

use crate::image::unwind::{Fde, Lsda, UnwindTable};
use crate::{Error, Result};
use frames::FrameWriter;
pub use moves::{AddressMap, Inserted, Lowered, MovedRange, Stray};
use moves::{Moves, in_place};

const DOING: &str = "writing exception tables";

/// Every table starts at such a multiple.
const ALIGNMENT: u64 = 16;

/// A table and where it lies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blob {
    /// Address of its first byte.
    pub address: u64,
    /// The table.
    pub bytes: Vec<u8>,
}

impl Blob {
    /// The address behind it.
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
    /// Why.
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
    /// Moved code through which an exception cannot pass. Empty if every FDE
    /// of moved code passes [`check`].
    pub undescribed: Vec<Undescribed>,
}

/// Whether code that an FDE covers can be described at another address.
///
/// Where it cannot, the code should stay where it is.
pub fn check(table: &UnwindTable<'_>, fde: &Fde) -> Result<()> {
    let whole = in_place(fde);
    table.lsda(fde)?;
    cfi::check_initial(table, table.cie(fde))
        .and_then(|()| cfi::rewrite(table, fde, &whole, &mut Vec::new()))
        .map_err(|reason| Error::new(DOING, reason).address(fde.start))
}

/// Builds the tables for a program whose code moved.
///
/// `moved` is sorted by original address. The tables lie one behind the other
/// from `start_address` on. Fails if something lies further than 2 GiB away.
pub fn build(
    table: &UnwindTable<'_>,
    moved: &[MovedRange],
    map: &dyn AddressMap,
    start_address: u64,
) -> Result<UnwindBlobs> {
    let moves = Moves::new(moved, map)?;
    let mut blobs = UnwindBlobs::default();
    blobs.except_table.address = start_address.next_multiple_of(ALIGNMENT);
    let plan = plan(table, &moves, &mut blobs)?;

    blobs.eh_frame.address = blobs.except_table.end().next_multiple_of(ALIGNMENT);
    let mut writer = FrameWriter::new(table, blobs.eh_frame.address);
    let mut pieces = plan.pieces.iter().peekable();
    for (index, fde) in table.fdes.iter().enumerate() {
        writer.original(fde)?;
        while let Some(piece) = pieces.next_if(|piece| piece.fde == index) {
            writer.moved(fde, &piece.range, piece.lsda, &plan.cfi[piece.cfi.clone()])?;
        }
    }
    let (bytes, index) = writer.finish();
    blobs.eh_frame.bytes = bytes;
    blobs.eh_frame_hdr.address = blobs.eh_frame.end().next_multiple_of(ALIGNMENT);
    blobs.eh_frame_hdr.bytes =
        frames::header(blobs.eh_frame_hdr.address, blobs.eh_frame.address, index)?;
    Ok(blobs)
}

/// What will be written for moved code.
#[derive(Default)]
struct Plan {
    pieces: Vec<PlannedPiece>,
    cfi: Vec<u8>,
}

struct PlannedPiece {
    fde: usize,
    range: MovedRange,
    lsda: Option<u64>,
    cfi: Range<usize>,
}

/// Translates what moved, and writes `.gcc_except_table` on the way.
fn plan(table: &UnwindTable<'_>, moves: &Moves<'_>, blobs: &mut UnwindBlobs) -> Result<Plan> {
    let mut plan = Plan::default();
    let overlap = |at| Error::new(DOING, "frame descriptions overlap too much").address(at);
    let most_pieces = moves.most_pieces(table.fdes.len());
    let most_cfi = 16 * table.eh_frame.len() + (1 << 20);
    let mut budget = 4 * table.memory_size() + (1 << 20);
    for (index, fde) in table.fdes.iter().enumerate() {
        let mut pieces = moves.pieces(fde).peekable();
        if pieces.peek().is_none() {
            continue;
        }
        let initial = cfi::check_initial(table, table.cie(fde)).map_err(str::to_owned);
        let lsda = table.lsda(fde).map_err(|e| e.to_string());
        let known = initial.and(lsda);
        for piece in pieces {
            let from = plan.cfi.len();
            let translated = known.as_ref().map_err(String::clone).and_then(|lsda| {
                cfi::rewrite(table, fde, &piece, &mut plan.cfi)?;
                Ok(lsda)
            });
            let count = plan.pieces.len() + blobs.undescribed.len();
            if plan.cfi.len() > most_cfi || count >= most_pieces {
                return Err(overlap(fde.start));
            }
            let lsda = match translated {
                Ok(lsda) => lsda,
                Err(reason) => {
                    plan.cfi.truncate(from);
                    let (fde_start, range) = (fde.start, piece.range);
                    blobs.undescribed.push(Undescribed {
                        fde_start,
                        range,
                        reason,
                    });
                    continue;
                }
            };
            let mut address = None;
            if let Some(lsda) = lsda {
                budget = budget.checked_sub(cost(lsda)).ok_or_else(|| {
                    Error::new(DOING, "language-specific data areas overlap").address(lsda.vaddr)
                })?;
                let out = &mut blobs.except_table;
                let written = lsda::write(lsda, &piece, moves, &mut out.bytes, out.address)?;
                address = Some(written);
            }
            let cfi = from..plan.cfi.len();
            plan.pieces.push(PlannedPiece {
                fde: index,
                range: piece.range,
                lsda: address,
                cfi,
            });
        }
    }
    Ok(plan)
}

/// A lower bound of what an LSDA takes in the file: areas of different FDEs do
/// not overlap, so a sum beyond the file's size shows a hostile table.
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
        Error::new(
            DOING,
            format!("{to:#x} is more than 2 GiB from the table at {from:#x}"),
        )
        .address(to)
    })
}
