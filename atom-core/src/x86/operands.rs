//! Operands of an instruction, the memory that it accesses, and its encoding.
//!
//! Addresses are given in terms of the registers' values *before* the instruction. So the record of
//! `pop [rsp]`, which stores above the stack pointer's old value, has a displacement.

use atom_abi::host::Reg;
use atom_abi::query::{
    InstInfo, MemoryRecord, NO_REG, OperandKind, OperandRecord, Repeat, access, memory,
};
use iced_x86::{
    Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic,
    OpCodeTableKind, OpKind, Register,
};

use super::direct_target;
use super::memory::{MemoryOperand, MemoryOperands, Segment, repeats};
use super::registers::{access_bits, reg_of};

fn number(register: Register) -> u32 {
    reg_of(register).map_or(NO_REG, |(reg, _)| reg as u32)
}

/// The memory operands that an instruction accesses, in the order in which arguments of calls count
/// them.
pub fn memory_accesses(
    operands: &mut MemoryOperands,
    instruction: &Instruction,
) -> Vec<MemoryRecord> {
    let list = operands.of(instruction).iter();
    list.map(|operand| record(instruction, operand)).collect()
}

fn record(instruction: &Instruction, operand: &MemoryOperand) -> MemoryRecord {
    let is_broadcast = !operand.is_implicit && instruction.is_broadcast();
    let has_registers = operand.base != Register::None || operand.index != Register::None;
    let flags = [
        (operand.is_implicit, memory::IMPLICIT),
        (instruction.is_string_instruction(), memory::STRING),
        (operand.is_repeated, memory::REPEATED),
        (is_broadcast, memory::BROADCAST),
        (operand.is_narrow, memory::ADDRESS_32),
        (!has_registers, memory::FIXED),
        (operand.index.is_gpr8(), memory::INDEX_8),
    ];
    let access = [
        (operand.reads, access::READ),
        (operand.writes, access::WRITE),
        (operand.is_conditional, access::CONDITIONAL),
    ];
    let bits = |list: &[(bool, u32)]| {
        let set = list.iter().filter(|item| item.0);
        set.fold(0, |all, item| all | item.1)
    };
    let displacement = if operand.is_relative {
        operand
            .displacement
            .wrapping_sub(instruction.next_ip() as i64)
    } else {
        operand.displacement
    };
    MemoryRecord {
        access: bits(&access),
        size: if is_broadcast {
            instruction.memory_size().element_size() as u32
        } else {
            operand.size
        },
        count: operand.elements.into(),
        flags: bits(&flags),
        segment: match operand.segment {
            Segment::Flat => NO_REG,
            Segment::Fs => Reg::FsBase as u32,
            Segment::Gs => Reg::GsBase as u32,
        },
        base: if operand.is_relative {
            Reg::Pc as u32
        } else {
            number(operand.base)
        },
        index: number(operand.index),
        scale: operand.scale.into(),
        displacement,
        address: if has_registers {
            0
        } else {
            operand.displacement as u64
        },
        index_size: operand.index_size.into(),
        bit_offset: number(operand.bit_offset),
    }
}

/// The operands as Intel syntax writes them.
pub fn operands(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Vec<OperandRecord> {
    let info = factory.info(instruction);
    (0..instruction.op_count())
        .map(|i| {
            let access = access_bits(info.op_access(i));
            let kind = instruction.op_kind(i);
            let mut operand = OperandRecord {
                kind: OperandKind::Constant as u32,
                access: 0,
                reg: NO_REG,
                offset: 0,
                size: 0,
                value: 0,
            };
            match kind {
                OpKind::Register => {
                    let register = instruction.op_register(i);
                    operand.kind = OperandKind::Register as u32;
                    operand.access = access;
                    operand.size = register.size() as u32;
                    operand.value = register.number() as u64;
                    if let Some((reg, offset)) = reg_of(register) {
                        (operand.reg, operand.offset) = (reg as u32, offset);
                    }
                }
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                    operand.kind = OperandKind::Target as u32;
                    operand.value = instruction.near_branch_target();
                }
                OpKind::FarBranch16 | OpKind::FarBranch32 => {
                    operand.kind = OperandKind::Target as u32;
                }
                _ => match instruction.try_immediate(i) {
                    Ok(value) => {
                        operand.value = value;
                        operand.size = immediate_size(kind);
                    }
                    Err(_) => {
                        operand.kind = OperandKind::Memory as u32;
                        operand.access = access;
                        operand.size = instruction.memory_size().size() as u32;
                    }
                },
            }
            operand
        })
        .collect()
}

fn immediate_size(kind: OpKind) -> u32 {
    match kind {
        OpKind::Immediate8 | OpKind::Immediate8_2nd => 1,
        OpKind::Immediate16 | OpKind::Immediate8to16 => 2,
        OpKind::Immediate32 | OpKind::Immediate8to32 => 4,
        _ => 8,
    }
}

/// One fact of an instruction's encoding; `what` is one of [`InstInfo`], `bytes` are the bytes of the
/// instruction. `None` if the instruction has no such part.
pub fn info(instruction: &Instruction, bytes: &[u8], what: u32) -> Option<i64> {
    let is = |item: InstInfo| what == item as u32;
    if is(InstInfo::Repeat) {
        return repeat(instruction).map(|repeat| repeat as i64);
    }
    let op_code = instruction.op_code();
    let mut decoder = Decoder::with_ip(64, bytes, instruction.ip(), DecoderOptions::NONE);
    let offsets = {
        let decoded = decoder.decode();
        decoder.get_constant_offsets(&decoded)
    };
    let has_memory = (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    let displacement_size =
        (has_memory && offsets.has_displacement()).then(|| offsets.displacement_size());
    if is(InstInfo::MemDisp) {
        displacement_size.and_then(|size| field(bytes, offsets.displacement_offset(), size))
    } else if is(InstInfo::MemDispSize) {
        displacement_size.map(|size| size as i64)
    } else if is(InstInfo::BrDisp) {
        direct_target(instruction).map(|to| to.wrapping_sub(instruction.next_ip()) as i64)
    } else if is(InstInfo::Opcode) {
        Some(op_code.op_code().into())
    } else if is(InstInfo::OpcodeMap) {
        Some(match op_code.table() {
            OpCodeTableKind::Normal => 0,
            OpCodeTableKind::T0F => 1,
            OpCodeTableKind::T0F38 => 2,
            OpCodeTableKind::T0F3A => 3,
            OpCodeTableKind::MAP5 => 5,
            OpCodeTableKind::MAP6 => 6,
            OpCodeTableKind::MAP8 => 8,
            OpCodeTableKind::MAP9 => 9,
            OpCodeTableKind::MAP10 => 10,
            _ => return None,
        })
    } else if is(InstInfo::Encoding) {
        Some(match instruction.encoding() {
            EncodingKind::Legacy => 0,
            EncodingKind::VEX => 1,
            EncodingKind::EVEX => 2,
            EncodingKind::XOP => 3,
            EncodingKind::D3NOW => 4,
            _ => return None,
        })
    } else if is(InstInfo::Immediate) {
        let i = (0..instruction.op_count()).find(|i| instruction.try_immediate(*i).is_ok())?;
        Some(instruction.immediate(i) as i64)
    } else if is(InstInfo::ImmediateSize) {
        let i = (0..instruction.op_count()).any(|i| instruction.try_immediate(i).is_ok());
        (i && offsets.has_immediate()).then(|| offsets.immediate_size() as i64)
    } else if is(InstInfo::OperandCount) {
        Some(instruction.op_count().into())
    } else if is(InstInfo::MaskRegister) {
        let mask = instruction.op_mask();
        (mask != Register::None).then(|| mask.number() as i64)
    } else {
        None
    }
}

/// The instruction set extensions that an instruction needs, with `+` between them.
pub fn isa(instruction: &Instruction) -> String {
    let names = instruction.cpuid_features().iter();
    let names: Vec<String> = names.map(|feature| format!("{feature:?}")).collect();
    names.join("+")
}

/// How a string instruction is repeated; none for other instructions.
fn repeat(instruction: &Instruction) -> Option<Repeat> {
    if !instruction.is_string_instruction() {
        return None;
    }
    use Mnemonic::{Cmpsb, Cmpsd, Cmpsq, Cmpsw, Scasb, Scasd, Scasq, Scasw};
    let compares = matches!(
        instruction.mnemonic(),
        Cmpsb | Cmpsd | Cmpsq | Cmpsw | Scasb | Scasd | Scasq | Scasw
    );
    Some(match (repeats(instruction), compares) {
        (false, _) => Repeat::Once,
        (true, false) => Repeat::Counted,
        (true, true) if instruction.has_repne_prefix() => Repeat::UntilEqual,
        (true, true) => Repeat::WhileEqual,
    })
}

/// A little-endian field of the encoding, sign-extended.
fn field(bytes: &[u8], offset: usize, size: usize) -> Option<i64> {
    let field = bytes.get(offset..offset + size)?;
    let last = *field.last()?;
    let fill = if last & 0x80 != 0 { 0xff } else { 0 };
    let mut all = [fill; 8];
    all[..size].copy_from_slice(field);
    Some(i64::from_le_bytes(all))
}
