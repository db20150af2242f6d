//! Comparison of frame descriptions: at each instruction of the new text the output's table must find the caller, its
//! registers and the return address where the original's table finds them at the original instruction.
//!
//! In inserted code the stack pointer and registers have changed; the state of the walk says how.

mod caller;
mod landing;
mod rows;

use super::memory::Memory;
use super::state::{Base, Slot, State, Value, Written, place};
use super::step::Complaint;
use crate::layout::Placed;
use crate::live::RegSet;
use crate::unwind::UnwindTable;
use caller::{Caller, HARDWARE, RSP, Registers, Term};
pub use rows::Lost;
use rows::{Cfa, Reader, Row, Rule, Rulebook, Table};

/// DWARF numbers of registers that a callee keeps: rbx, rbp, r12 to r15.
const KEPT: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// DWARF number of rbp.
const RBP: u16 = 6;

/// Where rsp leads to.
type Rsp = (Base, i64);

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
    /// Addresses of the row of the last place that was judged, if it was the usual case and outside of shared code.
    usual: std::ops::Range<u64>,
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

    /// True if the program may still read a general register, given by its DWARF number.
    fn is_live(&self, register: u16) -> bool {
        let number = HARDWARE[usize::from(register)];
        self.live.contains(RegSet::gpr(number.into()))
    }
}

/// The first caller of shared code outside of it.
struct OuterCaller {
    /// The address by which it is found.
    code: u64,
    rsp: Rsp,
    /// rbp is found in one of the frames on the way.
    has_rbp: bool,
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
            usual: 0..0,
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
    /// that caller's rsp. `None` for other frames. `around` are the return addresses of the calls of shared code on the way
    /// there.
    fn callers(&mut self, address: u64, around: &[u64], state: &State) -> Option<OuterCaller> {
        let (mut code, mut rsp) = (address, state.stack_pointer());
        let mut has_rbp = false;
        for back in around.iter().rev() {
            let row = self.output.row(code, &mut self.book)?;
            if !self.book.is_called(&row) {
                return None;
            }
            let (base, at) = match row.cfa {
                Cfa::Register(RSP, n) => moved(rsp?, n),
                Cfa::Register(_, n) => moved(place(state.gprs[usize::from(RBP_NUMBER)])?, n),
                Cfa::Stored(at, n) => moved(place(word(state, rsp?, at)?)?, n),
                Cfa::Expression(_) => return None,
            };
            let has = |at: i64, value| state.load(base, at) == Some(Slot::Word(value));
            if matches!(row.cfa, Cfa::Register(RBP, _)) {
                has_rbp = has(at - 16, Value::Sum(RBP_NUMBER, 0));
            }
            if !has(at - 8, Value::Return(*back)) {
                return None;
            }
            rsp = Some((base, at));
            code = back - 1;
        }
        let rsp = rsp?;
        Some(OuterCaller { code, rsp, has_rbp })
    }

    /// True in the usual case, which is found at less cost: the row finds the original's frame and has its rules, and what
    /// it leaves in registers is there, or dead.
    fn is_plain(
        &mut self,
        expected: &Expected<'a>,
        address: u64,
        around: &[u64],
        state: &State,
    ) -> bool {
        self.callers(address, around, state).is_some_and(|caller| {
            let lost = lost(state, caller.has_rbp);
            self.finds_same(expected, caller.code, (caller.rsp, lost), state)
        })
    }

    /// True if the row for an address of code has the rules of an expected one and finds the same frame, where rsp is
    /// `rsp`. Of the registers that a callee keeps, those that are `lost` are dead or kept in the frame.
    pub fn finds_same(
        &mut self,
        expected: &Expected<'a>,
        code: u64,
        (rsp, lost): (Rsp, Lost),
        state: &State,
    ) -> bool {
        let Some(row) = self.output.row(code, &mut self.book) else {
            return false;
        };
        let has_lost_rbp = lost.has(RBP);
        let lost = lost.without(self.book.registers(&row));
        if !lost.is_empty() && KEPT.iter().any(|r| lost.has(*r) && expected.is_live(*r)) {
            return false;
        }
        let found = match (row.cfa, rsp) {
            (Cfa::Register(RSP, n), (Base::Point, at)) => Some((RSP, at + n)),
            (Cfa::Register(RBP, n), _) if !has_lost_rbp => Some((RBP, n)),
            (Cfa::Stored(at, n), _) => match word(state, rsp, at) {
                Some(Value::Sum(RSP_NUMBER, at)) => Some((RSP, at + n)),
                _ => None,
            },
            _ => None,
        };
        let mut each = expected.rows.iter().flatten();
        found.is_some_and(|frame| {
            each.any(|(_, original)| self.book.finds_same(&row, original, frame, state.written()))
        })
    }

    /// True in the usual case in shared code: the frames lead to the call of that code, before which rsp was at this
    /// offset from rsp at the point, and registers that a callee keeps have their values in that frame, unless they were
    /// `lost` before the call.
    pub fn leads_to_call(
        &mut self,
        address: u64,
        around: &[u64],
        state: &State,
        (offset, before): (i64, Lost),
    ) -> bool {
        if let Some(OuterCaller { rsp, has_rbp, .. }) = self.callers(address, around, state) {
            return rsp == (Base::Point, offset) && lost(state, has_rbp).without(before).is_empty();
        }
        let Ok((_, registers)) = self.outwards(address, around, state) else {
            return false;
        };
        let is_own = |register: &u16| {
            before.has(*register) || registers.get(*register) == Term::Register(*register, 0)
        };
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
            // Unwinders look up the call, which is in front of the return address.
            code = back - 1;
        }
        Ok((code, registers))
    }

    /// As [`Self::look`], where the program's state is as at the point and `written` was written.
    pub fn look_at_point(
        &mut self,
        expected: &Expected<'a>,
        address: u64,
        written: Written,
    ) -> Result<(), Complaint> {
        let is_usual = |frames: &mut Self| {
            let row = frames.output.row(address, &mut frames.book);
            let mut each = expected.rows.iter().flatten();
            row.is_some_and(|row| match row.cfa {
                Cfa::Register(by, n) => each
                    .any(|(_, original)| frames.book.finds_same(&row, original, (by, n), written)),
                _ => false,
            })
        };
        if expected.is_empty() || is_usual(self) {
            return Ok(());
        }
        self.look(expected, address, &[], &State::after(written))
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
        self.usual = 0..0;
        if expected.is_empty() {
            return Ok(());
        }
        if self.is_plain(expected, address, around, state) {
            if around.is_empty()
                && let Some(row) = self.output.row(address, &mut self.book)
            {
                self.usual = address..row.end();
            }
            debug_assert_eq!(self.judge(expected, address, around, state), Ok(()));
            return Ok(());
        }
        self.judge(expected, address, around, state)
    }

    /// True if an address is described as the place that was judged last, which was right, if nothing but registers
    /// that a callee may change has changed on the way from there.
    pub fn is_as_before(&self, address: u64) -> bool {
        self.usual.contains(&address)
    }

    /// As [`Self::look`], by all that the row finds.
    fn judge(
        &mut self,
        expected: &Expected<'a>,
        address: u64,
        around: &[u64],
        state: &State,
    ) -> Result<(), Complaint> {
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

/// A place of the stack that is some bytes from another.
fn moved((base, at): Rsp, by: i64) -> Rsp {
    (base, at + by)
}

/// The word that is kept some bytes from a place of the stack.
fn word(state: &State, (base, at): Rsp, by: i64) -> Option<Value> {
    match state.load(base, at + by)? {
        Slot::Word(value) => Some(value),
        Slot::Vector(_) => None,
    }
}

/// The registers that a callee keeps and that do not have their values, without rbp if its value is in a frame.
pub fn lost(state: &State, has_rbp: bool) -> Lost {
    let mut lost = Lost::default();
    for register in KEPT {
        let number = HARDWARE[usize::from(register)];
        let is_own = state.gprs[usize::from(number)] == Value::Sum(number, 0);
        let is_kept = number == RBP_NUMBER && has_rbp;
        if !is_own && !is_kept {
            lost = lost.with(register);
        }
    }
    lost
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
        Cfa::Stored(..) => false,
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
