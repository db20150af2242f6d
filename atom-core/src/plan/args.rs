//! What an argument of a call stands for at its point: registers, flags,
//! addresses, as the program itself would see them there.

use iced_x86::{Code, ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::asm::{Cond, Gpr};
use crate::error::{Error, Result};
use crate::tool::Argument;

/// An effective address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address {
    /// Base register; rsp stands for its value in the program.
    pub base: Option<Gpr>,
    /// Index register and scale.
    pub index: Option<(Gpr, u8)>,
    /// Only the low byte of the index register counts (`xlat`).
    pub index_is_byte: bool,
    /// Displacement.
    pub disp: i64,
    /// Computed modulo 2^32.
    pub narrow: bool,
    /// The base of this segment is added.
    pub segment: Segment,
}

/// Segments that have a base in 64-bit mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segment {
    /// Base 0.
    Flat,
    /// `fs`
    Fs,
    /// `gs`
    Gs,
}

/// When a conditional branch is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// By the flags.
    Flags(Cond),
    /// `jrcxz`, or `jecxz` if narrow.
    CountZero {
        /// Only ecx counts.
        narrow: bool,
    },
    /// `loop`, `loope` (wants ZF set), `loopne` (wants it clear).
    Loop {
        /// Only ecx counts.
        narrow: bool,
        /// The value of ZF that is wanted beside rcx.
        zero: Option<bool>,
    },
}

/// The value of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A constant.
    Const(u64),
    /// Run-time address of an offset in the plan's data.
    Data(u32),
    /// Run-time address of the running thread's copy of what lies in the main
    /// block: an operand on it is one on the main block's, with a gs prefix.
    Thread {
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in the plan's data.
        at: u32,
    },
    /// The same, by asking the runtime.
    ThreadLookup {
        /// Address in the tool's file of the function to ask.
        routine: u64,
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in a block.
        offset: u32,
    },
    /// What a slot of the plan's data points to, and an offset added.
    Pointed {
        /// Offset of the slot.
        slot: u32,
        /// What is added.
        offset: u32,
    },
    /// Run-time address of an address of the original image.
    Original(u64),
    /// A general register other than rsp.
    Reg(Gpr),
    /// rsp, and this added.
    Stack(i32),
    /// The flags, as `pushfq` stores them.
    Flags,
    /// The cycle counter.
    Cycles,
    /// 1 if the branch will be taken, else 0.
    Taken(Taken),
    /// An effective address.
    Address(Address),
}

impl Value {
    /// General registers that it is computed from.
    pub fn sources(&self) -> u16 {
        match self {
            Self::Reg(reg) => reg.bit(),
            Self::Taken(Taken::CountZero { .. } | Taken::Loop { .. }) => Gpr::RCX.bit(),
            Self::Address(a) => {
                let base = a.base.filter(|b| *b != Gpr::RSP).map_or(0, Gpr::bit);
                base | a.index.map_or(0, |i| i.0.bit())
            }
            _ => 0,
        }
    }

    /// True if it is computed from the flags.
    pub fn needs_flags(&self) -> bool {
        matches!(
            self,
            Self::Flags | Self::Taken(Taken::Flags(_) | Taken::Loop { zero: Some(_), .. })
        )
    }

    /// True if it is computed before the argument registers are filled.
    pub fn is_computed_first(&self) -> bool {
        matches!(
            self,
            Self::Cycles | Self::Taken(Taken::CountZero { .. } | Taken::Loop { .. })
        )
    }
}

fn error(instruction: &Instruction, reason: impl Into<String>) -> Error {
    Error::new("planning a call", reason)
        .address(instruction.ip())
        .symbol(format!("{instruction}"))
}

/// The value of a register argument. `after` if the call stands for the point
/// after an instruction that transfers control, though it is made before it.
pub fn register(number: u8, instruction: &Instruction, pc: u64, after: bool) -> Result<Value> {
    Ok(match number {
        4 if after => match instruction.mnemonic() {
            Mnemonic::Ret => {
                let popped = if instruction.op_count() == 1 {
                    i32::from(instruction.immediate16())
                } else {
                    0
                };
                Value::Stack(8 + popped)
            }
            _ => Value::Stack(0),
        },
        4 => Value::Stack(0),
        1 if after && matches!(taken(instruction), Ok(Taken::Loop { .. })) => {
            let narrow = matches!(taken(instruction), Ok(Taken::Loop { narrow: true, .. }));
            Value::Address(Address {
                base: Some(Gpr::RCX),
                index: None,
                index_is_byte: false,
                disp: -1,
                narrow,
                segment: Segment::Flat,
            })
        }
        0..=15 => Value::Reg(Gpr(number)),
        16 => Value::Original(pc),
        17 => Value::Flags,
        18 => Value::Cycles,
        _ => {
            return Err(error(
                instruction,
                format!("there is no register number {number}"),
            ));
        }
    })
}

/// When the branch is taken.
pub fn taken(instruction: &Instruction) -> Result<Taken> {
    let condition = match instruction.condition_code() {
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
        ConditionCode::None => 16,
    };
    Ok(match instruction.code() {
        Code::Jrcxz_rel8_64 | Code::Jrcxz_rel8_16 => Taken::CountZero { narrow: false },
        Code::Jecxz_rel8_64 | Code::Jecxz_rel8_32 => Taken::CountZero { narrow: true },
        Code::Loop_rel8_64_RCX | Code::Loop_rel8_16_RCX => Taken::Loop {
            narrow: false,
            zero: None,
        },
        Code::Loop_rel8_64_ECX => Taken::Loop {
            narrow: true,
            zero: None,
        },
        Code::Loope_rel8_64_RCX | Code::Loope_rel8_16_RCX => Taken::Loop {
            narrow: false,
            zero: Some(true),
        },
        Code::Loope_rel8_64_ECX => Taken::Loop {
            narrow: true,
            zero: Some(true),
        },
        Code::Loopne_rel8_64_RCX | Code::Loopne_rel8_16_RCX => Taken::Loop {
            narrow: false,
            zero: Some(false),
        },
        Code::Loopne_rel8_64_ECX => Taken::Loop {
            narrow: true,
            zero: Some(false),
        },
        _ if instruction.is_jcc_short_or_near() => Taken::Flags(Cond(condition)),
        _ => return Err(error(instruction, "BrCondValue needs a conditional branch")),
    })
}

fn plain(base: Gpr, disp: i64) -> Address {
    Address {
        base: Some(base),
        index: None,
        index_is_byte: false,
        disp,
        narrow: false,
        segment: Segment::Flat,
    }
}

/// The general register of an address, and whether it is used as 32 bits.
fn address_register(register: Register) -> Option<(Gpr, bool)> {
    register.is_gpr().then(|| {
        (
            Gpr(register.full_register().number() as u8),
            register.size() == 4,
        )
    })
}

/// The effective address of the instruction's memory operand.
///
/// An explicit operand comes first; else that of the string instruction (the
/// source where there are two), else the word of the stack that is pushed or
/// popped.
pub fn effective_address(instruction: &Instruction) -> Result<Value> {
    let string = |register: Register| {
        let (base, narrow) = address_register(register).expect("string operands are registers");
        plain_in(base, narrow, instruction.memory_segment())
    };
    let mut destination = None;
    for operand in 0..instruction.op_count() {
        match instruction.op_kind(operand) {
            OpKind::Memory => return explicit(instruction),
            OpKind::MemorySegRSI => return Ok(Value::Address(string(Register::RSI))),
            OpKind::MemorySegESI => return Ok(Value::Address(string(Register::ESI))),
            OpKind::MemorySegRDI => return Ok(Value::Address(string(Register::RDI))),
            OpKind::MemorySegEDI => return Ok(Value::Address(string(Register::EDI))),
            // es has base 0 and cannot be overridden
            OpKind::MemoryESRDI => destination = Some(plain(Gpr::RDI, 0)),
            OpKind::MemoryESEDI => {
                destination = Some(Address {
                    narrow: true,
                    ..plain(Gpr::RDI, 0)
                });
            }
            _ => {}
        }
    }
    if let Some(address) = destination {
        return Ok(Value::Address(address));
    }
    match (
        instruction.mnemonic(),
        instruction.stack_pointer_increment(),
    ) {
        (Mnemonic::Leave, _) => Ok(Value::Address(plain(Gpr::RBP, 0))),
        (Mnemonic::Ret | Mnemonic::Retf | Mnemonic::Iretq, _) => Ok(Value::Stack(0)),
        (Mnemonic::Enter, _) => Ok(Value::Stack(-8)),
        (_, change) if change < 0 => Ok(Value::Stack(change)),
        (_, change) if change > 0 => Ok(Value::Stack(0)),
        _ => Err(error(instruction, "EffAddrValue needs a memory operand")),
    }
}

fn plain_in(base: Gpr, narrow: bool, segment: Register) -> Address {
    Address {
        narrow,
        segment: segment_of(segment),
        ..plain(base, 0)
    }
}

fn segment_of(register: Register) -> Segment {
    match register {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::Flat,
    }
}

fn explicit(instruction: &Instruction) -> Result<Value> {
    let segment = segment_of(instruction.memory_segment());
    if instruction.is_vsib() {
        return Err(error(
            instruction,
            "EffAddrValue of a gather or scatter, which has several addresses, is not supported yet",
        ));
    }
    if instruction.is_ip_rel_memory_operand() {
        let address = instruction.ip_rel_memory_address();
        if segment != Segment::Flat || instruction.memory_base() == Register::EIP {
            return Err(error(
                instruction,
                "EffAddrValue of an operand relative to both rip and a segment is not supported yet",
            ));
        }
        return Ok(Value::Original(address));
    }
    let base = address_register(instruction.memory_base());
    let index = instruction.memory_index();
    let index_is_byte = index == Register::AL;
    let narrow = base.is_some_and(|b| b.1) || (index.is_gpr() && index.size() == 4);
    let mut disp = instruction.memory_displacement64() as i64;
    if narrow {
        disp = i64::from(disp as i32);
    }
    let index = address_register(index).map(|i| (i.0, instruction.memory_index_scale() as u8));
    // `pop [rsp + 8]` computes its address after rsp has moved.
    if instruction.mnemonic() == Mnemonic::Pop && base.is_some_and(|b| b.0 == Gpr::RSP) {
        disp += i64::from(instruction.stack_pointer_increment());
    }
    if base.is_none() && index.is_none() && segment == Segment::Flat {
        return Ok(Value::Const(disp as u64));
    }
    let base = base.map(|b| b.0);
    Ok(Value::Address(Address {
        base,
        index,
        index_is_byte,
        disp,
        narrow,
        segment,
    }))
}

/// The value of an argument that does not lie in the plan's data.
pub fn value(
    argument: &Argument,
    instruction: &Instruction,
    pc: u64,
    after: bool,
) -> Result<Option<Value>> {
    Ok(Some(match *argument {
        Argument::Const(value) => Value::Const(value),
        Argument::Regv(number) => register(number, instruction, pc, after)?,
        Argument::BrCondValue => Value::Taken(taken(instruction)?),
        Argument::EffAddrValue => effective_address(instruction)?,
        Argument::Str(..)
        | Argument::CStr(..)
        | Argument::Array(..)
        | Argument::CArray(..)
        | Argument::Data(_)
        | Argument::ThreadData(_) => return Ok(None),
    }))
}
