//! `.gcc_except_table` for new text.
//!
//! Call-site ranges and landing pads are mapped; actions and specifications are
//! copied; types refer to the same descriptions as before. A landing pad is
//! written as its distance from a base, unsigned and never 0 (which means
//! "none"). The base is the FDE's start unless a pad is at or before it; then
//! it is given explicitly, relative to itself, just before the lowest pad.
//! gcc's and LLVM's personality routines and Rust's read such a base alike.

use super::moves::{Moves, Piece};
use super::pcrel;
use crate::Result;
use crate::unwind::{INDIRECT, Lsda, OMIT, PCREL_SDATA4, TypeEntry, TypeTable};

/// `DW_EH_PE_uleb128`.
const ULEB128: u8 = 0x01;

/// Appends the LSDA for one piece to `out`, whose first byte is at `base`.
/// Returns its address.
pub(super) fn write(
    lsda: &Lsda<'_>,
    piece: &Piece<'_>,
    moves: &Moves<'_>,
    out: &mut Vec<u8>,
    base: u64,
) -> Result<u64> {
    out.resize(out.len().next_multiple_of(4), 0);
    let address = base + out.len() as u64;
    let sites = map_sites(lsda, piece, moves);
    let start = piece.range.new_start;
    let pads = || sites.iter().filter_map(|site| site.pad);
    let mut pad_base = start;
    // Addresses below the image wrap around, so nearness is what counts.
    let from_start = |pad: &u64| pad.wrapping_sub(start) as i64;
    match pads().min_by_key(from_start) {
        Some(lowest) if from_start(&lowest) <= 0 => {
            pad_base = lowest.wrapping_sub(1);
            out.push(PCREL_SDATA4);
            pcrel(out, base, pad_base)?;
        }
        _ => out.push(OMIT),
    }
    let mut table = Vec::with_capacity(sites.len() * 6);
    for site in &sites {
        leb128::push(&mut table, site.start - start);
        leb128::push(&mut table, site.end - site.start);
        leb128::push(
            &mut table,
            site.pad.map_or(0, |pad| pad.wrapping_sub(pad_base)),
        );
        leb128::push(&mut table, site.action);
    }
    let mut sites_header = vec![ULEB128];
    leb128::push(&mut sites_header, table.len() as u64);
    let before_types = sites_header.len() + table.len() + lsda.actions.len();
    match &lsda.types {
        None => out.push(OMIT),
        Some(types) => {
            let encoding = PCREL_SDATA4 | if indirect(types) { INDIRECT } else { 0 };
            out.push(encoding);
            leb128::push(out, (before_types + 4 * types.entries.len()) as u64);
        }
    }
    out.extend(sites_header);
    out.extend(table);
    out.extend_from_slice(lsda.actions);
    if let Some(types) = &lsda.types {
        for entry in types.entries.iter().rev() {
            match *entry {
                TypeEntry::Null => out.extend([0; 4]),
                TypeEntry::Direct(target) | TypeEntry::Indirect(target) => {
                    pcrel(out, base, target)?;
                }
            }
        }
        out.extend_from_slice(types.specifications);
    }
    Ok(address)
}

/// All entries of a table share one encoding, so either all are indirect or none.
fn indirect(types: &TypeTable<'_>) -> bool {
    types
        .entries
        .iter()
        .any(|entry| matches!(entry, TypeEntry::Indirect(_)))
}

/// A call site in new text.
struct Site {
    start: u64,
    end: u64,
    pad: Option<u64>,
    action: u64,
}

fn map_sites(lsda: &Lsda<'_>, piece: &Piece<'_>, moves: &Moves<'_>) -> Vec<Site> {
    let range = &piece.range;
    let mut sites = Vec::with_capacity(lsda.call_sites.len());
    for site in &lsda.call_sites {
        let old_start = site.start.max(range.old_start);
        let old_end = (site.start + site.size).min(range.old_end);
        if old_start >= old_end {
            continue;
        }
        let start = piece.new_address(old_start);
        let end = piece.new_address(old_end);
        if start < end {
            let pad = site.landing_pad.map(|pad| moves.landing_pad(pad));
            sites.push(Site {
                start,
                end,
                pad,
                action: site.action,
            });
        }
    }
    sites
}
