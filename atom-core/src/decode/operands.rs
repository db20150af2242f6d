//! Operands of an instruction, the memory that it accesses, and its encoding.
//!
//! Addresses are given in terms of the registers' values *before* the
//! instruction: `pop [rsp]` stores above the stack pointer's old value, and
//! that is what its record says.

use atom_abi::query::{InstInfo, MemoryRecord, NO_REG, OperandKind, OperandRecord, access, memory};
use iced_x86::{
    CodeSize, Decoder, DecoderOptions, EncodingKind, Instruction, InstructionInfoFactory, Mnemonic,
    OpCodeTableKind, OpKind, Register, UsedMemory,
};

use super::registers::{access_bits, reg_of};
use super::{direct_target, is_rip_relative};

fn number(register: Register) -> u32 {
    reg_of(register).map_or(NO_REG, |(reg, _)| reg as u32)
}

/// The places in memory that an instruction accesses, an explicit one first.
pub fn memory_accesses(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Vec<MemoryRecord> {
    let info = factory.info(instruction);
    let explicit = (0..instruction.op_count())
        .find(|i| instruction.op_kind(*i) == OpKind::Memory && !is_xlat(instruction))
        .is_some_and(|i| access_bits(info.op_access(i)) != 0);
    info.used_memory()
        .iter()
        .filter(|used| access_bits(used.access()) != 0)
        .enumerate()
        .map(|(i, used)| record(instruction, used, explicit && i == 0))
        .collect()
}

fn record(instruction: &Instruction, used: &UsedMemory, explicit: bool) -> MemoryRecord {
    let mut flags = 0;
    let mut set = |condition: bool, flag| flags |= if condition { flag } else { 0 };
    let string = instruction.is_string_instruction();
    let repeated = string && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    // The decoder gives a repeated string no size.
    let memory_size = match repeated {
        true => instruction.memory_size(),
        false => used.memory_size(),
    };
    let broadcast = explicit && instruction.is_broadcast();
    let size = match broadcast {
        true => memory_size.element_size(),
        false => memory_size.size(),
    };
    set(!explicit, memory::IMPLICIT);
    set(string, memory::STRING);
    set(repeated, memory::REPEATED);
    set(broadcast, memory::BROADCAST);
    set(used.address_size() == CodeSize::Code32, memory::ADDRESS_32);
    let rip_relative = explicit && is_rip_relative(instruction);
    let has_registers = used.base() != Register::None || used.index() != Register::None;
    set(!has_registers, memory::FIXED);
    let mut bits = access_bits(used.access());
    set(is_xlat(instruction), memory::INDEX_8);
    let masked = instruction.has_op_mask() || instruction.vsib().is_some();
    if explicit && masked || has_mask_operand(instruction) {
        bits |= access::CONDITIONAL;
    }
    MemoryRecord {
        access: bits,
        size: size as u32,
        count: elements(instruction, used, size),
        flags,
        segment: match used.segment() {
            segment @ (Register::FS | Register::GS) => number(segment),
            _ => NO_REG,
        },
        base: match rip_relative {
            true => number(Register::RIP),
            false => number(used.base()),
        },
        index: number(used.index()),
        scale: used.scale(),
        displacement: match rip_relative {
            true => used.displacement().wrapping_sub(instruction.next_ip()) as i64,
            false => used.displacement() as i64,
        },
        address: if has_registers {
            0
        } else {
            used.displacement()
        },
    }
}

/// `xlatb` has no operands; its index is al alone.
fn is_xlat(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Xlatb
}

/// True if a vector register says which elements are accessed.
fn has_mask_operand(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Maskmovq | Maskmovdqu | Vmaskmovdqu | Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq
    )
}

/// Of a gather or scatter: as many as both the indices and the data have.
fn elements(instruction: &Instruction, used: &UsedMemory, size: usize) -> u32 {
    if used.vsib_size() == 0 || size == 0 {
        return 1;
    }
    let indices = used.index().size() / used.vsib_size() as usize;
    let data = (0..instruction.op_count())
        .filter(|i| instruction.op_kind(*i) == OpKind::Register)
        .map(|i| instruction.op_register(i))
        .find(|r| r.is_vector_register())
        .map_or(indices, |r| r.size() / size);
    indices.min(data).max(1) as u32
}

/// The operands as written.
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

/// One fact of an instruction's encoding; `bytes` are the instruction's.
pub fn info(instruction: &Instruction, bytes: &[u8], what: u32) -> Option<i64> {
    let is = |item: InstInfo| what == item as u32;
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
    } else {
        None
    }
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
