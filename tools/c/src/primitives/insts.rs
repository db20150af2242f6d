//! Queries about instructions.

use std::ffi::{c_char, c_int, c_long};

use atom_tool::{Access, Inst, InstInfo, InstType, Operand, Reg};

use super::handles::{nth, of_inst, of_proc, primitives, stop, text, text_or_null};
use super::queries::{first_four, reg_number};

/// The types by their numbers in C.
const TYPES: [InstType; 12] = [
    InstType::Load,
    InstType::Store,
    InstType::Jump,
    InstType::Div,
    InstType::Mul,
    InstType::Add,
    InstType::Sub,
    InstType::CondBr,
    InstType::UncondBr,
    InstType::Call,
    InstType::Ret,
    InstType::Syscall,
];

/// Numbers of `IInfoType` that are no [`InstInfo`].
const RA: u32 = 2;
const RC: u32 = 4;
const BINARY: u32 = 6;

/// Of the numbers of `IInfoType` the others.
const INFOS: [Option<InstInfo>; 15] = [
    Some(InstInfo::MemDisp),
    Some(InstInfo::BrDisp),
    None,
    None,
    None,
    Some(InstInfo::Opcode),
    None,
    Some(InstInfo::OpcodeMap),
    Some(InstInfo::Encoding),
    Some(InstInfo::Immediate),
    Some(InstInfo::MemDispSize),
    Some(InstInfo::ImmediateSize),
    Some(InstInfo::OperandCount),
    Some(InstInfo::Repeat),
    Some(InstInfo::MaskRegister),
];

/// A fact of an instruction's encoding, if the instruction has it.
fn info(inst: Inst<'static>, what: u32, primitive: &str) -> Option<i64> {
    match what {
        // Vector registers are numbered from 32 in `Reg`; 5 bits are encoded.
        RA..=RC => (inst.operand_reg((what - RA) as usize)).map(|r| (r.number() & 31).into()),
        BINARY => Some(first_four(inst.bytes()).into()),
        _ => match INFOS.get(what as usize) {
            Some(Some(what)) => inst.info(*what),
            _ => stop(primitive, format!("there is no information {what}")),
        },
    }
}

/// The registers that an instruction uses and changes. The first two arrays are ATOM's.
#[repr(C)]
pub struct RegUsage {
    used: [u64; 2],
    updated: [u64; 2],
    replaced: [u64; 2],
    flags_read: u32,
    flags_written: u32,
    flags_undefined: u32,
}

/// Bits of an access: read, written, conditional.
fn access_bits(access: Access) -> c_int {
    c_int::from(access.reads())
        | c_int::from(access.writes()) << 1
        | c_int::from(access.is_conditional()) << 2
}

/// A part of a register that an instruction accesses.
#[repr(C)]
pub struct RegAccess {
    reg: c_int,
    offset: c_int,
    size: c_int,
    access: c_int,
}

/// An operand as the instruction is written.
#[repr(C)]
pub struct InstOperand {
    kind: c_int,
    access: c_int,
    reg: c_int,
    offset: c_int,
    size: c_int,
    value: i64,
}

/// An operand in memory.
#[repr(C)]
pub struct InstMemory {
    access: c_int,
    size: c_int,
    count: c_int,
    segment: c_int,
    base: c_int,
    index: c_int,
    scale: c_int,
    index_size: c_int,
    bit_offset: c_int,
    flags: c_int,
    displacement: i64,
    address: i64,
}

/// The floating-point operations of an instruction.
#[repr(C)]
pub struct InstFloatOps {
    precision: c_int,
    vector: c_int,
    numbers: c_int,
    each: c_int,
}

primitives! {
    fn InstText(i: inst) -> *const c_char { text(i.text()) }
    fn InstMnemonic(i: inst) -> *const c_char { text(i.mnemonic()) }
    fn InstISA(i: inst) -> *const c_char { text(i.isa()) }
    fn GetInstEnteredImport(i: inst) -> *const c_char { text_or_null(i.entered_import()) }
    fn GetInstProcCalled(i: inst) -> *const c_char { text_or_null(i.called_name().unwrap_or_else(|e| stop(NAME, e))) }
    fn GetInstBranchTarget(i: inst) -> usize { of_inst(i.branch_target().unwrap_or_else(|e| stop(NAME, e))) }
    fn GetInstCalledProc(i: inst) -> usize { of_proc(i.called_proc()) }
    fn GetInstEnteredProc(i: inst) -> usize { of_proc(i.entered_proc()) }
    fn GetInstTargetPC(i: inst) -> i64 { i.target_pc().unwrap_or(0) as i64 }
    fn GetInstClass(i: inst) -> c_int { i.class() as c_int }
    fn GetInstInfo(i: inst, what: u32) -> c_int { info(i, what, NAME).unwrap_or(0) as c_int }
    fn FindInstInfo(i: inst, what: u32) gives c_long { info(i, what, NAME) }

    fn IsInstType(i: inst, kind: u32) -> c_int {
        match TYPES.get(kind as usize) {
            Some(kind) => i.is_type(*kind).into(),
            None => stop(NAME, format!("there is no type {kind}")),
        }
    }

    fn GetInstRegEnum(i: inst, what: u32) -> c_int {
        if !(RA..=RC).contains(&what) {
            stop(NAME, format!("{what} is none of InstRA, InstRB and InstRC"));
        }
        reg_number(i.operand_reg((what - RA) as usize))
    }

    fn GetInstRegUsage(i: inst) gives RegUsage {
        let usage = i.reg_usage();
        Some(RegUsage {
            used: usage.used.bits(),
            updated: usage.updated.bits(),
            replaced: usage.replaced.bits(),
            flags_read: usage.flags_read,
            flags_written: usage.flags_written,
            flags_undefined: usage.flags_undefined,
        })
    }

    fn GetInstRegAccess(i: inst, n: c_int) gives RegAccess {
        nth(i.reg_accesses(), n).map(|part| RegAccess {
            reg: reg_number(Some(part.reg)),
            offset: part.offset as c_int,
            size: part.size as c_int,
            access: access_bits(part.access),
        })
    }

    fn GetInstOperand(i: inst, n: c_int) gives InstOperand {
        nth(i.operands(), n).map(|operand| {
            let mut item = InstOperand {
                kind: 0,
                access: 0,
                reg: reg_number(None),
                offset: 0,
                size: 0,
                value: 0,
            };
            match operand {
                Operand::Register {
                    reg,
                    offset,
                    size,
                    access,
                } => {
                    item.reg = reg_number(reg);
                    (item.offset, item.size) = (offset as c_int, size as c_int);
                    item.access = access_bits(access);
                }
                Operand::Memory { size, access } => {
                    (item.kind, item.size) = (1, size as c_int);
                    item.access = access_bits(access);
                }
                Operand::Constant(value) => (item.kind, item.value) = (2, value as i64),
                Operand::Target(value) => (item.kind, item.value) = (3, value as i64),
            }
            item
        })
    }

    fn GetInstMemory(i: inst, n: c_int) gives InstMemory {
        nth(i.memory(), n).map(|memory| {
            // Bits of `MEMORY_IMPLICIT` and its like, in their order.
            let flags = [
                memory.is_implicit(),
                memory.is_string(),
                memory.is_repeated(),
                memory.is_broadcast(),
                memory.has_32_bit_address(),
                memory.address.is_some(),
                memory.has_8_bit_index(),
            ];
            let bit = |(i, is_set): (usize, bool)| c_int::from(is_set) << i;
            InstMemory {
                access: access_bits(memory.access),
                size: memory.size as c_int,
                count: memory.count as c_int,
                segment: reg_number(memory.segment),
                base: reg_number(memory.base),
                index: reg_number(memory.index),
                scale: memory.scale as c_int,
                index_size: memory.index_size as c_int,
                bit_offset: reg_number(memory.bit_offset),
                flags: flags.into_iter().enumerate().map(bit).sum(),
                displacement: memory.displacement,
                address: memory.address.unwrap_or(0) as i64,
            }
        })
    }

    fn GetInstFloatOps(i: inst) gives InstFloatOps {
        i.float_ops().map(|ops| InstFloatOps {
            precision: ops.precision as c_int,
            vector: ops.vector as c_int,
            numbers: ops.numbers as c_int,
            each: ops.each as c_int,
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn RegName(reg: u32) -> *const c_char {
    match Reg::from_number(reg) {
        Some(reg) => text(&format!("{reg:?}").to_lowercase()),
        None => stop("RegName", format!("there is no register {reg}")),
    }
}
