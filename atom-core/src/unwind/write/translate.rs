//! Translation of the call frame instructions of all moved code, by several threads.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use super::moves::{Moves, Piece};
use super::{DOING, cfi};
use crate::unwind::{Fde, UnwindTable};
use crate::{Error, Result};

/// Number of FDEs that one task translates.
const TOGETHER: usize = 256;

/// FDEs in a row, translated.
#[derive(Default)]
pub(super) struct Translated<'m> {
    pub pieces: Vec<TranslatedPiece<'m>>,
    /// Their call frame instructions.
    pub cfi: Vec<u8>,
    /// For each FDE whether its instructions can be copied for the code that stays.
    pub verbatim: Vec<bool>,
}

/// A moved piece of an FDE.
pub(super) struct TranslatedPiece<'m> {
    /// Index of the FDE.
    pub fde: usize,
    pub piece: Piece<'m>,
    /// Its call frame instructions, or why there are none.
    pub cfi: std::result::Result<Range<usize>, String>,
}

/// Limits of the output: a hostile table could ask for more and more.
struct Limits {
    pieces: AtomicUsize,
    cfi: AtomicUsize,
}

impl Limits {
    fn new(table: &UnwindTable<'_>, moves: &Moves<'_>) -> Self {
        // Inserted code needs a row for an instruction at most.
        let cfi = 16 * table.eh_frame.len() + 2 * moves.new_size() + (1 << 20);
        Self {
            pieces: AtomicUsize::new(moves.most_pieces(table.fdes.len())),
            cfi: AtomicUsize::new(cfi),
        }
    }

    /// Counts a piece; false if a limit is exceeded.
    fn spend(&self, cfi: usize) -> bool {
        let pay = |purse: &AtomicUsize, price| {
            let less = |left: usize| left.checked_sub(price);
            purse
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        };
        pay(&self.pieces, 1) && pay(&self.cfi, cfi)
    }
}

/// Translates the moved pieces, in the order of the FDEs.
pub(super) fn translate<'m>(
    table: &UnwindTable<'_>,
    moves: &'m Moves<'m>,
) -> Result<Vec<Translated<'m>>> {
    let limits = Limits::new(table, moves);
    let chunks = table.fdes.par_chunks(TOGETHER).enumerate();
    let translate = |(chunk, fdes): (usize, &[Fde])| {
        let mut all = Translated::default();
        for (i, fde) in fdes.iter().enumerate() {
            let verbatim = cfi::copies_verbatim(table.fde_instructions(fde));
            all.verbatim.push(verbatim);
            all.add(table, (chunk * TOGETHER + i, fde), moves, &limits)?;
        }
        Ok(all)
    };
    chunks.map(translate).collect()
}

impl<'m> Translated<'m> {
    fn add(
        &mut self,
        table: &UnwindTable<'_>,
        (index, fde): (usize, &Fde),
        moves: &'m Moves<'m>,
        limits: &Limits,
    ) -> Result<()> {
        let mut pieces = moves.pieces(fde).peekable();
        if pieces.peek().is_none() {
            return Ok(());
        }
        let initial = cfi::check_initial(table, table.cie(fde));
        for piece in pieces {
            let from = self.cfi.len();
            let translated = initial.and_then(|()| cfi::rewrite(table, fde, &piece, &mut self.cfi));
            if translated.is_err() {
                self.cfi.truncate(from);
            }
            let cfi = from..self.cfi.len();
            if !limits.spend(cfi.len()) {
                let overlap = Error::new(DOING, "frame descriptions overlap too much");
                return Err(overlap.address(fde.start));
            }
            self.pieces.push(TranslatedPiece {
                fde: index,
                piece,
                cfi: translated.map(|()| cfi).map_err(str::to_owned),
            });
        }
        Ok(())
    }
}
