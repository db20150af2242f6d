//! Comparison of frame descriptions: at each instruction of the new text the output's table must find the caller, its
//! registers and the return address where the original's table finds them at the original instruction.
//!
//! In inserted code the stack pointer and registers have changed; the state of the walk says how.

mod caller;
mod landing;
mod rows;

use super::memory::Memory;
use super::state::{Base, Slot, State, Value};
use super::step::Complaint;
use crate::layout::Placed;
use crate::live::RegSet;
use crate::unwind::UnwindTable;
use caller::{Caller, HARDWARE, RSP, Registers, Term};
use rows::{Cfa, Reader, Row, Rule, Rulebook, Table};

/// DWARF numbers of registers that a callee keeps: rbx, rbp, r12 to r15.
const KEPT: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// Hardware numbers of rsp and rbp.
const RSP_NUMBER: u8 = 4;
const RBP_NUMBER: u8 = 5;

/// The tables of the original and of the output.
#[derive(Clone)]
pub struct Tables<'a> {
    original: Table<'a>,
    output: Table<'a>,
    /// Ranges of new text that the table does not describe, which has been reported.
    undescribed: Vec<(u64, u64)>,
}

impl<'a> Tables<'a> {
    /// `None` if the output has no table of its own.
    pub fn of(placed: &'a Placed<'_>, memory: &Memory<'a>) -> Option<Result<Self, Complaint>> {
        let blobs = placed.placement.unwind.as_ref()?;
        let header = blobs.eh_frame_hdr.address;
        let undescribed = blobs.undescribed.iter();
        let tables = Table::indexed(memory, header).map(|output| Self {
            original: Table::original(&placed.object.unwind),
            output,
            undescribed: undescribed
                .map(|u| (u.range.new_start, u.range.new_end))
                .collect(),
        });
        Some(tables.ok_or_else(|| format!("there is no index of frames at {header:#x}")))
    }
}

/// Rows of both tables.
pub struct Frames<'a> {
    original: Reader<'a>,
    output: Reader<'a>,
    book: Rulebook<'a>,
    /// The address of the original that was compared last, its row, and the caller that the row finds.
    compared: Option<((u64, Row<'a>), Caller<'static>)>,
    undescribed: Vec<(u64, u64)>,
    areas: landing::Areas<'a>,
}

/// What frame descriptions must say at a point of the original and in the code inserted there.
#[derive(Clone, Copy, Default)]
pub struct Expected<'a> {
    /// Original addresses and their rows. Each is right.
    rows: [Option<(u64, Row<'a>)>; 2],
    /// The registers that the program may still read.
    live: RegSet,
}

impl Expected<'_> {
    /// True if the original says nothing.
    pub fn is_empty(&self) -> bool {
        self.rows[0].is_none()
    }
}

impl<'a> Frames<'a> {
    /// Readers for one thread.
    pub fn new(tables: &Tables<'a>) -> Self {
        Self {
            original: Reader::new(tables.original.clone()),
            output: Reader::new(tables.output.clone()),
            book: Rulebook::default(),
            compared: None,
            undescribed: tables.undescribed.clone(),
            areas: landing::Areas::default(),
        }
    }

    /// Compares where exceptions lead at an original address and at its new place. `place_of` tells the new place of a
    /// landing pad.
    pub fn landing(
        &mut self,
        table: &UnwindTable<'a>,
        memory: &Memory<'a>,
        (old, new): (u64, u64),
        place_of: impl FnMut(u64) -> u64,
    ) -> Result<(), Complaint> {
        let within = |range: &(u64, u64)| (range.0..range.1).contains(&new);
        match self.output.description(new, &mut self.book) {
            Some(found) if !self.undescribed.iter().any(within) => self
                .areas
                .compare(table, memory, (old, new), found, place_of)
                .map_err(|e| format!("the frame description at {new:#x} {e}")),
            _ => Ok(()),
        }
    }

    /// Expects what the original says at any of these addresses, two at most; nothing if it does not describe all of them.
    pub fn expect(&mut self, addresses: &[u64], live: RegSet) -> Expected<'a> {
        debug_assert!(addresses.len() <= 2);
        let mut rows = [None, None];
        for (old, place) in addresses.iter().zip(&mut rows) {
            let row = self.original.row(*old, &mut self.book);
            *place = row.map(|row| (*old, row));
            if place.is_none() {
                return Expected {
                    live,
                    ..Expected::default()
                };
            }
        }
        Expected { rows, live }
    }

    /// Where the usual frames of shared code lead: the address of code by which the first caller outside of it is found, and
    /// that caller's rsp, as an offset from rsp at the point. Also true if rbp is found in one of the frames. `None` for
    /// other frames. `around` are the return addresses of the calls of shared code on the way there.
    fn callers(&mut self, address: u64, around: &[u64], state: &State) -> Option<(u64, i64, bool)> {
        let in_frame = |register: u16| {
            let number = HARDWARE[usize::from(register)];
            match state.gprs[usize::from(number)] {
                Value::Sum(RSP_NUMBER, at) => Some(at),
                _ => None,
            }
        };
        let has = |at: i64, value| state.load(Base::Point, at) == Some(Slot::Word(value));
        let (mut code, mut rsp) = (address, in_frame(RSP));
        let mut has_rbp = false;
        for back in around.iter().rev() {
            let row = self.output.row(code, &mut self.book)?;
            let (by, size) = self.book.called_frame(&row)?;
            let found = if by == RSP { rsp } else { in_frame(by) };
            let at = found? + size;
            rsp = Some(at);
            if by != RSP {
                has_rbp = has(at - 16, Value::Sum(RBP_NUMBER, 0));
            }
            if !has(at - 8, Value::Return(*back)) {
                return None;
            }
            code = back - 1;
        }
        Some((code, rsp?, has_rbp))
    }

    /// True in the usual case, which is found at less cost: registers that a callee keeps have their values, and
    /// the row differs from the original's by the distance of rsp at most.
    fn is_plain(
        &mut self,
        expected: &Expected<'a>,
        address: u64,
        around: &[u64],
        state: &State,
    ) -> bool {
        self.callers(address, around, state)
            .is_some_and(|(code, rsp, has_rbp)| {
                keeps(state, has_rbp) && self.is_lowered(expected, code, -rsp)
            })
    }

    /// True if the row for an address of code differs from an expected one by a distance of rsp, `depth` bytes, at most.
    pub fn is_lowered(&mut self, expected: &Expected<'a>, code: u64, depth: i64) -> bool {
        let Some(row) = self.output.row(code, &mut self.book) else {
            return false;
        };
        let mut each = expected.rows.iter().flatten();
        each.any(|(_, original)| self.book.is_lowered(&row, original, depth))
    }

    /// True in the usual case in shared code: the frames lead to the call of that code, before which rsp was at this
    /// offset from rsp at the point, and registers that a callee keeps have their values in that frame.
    pub fn leads_to_call(
        &mut self,
        address: u64,
        around: &[u64],
        state: &State,
        offset: i64,
    ) -> bool {
        if let Some((_, rsp, has_rbp)) = self.callers(address, around, state) {
            return rsp == offset && keeps(state, has_rbp);
        }
        let Ok((_, registers)) = self.outwards(address, around, state) else {
            return false;
        };
        let is_own = |register: &u16| registers.get(*register) == Term::Register(*register, 0);
        registers.get(RSP) == Term::Register(RSP, offset) && KEPT.iter().all(is_own)
    }

    /// The address of code by which the first caller outside of shared code is found, and the registers there.
    fn outwards<'s>(
        &mut self,
        address: u64,
        around: &[u64],
        state: &'s State,
    ) -> Result<(u64, Registers<'s>), Complaint> {
        let mut code = address;
        let mut registers = Registers::inside(state);
        for back in around.iter().rev() {
            let row = self.output.row(code, &mut self.book);
            let row = row.ok_or_else(|| format!("no frame description covers {code:#x}"))?;
            let caller = registers.caller(&row, &self.book, code);
            if caller.return_address != Term::Return(*back) {
                return Err(format!(
                    "the frame description at {code:#x} finds {:?}, not the return address {back:#x}",
                    caller.return_address
                ));
            }
            registers = caller.registers;
            // Unwinders look up the call, which stands in front of the return address.
            code = back - 1;
        }
        Ok((code, registers))
    }

    /// Judges the description at an address of the new text. `around` are the return addresses of the calls of shared
    /// code on the way there.
    pub fn look(
        &mut self,
        expected: &Expected<'a>,
        address: u64,
        around: &[u64],
        state: &State,
    ) -> Result<(), Complaint> {
        if expected.is_empty() {
            return Ok(());
        }
        if self.is_plain(expected, address, around, state) {
            return Ok(());
        }
        let (code, registers) = self.outwards(address, around, state)?;
        let within = |range: &(u64, u64)| (range.0..range.1).contains(&code);
        if self.undescribed.iter().any(within) {
            return Ok(());
        }
        let Some(row) = self.output.row(code, &mut self.book) else {
            return Err(format!("no frame description covers {code:#x}"));
        };
        let mut result = Ok(());
        for (old, original) in expected.rows.iter().flatten() {
            let known = self
                .compared
                .take()
                .filter(|(at, _)| *at == (*old, *original));
            let (_, caller) = self.compared.insert(known.unwrap_or_else(|| {
                let caller = Registers::at_point().caller(original, &self.book, *old);
                ((*old, *original), caller)
            }));
            let found = registers.caller(&row, &self.book, code);
            let stated = self.book.of(original).iter().map(|r| r.0);
            result = differs(caller, &found, stated, expected.live);
            if result.is_ok() || names_changed(&self.book, original, state) {
                return Ok(());
            }
        }
        result.map_err(|e| format!("the frame description at {address:#x} {e}"))
    }
}

/// True if registers that a callee keeps have their values, or rbp's lies in a frame.
fn keeps(state: &State, has_rbp: bool) -> bool {
    KEPT.iter().all(|register| {
        let number = HARDWARE[usize::from(*register)];
        let is_own = state.gprs[usize::from(number)] == Value::Sum(number, 0);
        is_own || (number == RBP_NUMBER && has_rbp)
    })
}

/// True if a row finds something by a register that inserted code has changed: it may use any register that is dead, or
/// that it has saved. rsp does not count, since rows can say how far it has moved.
fn names_changed(book: &Rulebook<'_>, row: &Row<'_>, state: &State) -> bool {
    let is_changed = |register: u16| {
        let number = HARDWARE.get(usize::from(register)).copied();
        let is_own = |n: u8| state.gprs[usize::from(n)] == Value::Sum(n, 0);
        register != RSP && number.is_some_and(|n| !is_own(n))
    };
    let in_expression = |e: &[u8]| caller::registers_of(e).any(is_changed);
    let by_frame = match row.cfa {
        Cfa::Register(register, _) => is_changed(register),
        Cfa::Expression(e) => in_expression(e),
    };
    by_frame
        || book.of(row).iter().any(|r| match r.1 {
            Rule::Register(other) => is_changed(other),
            Rule::AtExpression(e) | Rule::IsExpression(e) => in_expression(e),
            _ => false,
        })
}

/// Compares what a row of the original finds at the point with what a row of the output finds in inserted code. `stated`
/// are the registers of which the original's row says something.
fn differs(
    expected: &Caller<'_>,
    found: &Caller<'_>,
    stated: impl Iterator<Item = u16>,
    live: RegSet,
) -> Result<(), String> {
    let (frame, found_frame) = (expected.registers.get(RSP), found.registers.get(RSP));
    if frame == Term::Unknown {
        return Ok(());
    }
    if frame != found_frame {
        return Err(format!("finds the frame {found_frame:?}, not {frame:?}"));
    }
    // The outermost frame has no caller, so it does not matter what a guard in front of it says.
    let has_caller = expected.return_address != Term::Nowhere;
    if has_caller && expected.return_address != found.return_address {
        return Err(format!(
            "finds the return address {:?}, not {:?}",
            found.return_address, expected.return_address
        ));
    }
    for register in KEPT.into_iter().chain(stated) {
        let Some(hardware) = HARDWARE.get(usize::from(register)) else {
            continue;
        };
        let (then, now) = (
            expected.registers.get(register),
            found.registers.get(register),
        );
        let own = Term::Register(register, 0);
        // A place below rsp: the program has restored the register, and both are right.
        let is_below = |term: &Term| matches!(term, Term::Memory(RSP, ..0));
        let is_dead = !live.contains(RegSet::gpr(usize::from(*hardware)));
        let is_right = then == now
            || then == Term::Unknown
            || (is_below(&then) && (now == own || !KEPT.contains(&register)))
            // "r11 has rsp's value": no unwinder needs it, and no row can say it where rsp is lower.
            || (matches!(then, Term::Register(RSP, _)) && !KEPT.contains(&register))
            || (then == own && (is_dead || is_below(&now)));
        if !is_right {
            return Err(format!(
                "finds {now:?} for the register with the number {register}, not {then:?}"
            ));
        }
    }
    Ok(())
}

/// What inserted code has written below rsp, as offsets from rsp, carried on to the next instruction of the program.
pub fn carried(
    written: Option<(i64, i64)>,
    before: &Expected<'_>,
    after: &Expected<'_>,
) -> Option<(i64, i64)> {
    let from_rsp = |expected: &Expected<'_>| match expected.rows[0].as_ref()?.1.cfa {
        Cfa::Register(RSP, n) => Some(n),
        _ => None,
    };
    let (from, to) = written?;
    let grown = from_rsp(after)? - from_rsp(before)?;
    let (from, to) = (from.saturating_add(grown), to.saturating_add(grown).min(0));
    (from < to).then_some((from, to))
}
