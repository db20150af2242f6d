//! The value of an argument of a call at its point.
//!
//! Values are as the uninstrumented program would have them there. An argument
//! that has no value at a point is an error that names the instruction.
//!
//! Memory that is read for an argument before an instruction is memory that
//! the instruction itself reads next, in the same width or less; after an instruction, it
//! is memory that the instruction has just written. So such a read faults only where the program's own
//! access would. The exception are a procedure's arguments on the stack, which the tool knows to be there.

use std::cell::{OnceCell, RefCell};

use atom_abi::host::Reg;

use super::calls::{ANY_OPERAND, Argument, NO_REGISTER};
use super::value::{Address, Element, Segment, Selected, Taken, Value};
use crate::error::{Error, Reason, Result};
use crate::x86::asm::{Cond, Gpr};
use crate::x86::memory::{MemoryOperand, MemoryOperands};
use crate::x86::{
    Code, ConditionCode, ControlFlow, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, direct_target, flow_of,
};

/// Where a call is made, seen from the instruction that it belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Before the instruction.
    Before,
    /// After an instruction that transfers control. The call is made right before the instruction, as
    /// the last of the calls there.
    Transfer,
    /// After the instruction, on the way to the next one.
    After,
}

/// Numbers of registers, as in [`Reg`].
mod number {
    use super::Reg;

    pub const RAX: u8 = Reg::Rax as u8;
    pub const RCX: u8 = Reg::Rcx as u8;
    pub const RSP: u8 = Reg::Rsp as u8;
    pub const R15: u8 = Reg::R15 as u8;
    pub const PC: u8 = Reg::Pc as u8;
    pub const FLAGS: u8 = Reg::Flags as u8;
    pub const CYCLE_COUNTER: u8 = Reg::CycleCounter as u8;
    pub const K0: u8 = Reg::K0 as u8;
    pub const K7: u8 = Reg::K7 as u8;
    pub const XMM0: u8 = Reg::Xmm0 as u8;
    pub const XMM31: u8 = Reg::Xmm31 as u8;
}
use number::{K0, K7, XMM0, XMM31};

/// An instruction, and the facts of it from which values of arguments are found.
pub struct At {
    instruction: Instruction,
    operands: OnceCell<Vec<MemoryOperand>>,
}

thread_local! {
    static OPERANDS: RefCell<MemoryOperands> = RefCell::default();
}

fn gpr(register: Register) -> Gpr {
    Gpr(register.full_register().number() as u8)
}

/// The register of an address, if it is a general register.
fn address_register(register: Register) -> Option<Gpr> {
    register.is_gpr().then(|| gpr(register))
}

impl At {
    /// Makes it for an instruction.
    pub fn new(instruction: Instruction) -> Self {
        Self {
            instruction,
            operands: OnceCell::new(),
        }
    }

    fn error(&self, reason: impl Into<Reason>) -> Error {
        Error::new("planning a call", reason)
            .address(self.instruction.ip())
            .symbol(format!("{}", self.instruction))
    }

    fn operands(&self) -> &[MemoryOperand] {
        self.operands
            .get_or_init(|| OPERANDS.with_borrow_mut(|o| o.of(&self.instruction).to_vec()))
    }

    /// The memory operand with a number, or for [`ANY_OPERAND`] the first that `wanted` accepts. `what` and
    /// `needed` are for the error if there is none: the argument, and the instruction that it needs.
    fn operand(
        &self,
        what: &str,
        number: u8,
        wanted: impl Fn(&MemoryOperand) -> bool,
        needed: &str,
    ) -> Result<&MemoryOperand> {
        let all = self.operands();
        let found = match number {
            ANY_OPERAND => all.iter().find(|o| wanted(o)),
            _ => match all.get(usize::from(number)) {
                None => {
                    return Err(self.error(format!(
                        "{what} is asked for memory operand {number}, and the instruction has {}",
                        all.len()
                    )));
                }
                some => some.filter(|o| wanted(o)),
            },
        };
        found.ok_or_else(|| self.error(format!("{what} needs {needed}")))
    }

    /// Number of the operand that EffAddrValue without a number stands for: an explicit
    /// operand; else the operand of a string instruction (the source, where
    /// there are two); else the word on the stack.
    fn main_operand(&self) -> u8 {
        let all = self.operands();
        let at = all
            .iter()
            .position(|o| !o.is_implicit)
            .or_else(|| all.iter().position(|o| gpr(o.base) == Gpr::RSI))
            .unwrap_or(0);
        at as u8
    }

    fn chosen(&self, what: &str, number: u8) -> Result<&MemoryOperand> {
        let number = match number {
            ANY_OPERAND if !self.operands().is_empty() => self.main_operand(),
            n => n,
        };
        self.operand(
            what,
            number,
            |_| true,
            "an instruction that accesses memory",
        )
    }

    /// When an element of a gather or scatter is accessed.
    pub fn selected(&self, number: u8) -> Selected {
        let operand = self.operands().iter().find(|o| o.elements != 1);
        let size = operand.map_or(4, |o| o.size as u8);
        match self.instruction.op_mask() {
            Register::None => {
                let mask = self.instruction.op2_register();
                Selected::Sign(self.element(mask, size, number))
            }
            mask => Selected::Mask(mask.number() as u8, number),
        }
    }

    fn element(&self, register: Register, size: u8, number: u8) -> Element {
        Element {
            register: register.number() as u8,
            width: register.size() as u8,
            evex: self.instruction.op_mask() != Register::None,
            size,
            number,
        }
    }

    /// Number of elements of the gather or scatter that an argument asks about, and so
    /// of calls; 1 for all other arguments and instructions.
    pub fn elements(&self, argument: &Argument) -> u8 {
        let number = match argument {
            Argument::EffAddrValue => ANY_OPERAND,
            Argument::EffAddr(n) | Argument::LoadedValue(n) | Argument::StoredValue(n) => *n,
            _ => return 1,
        };
        if !self.instruction.is_vsib() {
            return 1;
        }
        let number = match number {
            ANY_OPERAND => self.main_operand(),
            n => n,
        };
        let operand = self.operands().get(usize::from(number));
        operand.map_or(1, |o| o.elements)
    }

    /// The address of an operand; `element` is the number of the element of a gather or scatter.
    fn address(&self, operand: &MemoryOperand, element: u8) -> Address {
        let mut address = Address {
            base: address_register(operand.base),
            index: address_register(operand.index).map(|i| (i, operand.scale)),
            index_is_byte: operand.index == Register::AL,
            element: None,
            bits: None,
            image: operand.is_relative.then_some(operand.displacement as u64),
            disp: if operand.is_relative {
                0
            } else {
                operand.displacement
            },
            narrow: operand.is_narrow,
            segment: operand.segment,
        };
        if operand.index.is_vector_register() {
            let index = self.element(operand.index, operand.index_size, element);
            address.element = Some((index, operand.scale));
        }
        if operand.bit_offset != Register::None {
            address.bits = Some((gpr(operand.bit_offset), operand.size as u8));
        }
        address
    }

    fn effective_address(&self, number: u8, element: u8) -> Result<Value> {
        let operand = self.chosen("EffAddrValue", number)?;
        Ok(simplest(self.address(operand, element)))
    }

    fn access_size(&self, number: u8) -> Result<Value> {
        let operand = self.chosen("AccessSize", number)?;
        match operand.size {
            0 => Err(self.error("AccessSize is not known: the processor decides it")),
            size => Ok(Value::Const(u64::from(size))),
        }
    }

    /// The contents of an operand, its first eight bytes at most.
    fn load(&self, operand: &MemoryOperand, element: u8) -> Result<Value> {
        let size = match operand.size {
            0 => return Err(self.error("the size of the value is not known")),
            1 => 1,
            2..=3 => 2,
            4..=7 => 4,
            _ => 8,
        };
        Ok(Value::Load(self.address(operand, element), size))
    }

    /// Refuses operands that are accessed many times or perhaps not at all.
    fn definite(&self, what: &str, operand: &MemoryOperand) -> Result<()> {
        if operand.is_repeated {
            return Err(self.error(format!(
                "{what} of a repeated instruction, which accesses many values, is not defined"
            )));
        }
        if operand.is_conditional && operand.elements == 1 {
            return Err(self.error(format!(
                "{what} of an access under a mask, which may not happen, is not defined"
            )));
        }
        Ok(())
    }

    fn loaded(&self, number: u8, element: u8, when: When) -> Result<Value> {
        let what = "LoadedValue";
        let operand = self.operand(
            what,
            number,
            |o| o.reads,
            "an instruction that reads memory",
        )?;
        self.definite(what, operand)?;
        if when == When::After {
            return self.in_destination(operand).ok_or_else(|| {
                self.error("LoadedValue is known after an instruction only where it moves the value to a register; ask before it")
            });
        }
        if is_near_return(&self.instruction) {
            return Ok(Value::Return);
        }
        self.load(operand, element)
    }

    /// The value that a plain load has left in its destination register.
    fn in_destination(&self, operand: &MemoryOperand) -> Option<Value> {
        use Mnemonic::{Lodsb, Lodsd, Lodsq, Lodsw, Mov, Movsx, Movsxd, Movzx, Pop};
        let i = &self.instruction;
        let size = operand.size.min(8) as u8;
        let destination = i.op0_register();
        if i.op0_kind() != OpKind::Register || i.has_op_mask() {
            return None;
        }
        match i.mnemonic() {
            Mov | Movsx | Movsxd | Movzx | Pop | Lodsb | Lodsd | Lodsq | Lodsw
                if destination.is_gpr() =>
            {
                Some(part(destination, size))
            }
            m if is_vector_move(m) => vector_low(destination, size),
            _ => None,
        }
    }

    fn stored(&self, number: u8, element: u8, when: When) -> Result<Value> {
        let what = "StoredValue";
        let operand = self.operand(
            what,
            number,
            |o| o.writes,
            "an instruction that writes memory",
        )?;
        if when == When::After {
            self.definite(what, operand)?;
            return self.stored_after(operand);
        }
        if let Some(value) = self.copied(operand, element)? {
            return Ok(value);
        }
        self.definite(what, operand)?;
        Err(self.error("StoredValue is computed by the instruction itself; ask after it"))
    }

    /// The contents of a written operand after the instruction.
    fn stored_after(&self, operand: &MemoryOperand) -> Result<Value> {
        let i = &self.instruction;
        if flow_of(i) != ControlFlow::FallThrough {
            return Err(self.error("StoredValue of a call is known only before it"));
        }
        let mut factory = InstructionInfoFactory::new();
        let changes = |register: Register| {
            factory.info(i).used_registers().iter().any(|u| {
                u.register().full_register() == register.full_register()
                    && !matches!(u.access(), OpAccess::Read | OpAccess::CondRead)
            })
        };
        let mut moved = *operand;
        let parts = [operand.base, operand.index, operand.bit_offset];
        let rsp = Register::RSP;
        let mut changed = parts
            .into_iter()
            .filter(|r| r.is_gpr() && r.full_register() != rsp);
        if changed.any(changes) || operand.elements != 1 {
            return Err(self.error(
                "StoredValue is not known after an instruction that changes a register of its address; ask before it",
            ));
        }
        if operand.base == rsp {
            moved.displacement -= i64::from(i.stack_pointer_increment());
        }
        self.load(&moved, 0)
    }

    /// The value that the instruction copies to memory; `None` if the instruction computes it.
    fn copied(&self, operand: &MemoryOperand, element: u8) -> Result<Option<Value>> {
        use Mnemonic::*;
        let i = &self.instruction;
        let size = operand.size.min(8) as u8;
        if operand.elements != 1 {
            let data = self.element(i.op1_register(), operand.size as u8, element);
            return Ok(Some(Value::Element(data)));
        }
        if operand.is_conditional && !operand.is_repeated {
            return Ok(None);
        }
        let source = |n: u32| match i.op_kind(n) {
            OpKind::Register => i
                .op_register(n)
                .is_gpr()
                .then(|| part(i.op_register(n), size)),
            _ => i.try_immediate(n).ok().map(|v| Value::Const(low(v, size))),
        };
        let from_memory = || {
            let read = self.operands().iter().find(|o| o.reads);
            read.map(|o| self.load(o, 0)).transpose()
        };
        let to_memory = i.op0_kind() == OpKind::Memory;
        Ok(match i.mnemonic() {
            Call if i.is_call_near() || i.is_call_near_indirect() => {
                Some(Value::Original(i.next_ip()))
            }
            Mov | Movnti | Xchg if to_memory => source(1),
            Push | Pop if to_memory => from_memory()?,
            Push => source(0),
            Pushfq => Some(Value::Flags),
            Enter if Some(operand) == self.operands().first() => Some(Value::Reg(Gpr::RBP)),
            Stosb | Stosw | Stosd | Stosq => Some(part(Register::RAX, size)),
            Movsb | Movsw | Movsd | Movsq if i.is_string_instruction() => {
                if operand.is_repeated {
                    None
                } else {
                    from_memory()?
                }
            }
            Movhps | Movhpd | Vmovhps | Vmovhpd if to_memory => {
                Some(Value::XmmHigh(i.op1_register().number() as u8))
            }
            m if to_memory && is_vector_move(m) && i.op1_kind() == OpKind::Register => {
                vector_low(i.op1_register(), size)
            }
            _ if to_memory && i.op_count() == 1 => {
                condition(i).map(|c| Value::Taken(Taken::Flags(c)))
            }
            _ => None,
        })
    }

    /// The target of a jump, call or return.
    fn branch_target(&self, when: When) -> Result<Value> {
        let i = &self.instruction;
        let unknown = || self.error("BranchTarget needs a near jump, call or return");
        match flow_of(i) {
            ControlFlow::Call | ControlFlow::IndirectCall if when == When::After => {
                Err(self.error("BranchTarget of a call is known only before it"))
            }
            ControlFlow::Jump | ControlFlow::CondJump | ControlFlow::Call if !is_xbegin(i) => {
                direct_target(i).map(Value::Original).ok_or_else(unknown)
            }
            ControlFlow::IndirectJump | ControlFlow::IndirectCall => match i.op0_kind() {
                OpKind::Register if i.op0_register().is_gpr64() => Ok(part(i.op0_register(), 8)),
                OpKind::Memory if i.memory_size().size() == 8 => {
                    self.load(self.chosen("BranchTarget", 0)?, 0)
                }
                _ => Err(unknown()),
            },
            ControlFlow::Return if is_near_return(i) => Ok(Value::Return),
            _ => Err(unknown()),
        }
    }

    fn repeat_count(&self, when: When) -> Result<Value> {
        if when == When::After {
            return Err(self.error("RepCount is known only before the instruction"));
        }
        let operand = self.chosen("RepCount", ANY_OPERAND)?;
        Ok(match (operand.is_repeated, operand.is_narrow) {
            (false, _) => Value::Const(1),
            (true, false) => Value::Reg(Gpr::RCX),
            (true, true) => Value::Part(Gpr::RCX, 0, 4),
        })
    }

    /// The program counter at the point: `pc`, or after a transfer of control its target.
    fn program_counter(&self, pc: u64, when: When) -> Result<Value> {
        let i = &self.instruction;
        if when != When::Transfer || is_xbegin(i) {
            return Ok(Value::Original(pc));
        }
        match direct_target(i) {
            Some(target) if flow_of(i) == ControlFlow::CondJump => {
                Ok(Value::Next(self.taken()?, target, i.next_ip()))
            }
            _ => self.branch_target(when),
        }
    }

    /// The value of a register argument.
    fn register(
        &self,
        number: u8,
        pc: u64,
        when: When,
        avx512: &dyn Fn() -> bool,
    ) -> Result<Value> {
        let i = &self.instruction;
        Ok(match number {
            number::RSP if when == When::Transfer && is_near_return(i) => {
                let popped = match i.op_count() {
                    1 => i32::from(i.immediate16()),
                    _ => 0,
                };
                Value::Stack(8 + popped)
            }
            number::RSP => Value::Stack(0),
            number::RCX
                if when == When::Transfer && matches!(self.taken(), Ok(Taken::Loop { .. })) =>
            {
                let narrow = matches!(self.taken(), Ok(Taken::Loop { narrow: true, .. }));
                Value::Address(Address {
                    narrow,
                    ..Address::at(Gpr::RCX, -1)
                })
            }
            number::RAX..=number::R15 => Value::Reg(Gpr(number)),
            number::PC => self.program_counter(pc, when)?,
            number::FLAGS => Value::Flags,
            number::CYCLE_COUNTER => Value::Cycles,
            K0..=K7 if avx512() => Value::Mask(number - K0),
            K0..=K7 => return Err(self.error(format!(
                "k{} exists only in processors with AVX-512, which the program does not use in this block",
                number - K0
            ))),
            _ => Value::Xmm(self.vector(number, avx512)?),
        })
    }

    /// The hardware number of the vector register with a number as in [`Reg`].
    fn vector(&self, number: u8, avx512: &dyn Fn() -> bool) -> Result<u8> {
        match number {
            XMM0..=XMM31 if number < XMM0 + 16 || avx512() => Ok(number - XMM0),
            XMM0..=XMM31 => Err(self.error(format!(
                "xmm{} exists only in processors with AVX-512, which the program does not use in this block",
                number - XMM0
            ))),
            _ => Err(self.error(format!("register {number} cannot be an argument"))),
        }
    }

    /// When the conditional branch is taken.
    pub fn taken(&self) -> Result<Taken> {
        taken(&self.instruction).ok_or_else(|| self.error("BrCondValue needs a conditional branch"))
    }

    /// The value of an argument; `None` if it is in the plan's data. `pc` is
    /// the program counter of the point, `element` the number of the element
    /// of a gather or scatter for which the call is made. `avx512` returns true if
    /// registers that only AVX-512 has certainly exist.
    pub fn value(
        &self,
        argument: &Argument,
        pc: u64,
        when: When,
        element: u8,
        avx512: &dyn Fn() -> bool,
    ) -> Result<Option<Value>> {
        Ok(Some(match *argument {
            Argument::Const(value) => Value::Const(value),
            Argument::Regv(number) => self.register(number, pc, when, avx512)?,
            Argument::RegvHigh(number) => Value::XmmHigh(self.vector(number, avx512)?),
            Argument::BrCondValue => Value::Taken(self.taken()?),
            Argument::EffAddrValue => self.effective_address(ANY_OPERAND, element)?,
            Argument::EffAddr(n) => self.effective_address(n, element)?,
            Argument::Sum(base, index, scale, disp) => sum(base, (index, scale), disp),
            Argument::Outcome(_) => Value::Outcome,
            Argument::AccessSize(n) => self.access_size(n)?,
            Argument::LoadedValue(n) => self.loaded(n, element, when)?,
            Argument::StoredValue(n) => self.stored(n, element, when)?,
            Argument::Routine(at) | Argument::Static(at) => Value::Tool(at),
            Argument::Original(at) => Value::Original(at),
            Argument::RepCount => self.repeat_count(when)?,
            Argument::Direction => Value::Direction,
            Argument::BranchTarget => self.branch_target(when)?,
            Argument::ReturnValue if when != When::After && is_near_return(&self.instruction) => {
                Value::Reg(Gpr::RAX)
            }
            Argument::Stacked(at) => Value::Load(Address::at(Gpr::RSP, at.into()), 8),
            Argument::ReturnAddress => Value::Return,
            Argument::ReturnValue => {
                return Err(self.error("ReturnValue is known only where a procedure returns"));
            }
            Argument::Str(..)
            | Argument::CStr(..)
            | Argument::Array(..)
            | Argument::CArray(..)
            | Argument::Data(_)
            | Argument::ThreadData(_) => return Ok(None),
        }))
    }
}

/// A sum of registers before an instruction.
fn sum(base: u8, (index, scale): (u8, u8), disp: i32) -> Value {
    let register = |number: u8| (number != NO_REGISTER).then_some(Gpr(number));
    match (register(base), register(index), disp) {
        (Some(Gpr::RSP), None, disp) => Value::Stack(disp),
        (Some(base), None, 0) => Value::Reg(base),
        (base, index, disp) => simplest(Address {
            base,
            index: index.map(|index| (index, scale)),
            index_is_byte: false,
            element: None,
            bits: None,
            image: None,
            disp: disp.into(),
            narrow: false,
            segment: Segment::Flat,
        }),
    }
}

/// The value of an address in its simplest form: a constant, if it has no registers.
fn simplest(address: Address) -> Value {
    let Address {
        base: None,
        index: None,
        element: None,
        bits: None,
        segment: Segment::Flat,
        image,
        disp,
        narrow,
        ..
    } = address
    else {
        return Value::Address(address);
    };
    match (image, narrow) {
        (Some(image), false) => Value::Original(image),
        (Some(_), true) => Value::Address(address),
        (None, false) => Value::Const(disp as u64),
        (None, true) => Value::Const(u64::from(disp as u32)),
    }
}

/// The low `size` bytes of a constant.
fn low(value: u64, size: u8) -> u64 {
    match size {
        8.. => value,
        _ => value & ((1 << (8 * size)) - 1),
    }
}

/// The low `size` bytes of a general register; for ah to bh, the second byte.
fn part(register: Register, size: u8) -> Value {
    let reg = gpr(register);
    match register {
        Register::AH | Register::BH | Register::CH | Register::DH => Value::Part(reg, 1, 1),
        _ if size < 8 => Value::Part(reg, 0, size),
        _ if reg == Gpr::RSP => Value::Stack(0),
        _ => Value::Reg(reg),
    }
}

/// The low 32 or 64 bits of a vector register.
fn vector_low(register: Register, size: u8) -> Option<Value> {
    let number = register.number() as u8;
    match size {
        _ if !register.is_vector_register() => None,
        4 => Some(Value::XmmSingle(number)),
        8.. => Some(Value::Xmm(number)),
        _ => None,
    }
}

/// True for moves between memory and the low end of a vector register.
fn is_vector_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        mnemonic,
        Movss
            | Movsd
            | Movd
            | Movq
            | Movaps
            | Movapd
            | Movups
            | Movupd
            | Movdqa
            | Movdqu
            | Movlps
            | Movlpd
            | Movntps
            | Movntpd
            | Movntdq
            | Movntdqa
            | Lddqu
            | Vmovss
            | Vmovsd
            | Vmovd
            | Vmovq
            | Vmovaps
            | Vmovapd
            | Vmovups
            | Vmovupd
            | Vmovdqa
            | Vmovdqu
            | Vmovlps
            | Vmovlpd
            | Vmovntps
            | Vmovntpd
            | Vmovntdq
            | Vmovntdqa
            | Vlddqu
            | Vmovdqa32
            | Vmovdqa64
            | Vmovdqu8
            | Vmovdqu16
            | Vmovdqu32
            | Vmovdqu64
    )
}

fn is_near_return(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Retnq | Code::Retnq_imm16)
}

fn is_xbegin(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Xbegin
}

/// The condition in the name of an instruction such as `setcc`; `None` if it has none.
fn condition(instruction: &Instruction) -> Option<Cond> {
    Some(Cond(match instruction.condition_code() {
        ConditionCode::o => 0,
        ConditionCode::no => 1,
        ConditionCode::b => 2,
        ConditionCode::ae => 3,
        ConditionCode::e => 4,
        ConditionCode::ne => 5,
        ConditionCode::be => 6,
        ConditionCode::a => 7,
        ConditionCode::s => 8,
        ConditionCode::ns => 9,
        ConditionCode::p => 10,
        ConditionCode::np => 11,
        ConditionCode::l => 12,
        ConditionCode::ge => 13,
        ConditionCode::le => 14,
        ConditionCode::g => 15,
        ConditionCode::None => return None,
    }))
}

/// When a conditional branch is taken.
fn taken(instruction: &Instruction) -> Option<Taken> {
    use Code::*;
    let counted = |narrow, zero| Some(Taken::Loop { narrow, zero });
    match instruction.code() {
        Jrcxz_rel8_64 | Jrcxz_rel8_16 => Some(Taken::CountZero { narrow: false }),
        Jecxz_rel8_64 | Jecxz_rel8_32 => Some(Taken::CountZero { narrow: true }),
        Loop_rel8_64_RCX | Loop_rel8_16_RCX => counted(false, None),
        Loop_rel8_64_ECX => counted(true, None),
        Loope_rel8_64_RCX | Loope_rel8_16_RCX => counted(false, Some(true)),
        Loope_rel8_64_ECX => counted(true, Some(true)),
        Loopne_rel8_64_RCX | Loopne_rel8_16_RCX => counted(false, Some(false)),
        Loopne_rel8_64_ECX => counted(true, Some(false)),
        _ if instruction.is_jcc_short_or_near() => condition(instruction).map(Taken::Flags),
        _ => None,
    }
}
