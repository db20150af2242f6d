//! Call frame instructions for code that moved.
//!
//! Only what says *where* changes; what says *how* is copied byte for byte.
//! A piece that starts in the middle of an FDE replays all that came before
//! without advancing, which leaves the unwinder in the same state.

use super::expression::{offset_from_rsp, uses_rip};
use super::moves::Piece;
use crate::image::unwind::{CfiKind, CfiReader, Cie, Fde, Read, UnwindTable};

const RIP_DEPENDENT: &str = "its frame depends on the program counter";

/// Whether instructions contain no address and are understood throughout.
pub(super) fn copies_verbatim(mut reader: CfiReader<'_>) -> bool {
    loop {
        match reader.next() {
            Ok(Some(CfiKind::SetLocation(_))) => return false,
            Ok(Some(_)) => {}
            // What is not understood can only be copied.
            Ok(None) | Err(_) => return true,
        }
    }
}

/// Whether a CIE's initial instructions hold at any address.
pub(super) fn check_initial(table: &UnwindTable<'_>, cie: &Cie) -> Read<()> {
    let mut reader = table.cie_instructions(cie);
    while let Some(kind) = reader.next()? {
        match kind {
            CfiKind::Advance(_) | CfiKind::SetLocation(_) => {
                return Err("its CIE's instructions advance");
            }
            CfiKind::DefCfaExpression(e) | CfiKind::RegisterExpression(e) if uses_rip(e) => {
                return Err(RIP_DEPENDENT);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Appends the instructions for one piece of an FDE, for a code alignment of 1.
pub(super) fn rewrite(
    table: &UnwindTable<'_>,
    fde: &Fde,
    piece: &Piece<'_>,
    out: &mut Vec<u8>,
) -> Read<()> {
    let mut reader = table.fde_instructions(fde);
    let mut writer = Writer {
        out,
        piece,
        old: fde.start,
        new: piece.range.new_start,
        by_rip: None,
        saved: Vec::new(),
        written: None,
    };
    loop {
        let from = reader.pos();
        let Some(kind) = reader.next()? else { break };
        let target = match kind {
            CfiKind::Nop => continue,
            CfiKind::Advance(delta) => writer
                .old
                .checked_add(delta)
                .ok_or("an advance overflows")?,
            CfiKind::SetLocation(target) => target,
            _ => {
                writer.copy(kind, &table.eh_frame[from..reader.pos()])?;
                continue;
            }
        };
        if target < writer.old {
            return Err("locations are out of order");
        }
        writer.finish_row(target)?;
        writer.old = target;
        if target >= piece.range.old_end {
            break;
        }
    }
    writer.finish_row(piece.range.old_end)?;
    if !piece.searched() {
        return Err("too much code without known instructions");
    }
    Ok(())
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    piece: &'a Piece<'a>,
    /// The original location that has been reached.
    old: u64,
    /// The new location that has been written.
    new: u64,
    /// The CFA's expression, if it depends on the program counter.
    by_rip: Option<&'a [u8]>,
    saved: Vec<Option<&'a [u8]>>,
    /// The CFA's offset from rsp that was written in place of `by_rip`.
    written: Option<i64>,
}

impl<'a> Writer<'a> {
    /// Copies an instruction that holds from `self.old` on.
    fn copy(&mut self, kind: CfiKind<'a>, bytes: &[u8]) -> Read<()> {
        match kind {
            CfiKind::DefCfaExpression(e) if uses_rip(e) => {
                offset_from_rsp(e, self.old).ok_or(RIP_DEPENDENT)?;
                self.by_rip = Some(e);
                self.written = None;
                if !self.piece.stays() {
                    return Ok(());
                }
            }
            CfiKind::RegisterExpression(e) if uses_rip(e) => return Err(RIP_DEPENDENT),
            CfiKind::DefCfa(..) | CfiKind::DefCfaExpression(_) => self.by_rip = None,
            CfiKind::DefCfaRegister(_) | CfiKind::DefCfaOffset(_) if self.by_rip.is_some() => {
                return Err("a CFA's expression is changed in part");
            }
            CfiKind::RememberState => self.saved.push(self.by_rip),
            CfiKind::RestoreState => {
                self.by_rip = self
                    .saved
                    .pop()
                    .ok_or("a state is restored but not saved")?;
                self.written = None;
            }
            _ => {}
        }
        self.advance_to(self.piece.new_address(self.old))?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// The row that started at `self.old` ends at `end`: writes what it needs
    /// where the CFA depends on the program counter.
    fn finish_row(&mut self, end: u64) -> Read<()> {
        let Some(expression) = self.by_rip.filter(|_| !self.piece.stays()) else {
            return Ok(());
        };
        let first = self.old.max(self.piece.range.old_start);
        for old in first..end.min(self.piece.range.old_end) {
            if !self.piece.spend() {
                break;
            }
            let new = match self.piece.exact(old) {
                _ if old == first => self.piece.new_address(old),
                Some(new) => new,
                None => continue,
            };
            let offset = offset_from_rsp(expression, old).ok_or(RIP_DEPENDENT)?;
            if self.written != Some(offset) {
                self.advance_to(new)?;
                self.out.push(0x0c);
                self.out.push(7);
                uleb(self.out, u64::try_from(offset).map_err(|_| RIP_DEPENDENT)?);
                self.written = Some(offset);
            }
        }
        Ok(())
    }

    fn advance_to(&mut self, new: u64) -> Read<()> {
        let delta = new
            .checked_sub(self.new)
            .ok_or("its instructions changed their order")?;
        self.new = new;
        match delta {
            0 => {}
            1..=0x3f => self.out.push(0x40 | delta as u8),
            0x40..=0xff => self.out.extend([0x02, delta as u8]),
            0x100..=0xffff => {
                self.out.push(0x03);
                self.out.extend((delta as u16).to_le_bytes());
            }
            _ => {
                let delta = u32::try_from(delta).map_err(|_| "an advance exceeds 4 GiB")?;
                self.out.push(0x04);
                self.out.extend(delta.to_le_bytes());
            }
        }
        Ok(())
    }
}

/// Appends an unsigned LEB128 number.
pub(super) fn uleb(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed LEB128 number.
pub(super) fn sleb(out: &mut Vec<u8>, mut value: i64) {
    while !(-0x40..0x40).contains(&value) {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8 & 0x7f);
}
