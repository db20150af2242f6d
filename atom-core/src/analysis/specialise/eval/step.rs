//! Following single instructions that do not transfer control.
//!
//! An instruction with known operands is computed, and one that only copies is remembered; any other
//! becomes an operation of the body. Its effect on the flags is noted in each case: they are known, left
//! in the processor by the body, or undefined.

use crate::x86::opcode::{self, Alu, Shift, Unary};
use crate::x86::{Cond, Instruction, Mnemonic, OpKind, Register, flags};

use super::super::ops::{Base, Imm, Machine, Op, Rm, Slot, Start, Symbol};
use super::super::state::{self, Flag, State, Val};
use super::{
    Evaluator, Fail, Location, Operand, RSP, Result, fits, is_high_byte, machine, number, written,
};

impl Evaluator<'_> {
    /// Follows one instruction that does not transfer control.
    pub(super) fn step(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        use Mnemonic::*;
        if raw.has_rep_prefix() && !matches!(raw.mnemonic(), Tzcnt | Lzcnt | Popcnt | Endbr64) {
            return Err(Fail::No);
        }
        match raw.mnemonic() {
            Nop | Endbr64 => Ok(()),
            Mov => self.mov(state, raw),
            Movzx | Movsx | Movsxd => self.extend(state, raw),
            Cdqe => {
                let from = self.register(state, Register::EAX)?;
                self.extend_to(state, Register::RAX, Operand::Val(from), 4, true)
            }
            Lea => self.lea(state, raw),
            Add => self.alu(state, raw, Alu::Add),
            Or => self.alu(state, raw, Alu::Or),
            Adc => self.alu(state, raw, Alu::Adc),
            Sbb => self.alu(state, raw, Alu::Sbb),
            And => self.alu(state, raw, Alu::And),
            Sub => self.alu(state, raw, Alu::Sub),
            Xor => self.alu(state, raw, Alu::Xor),
            Cmp => self.compare(state, raw),
            Test => self.test(state, raw),
            Inc => self.unary(state, raw, Unary::Inc),
            Dec => self.unary(state, raw, Unary::Dec),
            Not => self.unary(state, raw, Unary::Not),
            Neg => self.unary(state, raw, Unary::Neg),
            Rol => self.shift(state, raw, Shift::Rol),
            Ror => self.shift(state, raw, Shift::Ror),
            Shl | Sal => self.shift(state, raw, Shift::Shl),
            Shr => self.shift(state, raw, Shift::Shr),
            Sar => self.shift(state, raw, Shift::Sar),
            Imul if raw.op_count() > 1 => self.multiply(state, raw),
            Xadd | Xchg => self.exchange(state, raw),
            Push => self.push(state, raw),
            Pop => self.pop(state, raw),
            _ => {
                let condition = Cond::of(raw.condition_code()).ok_or(Fail::No)?;
                match raw.op_count() {
                    1 => self.set_condition(state, raw, condition),
                    2 => self.move_if(state, raw, condition),
                    _ => Err(Fail::No),
                }
            }
        }
    }

    fn mov(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        if raw.op0_kind() == OpKind::Register {
            let to = raw.op0_register();
            if !to.is_gpr() || is_high_byte(to) {
                return Err(Fail::No);
            }
            let width = to.size() as u8;
            return match self.operand(state, raw, 1, width)? {
                // This may be a copy of the contents at the entry, which the routine restores later.
                Operand::Val(val) => self.set(state, to, val),
                Operand::Memory(mem) if width >= 4 => {
                    let (slot, v) = self.define(width)?;
                    self.emit(machine(opcode::MOV_R_RM, width, slot, Rm::Mem(mem)))?;
                    state.regs[number(to)] = Val::Value(v);
                    Ok(())
                }
                Operand::Memory(mem) => {
                    let slot = self.modify(state.regs[number(to)], width)?;
                    let mut op = Machine::plain(opcode::sized(opcode::MOV_R_RM, width), width);
                    (op.reg, op.rm, op.byte_reg) = (slot, Rm::Mem(mem), width == 1);
                    self.emit(Op::Machine(op))?;
                    state.regs[number(to)] = written(slot);
                    Ok(())
                }
            };
        }
        let width = raw.memory_size().size() as u8;
        let Operand::Val(val) = self.operand(state, raw, 1, width)? else {
            return Err(Fail::No);
        };
        match self.place(state, raw)? {
            Location::Frame(offset) => self.store_frame(state, offset, width, val),
            Location::Memory(mem) => {
                let mut op = Machine::plain(opcode::sized(opcode::MOV_RM_R, width), width);
                op.rm = Rm::Mem(mem);
                op.stores = true;
                match val {
                    Val::Number(n) if fits(n, width).is_some() => {
                        op.opcode = opcode::sized(opcode::MOV_RM_IMM, width);
                        op.reg = Slot::Extension(opcode::EXTENSION_MOV);
                        op.imm = immediate(n, width)?;
                    }
                    val => {
                        op.reg = Slot::Use(self.load_value(val)?);
                        op.byte_reg = width == 1;
                    }
                }
                self.store(state, op)
            }
        }
    }

    fn store(&mut self, state: &mut State, op: Machine) -> Result<()> {
        state.stored = state.stored.and(&op);
        self.emit(Op::Machine(op))
    }

    fn store_frame(&mut self, state: &mut State, offset: i64, width: u8, val: Val) -> Result<()> {
        // Only whole words below the return address are remembered.
        if width != 8 || offset % 8 != 0 || offset >= 0 {
            return Err(Fail::No);
        }
        state.stack.insert(offset, val);
        Ok(())
    }

    fn push(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let (Val::Stack(top), 8) = (state.regs[RSP], -raw.stack_pointer_increment()) else {
            return Err(Fail::No);
        };
        let val = match raw.op0_kind() {
            OpKind::Register => self.register(state, raw.op0_register())?,
            OpKind::Immediate8to64 | OpKind::Immediate32to64 => Val::Number(raw.immediate(0)),
            _ => return Err(Fail::No),
        };
        self.store_frame(state, top - 8, 8, val)?;
        state.regs[RSP] = Val::Stack(top - 8);
        Ok(())
    }

    fn pop(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let (Val::Stack(top), OpKind::Register, 8) = (
            state.regs[RSP],
            raw.op0_kind(),
            raw.stack_pointer_increment(),
        ) else {
            return Err(Fail::No);
        };
        if top >= 0 || number(raw.op0_register()) == RSP {
            return Err(Fail::No);
        }
        state.regs[number(raw.op0_register())] = self.frame(state, top, 8)?;
        state.regs[RSP] = Val::Stack(top + 8);
        Ok(())
    }

    fn extend(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let width = match raw.op1_kind() {
            OpKind::Register => raw.op1_register().size(),
            _ => raw.memory_size().size(),
        } as u8;
        let from = self.operand(state, raw, 1, width)?;
        let signed = raw.mnemonic() != Mnemonic::Movzx;
        self.extend_to(state, raw.op0_register(), from, width, signed)
    }

    fn extend_to(
        &mut self,
        state: &mut State,
        to: Register,
        from: Operand,
        width: u8,
        signed: bool,
    ) -> Result<()> {
        let wide = to.size() as u8;
        if wide < 4 {
            return Err(Fail::No);
        }
        if let Operand::Val(Val::Number(n)) = from {
            let n = if signed {
                state::sign_extend(n & state::mask(width), width)
            } else {
                n & state::mask(width)
            };
            return self.set(state, to, Val::Number(n & state::mask(wide)));
        }
        let rm = self.source(from)?;
        // Zero extension to 32 bits also clears the upper half.
        let wide = if signed { wide } else { 4 };
        let (slot, v) = self.define(wide)?;
        let opcode = match (signed, width) {
            (false, 1) => opcode::MOVZX_8,
            (false, 2) => opcode::MOVZX_16,
            (true, 1) => opcode::MOVSX_8,
            (true, 2) => opcode::MOVSX_16,
            (true, 4) => opcode::MOVSXD,
            _ => return Err(Fail::No),
        };
        let mut op = Machine::plain(opcode, wide);
        (op.reg, op.rm, op.byte_rm) = (slot, rm, width == 1);
        self.emit(Op::Machine(op))?;
        state.regs[number(to)] = Val::Value(v);
        Ok(())
    }

    fn lea(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let to = raw.op0_register();
        let width = to.size() as u8;
        // The constant may be one that does not fit a displacement.
        let constant = || {
            if raw.is_ip_rel_memory_operand() {
                return None;
            }
            let part = |register: Register, scale: u64| match register {
                Register::None => Some(0),
                _ if register.size() != 8 => None,
                _ => match state.regs[number(register)] {
                    Val::Number(n) => Some(n.wrapping_mul(scale)),
                    _ => None,
                },
            };
            let base = part(raw.memory_base(), 1)?;
            let index = part(raw.memory_index(), raw.memory_index_scale().into())?;
            let sum = base.wrapping_add(index);
            Some(sum.wrapping_add(raw.memory_displacement64()))
        };
        if let Some(constant) = constant() {
            let val = self.part(Val::Number(constant), width)?;
            return self.set(state, to, val);
        }
        let val = match self.place(state, raw)? {
            Location::Frame(offset) => Val::Stack(offset),
            Location::Memory(mem) => match (mem.start, mem.index, mem.disp) {
                (Start::Nothing, None, disp) => Val::Number(i64::from(disp) as u64),
                (Start::Symbol(s), None, _) => Val::Symbol(s),
                (Start::Value(v), None, 0) => Val::Value(v),
                _ if width >= 4 => {
                    let (slot, v) = self.define(width)?;
                    self.emit(machine(opcode::LEA, width, slot, Rm::Mem(mem)))?;
                    Val::Value(v)
                }
                _ => return Err(Fail::No),
            },
        };
        let val = self.part(val, width)?;
        self.set(state, to, val)
    }

    /// Width of an operation in bytes, by its first operand.
    fn width(raw: &Instruction) -> u8 {
        match raw.op0_kind() {
            OpKind::Register => raw.op0_register().size() as u8,
            _ => raw.memory_size().size() as u8,
        }
    }

    /// The flags that the operation reads, which must be the processor's.
    fn needs_real_carry(&self, state: &State, op: Alu) -> Result<u8> {
        match state.carry() {
            _ if !op.reads_carry() => Ok(0),
            Flag::Real => Ok(flags::CF),
            _ => Err(Fail::No),
        }
    }

    fn alu(&mut self, state: &mut State, raw: &Instruction, op: Alu) -> Result<()> {
        if raw.op0_kind() == OpKind::Memory {
            return self.alu_on_memory(state, raw, op);
        }
        let width = Self::width(raw);
        let to = raw.op0_register();
        let a = self.register(state, to)?;
        let b = self.operand(state, raw, 1, width)?;
        let same = raw.op1_kind() == OpKind::Register && raw.op1_register() == to;
        if same && matches!(op, Alu::Sub | Alu::Xor) {
            state::alu(state, Alu::Xor, 0, 0, width);
            return self.set(state, to, Val::Number(0));
        }
        // The result depends on the carry alone, not on the register.
        let (a, b) = if same && op == Alu::Sbb && width >= 4 {
            (Val::Number(0), Operand::Val(Val::Number(0)))
        } else {
            (a, b)
        };
        if let Operand::Val(b) = b
            && self.known_alu(state, op, to, [a, b])?
        {
            return Ok(());
        }
        // A known operand goes second if the operation commutes.
        let (a, b) = match (a, b) {
            (Val::Number(_) | Val::Symbol(_), Operand::Val(v @ Val::Value(_)))
                if width >= 4 && op.commutes() =>
            {
                (v, Operand::Val(a))
            }
            (a, b) => (a, b),
        };
        let carry = self.needs_real_carry(state, op)?;
        let old = if width < 4 { state.regs[number(to)] } else { a };
        let mut code = match b {
            Operand::Memory(mem) => {
                let slot = self.modify(old, width)?;
                let mut code = Machine::plain(opcode::sized(op.r_rm(), width), width);
                (code.reg, code.rm, code.byte_reg) = (slot, Rm::Mem(mem), width == 1);
                code
            }
            Operand::Val(b) => {
                // A constant that must be loaded takes its value before the operation does.
                let b = match b {
                    Val::Number(n) if fits(n, width).is_some() => b,
                    b => Val::Value(self.load_value(b)?),
                };
                let slot = self.modify(old, width)?;
                self.alu_machine(op, width, Rm::Reg(slot), b)?
            }
        };
        code.reads = carry;
        code.changes = flags::ALL;
        let slot = match (code.reg, code.rm) {
            (slot @ Slot::Modify { .. }, _) | (_, Rm::Reg(slot)) => slot,
            _ => return Err(Fail::No),
        };
        self.emit(Op::Machine(code))?;
        alu_flags(state, op);
        state.regs[number(to)] = written(slot);
        Ok(())
    }

    fn alu_on_memory(&mut self, state: &mut State, raw: &Instruction, op: Alu) -> Result<()> {
        let width = Self::width(raw);
        let Operand::Val(b) = self.operand(state, raw, 1, width)? else {
            return Err(Fail::No);
        };
        let Location::Memory(mem) = self.place(state, raw)? else {
            return Err(Fail::No);
        };
        let mut code = self.alu_machine(op, width, Rm::Mem(mem), b)?;
        code.reads = self.needs_real_carry(state, op)?;
        code.lock = raw.has_lock_prefix();
        code.stores = true;
        self.store(state, code)?;
        alu_flags(state, op);
        Ok(())
    }

    /// Computes an operation on values of which enough is known; false if the body has to.
    fn known_alu(
        &mut self,
        state: &mut State,
        op: Alu,
        to: Register,
        values: [Val; 2],
    ) -> Result<bool> {
        let sum = match (op, values) {
            (_, [Val::Number(x), Val::Number(y)]) => {
                let Some(n) = state::alu(state, op, x, y, to.size() as u8) else {
                    return Ok(false);
                };
                self.set(state, to, Val::Number(n))?;
                return Ok(true);
            }
            (Alu::Add, [Val::Stack(x), Val::Number(y)]) => Val::Stack(x.wrapping_add(y as i64)),
            (Alu::Sub, [Val::Stack(x), Val::Number(y)]) => Val::Stack(x.wrapping_sub(y as i64)),
            (Alu::Add, [Val::Symbol(s), Val::Number(y)] | [Val::Number(y), Val::Symbol(s)]) => {
                Val::Symbol(moved(s, y))
            }
            (Alu::Sub, [Val::Symbol(s), Val::Number(y)]) => Val::Symbol(moved(s, y.wrapping_neg())),
            // A body for each number pays.
            (Alu::Sub, [Val::Number(_), Val::Symbol(s)]) => return Err(wants(s)),
            _ => return Ok(false),
        };
        state.set_flags(flags::ALL, Flag::Undefined);
        state.regs[number(to)] = sum;
        Ok(true)
    }

    /// An operation with a value or number as second operand.
    fn alu_machine(&mut self, op: Alu, width: u8, rm: Rm, b: Val) -> Result<Machine> {
        let mut code = Machine::plain(0, width);
        code.rm = rm;
        code.changes = flags::ALL;
        code.byte_rm = width == 1;
        match b {
            Val::Number(n) if fits(n, width).is_some() => {
                code.imm = immediate(n, width)?;
                if let Imm::Wide(n) = code.imm
                    && let Ok(n) = i8::try_from(n)
                {
                    code.imm = Imm::Byte(n);
                }
                code.opcode = match (width, code.imm) {
                    (1, _) => opcode::ALU_RM8_IMM8,
                    (_, Imm::Byte(_)) => opcode::ALU_RM_IMM8,
                    _ => opcode::ALU_RM_IMM32,
                };
                code.reg = Slot::Extension(op.extension());
            }
            b => {
                code.opcode = opcode::sized(op.rm_r(), width);
                code.reg = Slot::Use(self.load_value(b)?);
                code.byte_reg = width == 1;
            }
        }
        Ok(code)
    }

    fn compare(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let width = Self::width(raw);
        let a = self.operand(state, raw, 0, width)?;
        let b = self.operand(state, raw, 1, width)?;
        let code = match (a, b) {
            (Operand::Val(Val::Number(x)), Operand::Val(Val::Number(y))) => {
                state::alu(state, Alu::Cmp, x, y, width).ok_or(Fail::No)?;
                return Ok(());
            }
            (Operand::Val(val), Operand::Val(other)) => {
                for val in [val, other] {
                    if let Val::Symbol(s) = val {
                        return Err(wants(s));
                    }
                }
                let rm = self.source(a)?;
                self.alu_machine(Alu::Cmp, width, rm, other)?
            }
            (Operand::Memory(mem), Operand::Val(b)) => {
                self.alu_machine(Alu::Cmp, width, Rm::Mem(mem), b)?
            }
            (Operand::Val(a), Operand::Memory(mem)) => {
                let mut code = Machine::plain(opcode::sized(Alu::Cmp.r_rm(), width), width);
                code.reg = Slot::Use(self.load_value(a)?);
                code.byte_reg = width == 1;
                code.rm = Rm::Mem(mem);
                code.changes = flags::ALL;
                code
            }
            _ => return Err(Fail::No),
        };
        self.emit(Op::Machine(code))?;
        alu_flags(state, Alu::Cmp);
        Ok(())
    }

    fn test(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let width = Self::width(raw);
        let a = self.operand(state, raw, 0, width)?;
        let b = self.operand(state, raw, 1, width)?;
        let mut code = Machine::plain(opcode::sized(opcode::TEST_RM_R, width), width);
        code.changes = flags::ALL;
        match (a, b) {
            (Operand::Val(Val::Number(x)), Operand::Val(Val::Number(y))) => {
                state::alu(state, Alu::And, x, y, width).ok_or(Fail::No)?;
                return Ok(());
            }
            (Operand::Val(Val::Symbol(s)), Operand::Val(Val::Symbol(_))) => return Err(wants(s)),
            (a, Operand::Val(Val::Number(n))) if fits(n, width).is_some() => {
                code.opcode = opcode::sized(opcode::GROUP_3, width);
                code.reg = Slot::Extension(opcode::EXTENSION_TEST);
                code.byte_rm = width == 1;
                code.rm = self.source(a)?;
                code.imm = immediate(n, width)?;
            }
            (a, Operand::Val(b)) => {
                code.reg = Slot::Use(self.load_value(b)?);
                (code.byte_reg, code.byte_rm) = (width == 1, width == 1);
                code.rm = self.source(a)?;
            }
            _ => return Err(Fail::No),
        }
        self.emit(Op::Machine(code))?;
        alu_flags(state, Alu::And);
        Ok(())
    }

    fn unary(&mut self, state: &mut State, raw: &Instruction, op: Unary) -> Result<()> {
        let width = Self::width(raw);
        let carry = state.carry();
        let mut code = Machine::plain(opcode::sized(op.opcode(), width), width);
        code.reg = Slot::Extension(op as u8);
        code.byte_rm = width == 1;
        code.changes = match op {
            Unary::Inc | Unary::Dec => flags::ALL & !flags::CF,
            Unary::Not => 0,
            Unary::Neg => flags::ALL,
        };
        if raw.op0_kind() == OpKind::Memory {
            let Location::Memory(mem) = self.place(state, raw)? else {
                return Err(Fail::No);
            };
            code.rm = Rm::Mem(mem);
            code.stores = true;
            code.lock = raw.has_lock_prefix();
            state.set_flags(code.changes, Flag::Real);
            return self.store(state, code);
        }
        let to = raw.op0_register();
        match self.register(state, to)? {
            Val::Number(n) => {
                let result = match op {
                    Unary::Inc => state::alu(state, Alu::Add, n, 1, width),
                    Unary::Dec => state::alu(state, Alu::Sub, n, 1, width),
                    Unary::Not => Some(!n & state::mask(width)),
                    Unary::Neg => state::alu(state, Alu::Sub, 0, n, width),
                };
                if matches!(op, Unary::Inc | Unary::Dec) {
                    state.set_flags(flags::CF, carry);
                }
                return self.set(state, to, Val::Number(result.ok_or(Fail::No)?));
            }
            Val::Symbol(s) if matches!(op, Unary::Inc | Unary::Dec) => {
                let by = if op == Unary::Inc { 1 } else { u64::MAX };
                state.set_flags(code.changes, Flag::Undefined);
                state.regs[number(to)] = Val::Symbol(moved(s, by));
                return Ok(());
            }
            _ => {}
        }
        let slot = self.modify(state.regs[number(to)], width)?;
        code.rm = Rm::Reg(slot);
        self.emit(Op::Machine(code))?;
        state.set_flags(code.changes, Flag::Real);
        state.regs[number(to)] = written(slot);
        Ok(())
    }

    fn shift(&mut self, state: &mut State, raw: &Instruction, op: Shift) -> Result<()> {
        if raw.op0_kind() != OpKind::Register {
            return Err(Fail::No);
        }
        let to = raw.op0_register();
        let width = to.size() as u8;
        let a = self.register(state, to)?;
        let count = match self.operand(state, raw, 1, 1)? {
            Operand::Val(val) => val,
            Operand::Memory(_) => return Err(Fail::No),
        };
        let mut code = Machine::plain(0, width);
        code.reg = Slot::Extension(op as u8);
        code.byte_rm = width == 1;
        code.changes = if op.rotates() {
            flags::CF | flags::OF
        } else {
            flags::ALL
        };
        match count {
            Val::Number(n) => {
                let n = n as u32 & if width == 8 { 63 } else { 31 };
                if n == 0 {
                    let val = self.part(a, width)?;
                    return self.set(state, to, val);
                }
                if let Val::Number(x) = a {
                    let result = state::shift(state, op, x, n, width).ok_or(Fail::No)?;
                    return self.set(state, to, Val::Number(result));
                }
                if let Val::Symbol(s) = a {
                    return Err(wants(s));
                }
                code.opcode = opcode::sized(opcode::SHIFT_RM_IMM8, width);
                code.imm = Imm::Byte(n as i8);
                let slot = self.modify(state.regs[number(to)], width)?;
                code.rm = Rm::Reg(slot);
                self.emit(Op::Machine(code))?;
                state.set_flags(code.changes, Flag::Real);
                state.set_flags(
                    flags::AF | if n == 1 { 0 } else { flags::OF },
                    Flag::Undefined,
                );
                if n >= 8 * u32::from(width) {
                    state.set_flags(flags::CF, Flag::Undefined);
                }
                state.regs[number(to)] = written(slot);
            }
            Val::Symbol(s) => return Err(wants(s)),
            count => {
                code.opcode = opcode::sized(opcode::SHIFT_RM_CL, width);
                code.count = Some(self.load_value(count)?);
                // A count of 0 leaves all flags alone, so none of them is known afterwards.
                let slot = self.modify(state.regs[number(to)], width)?;
                code.rm = Rm::Reg(slot);
                self.emit(Op::Machine(code))?;
                state.set_flags(code.changes, Flag::Undefined);
                state.regs[number(to)] = written(slot);
            }
        }
        Ok(())
    }

    fn multiply(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let to = raw.op0_register();
        let width = to.size() as u8;
        if width < 4 {
            return Err(Fail::No);
        }
        let last = raw.op_count() - 1;
        let a = match raw.op_count() {
            2 => Operand::Val(self.register(state, to)?),
            _ => self.operand(state, raw, 1, width)?,
        };
        let b = self.operand(state, raw, last, width)?;
        let mut code = Machine::plain(opcode::IMUL_R_RM, width);
        code.changes = flags::ALL;
        let slot = match (a, b) {
            (Operand::Val(Val::Number(x)), Operand::Val(Val::Number(y))) => {
                state.set_flags(flags::ALL, Flag::Undefined);
                let n = x.wrapping_mul(y) & state::mask(width);
                return self.set(state, to, Val::Number(n));
            }
            (Operand::Val(Val::Symbol(s)), _) | (_, Operand::Val(Val::Symbol(s))) => {
                return Err(wants(s));
            }
            (Operand::Val(val), Operand::Val(Val::Number(1)))
            | (Operand::Val(Val::Number(1)), Operand::Val(val))
                if width == 8 =>
            {
                state.set_flags(flags::ALL, Flag::Undefined);
                return self.set(state, to, val);
            }
            (other, Operand::Val(Val::Number(n))) | (Operand::Val(Val::Number(n)), other)
                if fits(n, width).is_some() =>
            {
                code.opcode = opcode::IMUL_R_RM_IMM;
                code.imm = immediate(n, width)?;
                code.rm = self.source(other)?;
                self.define(width)?.0
            }
            (Operand::Val(a), b) => {
                code.rm = self.source(b)?;
                self.modify(a, width)?
            }
            _ => return Err(Fail::No),
        };
        code.reg = slot;
        self.emit(Op::Machine(code))?;
        state.set_flags(flags::ALL, Flag::Undefined);
        state.set_flags(flags::CF | flags::OF, Flag::Real);
        state.regs[number(to)] = written(slot);
        Ok(())
    }

    /// Follows `xadd` and `xchg` on memory, and `xchg` of registers.
    fn exchange(&mut self, state: &mut State, raw: &Instruction) -> Result<()> {
        let width = Self::width(raw);
        let is_xchg = raw.mnemonic() == Mnemonic::Xchg;
        if raw.op0_kind() == OpKind::Register && raw.op1_kind() == OpKind::Register {
            let (a, b) = (number(raw.op0_register()), number(raw.op1_register()));
            if !is_xchg || width != 8 || a == RSP || b == RSP {
                return Err(Fail::No);
            }
            state.regs.swap(a, b);
            return Ok(());
        }
        let Location::Memory(mem) = self.place(state, raw)? else {
            return Err(Fail::No);
        };
        let register = if raw.op0_kind() == OpKind::Register {
            raw.op0_register()
        } else {
            raw.op1_register()
        };
        self.register(state, register)?;
        let slot = self.modify(state.regs[number(register)], width)?;
        let wide = if is_xchg { opcode::XCHG } else { opcode::XADD };
        let mut code = Machine::plain(opcode::sized(wide, width), width);
        (code.reg, code.rm, code.byte_reg) = (slot, Rm::Mem(mem), width == 1);
        code.lock = raw.has_lock_prefix();
        code.stores = true;
        code.changes = if is_xchg { 0 } else { flags::ALL };
        self.store(state, code)?;
        state.set_flags(code.changes, Flag::Real);
        state.regs[number(register)] = written(slot);
        Ok(())
    }

    fn set_condition(
        &mut self,
        state: &mut State,
        raw: &Instruction,
        condition: Cond,
    ) -> Result<()> {
        if raw.op0_kind() != OpKind::Register {
            return Err(Fail::No);
        }
        let to = raw.op0_register();
        match state.condition(condition) {
            Err(()) => Err(Fail::No),
            _ if is_high_byte(to) => Err(Fail::No),
            Ok(Some(holds)) => self.set(state, to, Val::Number(holds.into())),
            Ok(None) => {
                let slot = self.modify(state.regs[number(to)], 1)?;
                let mut op = Machine::plain(opcode::SETCC | u16::from(condition.0), 1);
                (op.reg, op.rm, op.byte_rm) = (Slot::Extension(0), Rm::Reg(slot), true);
                op.reads = condition.flags();
                self.emit(Op::Machine(op))?;
                state.regs[number(to)] = written(slot);
                Ok(())
            }
        }
    }

    fn move_if(&mut self, state: &mut State, raw: &Instruction, condition: Cond) -> Result<()> {
        let to = raw.op0_register();
        let width = to.size() as u8;
        if !to.is_gpr() || width < 4 {
            return Err(Fail::No);
        }
        let other = self.operand(state, raw, 1, width)?;
        match state.condition(condition) {
            Err(()) => Err(Fail::No),
            Ok(Some(holds)) => {
                let val = match (holds, other) {
                    (true, Operand::Val(val)) => val,
                    // The load cannot fault, so it may be left out.
                    (false, _) => self.register(state, to)?,
                    (true, Operand::Memory(mem)) => {
                        let (slot, v) = self.define(width)?;
                        self.emit(machine(opcode::MOV_R_RM, width, slot, Rm::Mem(mem)))?;
                        Val::Value(v)
                    }
                };
                self.set(state, to, val)
            }
            Ok(None) => {
                let rm = self.source(other)?;
                let val = self.register(state, to)?;
                let slot = self.modify(val, width)?;
                let mut op = Machine::plain(opcode::CMOVCC | u16::from(condition.0), width);
                (op.reg, op.rm) = (slot, rm);
                op.reads = condition.flags();
                self.emit(Op::Machine(op))?;
                state.regs[number(to)] = written(slot);
                Ok(())
            }
        }
    }
}

/// The failure for a symbol whose number is needed.
fn wants(symbol: Symbol) -> Fail {
    match symbol.base {
        Base::Argument(i) => Fail::Wants(i),
        Base::Image => Fail::No,
    }
}

fn moved(symbol: Symbol, by: u64) -> Symbol {
    Symbol {
        offset: symbol.offset.wrapping_add(by as i64),
        ..symbol
    }
}

/// Notes that the flags are those of an operation of the body.
fn alu_flags(state: &mut State, op: Alu) {
    state.set_flags(flags::ALL, Flag::Real);
    if matches!(op, Alu::Or | Alu::And | Alu::Xor) {
        state.set_flags(flags::AF, Flag::Undefined);
    }
}

fn immediate(n: u64, width: u8) -> Result<Imm> {
    let n = fits(n, width).ok_or(Fail::No)?;
    Ok(match width {
        1 => Imm::Byte(n as i8),
        _ => Imm::Wide(n),
    })
}
