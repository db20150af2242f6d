//! Records for ChampSim: 64 bytes for each executed instruction, as `input_instr` in its `inc/trace_instruction.h`.
//!
//! ChampSim takes the kind of a branch from the registers, so these are written as it wants them. It has room for two
//! registers and addresses that are written, and four that are read; more are left out.

use std::io::Write;

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};
use mem_trace::{READ, WRITE};

use super::stream::{self, Step};
use super::{Failure, Input};

/// Numbers of registers that mean something to ChampSim.
const STACK_POINTER: u8 = 6;
const FLAGS: u8 = 25;
const INSTRUCTION_POINTER: u8 = 26;
/// Stands for the memory from which an indirect branch reads its target, if its address needs no register.
const TARGET: u8 = 200;

/// What a record has of an instruction, whenever it is executed.
struct Fixed {
    is_branch: bool,
    is_conditional: bool,
    written: [u8; 2],
    read: [u8; 4],
    /// Number of references of each repetition.
    repeated: usize,
}

/// Writes the records of a thread.
pub fn write(reader: &mut Input, thread: u64, to: &mut impl Write) -> Result<(), Failure> {
    stream::each(
        reader,
        thread,
        |i, _| fixed(i),
        |step| {
            let Step {
                code, references, ..
            } = &step;
            if code.repeated == 0 || references.is_empty() && step.given == 0 {
                return Ok(to.write_all(&record(&step, references))?);
            }
            for repetition in references.chunks(code.repeated) {
                to.write_all(&record(&step, repetition))?;
            }
            Ok(())
        },
    )
}

fn record(step: &Step<'_, Fixed>, references: &[mem_trace::Reference]) -> [u8; 64] {
    let fixed = step.code;
    let (mut written, mut read) = ([0; 2], [0; 4]);
    for r in references {
        if r.access & READ != 0 {
            add(&mut read, r.address);
        }
        if r.access & WRITE != 0 {
            add(&mut written, r.address);
        }
    }
    let mut record = [0; 64];
    record[..8].copy_from_slice(&step.pc.to_le_bytes());
    record[8] = fixed.is_branch.into();
    record[9] = (fixed.is_branch && (step.is_taken || !fixed.is_conditional)).into();
    record[10..12].copy_from_slice(&fixed.written);
    record[12..16].copy_from_slice(&fixed.read);
    let addresses = written.iter().chain(&read);
    for (to, address) in record[16..].chunks_exact_mut(8).zip(addresses) {
        to.copy_from_slice(&address.to_le_bytes());
    }
    record
}

/// Puts a value to the first free place of a set. A set that is full takes no more.
fn add<T: PartialEq + Default + Copy>(set: &mut [T], value: T) {
    let place = set.iter_mut().find(|p| **p == value || **p == T::default());
    if let Some(place) = place {
        *place = value;
    }
}

fn fixed(instruction: &Instruction) -> Fixed {
    let (mut written, mut read) = ([0; 2], [0; 4]);
    let flow = instruction.flow_control();
    let is_call = is_call(instruction);
    let is_return = flow == FlowControl::Return;
    let is_conditional = flow == FlowControl::ConditionalBranch;
    let is_jump = matches!(
        flow,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    );
    let is_branch = is_call || is_return || is_conditional || is_jump;
    if is_branch {
        add(&mut written, INSTRUCTION_POINTER);
        if is_call || is_return {
            add(&mut written, STACK_POINTER);
            add(&mut read, STACK_POINTER);
        }
        if !is_return && flow != FlowControl::IndirectBranch {
            add(&mut read, INSTRUCTION_POINTER);
        }
    }
    if instruction.rflags_read() != 0 {
        add(&mut read, FLAGS);
    }
    let is_indirect = matches!(
        flow,
        FlowControl::IndirectBranch | FlowControl::IndirectCall
    );
    let mut factory = InstructionInfoFactory::new();
    // Whether the registers of the target are read shows an indirect branch; other registers of direct ones and of
    // returns would hide what they are.
    let reads_others = !is_branch || is_conditional || is_indirect;
    for used in factory.info(instruction).used_registers() {
        let number = number(used.register());
        if number == 0 || is_branch && number == STACK_POINTER {
            continue;
        }
        let (reads, writes) = accesses(used.access());
        if reads && reads_others {
            add(&mut read, number);
        }
        if writes && !is_branch {
            add(&mut written, number);
        }
    }
    let is_general = |r: &u8| ![0, STACK_POINTER, INSTRUCTION_POINTER, FLAGS].contains(r);
    if is_indirect && !read.iter().any(is_general) {
        add(&mut read, TARGET);
    }
    if !is_branch && instruction.rflags_modified() != 0 {
        add(&mut written, FLAGS);
    }
    Fixed {
        is_branch,
        is_conditional,
        written,
        read,
        repeated: stream::repeated(instruction),
    }
}

/// Whether it is a call within the program, not one of the kernel.
fn is_call(instruction: &Instruction) -> bool {
    instruction.is_call_near() || instruction.is_call_near_indirect()
}

fn accesses(access: OpAccess) -> (bool, bool) {
    let reads = matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    );
    let writes = matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    );
    (reads, writes)
}

/// A number for a register: the ones that mean something to ChampSim, others that differ from these, 0 for registers that are
/// left out.
fn number(register: Register) -> u8 {
    const GENERAL: [u8; 16] = [
        10,
        9,
        8,
        7,
        STACK_POINTER,
        5,
        4,
        3,
        11,
        12,
        13,
        14,
        15,
        16,
        17,
        18,
    ];
    const VECTORS: u8 = 64;
    const MASKS: u8 = 96;
    const STACK_OF_FLOATS: u8 = 104;
    let full = register.full_register();
    let at = full.number() as u8;
    match full {
        r if r.is_gpr() => GENERAL[usize::from(at)],
        r if r.is_vector_register() => VECTORS + at,
        r if r.is_k() => MASKS + at,
        r if r.is_st() || r.is_mm() => STACK_OF_FLOATS + at,
        _ => 0,
    }
}
