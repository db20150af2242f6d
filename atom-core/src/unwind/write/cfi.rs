//! Call frame instructions for code that moved.
//!
//! Instructions that move the location change; instructions that state a rule are copied byte for
//! byte. A piece that starts in the middle of an FDE repeats all earlier instructions without
//! advancing, which leaves the unwinder in the same state. Where inserted code moves the stack
//! pointer, additional rows are in between.

use super::expression::{offset_from_rsp, uses_rip};
use super::moves::{OutOfLine, Piece, StackAdjustment};
use super::state::{Cfa, State};
use crate::unwind::{CfiKind, CfiReader, Cie, Fde, Read, UnwindTable};
use crate::x86::asm::Frame;

/// Number of bytes below rsp that belong to the program by the System V ABI.
const RED_ZONE: i64 = 128;

const RIP_DEPENDENT: &str = "its frame depends on the program counter";

/// True if the instructions contain no address, as far as they are understood.
pub(super) fn copies_verbatim(mut reader: CfiReader<'_>) -> bool {
    loop {
        match reader.next() {
            Ok(Some(CfiKind::SetLocation(_))) => return false,
            Ok(Some(_)) => {}
            // Instructions that are not understood can only be copied.
            Ok(None) | Err(_) => return true,
        }
    }
}

/// True if an FDE's instructions are all understood, and none names an address or has an
/// expression. Nearly all FDEs are like that, and [`rewrite`] cannot fail on them in place.
pub(super) fn is_plain(table: &UnwindTable<'_>, fde: &Fde) -> bool {
    let mut reader = table.fde_instructions(fde);
    let (mut saved, mut advanced) = (0u32, 0u64);
    loop {
        match reader.next() {
            Ok(Some(CfiKind::Advance(delta))) => advanced = advanced.saturating_add(delta),
            Ok(Some(CfiKind::RememberState)) => saved += 1,
            Ok(Some(CfiKind::RestoreState)) if saved > 0 => saved -= 1,
            Ok(Some(
                CfiKind::RestoreState
                | CfiKind::SetLocation(_)
                | CfiKind::DefCfaExpression(_)
                | CfiKind::RegisterExpression(..),
            ))
            | Err(_) => return false,
            Ok(Some(_)) => {}
            Ok(None) => {
                let end = fde.start.checked_add(advanced);
                return end.is_some() && u32::try_from(advanced).is_ok();
            }
        }
    }
}

/// Fails if a CIE's initial instructions do not hold at any address.
pub(super) fn check_initial(table: &UnwindTable<'_>, cie: &Cie) -> Read<()> {
    let mut reader = table.cie_instructions(cie);
    while let Some(kind) = reader.next()? {
        match kind {
            CfiKind::Advance(_) | CfiKind::SetLocation(_) => {
                return Err("its CIE's instructions advance");
            }
            CfiKind::DefCfaExpression(e) | CfiKind::RegisterExpression(_, e) if uses_rip(e) => {
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
    let inserted = piece.inserted();
    let mut pending: Vec<usize> = (0..inserted.out_of_line.len()).collect();
    pending.sort_by_key(|i| inserted.out_of_line[*i].old);
    let mut writer = Writer {
        out,
        piece,
        start: fde.start,
        old: fde.start,
        new: piece.range.new_start,
        by_rip: None,
        saved: Vec::new(),
        written: None,
        state: State::initial(table.cie_instructions(table.cie(fde)))?,
        saved_states: Vec::new(),
        adjustments: &inserted.adjustments,
        frame: Frame::Below(0),
        out_of_line: &inserted.out_of_line,
        apart: inserted
            .out_of_line
            .first()
            .map_or(u64::MAX, |code| code.new),
        pending: &pending,
        states: Vec::new(),
        state_of: vec![None; pending.len()],
        follows: !inserted.adjustments.is_empty() || !inserted.out_of_line.is_empty(),
        keeps_below: None,
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
    writer.out_of_line()?;
    if !piece.searched() {
        return Err("too much code without known instructions");
    }
    Ok(())
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    piece: &'a Piece<'a>,
    /// The original location where the FDE begins.
    start: u64,
    /// The original location that has been reached.
    old: u64,
    /// The new location that has been written.
    new: u64,
    /// The CFA's expression, if it depends on the program counter.
    by_rip: Option<&'a [u8]>,
    saved: Vec<Option<&'a [u8]>>,
    /// The CFA's offset from rsp that was written in place of `by_rip`.
    written: Option<i64>,
    /// State after the written instructions, without regard to `frame`.
    state: State<'a>,
    saved_states: Vec<State<'a>>,
    /// Changes of the stack pointer that are still to come.
    adjustments: &'a [StackAdjustment],
    /// Where inserted code has moved rsp at `new`.
    frame: Frame,
    out_of_line: &'a [OutOfLine],
    /// New location from which code out of line follows. The rows of the program's own locations may all be at it.
    apart: u64,
    /// Indices of those whose original address is still to come, by that address.
    pending: &'a [usize],
    /// States at original addresses of code out of line.
    states: Vec<State<'a>>,
    /// For each of them the index of its state.
    state_of: Vec<Option<usize>>,
    /// True if a state at an original address will be needed.
    follows: bool,
    /// Answer of [`Piece::keeps_below`], once it was asked.
    keeps_below: Option<bool>,
}

impl<'a> Writer<'a> {
    /// Copies an instruction that holds from `self.old` on.
    fn copy(&mut self, kind: CfiKind<'a>, bytes: &'a [u8]) -> Read<()> {
        match kind {
            CfiKind::DefCfaExpression(e) if uses_rip(e) => {
                offset_from_rsp(e, self.old).ok_or(RIP_DEPENDENT)?;
                self.by_rip = Some(e);
                self.written = None;
                if !self.piece.stays() {
                    return Ok(());
                }
            }
            CfiKind::RegisterExpression(_, e) if uses_rip(e) => return Err(RIP_DEPENDENT),
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
        self.advance_to(self.piece.row_address(self.old))?;
        // No row of the program begins where rsp leads to another stack. If one did, a new offset would be none of a
        // register's.
        let is_part = matches!(kind, CfiKind::DefCfaRegister(_) | CfiKind::DefCfaOffset(_));
        if is_part && matches!(self.frame, Frame::Stored(_)) {
            return Err("its frame changes inside of inserted code");
        }
        self.out.extend_from_slice(bytes);
        match kind {
            _ if !self.follows => {}
            CfiKind::RememberState => self.saved_states.push(self.state.clone()),
            CfiKind::RestoreState => {
                self.state = self
                    .saved_states
                    .pop()
                    .ok_or("a state is restored but not saved")?;
            }
            _ => self.state.apply(kind, bytes),
        }
        if self.is_moved() {
            // The instruction has stated the frame anew, if at all.
            self.state.describe(Frame::Below(0), self.frame, self.out)?;
        }
        // Where LLVM splits a procedure, a piece's first row may place a register below rsp that is pushed later.
        // Inserted code of the pieces that lead there may have written to the place.
        let is_first = self.old == self.start && !self.piece.stays();
        self.change_lost(is_first || matches!(self.frame, Frame::Below(1..)));
        Ok(())
    }

    /// True if inserted code has moved rsp.
    fn is_moved(&self) -> bool {
        self.frame != Frame::Below(0)
    }

    /// Changes which rules are in force, and says so in the table. `written`: inserted code may have written below rsp.
    fn change_lost(&mut self, written: bool) {
        let kept = self.kept();
        if !(self.state.has_lost() || written && self.state.reaches_below_rsp(kept)) {
            return;
        }
        let before = self.state.clone();
        if written {
            self.state.lose(kept)
        } else {
            self.state.regain()
        }
        before.change_rules_to(&self.state, self.out);
    }

    /// Number of bytes below rsp that inserted code leaves alone. Asked only where a rule names a place there.
    fn kept(&mut self) -> i64 {
        if self.state.reaches_below_rsp(0) && self.keeps_below() {
            RED_ZONE
        } else {
            0
        }
    }

    /// True if inserted code leaves alone what is below rsp.
    fn keeps_below(&mut self) -> bool {
        let piece = self.piece;
        *self.keeps_below.get_or_insert_with(|| piece.keeps_below())
    }

    /// Writes the rows for the range from `self.old` to `end`, if the CFA depends on the program
    /// counter there.
    fn finish_row(&mut self, end: u64) -> Read<()> {
        while let Some((&code, rest)) = self.pending.split_first()
            && self.out_of_line[code].old < end
        {
            let mut state = self.state.clone();
            if let Some(expression) = self.by_rip {
                let old = self.out_of_line[code].old;
                let offset = offset_from_rsp(expression, old).ok_or(RIP_DEPENDENT)?;
                state.cfa = Cfa::Register(7, offset);
            }
            // Other inserted code may be on the way there.
            let kept = self.kept();
            if state.reaches_below_rsp(kept) {
                state.lose(kept);
            }
            if self.states.last() != Some(&state) {
                self.states.push(state);
            }
            self.state_of[code] = Some(self.states.len() - 1);
            self.pending = rest;
        }
        let Some(expression) = self.by_rip.filter(|_| !self.piece.stays()) else {
            return Ok(());
        };
        let first = self.old.max(self.piece.range.old_start);
        for old in first..end.min(self.piece.range.old_end) {
            if !self.piece.spend() {
                break;
            }
            let new = match self.piece.exact_row(old) {
                _ if old == first => self.piece.row_address(old),
                Some(new) => new,
                None => continue,
            };
            let offset = offset_from_rsp(expression, old).ok_or(RIP_DEPENDENT)?;
            if self.written != Some(offset) {
                self.advance_to(new)?;
                self.out.push(0x0c);
                self.out.push(7);
                leb128::push(self.out, u64::try_from(offset).map_err(|_| RIP_DEPENDENT)?);
                self.written = Some(offset);
                self.state.cfa = Cfa::Register(7, offset);
            }
        }
        Ok(())
    }

    /// Writes the rows of code that is after all other code.
    fn out_of_line(&mut self) -> Read<()> {
        self.apart = u64::MAX;
        for (code, state) in self
            .out_of_line
            .iter()
            .zip(std::mem::take(&mut self.state_of))
        {
            self.advance_to(code.new)?;
            if let Some(state) = state.map(|i| &self.states[i]) {
                let before = std::mem::replace(&mut self.state, state.clone());
                before.change_to(state, self.out)?;
                if self.is_moved() && before.cfa != self.state.cfa {
                    self.state.describe(Frame::Below(0), self.frame, self.out)?;
                }
            }
        }
        self.lower_until(self.piece.range.new_end)
    }

    /// Writes the rows of inserted code up to a new address.
    fn lower_until(&mut self, new: u64) -> Read<()> {
        while let Some((adjustment, rest)) = self.adjustments.split_first()
            && adjustment.at <= new
            && adjustment.at < self.apart
        {
            self.adjustments = rest;
            let before = std::mem::replace(&mut self.frame, adjustment.frame);
            let moves = before != self.frame;
            let kept = self.kept();
            let loses = adjustment.writes && self.state.reaches_below_rsp(kept);
            if !(moves && self.state.depends_on_rsp() || loses) {
                continue;
            }
            self.step_to(adjustment.at)?;
            if moves {
                self.state.describe(before, self.frame, self.out)?;
            }
            if loses {
                self.change_lost(true);
            }
        }
        Ok(())
    }

    fn advance_to(&mut self, new: u64) -> Read<()> {
        self.lower_until(new)?;
        self.step_to(new)
    }

    fn step_to(&mut self, new: u64) -> Read<()> {
        let delta = new
            .checked_sub(self.new)
            .ok_or("its instructions changed their order")?;
        self.new = new;
        if u32::try_from(delta).is_err() {
            return Err("an advance exceeds 4 GiB");
        }
        advance(self.out, delta);
        Ok(())
    }
}

/// Appends an advance of the location by `delta` bytes, which is less than 4 GiB.
pub(super) fn advance(out: &mut Vec<u8>, delta: u64) {
    match delta {
        0 => {}
        1..=0x3f => out.push(0x40 | delta as u8),
        0x40..=0xff => out.extend([0x02, delta as u8]),
        0x100..=0xffff => {
            out.push(0x03);
            out.extend((delta as u16).to_le_bytes());
        }
        _ => {
            out.push(0x04);
            out.extend((delta as u32).to_le_bytes());
        }
    }
}
