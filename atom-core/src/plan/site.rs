//! The code at one point: saves, arguments, calls, restores.
//!
//! A point may be anywhere in the program, so the code assumes nothing: the 128 bytes below rsp may hold
//! data (the red zone of the System V ABI), the stack may be misaligned, and every live register and flag
//! must keep its value. The order on the stack, downwards: red zone; the flags word, if the direction flag
//! may be set; saved registers; saved flags; values computed beforehand; stack arguments.
//!
//! The registers that must be saved depend on the order in which arguments can be filled. So the code is
//! emitted optimistically: missing saves are noted, and the point is emitted again until none is missing.
//!
//! A call is made in one of two ways. *Directly*: the point saves the registers that the routine clobbers.
//! *Through a wrapper*, an out-of-line stub shared by all points with the same routine and the same
//! registers to save: if the routine needs an aligned stack or saved vector state, or if there are many
//! registers to save. A third way has no call: the routine's body for these arguments is in the point
//! (see [`inline`]). If all calls of a point have bodies, the stack is used only if a register must be
//! saved, and flags are kept in rax.

use std::sync::Arc;

use atom_abi::THREAD_THIS;

use super::Clobbers;
use super::code::{Asm, Fixup, Target, call_routine};
use super::threads;
use super::wrapper::{Wrapper, Wrappers};
use crate::analysis::specialise::Body;
use crate::live::RegSet;
use crate::tool::value::{Taken, Value};
use crate::x86::abi::{ARGUMENT_REGISTERS, RED_ZONE};
use crate::x86::asm::{Cond, Gpr, Mem, Patch};

mod address;
mod inline;
mod state;
mod values;

use state::State;
pub use values::only_if_selected;

/// Number of registers up to which the point itself saves them; a wrapper saves more.
const MOST_SAVED_IN_LINE: u32 = 4;

/// One call to make.
#[derive(Clone, Debug)]
pub struct SiteCall {
    /// The routine's address in the tool's file.
    pub routine: u64,
    /// Registers and flags that the routine may change.
    pub clobbers: Clobbers,
    /// Its arguments.
    pub values: Vec<Value>,
    /// Body that can be in place of the call.
    pub body: Option<Arc<Body>>,
    /// Mask of the arguments that are the same in all calls of the routine.
    pub common: u64,
}

/// Facts about a point.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Registers and flags that are live.
    pub live: RegSet,
    /// True if the direction flag may be set.
    pub may_set_df: bool,
    /// True if the plan's data has fixed addresses that fit a displacement.
    pub absolute: bool,
    /// True if the code is a shared stub.
    pub is_piece: bool,
    /// True if the program keeps nothing below rsp.
    pub free_below: bool,
    /// True if the code runs on a private stack, whose topmost word holds the program's rsp.
    pub is_private: bool,
    /// Number of bytes that were pushed at the point before its calls, the red zone included.
    pub pushed: i32,
}

impl SiteCall {
    /// A call of a routine of the runtime.
    pub(super) fn of_runtime(routine: u64, values: Vec<Value>) -> Self {
        Self {
            routine,
            clobbers: Clobbers::EVERYTHING,
            values,
            body: None,
            common: 0,
        }
    }
}

impl Point {
    /// The facts at a hook: at a place where these registers are live, with or without data below rsp.
    pub(super) fn of_hook(live: RegSet, free_below: bool) -> Self {
        Self {
            live,
            may_set_df: true,
            absolute: false,
            is_piece: false,
            free_below,
            is_private: false,
            pushed: 0,
        }
    }

    /// Number of bytes below rsp in which the program may keep data.
    pub(super) fn red_zone(&self) -> i32 {
        if self.free_below || self.is_private {
            0
        } else {
            RED_ZONE
        }
    }
}

/// Needs of a point's code, found while emitting it. They only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Needs {
    gprs: u16,
    /// Registers saved only on paths of bodies other than the straight one, as a mask.
    cold_gprs: u16,
    flags: bool,
    /// True if a routine is called on every path.
    calls: bool,
    /// Mask of the calls whose bodies cannot be here.
    refused: u64,
    /// True if jumps in bodies do not reach in their short form.
    long: bool,
}

/// The result of emitting a point, besides its code.
#[derive(Default, Debug)]
pub struct Emitted {
    /// Number of calls whose bodies are in line.
    pub inlined: usize,
    /// Cold path, to be put after the procedure.
    pub cold_part: Asm,
}

impl Emitted {
    /// Appends the cold part to the code; the point's code starts at the offset `base`.
    pub fn join(self, asm: &mut Asm, base: usize) {
        let start = asm.code.len();
        asm.code.extend_from_slice(&self.cold_part.code);
        let cold_part = self.cold_part.fixups.iter().map(|f| Fixup {
            at: f.at + start as u32,
            ..*f
        });
        asm.fixups.extend(cold_part);
        asm.add_notes(&self.cold_part, start as u32);
        let code = &mut asm.code;
        asm.fixups.retain(|fixup| {
            let target = match fixup.target {
                Target::Main => base,
                Target::ColdPart => start,
                _ => return true,
            };
            let at = fixup.at as usize;
            let value = target as i32 + fixup.addend - (at as i32 + 4);
            code[at..at + 4].copy_from_slice(&value.to_le_bytes());
            false
        });
    }
}

/// Emits the calls of one point, whose code starts at the offset `base`.
pub fn emit(
    asm: &mut Asm,
    base: usize,
    calls: &[SiteCall],
    mut point: Point,
    wrappers: &mut Wrappers,
) -> Emitted {
    // Vector registers that arguments are computed from must keep their values until then.
    let xmms = calls.iter().flat_map(|c| &c.values).map(Value::xmm_sources);
    for number in xmms.flat_map(|mask| (0..16).filter(move |n| mask >> n & 1 != 0)) {
        point.live |= RegSet::xmm(number);
    }
    let start = (asm.mark(), wrappers.list.len());
    let mut needs = Needs {
        calls: calls.iter().any(|c| c.body.is_none()),
        ..Needs::default()
    };
    loop {
        let cold_part = asm.apart();
        let mut site = Site {
            asm,
            cold_part,
            in_cold_part: false,
            base,
            wrappers,
            point,
            needs,
            found: needs,
            state: State::at_point(point.pushed),
            spill: None,
            overflow: point.live.contains(RegSet::OF)
                || calls.iter().flat_map(|c| &c.values).any(Value::needs_flags),
            spoilt: false,
            spare: None,
        };
        site.run(calls);
        if site.found == needs {
            let refused = (0..64).filter(|n| needs.refused >> n & 1 != 0).count();
            let bodies = calls.iter().take(64).filter(|c| c.body.is_some()).count();
            return Emitted {
                inlined: bodies - refused,
                cold_part: site.cold_part,
            };
        }
        needs = site.found;
        asm.rewind(start.0);
        wrappers.truncate(start.1);
    }
}

/// Emits a call inside a function by the C ABI that keeps nothing on its stack.
pub fn emit_plain(asm: &mut Asm, routine: u64, values: &[Value]) {
    let place = |asm: &mut Asm, to: Gpr, value: &Value| match *value {
        Value::Const(constant) => asm.mov_imm(to, constant),
        Value::Data(offset) => asm.lea_target(to, Target::Data(offset)),
        Value::Tool(address) => asm.lea_target(to, Target::analysis(address)),
        Value::Original(address) => asm.lea_target(to, Target::original(address)),
        Value::Pointed { slot, offset } => {
            asm.load_target(to, Target::Data(slot));
            asm.lea(to, Mem::at(to, offset as i32));
        }
        _ => unreachable!("only constants and data are passed outside the program's code"),
    };
    let split = values.len().min(ARGUMENT_REGISTERS.len());
    let words = (values.len() - split) as i32;
    // The return address and an odd number of words make an even one.
    let padding = if words % 2 == 0 { 8 } else { 0 };
    asm.move_stack(-padding);
    for value in values[split..].iter().rev() {
        place(asm, Gpr::RAX, value);
        asm.push(Gpr::RAX);
    }
    for (value, to) in values.iter().zip(ARGUMENT_REGISTERS) {
        place(asm, to, value);
    }
    call_routine(asm, routine);
    asm.move_stack(padding + 8 * words);
}

/// Emits a test around the code that follows it, so that this runs only if
/// the branch will be taken. Neither registers nor flags change.
pub fn only_if_taken(asm: &mut Asm, taken: Taken) -> Vec<Patch> {
    match taken {
        Taken::Flags(cond) => vec![asm.jump_if(cond.inverted())],
        Taken::CountZero { narrow } => {
            let zero = asm.jump_if_rcx_zero(narrow);
            let skip = asm.jump();
            asm.land(zero);
            vec![skip]
        }
        Taken::Loop { narrow, zero } => {
            let mut skips = Vec::new();
            match zero {
                Some(true) => skips.push(asm.jump_if(Cond::NE)),
                Some(false) => skips.push(asm.jump_if(Cond::E)),
                None => {}
            }
            asm.lea(Gpr::RCX, Mem::at(Gpr::RCX, -1));
            let ends = asm.jump_if_rcx_zero(narrow);
            asm.lea(Gpr::RCX, Mem::at(Gpr::RCX, 1));
            let goes_on = asm.jump();
            asm.land(ends);
            asm.lea(Gpr::RCX, Mem::at(Gpr::RCX, 1));
            skips.push(asm.jump());
            asm.land(goes_on);
            skips
        }
    }
}

struct Site<'a> {
    asm: &'a mut Asm,
    /// The cold path.
    cold_part: Asm,
    /// True while code goes to the cold path.
    in_cold_part: bool,
    /// Offset at which the point's code starts.
    base: usize,
    wrappers: &'a mut Wrappers,
    point: Point,
    /// Needs that this attempt meets.
    needs: Needs,
    /// Needs found so far.
    found: Needs,
    /// What is true where the next instruction goes.
    state: State,
    /// A dead register that keeps rax for the program while flags are in ax.
    spill: Option<Gpr>,
    /// True if OF is among the flags that are kept in ax.
    overflow: bool,
    /// True if a reserved register was written to. A body that does so cannot be at the point.
    spoilt: bool,
    /// Register that the computation of a value in a body may use besides its result.
    spare: Option<Gpr>,
}

impl Site<'_> {
    fn run(&mut self, calls: &[SiteCall]) {
        let moved;
        let mut calls = calls;
        self.spill = self.find_spill(calls);
        if let Some(spill) = self.spill {
            moved = inline::read_from(calls, Gpr::RAX, spill);
            calls = &moved;
        }
        self.open();
        for (k, call) in calls.iter().enumerate() {
            let later = &calls[k + 1..];
            let sources = later
                .iter()
                .flat_map(|c| &c.values)
                .fold(0, |set, value| set | value.sources());
            let flags_later = later.iter().flat_map(|c| &c.values).any(Value::needs_flags);
            if !self.inline(k, call, sources, flags_later) {
                self.found.calls = true;
                self.call(call, sources, flags_later);
            }
        }
        self.close();
    }

    fn move_stack(&mut self, bytes: i32) {
        self.asm.move_stack(-bytes);
        self.state.depth += bytes;
    }

    fn push(&mut self, reg: Gpr) {
        self.asm.push(reg);
        self.state.depth += 8;
    }

    /// The word that was pushed when the stack had this depth.
    fn slot(&self, depth: i32) -> Mem {
        Mem::at(Gpr::RSP, self.state.depth - depth)
    }

    fn open(&mut self) {
        if self.needs.calls || self.needs.gprs != 0 {
            self.move_stack(self.point.red_zone());
        }
        if self.needs.calls && self.point.may_set_df {
            self.asm.push_flags();
            self.asm.clear_direction();
            self.state.depth += 8;
            self.state.flags_slot = self.state.depth;
            self.state.flags_pushed = true;
        }
        self.state.saved = self.needs.gprs;
        for number in 0..16 {
            if self.needs.gprs >> number & 1 != 0 {
                self.push(Gpr(number));
                self.state.slots[usize::from(number)] = self.state.depth;
            }
        }
        if self.needs.flags && !self.state.flags_pushed {
            match self.spill {
                Some(spill) => {
                    self.asm.mov(spill, Gpr::RAX);
                    self.state.intact &= !Gpr::RAX.bit();
                }
                None => self.overwrite(Gpr::RAX),
            }
            self.asm.flags_to_ax(self.overflow);
            self.state.flags_in_ax = !self.needs.calls;
            if self.state.flags_in_ax {
                self.state.reserved |= Gpr::RAX.bit() | self.spill.map_or(0, Gpr::bit);
            } else {
                self.push(Gpr::RAX);
                self.state.flags_slot = self.state.depth;
            }
        }
    }

    fn close(&mut self) {
        let restore = self.point.live.intersects(RegSet::FLAGS) && !self.state.flags_intact;
        if self.state.flags_in_ax {
            if restore {
                self.asm.flags_from_ax(self.overflow);
            }
            if let Some(spill) = self.spill {
                self.asm.mov(Gpr::RAX, spill);
            }
        } else if self.needs.flags && !self.state.flags_pushed {
            if restore {
                self.asm.pop(Gpr::RAX);
                self.asm.flags_from_ax(self.overflow);
            } else {
                self.asm.move_stack(8);
            }
        }
        for number in (0..16).rev() {
            if self.needs.gprs >> number & 1 != 0 {
                self.asm.pop(Gpr(number));
            }
        }
        if self.state.flags_pushed {
            self.asm.pop_flags();
        }
        if self.needs.calls || self.needs.gprs != 0 {
            self.asm.move_stack(self.point.red_zone());
        }
    }

    /// Notes that a register's value at the point must be saved.
    fn want(&mut self, gprs: u16) {
        // A call on a cold path restores what it saves itself.
        let gprs = gprs & (!self.state.saved | self.needs.gprs);
        let cold = self.state.cold_intact.unwrap_or(0) & !self.state.saved;
        self.found.cold_gprs |= gprs & cold;
        self.found.gprs |= gprs & !cold;
    }

    /// Notes that a register gets a new value.
    fn overwrite(&mut self, reg: Gpr) {
        self.spoilt |= self.state.reserved & reg.bit() != 0;
        self.state.intact &= !reg.bit();
        self.want(self.point.live.gpr_mask() & reg.bit());
    }

    fn is_intact(&self, reg: Gpr) -> bool {
        self.state.intact & reg.bit() != 0
    }

    /// The word that holds the program's rsp, if rsp leads to a private stack.
    fn stored_rsp(&self) -> Option<Mem> {
        self.point.is_private.then(|| self.slot(0))
    }

    /// True if a register's value at the point is read from memory.
    fn is_loaded(&self, reg: Gpr) -> bool {
        match reg {
            Gpr::RSP => self.point.is_private,
            other => !self.is_intact(other),
        }
    }

    /// The word that holds the program's value of a register, if the register does not.
    fn moved_to(&mut self, reg: Gpr) -> Option<Mem> {
        if self.is_intact(reg) {
            return None;
        }
        self.want(reg.bit());
        Some(self.slot(self.state.slots[usize::from(reg.0)]))
    }

    /// A register other than `to` that carries no argument, and in a body no value.
    fn scratch(&mut self, to: Gpr) -> Gpr {
        let usual = if to == Gpr::RAX { Gpr(11) } else { Gpr::RAX };
        let scratch = self.spare.unwrap_or(usual);
        self.overwrite(scratch);
        scratch
    }

    /// Restores the program's arithmetic flags.
    fn restore_flags(&mut self) {
        if self.state.flags_intact {
            return;
        }
        if self.state.flags_pushed {
            self.asm.push_mem(self.slot(self.state.flags_slot));
            self.asm.pop_flags();
            self.asm.clear_direction();
        } else if self.state.flags_in_ax {
            // The flags stay in ax too, as they may be needed again.
            self.asm.flags_from_ax(self.overflow);
            self.asm.flags_to_ax(self.overflow);
        } else {
            self.found.flags = true;
            self.overwrite(Gpr::RAX);
            self.asm.load(Gpr::RAX, self.slot(self.state.flags_slot));
            self.asm.flags_from_ax(self.overflow);
        }
        self.state.flags_intact = true;
    }

    fn call(&mut self, call: &SiteCall, sources_later: u16, flags_later: bool) {
        let outer = self.state.depth;
        let early = self.compute_first(&call.values);
        let split = call.values.len().min(ARGUMENT_REGISTERS.len());
        for i in (split..call.values.len()).rev() {
            self.push_value(&call.values[i], early[i]);
        }
        let keep_flags = flags_later || self.point.live.intersects(RegSet::FLAGS);
        self.fill_registers(&call.values[..split], &early, keep_flags);
        let stack_words = (call.values.len() - split) as u8;
        self.make_call(call, stack_words, sources_later, keep_flags);
        let used = self.state.depth - outer;
        self.move_stack(-used);
    }

    /// Computes the values that need fixed registers; returns the depths of the results.
    fn compute_first(&mut self, values: &[Value]) -> Vec<i32> {
        let mut early = vec![0; values.len()];
        for (i, value) in values
            .iter()
            .enumerate()
            .filter(|v| v.1.is_computed_first())
        {
            if *value == Value::Return {
                early[i] = self.push_return();
                continue;
            }
            self.move_stack(8);
            early[i] = self.state.depth;
            let slot = Mem::at(Gpr::RSP, 0);
            match value {
                Value::Cycles => {
                    self.overwrite(Gpr::RAX);
                    self.overwrite(Gpr::RDX);
                    self.asm.read_cycles();
                    self.asm.store32(slot, Gpr::RAX);
                    self.asm.store32(Mem::at(Gpr::RSP, 4), Gpr::RDX);
                }
                Value::Taken(taken) | Value::Next(taken, ..) => {
                    self.count_taken(*taken);
                    self.asm.store(slot, Gpr::RAX);
                }
                _ => {}
            }
        }
        early
    }

    /// Computes into rax whether a branch on rcx will be taken.
    fn count_taken(&mut self, taken: Taken) {
        if let Taken::Loop { zero: Some(_), .. } = taken {
            self.restore_flags();
        }
        if let Some(slot) = self.moved_to(Gpr::RCX) {
            self.overwrite(Gpr::RCX);
            self.asm.load(Gpr::RCX, slot);
        }
        self.overwrite(Gpr::RAX);
        match taken {
            Taken::CountZero { narrow } => {
                self.asm.mov_imm(Gpr::RAX, 1);
                let zero = self.asm.jump_if_rcx_zero(narrow);
                self.asm.mov_imm(Gpr::RAX, 0);
                self.asm.land(zero);
            }
            Taken::Loop { narrow, zero } => {
                self.asm.lea(Gpr::RCX, Mem::at(Gpr::RCX, -1));
                self.asm.mov_imm(Gpr::RAX, 0);
                let ends = self.asm.jump_if_rcx_zero(narrow);
                match zero {
                    None => self.asm.mov_imm(Gpr::RAX, 1),
                    Some(wanted) => {
                        self.asm
                            .set(if wanted { Cond::E } else { Cond::NE }, Gpr::RAX);
                        self.asm.zero_extend8(Gpr::RAX, Gpr::RAX);
                    }
                }
                self.asm.land(ends);
                self.asm.lea(Gpr::RCX, Mem::at(Gpr::RCX, 1));
            }
            Taken::Flags(_) => {}
        }
    }

    /// Pushes a stack argument.
    fn push_value(&mut self, value: &Value, early: i32) {
        match *value {
            Value::Cycles
            | Value::Return
            | Value::Taken(Taken::CountZero { .. } | Taken::Loop { .. }) => {
                self.asm.push_mem(self.slot(early));
            }
            Value::Const(constant) if i32::try_from(constant as i64).is_ok() => {
                self.asm.push_imm(constant as i32);
            }
            Value::Reg(reg) => match self.moved_to(reg) {
                None => self.asm.push(reg),
                Some(slot) => self.asm.push_mem(slot),
            },
            _ => {
                self.compute(Gpr::RAX, value, early, false);
                self.asm.push(Gpr::RAX);
            }
        }
        self.state.depth += 8;
    }

    /// Fills the argument registers. A register is filled when no argument that is still to be computed
    /// needs its old value. Where there is no such order, the values come from saved copies. Constants
    /// come last.
    fn fill_registers(&mut self, values: &[Value], early: &[i32], keep_flags: bool) {
        let is_constant = |value: &Value| matches!(value, Value::Const(_));
        let mut waiting: Vec<usize> = (0..values.len())
            .filter(|i| !is_constant(&values[*i]))
            .collect();
        while !waiting.is_empty() {
            let wanted_elsewhere = |i: usize| {
                let to = ARGUMENT_REGISTERS[i].bit() & self.state.intact;
                waiting
                    .iter()
                    .any(|j| *j != i && values[*j].sources() & to != 0)
            };
            let next = waiting
                .iter()
                .position(|i| !wanted_elsewhere(*i))
                .unwrap_or(0);
            let i = waiting.remove(next);
            self.compute(ARGUMENT_REGISTERS[i], &values[i], early[i], false);
        }
        let may_zero = !keep_flags || self.needs.flags || self.state.flags_pushed;
        for (i, value) in values.iter().enumerate().filter(|v| is_constant(v.1)) {
            self.compute(ARGUMENT_REGISTERS[i], value, early[i], may_zero);
        }
    }

    /// Computes a value into a register.
    fn compute(&mut self, to: Gpr, value: &Value, early: i32, may_change_flags: bool) {
        match *value {
            Value::Cycles
            | Value::Return
            | Value::Taken(Taken::CountZero { .. } | Taken::Loop { .. }) => {
                self.asm.load(to, self.slot(early));
            }
            Value::Const(0) if may_change_flags => {
                self.asm.zero(to);
                self.state.flags_intact = false;
            }
            Value::Const(constant) => self.asm.mov_imm(to, constant),
            Value::Data(offset) => self.asm.lea_target(to, Target::Data(offset)),
            Value::Thread { block, at } => {
                self.asm.gs();
                self.asm
                    .load_target(to, Target::Data(block + THREAD_THIS as u32));
                self.asm.lea(to, Mem::at(to, at.wrapping_sub(block) as i32));
            }
            Value::ThreadLookup {
                routine,
                block,
                offset,
            } => {
                self.asm.lea_target(to, Target::Data(block));
                self.push(to);
                let wrapper = self.wrappers.index(threads::lookup_wrapper(routine));
                self.asm.call(Target::Shared(wrapper));
                self.asm.pop(to);
                self.state.depth -= 8;
                self.asm.lea(to, Mem::at(to, offset as i32));
            }
            Value::Pointed { slot, offset } => {
                self.asm.load_target(to, Target::Data(slot));
                self.asm.lea(to, Mem::at(to, offset as i32));
            }
            Value::Original(address) => self.asm.lea_target(to, Target::original(address)),
            Value::Tool(address) => self.asm.lea_target(to, Target::analysis(address)),
            Value::Reg(reg) => match self.moved_to(reg) {
                None if reg == to => return,
                None => self.asm.mov(to, reg),
                Some(slot) => self.asm.load(to, slot),
            },
            Value::Stack(change) => match self.stored_rsp() {
                Some(word) => {
                    self.asm.load(to, word);
                    self.asm.lea(to, Mem::at(to, change));
                }
                None => self
                    .asm
                    .lea(to, Mem::at(Gpr::RSP, self.state.depth + change)),
            },
            Value::Outcome => {
                let at = self.state.depth - self.point.pushed;
                self.asm.lea(to, Mem::at(Gpr::RSP, at));
            }
            Value::Direction => {
                if self.state.flags_pushed {
                    self.asm.load(to, self.slot(self.state.flags_slot));
                } else {
                    self.asm.push_flags();
                    self.asm.pop(to);
                }
                self.clobber_flags();
                self.asm.shift_left(to, 53);
                self.asm.shift_right_signed(to, 63);
            }
            Value::Flags if self.state.flags_pushed => {
                self.asm.load(to, self.slot(self.state.flags_slot));
            }
            Value::Flags => {
                self.restore_flags();
                self.asm.push_flags();
                self.asm.pop(to);
            }
            Value::Taken(Taken::Flags(cond)) => {
                self.restore_flags();
                self.asm.set(cond, to);
                self.asm.zero_extend8(to, to);
            }
            Value::Address(address) => self.address(to, &address),
            _ => self.other_value(to, value, early),
        }
        self.overwrite(to);
    }

    /// Calls the routine, whose arguments are in place.
    fn make_call(&mut self, call: &SiteCall, stack_words: u8, sources: u16, keep_flags: bool) {
        let clobbers = &call.clobbers;
        let gprs = clobbers.gprs & RegSet::CALLER_SAVED.gpr_mask();
        let keep = (self.point.live.gpr_mask() | sources) & self.state.intact;
        let unsaved = gprs & keep & !self.state.saved;
        let xmms = clobbers.xmms & self.point.live.xmm_mask();
        let flags_saved = self.needs.flags || self.state.flags_pushed;
        let unchecked = self.wrappers.unchecked;
        let align = clobbers.needs_alignment || xmms != 0 || unchecked;
        let flags_lost = clobbers.flags || align;
        let in_line = (gprs & keep).count_ones() <= MOST_SAVED_IN_LINE;
        let stack = self.wrappers.stack;
        let apart = self.wrappers.apart.filter(|_| clobbers.is_apart);
        if in_line
            && stack.is_none()
            && apart.is_none()
            && xmms == 0
            && !unchecked
            && !clobbers.mxcsr
            && !clobbers.needs_alignment
        {
            self.want(unsaved);
            if clobbers.flags && keep_flags && !self.state.flags_pushed {
                self.found.flags = true;
            }
            call_routine(self.asm, call.routine);
            self.state.intact &= !gprs;
            self.state.flags_intact &= !clobbers.flags;
            return;
        }
        let flags = flags_lost && keep_flags && self.state.flags_intact && !flags_saved;
        // The wrapper saves flags through rax.
        let rax = if flags {
            Gpr::RAX.bit() & keep & !self.state.saved
        } else {
            0
        };
        let wrapper = Wrapper {
            routine: call.routine,
            gprs: unsaved | rax,
            xmms,
            flags,
            mxcsr: clobbers.mxcsr,
            align,
            unchecked,
            stack_words,
            yields: false,
            stack,
            apart,
            stub: None,
        };
        let changed = gprs | if flags { Gpr::RAX.bit() } else { 0 };
        self.state.intact &= wrapper.gprs | !changed;
        self.asm.call(Target::Shared(self.wrappers.index(wrapper)));
        self.state.flags_intact &= flags || !flags_lost;
    }
}
