//! `.eh_frame` and its index `.eh_frame_hdr`.
//!
//! All pointers are written relative to themselves in four bytes. The index
//! is the form that unwinders search by bisection: version 1, pointer to
//! `.eh_frame` relative to itself, count in four bytes, then pairs of start
//! address and FDE address, both relative to the index, by ascending start.

use std::collections::HashMap;
use std::ops::Range;

use rayon::prelude::*;

use super::cfi::{copies_verbatim, rewrite};
use super::moves::{MovedRange, in_place};
use super::own::{INITIAL, Own};
use super::{DOING, distance, pcrel};
use crate::unwind::{Fde, INDIRECT, PCREL_SDATA4, Personality, UnwindTable};
use crate::{Error, Result};

/// `DW_EH_PE_udata4`.
const UDATA4: u8 = 0x03;
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`.
const DATAREL_SDATA4: u8 = 0x3b;

/// The properties by which CIEs differ.
#[derive(PartialEq, Eq, Hash)]
struct CieKey<'a> {
    version: u8,
    code_align: u64,
    data_align: i64,
    return_register: u64,
    personality: Option<Personality>,
    lsda: bool,
    signal_frame: bool,
    instructions: &'a [u8],
}

/// Address of the first instruction, and address of the FDE.
pub(super) type Index = Vec<(u64, u64)>;

/// The written tables.
pub(super) struct Finished {
    pub bytes: Vec<u8>,
    pub index: Index,
    /// Entries of the index that describe the tool's code.
    pub foreign: Range<usize>,
}

fn new_range(start: u64, end: u64) -> MovedRange {
    MovedRange {
        old_start: start,
        old_end: end,
        new_start: start,
        new_end: end,
    }
}

/// Writes `.eh_frame` record by record.
pub(super) struct FrameWriter<'a> {
    table: &'a UnwindTable<'a>,
    base: u64,
    bytes: Vec<u8>,
    /// Offsets of CIEs already written.
    cies: HashMap<CieKey<'a>, usize>,
    /// Offsets of CIEs by the index of the original CIE, for original code and for moved code. They
    /// save the search in `cies`.
    known: [Vec<Option<usize>>; 2],
    index: Index,
    /// The index of the tool's code.
    foreign: Index,
    scratch: Vec<u8>,
}

impl<'a> FrameWriter<'a> {
    /// A table whose first byte will be at `base`.
    pub fn new(table: &'a UnwindTable<'a>, base: u64) -> Self {
        let none = vec![None; table.cies.len()];
        Self {
            table,
            base,
            bytes: Vec::with_capacity(2 * table.eh_frame.len().min(1 << 28)),
            cies: HashMap::new(),
            known: [none.clone(), none],
            index: Index::with_capacity(2 * table.fdes.len()),
            foreign: Index::new(),
            scratch: Vec::new(),
        }
    }

    /// Repeats an FDE for the original code; `verbatim` as [`copies_verbatim`] has it.
    pub fn original(&mut self, fde: &Fde, verbatim: bool) -> Result<()> {
        let range = in_place(fde).range;
        if verbatim {
            let cie = self.cie(fde, false)?;
            let from = &fde.instructions;
            let cfi = &self.table.eh_frame[from.start as usize..from.end as usize];
            return self.fde(cie, &range, self.lsda_of(fde, fde.lsda), cfi);
        }
        // The instructions name addresses. Instructions after one that is not understood are
        // dropped.
        let mut cfi = std::mem::take(&mut self.scratch);
        cfi.clear();
        let _ = rewrite(self.table, fde, &in_place(fde), &mut cfi);
        let cie = self.cie(fde, true)?;
        let done = self.fde(cie, &range, self.lsda_of(fde, fde.lsda), &cfi);
        self.scratch = cfi;
        done
    }

    /// Adds an FDE for a moved piece.
    pub fn moved(
        &mut self,
        fde: &Fde,
        range: &MovedRange,
        lsda: Option<u64>,
        cfi: &[u8],
    ) -> Result<()> {
        let cie = self.cie(fde, true)?;
        self.fde(cie, range, self.lsda_of(fde, lsda), cfi)
    }

    /// The table, and its index by start address.
    pub fn finish(mut self) -> Finished {
        self.bytes.extend([0; 4]);
        // As they will be at run time: what is below the image wraps around here.
        let base = self.base;
        let distance = |entry: &(u64, u64)| entry.0.wrapping_sub(base) as i64;
        self.index.par_sort_by_key(distance);
        // The tool's code is after the table, and nothing else that is new does.
        let before = self.index.partition_point(|entry| distance(entry) < 0);
        let foreign = before..before + self.foreign.len();
        self.index.splice(before..before, self.foreign);
        Finished {
            bytes: self.bytes,
            index: self.index,
            foreign,
        }
    }

    /// Offset of the CIE for an FDE. Moved code's advances are counted in bytes.
    fn cie(&mut self, fde: &Fde, moved: bool) -> Result<usize> {
        let number = fde.cie as usize;
        if let Some(offset) = self.known[usize::from(moved)][number] {
            return Ok(offset);
        }
        let cie = &self.table.cies[number];
        let from = &cie.instructions;
        let key = CieKey {
            version: cie.version,
            code_align: if moved { 1 } else { cie.code_align },
            data_align: cie.data_align,
            return_register: cie.return_register,
            personality: cie.personality,
            lsda: cie.lsda_encoding.is_some(),
            signal_frame: cie.signal_frame,
            instructions: &self.table.eh_frame[from.start as usize..from.end as usize],
        };
        let offset = self.cie_of(key)?;
        self.known[usize::from(moved)][number] = Some(offset);
        Ok(offset)
    }

    fn cie_of(&mut self, key: CieKey<'a>) -> Result<usize> {
        if let Some(&offset) = self.cies.get(&key) {
            return Ok(offset);
        }
        let offset = self.write_cie(&key)?;
        self.cies.insert(key, offset);
        Ok(offset)
    }

    /// Adds an FDE for code that has no original; yields where its instructions are.
    pub fn own(&mut self, own: &Own) -> Result<Range<usize>> {
        let cie = self.cie_of(CieKey {
            version: 1,
            code_align: 1,
            data_align: -8,
            return_register: 16,
            personality: None,
            lsda: false,
            signal_frame: false,
            instructions: &INITIAL,
        })?;
        let range = new_range(own.start, own.end);
        self.fde(cie, &range, None, own.rows.bytes())?;
        Ok(self.bytes.len() - own.rows.bytes().len().next_multiple_of(4)..self.bytes.len())
    }

    /// Adds the FDEs of a tool's code, which will be `self.base` plus a distance
    /// that is not known yet from where its file has it. Its exceptions end in
    /// it, so it needs no personality routine.
    pub fn foreign(&mut self, table: &'a UnwindTable<'a>) -> Result<()> {
        let known = std::mem::take(&mut self.index);
        for fde in &table.fdes {
            let cie = table.cie(fde);
            if !copies_verbatim(table.fde_instructions(fde)) {
                continue;
            }
            let bytes =
                |range: &Range<u32>| &table.eh_frame[range.start as usize..range.end as usize];
            let cie = self.cie_of(CieKey {
                version: cie.version,
                code_align: cie.code_align,
                data_align: cie.data_align,
                return_register: cie.return_register,
                personality: None,
                lsda: false,
                signal_frame: cie.signal_frame,
                instructions: bytes(&cie.instructions),
            })?;
            let range = new_range(self.base + fde.start, self.base + fde.end());
            self.fde(cie, &range, None, bytes(&fde.instructions))?;
        }
        self.foreign = std::mem::replace(&mut self.index, known);
        Ok(())
    }

    fn write_cie(&mut self, key: &CieKey<'_>) -> Result<usize> {
        let start = self.begin();
        let out = &mut self.bytes;
        out.extend([0; 4]);
        out.push(key.version);
        out.extend(b"zR");
        if key.personality.is_some() {
            out.push(b'P');
        }
        if key.lsda {
            out.push(b'L');
        }
        if key.signal_frame {
            out.push(b'S');
        }
        out.push(0);
        leb128::push(out, key.code_align);
        leb128::push_signed(out, key.data_align);
        match key.version {
            1 => out.push(key.return_register as u8),
            _ => leb128::push(out, key.return_register),
        }
        let length = 1 + 5 * u8::from(key.personality.is_some()) + u8::from(key.lsda);
        out.extend([length, PCREL_SDATA4]);
        if let Some(personality) = key.personality {
            out.push(PCREL_SDATA4 | if personality.indirect { INDIRECT } else { 0 });
            pcrel(out, self.base, personality.vaddr)?;
        }
        if key.lsda {
            out.push(PCREL_SDATA4);
        }
        out.extend_from_slice(key.instructions);
        self.end(start)?;
        Ok(start)
    }

    fn fde(
        &mut self,
        cie: usize,
        range: &MovedRange,
        lsda: Option<Option<u64>>,
        cfi: &[u8],
    ) -> Result<()> {
        let start = self.begin();
        self.index.push((range.new_start, self.base + start as u64));
        let out = &mut self.bytes;
        let back = u32::try_from(out.len() - cie).map_err(|_| too_large())?;
        out.extend(back.to_le_bytes());
        pcrel(out, self.base, range.new_start)?;
        let size = i32::try_from(range.new_end - range.new_start).map_err(|_| too_large())?;
        out.extend(size.to_le_bytes());
        match lsda {
            None => out.push(0),
            Some(pointer) => {
                out.push(4);
                match pointer {
                    Some(target) => pcrel(out, self.base, target)?,
                    None => out.extend([0; 4]),
                }
            }
        }
        out.extend_from_slice(cfi);
        self.end(start)
    }

    /// The LSDA field of an FDE: `None` if its CIE provides no such field.
    fn lsda_of(&self, fde: &Fde, lsda: Option<u64>) -> Option<Option<u64>> {
        self.table.cie(fde).lsda_encoding.map(|_| lsda)
    }

    /// Starts a record; returns its offset.
    fn begin(&mut self) -> usize {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        start
    }

    /// Pads a record with `DW_CFA_nop` and fills in its length.
    fn end(&mut self, start: usize) -> Result<()> {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let length = u32::try_from(self.bytes.len() - start - 4).map_err(|_| too_large())?;
        self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

/// `.eh_frame_hdr` at `address` for the table at `eh_frame`.
pub(super) fn header(address: u64, eh_frame: u64, index: &Index) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(12 + 8 * index.len());
    out.extend([1, PCREL_SDATA4, UDATA4, DATAREL_SDATA4]);
    pcrel(&mut out, address, eh_frame)?;
    let count = u32::try_from(index.len()).map_err(|_| too_large())?;
    out.extend(count.to_le_bytes());
    for (start, fde) in index {
        out.extend(distance(address, *start)?.to_le_bytes());
        out.extend(distance(address, *fde)?.to_le_bytes());
    }
    Ok(out)
}

fn too_large() -> Error {
    Error::new(DOING, "a table or a procedure is too large")
}
