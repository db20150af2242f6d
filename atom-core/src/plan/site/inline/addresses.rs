//! Inputs that are addresses and are computed where they are used.
//!
//! An address that is kept in a register from the start takes a register that is not free at most points.
//! Its parts stay in the program's registers anyway, so it is rematerialised for each use: a copy becomes
//! `lea`, and so does an addition whose flags nothing reads.

use super::super::{Site, SiteCall};
use super::{Context, Path, Refused, Result, Where};
use crate::analysis::specialise::ops::{
    Base, End, Imm, Machine, Mem as OpMem, Op, Rm, Slot, Start, V,
};
use crate::plan::code::{Encoding, Operand};
use crate::tool::value::{Address, Segment, Value};
use crate::x86::asm::{Gpr, Mem};
use crate::x86::flags;
use crate::x86::opcode::{self, Alu};

const ADD_R_RM: u16 = Alu::Add.r_rm();
const ADD_RM_R: u16 = Alu::Add.rm_r();

/// Limit of displacements in bytes, as the stack's depth may be added to them.
const MOST_DISPLACEMENT: i64 = 1 << 30;

/// True if nothing reads the flags that are set before these operations.
pub(super) fn flags_are_dead(ops: &[Op], end: &End) -> bool {
    for op in ops {
        let Op::Machine(m) = op else { continue };
        if m.reads != 0 {
            return false;
        }
        // Arithmetic, logic, comparisons and `test` set all flags.
        let by_constant = matches!(
            m.opcode,
            opcode::ALU_RM8_IMM8 | opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8
        );
        let test = m.opcode == opcode::sized(opcode::TEST_RM_R, m.width);
        let sets = Alu::of(m.opcode).is_some() || by_constant || test;
        if sets && m.changes == flags::ALL {
            return true;
        }
    }
    !matches!(end, End::Branch(..))
}

/// True if an access of the body may be elsewhere than in the data of the plan or of the tool.
fn may_fault(mem: &OpMem, call: &SiteCall) -> bool {
    let is_known = match mem.start {
        Start::Symbol(symbol) => match symbol.base {
            Base::Image => true,
            Base::Argument(i) => !matches!(call.values.get(usize::from(i)), Some(Value::Const(_))),
        },
        Start::Nothing | Start::Value(_) => false,
    };
    mem.index.is_some() || !is_known
}

/// A `mov` from register to register: the value written and the value read.
fn as_move(m: &Machine) -> Option<(V, V)> {
    if m.width < 4 || m.rep || m.lock || m.imm != Imm::None {
        return None;
    }
    match (m.opcode, m.reg, m.rm) {
        (opcode::MOV_R_RM, Slot::Define(to), Rm::Reg(Slot::Use(from)))
        | (opcode::MOV_RM_R, Slot::Use(from), Rm::Reg(Slot::Define(to))) => Some((to, from)),
        _ => None,
    }
}

/// An `add` of two 64-bit registers: the value changed, before and after, and the value added.
fn as_add(m: &Machine) -> Option<(V, V, V)> {
    if m.width != 8 || m.lock {
        return None;
    }
    match (m.opcode, m.reg, m.rm) {
        (ADD_R_RM, Slot::Modify { old, new }, Rm::Reg(Slot::Use(other)))
        | (ADD_RM_R, Slot::Use(other), Rm::Reg(Slot::Modify { old, new })) => {
            Some((old, new, other))
        }
        _ => None,
    }
}

impl Site<'_> {
    /// Notes the next instruction if it is an access of the routine's that may fault.
    pub(super) fn note_access(&mut self, m: &Machine, call: &SiteCall) {
        if matches!(&m.rm, Rm::Mem(mem) if may_fault(mem, call)) {
            self.asm.accesses_for(call.routine as u32);
        }
    }

    /// True if an address may be computed later: it consists of base, index and displacement, and the
    /// registers still hold the program's values.
    pub(super) fn can_wait(&self, a: &Address) -> bool {
        let plain = Address {
            base: a.base,
            index: a.index,
            disp: a.disp,
            index_is_byte: false,
            element: None,
            bits: None,
            image: None,
            narrow: false,
            segment: Segment::Flat,
        };
        *a == plain
            && (a.base.is_some() || a.index.is_some())
            && a.sources() & !self.state.intact == 0
            && !(self.point.is_private && a.base == Some(Gpr::RSP))
            && a.disp.abs() < MOST_DISPLACEMENT
    }

    fn displacement(&self, a: &Address) -> i32 {
        let on_stack = if a.base == Some(Gpr::RSP) {
            self.state.depth
        } else {
            0
        };
        a.disp as i32 + on_stack
    }

    /// Computes an address, or its low half, at its use.
    pub(super) fn place_address(&mut self, to: u8, a: &Address, low_half: bool) {
        let mem = Mem {
            base: a.base,
            index: a.index,
            disp: self.displacement(a),
        };
        let to = self.write(to);
        match mem {
            Mem {
                base: Some(base),
                index: None,
                disp: 0,
            } if low_half => self.asm.mov32(to, base),
            Mem {
                base: Some(base),
                index: None,
                disp: 0,
            } => self.asm.mov(to, base),
            _ if low_half => self.asm.lea32(to, mem),
            _ => self.asm.lea(to, mem),
        }
    }

    /// Adds an address to a register without changing flags.
    fn add_address(&mut self, to: u8, a: &Address) {
        let to = self.write(to);
        let disp = self.displacement(a);
        let (first, second) = match (a.base, a.index) {
            (base, Some((index, scale))) => {
                let mut sum = Mem::indexed(to, index, scale);
                sum.disp = disp;
                (sum, base.map(|base| Mem::indexed(base, to, 1)))
            }
            (Some(base), None) => {
                let mut sum = Mem::indexed(base, to, 1);
                sum.disp = disp;
                (sum, None)
            }
            (None, None) => (Mem::at(to, disp), None),
        };
        self.asm.lea(to, first);
        if let Some(second) = second {
            self.asm.lea(to, second);
        }
    }

    /// Emits a copy of an address, or an addition, in a form that takes fewer registers; false if the
    /// operation is neither.
    pub(super) fn with_address(
        &mut self,
        context: &Context,
        m: &Machine,
        live: u128,
        flags_dead: bool,
        path: &mut Path,
    ) -> Result<bool> {
        if let Some((to, from)) = as_move(m) {
            let Where::Address(a) = path.at(from) else {
                return Ok(false);
            };
            let reg = self.pick(context, path.held, 0)?;
            self.place_address(reg, &a, m.width == 4);
            path.own(to, reg);
            path.release(live, context.reserved);
            return Ok(true);
        }
        if let Some((old, new, other)) = as_add(m) {
            let (changed, a) = match (path.at(old), path.at(other)) {
                (_, Where::Address(a)) => (old, a),
                (Where::Address(a), _) => (other, a),
                _ => return Ok(false),
            };
            if !flags_dead || old == other {
                return Ok(false);
            }
            let reg = self.modify(context, changed, m, live, path)?;
            self.add_address(reg, &a);
            path.own(new, reg);
            path.release(live, context.reserved);
            return Ok(true);
        }
        self.sum_with_memory(context, m, live, flags_dead, path)
    }

    /// Emits an `add` of memory to a value that must be kept: the memory operand is loaded, into the register
    /// of its own address, and the value is added to it.
    fn sum_with_memory(
        &mut self,
        context: &Context,
        m: &Machine,
        live: u128,
        flags_dead: bool,
        path: &mut Path,
    ) -> Result<bool> {
        let (ADD_R_RM, 8, Slot::Modify { old, new }, Rm::Mem(_)) = (m.opcode, m.width, m.reg, m.rm)
        else {
            return Ok(false);
        };
        match path.at(old) {
            Where::Address(_) if flags_dead => {}
            Where::Register(reg) if path.owned >> reg & 1 == 0 => {}
            _ => return Ok(false),
        }
        let load = Machine {
            opcode: opcode::MOV_R_RM,
            reg: Slot::Define(new),
            changes: 0,
            ..*m
        };
        self.operation(context, &load, live | old.bit() | new.bit(), path)?;
        let Where::Register(to) = path.at(new) else {
            return Err(Refused);
        };
        match path.at(old) {
            Where::Address(a) => self.add_address(to, &a),
            Where::Register(from) => {
                if m.changes & context.flags != 0 {
                    self.change_flags();
                }
                let to = self.write(to);
                self.asm.machine(&Encoding {
                    opcode: ADD_R_RM,
                    width: 8,
                    reg: to.0,
                    byte_reg: false,
                    byte_rm: false,
                    lock: false,
                    rep: false,
                    gs: false,
                    rm: Operand::Reg(Gpr(from)),
                    imm: Imm::None,
                });
            }
            _ => return Err(Refused),
        }
        path.release(live, context.reserved);
        Ok(true)
    }
}
