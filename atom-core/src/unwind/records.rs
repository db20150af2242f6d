//! Decoding of single CIE and FDE records.

use super::cfi::{self, CfaRule};
use super::cursor::{Cursor, OMIT, Read};
use super::{Cie, Fde, Personality, Skipped, UnwindTable};

impl<'a> UnwindTable<'a> {
    /// Notes that a record was left out.
    pub(super) fn skip(&mut self, offset: usize, reason: &'static str) {
        let vaddr = self.vaddr.wrapping_add(offset as u64);
        self.skipped.push(Skipped { vaddr, reason });
    }

    /// Takes in the record between two offsets.
    pub(super) fn record(&mut self, start: usize, end: usize) -> Read<()> {
        let mut c = Cursor::new(&self.eh_frame[..end], start + 4, self.vaddr);
        let id = c.u32()?;
        if id == 0 {
            let cie = self.read_cie(c, start, end)?;
            self.cies.push(cie);
        } else {
            let cie = (start + 4)
                .checked_sub(id as usize)
                .ok_or("the CIE lies outside")?;
            if let Some(fde) = self.read_fde(c, start, end, cie)? {
                self.fdes.push(fde);
            }
        }
        Ok(())
    }

    fn read_cie(&self, mut c: Cursor<'a>, start: usize, end: usize) -> Read<Cie> {
        let version = c.u8()?;
        if version != 1 && version != 3 {
            return Err("the CIE's version is unknown");
        }
        let augmentation = c.c_string()?;
        let mut cie = Cie {
            offset: start as u32,
            version,
            code_align: c.uleb()?,
            data_align: c.sleb()?,
            return_register: if version == 1 {
                c.u8()?.into()
            } else {
                c.uleb()?
            },
            pointer_encoding: 0,
            has_data: false,
            lsda_encoding: None,
            personality: None,
            signal_frame: false,
            instructions: 0..end as u32,
            initial_cfa: CfaRule::Unknown,
        };
        if let [b'z', letters @ ..] = augmentation {
            cie.has_data = true;
            let length = usize::try_from(c.uleb()?).map_err(|_| "a length overflows")?;
            let mut data = c;
            c.take(length)?;
            for letter in letters {
                match letter {
                    b'R' => cie.pointer_encoding = data.u8()?,
                    b'L' => cie.lsda_encoding = Some(data.u8()?).filter(|&e| e != OMIT),
                    b'S' => cie.signal_frame = true,
                    b'P' => cie.personality = read_personality(&mut data)?,
                    _ => return Err("the CIE's augmentation is unknown"),
                }
            }
            if data.pos() > c.pos() {
                return Err("the CIE's augmentation is longer than it says");
            }
        } else if !augmentation.is_empty() {
            return Err("the CIE's augmentation is unknown");
        }
        cie.instructions.start = c.pos() as u32;
        cie.initial_cfa = cfi::cfa_at_start(self.cie_instructions(&cie), CfaRule::Unknown);
        Ok(cie)
    }

    /// `None` for an FDE that covers nothing or whose code the linker dropped.
    fn read_fde(
        &self,
        mut c: Cursor<'a>,
        start: usize,
        end: usize,
        cie_offset: usize,
    ) -> Read<Option<Fde>> {
        // CIEs were found in the order of their offsets. Most FDEs refer to the last CIE.
        let index = match self.cies.last() {
            Some(last) if last.offset as usize == cie_offset => self.cies.len() - 1,
            _ => self
                .cies
                .binary_search_by_key(&cie_offset, |c| c.offset as usize)
                .map_err(|_| "its CIE is missing or was not understood")?,
        };
        let cie = &self.cies[index];
        let first = c.encoded(cie.pointer_encoding)?;
        let size = c.encoded(cie.pointer_encoding & 0x0f)?.value;
        if first.indirect {
            return Err("the start is given indirectly");
        }
        if first.null || size == 0 {
            return Ok(None);
        }
        let code = self.memory.at(first.value);
        if code.is_none_or(|code| (code.len() as u64) < size) {
            return Err("it describes code that is not loaded");
        }
        let mut lsda = None;
        if cie.has_data {
            let length = usize::try_from(c.uleb()?).map_err(|_| "a length overflows")?;
            let mut data = c;
            c.take(length)?;
            if let Some(encoding) = cie.lsda_encoding {
                let pointer = data.encoded(encoding)?;
                if data.pos() > c.pos() {
                    return Err("the LSDA pointer exceeds the augmentation data");
                }
                if pointer.indirect {
                    return Err("the LSDA is given indirectly");
                }
                lsda = (!pointer.null).then_some(pointer.value);
            }
        }
        let mut fde = Fde {
            start: first.value,
            size,
            cie: index as u32,
            offset: start as u32,
            lsda,
            instructions: c.pos() as u32..end as u32,
            cfa_at_start: CfaRule::Unknown,
        };
        fde.cfa_at_start = cfi::cfa_at_start(self.fde_instructions(&fde), cie.initial_cfa);
        Ok(Some(fde))
    }
}

fn read_personality(data: &mut Cursor<'_>) -> Read<Option<Personality>> {
    let encoding = data.u8()?;
    if encoding == OMIT {
        return Ok(None);
    }
    let pointer = data.encoded(encoding)?;
    if encoding == 0 {
        // A full absolute pointer may be filled in by the dynamic loader (even
        // where the file holds zero): refer to the slot, not to its value.
        return Ok(Some(Personality {
            vaddr: pointer.at,
            indirect: true,
        }));
    }
    let personality = Personality {
        vaddr: pointer.value,
        indirect: pointer.indirect,
    };
    Ok((!pointer.null).then_some(personality))
}
