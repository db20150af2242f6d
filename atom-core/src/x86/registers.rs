//! Which registers and flags an instruction uses and changes, in ATOM's way:
//! bit vectors over the numbers of [`Reg`], parts of registers mapped to the
//! whole, implicit operands included.
//!
//! Some facts are added to the decoder's tables:
//!
//! - An instruction that changes the program counter has it as a destination.
//! - `syscall` reads the kernel's argument registers and writes its result.
//! - Instructions that save state read all of it, and instructions that restore state write all of it.
//!
//! Vector arithmetic reads its rounding mode from mxcsr and collects its exceptions there. The decoder
//! does not know which instructions do, so only instructions that name mxcsr count as using it. The
//! same holds for the control word of the x87 unit. x87 registers are numbered from the top of stack
//! as it is after a push and before a pop. The registers that a callee uses are not counted for the
//! call.

use atom_abi::host::Reg;
use atom_abi::query::{RegAccessRecord, RegUsageRecord, access};
use iced_x86::{
    Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, RflagsBits,
};

use super::{ControlFlow, flow_of, is_rip_relative};

/// A register by its number in [`Reg`], with the offset in bytes of the part that is meant.
/// `None` for control, debug and selector registers.
pub fn reg_of(register: Register) -> Option<(Reg, u32)> {
    let numbered = |first: Reg, n: usize| Reg::from_number(first as u32 + n as u32);
    let n = register.number();
    let reg = if register.is_gpr8() {
        // The decoder numbers spl, bpl, sil and dil after ah, ch, dh and bh.
        return match register {
            Register::AH | Register::CH | Register::DH | Register::BH => {
                Some((numbered(Reg::Rax, n - 4)?, 1))
            }
            _ => Some((numbered(Reg::Rax, register.full_register().number())?, 0)),
        };
    } else if register.is_gpr() {
        numbered(Reg::Rax, n)?
    } else if register.is_vector_register() {
        numbered(Reg::Xmm0, n)?
    } else if register.is_k() {
        numbered(Reg::K0, n)?
    } else if register.is_st() || register.is_mm() {
        numbered(Reg::St0, n)?
    } else if register.is_tmm() {
        numbered(Reg::Tmm0, n)?
    } else if register.is_ip() {
        Reg::Pc
    } else {
        match register {
            Register::FS => Reg::FsBase,
            Register::GS => Reg::GsBase,
            _ => return None,
        }
    };
    Some((reg, 0))
}

/// Size in bytes of a whole register: a write of this size replaces all of it.
fn whole_size(reg: Reg) -> u32 {
    match reg as u32 {
        32..64 => 64,
        // A write to an mmx register sets the rest of the x87 register to ones.
        64..72 => 8,
        72.. => 1024,
        _ => 8,
    }
}

/// An access as bits of [`access`].
pub fn access_bits(of: OpAccess) -> u32 {
    match of {
        OpAccess::Read => access::READ,
        OpAccess::CondRead => access::READ | access::CONDITIONAL,
        OpAccess::Write => access::WRITE,
        OpAccess::CondWrite => access::WRITE | access::CONDITIONAL,
        OpAccess::ReadWrite => access::READ | access::WRITE,
        OpAccess::ReadCondWrite => access::READ | access::WRITE | access::CONDITIONAL,
        OpAccess::None | OpAccess::NoMemAccess => 0,
    }
}

/// The parts of registers that an instruction accesses: those of the decoder's tables, and those
/// that the tables leave out.
pub fn accesses(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
) -> Vec<RegAccessRecord> {
    let mut list = Vec::new();
    for used in factory.info(instruction).used_registers() {
        let bits = access_bits(used.access());
        if let Some((reg, offset)) = reg_of(used.register()).filter(|_| bits != 0) {
            list.push(RegAccessRecord {
                reg: reg as u32,
                offset,
                size: size_of_part(used.register()),
                access: bits,
            });
        }
    }
    for (registers, bits) in hidden(instruction) {
        for reg in registers {
            let size = match reg {
                Reg::Mxcsr => 4,
                Reg::X87Control | Reg::X87Status => 2,
                _ => whole_size(reg),
            };
            list.push(RegAccessRecord {
                reg: reg as u32,
                offset: 0,
                size,
                access: bits,
            });
        }
    }
    list
}

fn size_of_part(register: Register) -> u32 {
    if register.is_st() {
        10
    } else if register.is_segment_register() {
        8
    } else {
        register.size() as u32
    }
}

/// The registers that an instruction uses, as bit vectors.
pub fn usage(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> RegUsageRecord {
    let mut usage = RegUsageRecord::default();
    let set = |bits: &mut [u64; 2], reg: u32| bits[reg as usize / 64] |= 1 << (reg % 64);
    for part in accesses(factory, instruction) {
        if part.access & access::READ != 0 {
            set(&mut usage.used, part.reg);
        }
        if part.access & access::WRITE != 0 {
            set(&mut usage.updated, part.reg);
            let reg = Reg::from_number(part.reg).expect("it was made from one");
            let status = matches!(reg, Reg::Mxcsr | Reg::X87Control | Reg::X87Status);
            let whole = if status {
                part.access & access::READ == 0
            } else {
                part.size >= whole_size(reg) && !may_keep(instruction, reg)
            };
            if whole && part.access & access::CONDITIONAL == 0 {
                set(&mut usage.replaced, part.reg);
            }
        }
    }
    usage.flags_read = flag_bits(instruction.rflags_read());
    usage.flags_written = flag_bits(instruction.rflags_modified());
    usage.flags_undefined = flag_bits(instruction.rflags_undefined());
    if usage.flags_read != 0 {
        set(&mut usage.used, Reg::Flags as u32);
    }
    if usage.flags_written != 0 {
        set(&mut usage.updated, Reg::Flags as u32);
    }
    usage
}

/// True if the destination may stay as it was, in whole or in part, where the decoder's tables say
/// that it is replaced: by a source of 0, a bad selector or a mask.
fn may_keep(instruction: &Instruction, reg: Reg) -> bool {
    use Mnemonic::*;
    let gathers = instruction.vsib().is_some()
        && instruction.op0_kind() == OpKind::Register
        && !instruction.has_op_mask()
        && reg_of(instruction.op0_register()).is_some_and(|(to, _)| to == reg);
    matches!(
        instruction.mnemonic(),
        Bsf | Bsr | Lar | Lsl | Rdsspd | Rdsspq
    ) || gathers
}

/// Flags as bits of rflags, by the decoder's bits for them.
fn flag_bits(bits: u32) -> u32 {
    const PLACES: [(u32, u32); 9] = [
        (RflagsBits::CF, 0),
        (RflagsBits::PF, 2),
        (RflagsBits::AF, 4),
        (RflagsBits::ZF, 6),
        (RflagsBits::SF, 7),
        (RflagsBits::IF, 9),
        (RflagsBits::DF, 10),
        (RflagsBits::OF, 11),
        (RflagsBits::AC, 18),
    ];
    PLACES
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(0, |all, (_, place)| all | 1 << place)
}

/// All state that `xsave` may save.
fn all_state() -> Vec<Reg> {
    Reg::ALL
        .into_iter()
        .filter(|r| *r as u32 >= Reg::X87Control as u32 || *r == Reg::Mxcsr)
        .collect()
}

/// State of the x87 unit, with its registers or without.
fn x87_state(registers: bool) -> Vec<Reg> {
    let stack = (Reg::St0 as u32..=Reg::St7 as u32).filter_map(Reg::from_number);
    [Reg::X87Control, Reg::X87Status]
        .into_iter()
        .chain(stack.filter(|_| registers))
        .collect()
}

/// Registers and accesses that the decoder's tables leave out.
fn hidden(instruction: &Instruction) -> Vec<(Vec<Reg>, u32)> {
    use Mnemonic::*;
    let (read, write) = (access::READ, access::WRITE);
    let maybe_write = access::WRITE | access::CONDITIONAL;
    let mut list = Vec::new();
    // The program counter.
    match flow_of(instruction) {
        ControlFlow::FallThrough | ControlFlow::Halt | ControlFlow::Trap => {}
        ControlFlow::Call | ControlFlow::IndirectCall => list.push((vec![Reg::Pc], read | write)),
        ControlFlow::CondJump => list.push((vec![Reg::Pc], read | maybe_write)),
        ControlFlow::Jump | ControlFlow::Syscall => list.push((vec![Reg::Pc], read | write)),
        ControlFlow::IndirectJump | ControlFlow::Return => list.push((vec![Reg::Pc], write)),
    }
    if is_rip_relative(instruction) {
        list.push((vec![Reg::Pc], read));
    }
    match instruction.mnemonic() {
        Syscall => {
            let arguments = [Reg::Rdi, Reg::Rsi, Reg::Rdx, Reg::R10, Reg::R8, Reg::R9];
            list.push((arguments.to_vec(), read));
            list.push((vec![Reg::Rax], read | write));
        }
        Rdtsc | Rdtscp => list.push((vec![Reg::CycleCounter], read)),
        Ldmxcsr | Vldmxcsr => list.push((vec![Reg::Mxcsr], write)),
        Stmxcsr | Vstmxcsr => list.push((vec![Reg::Mxcsr], read)),
        Rdfsbase => list.push((vec![Reg::FsBase], read)),
        Rdgsbase => list.push((vec![Reg::GsBase], read)),
        Wrfsbase => list.push((vec![Reg::FsBase], write)),
        Wrgsbase => list.push((vec![Reg::GsBase], write)),
        Pushfq | Pushf | Popfq | Popf => {}
        Fxsave | Fxsave64 | Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64
        | Xsaves | Xsaves64 => list.push((all_state(), read)),
        Fxrstor | Fxrstor64 | Xrstor | Xrstor64 | Xrstors | Xrstors64 => {
            list.push((all_state(), maybe_write))
        }
        Fldcw => list.push((vec![Reg::X87Control], write)),
        Fnstcw => list.push((vec![Reg::X87Control], read)),
        Fnstsw => list.push((vec![Reg::X87Status], read)),
        Fnclex => list.push((vec![Reg::X87Status], read | write)),
        Fnstenv => {
            list.push((x87_state(false), read));
            list.push((vec![Reg::X87Control], write));
        }
        Fldenv => list.push((x87_state(false), write)),
        Fninit => list.push((x87_state(true), write)),
        Fnsave => {
            list.push((x87_state(true), read));
            list.push((x87_state(true), write));
        }
        Frstor => list.push((x87_state(true), write)),
        _ if instruction.fpu_stack_increment_info().writes_top() => {
            list.push((vec![Reg::X87Status], read | write));
            // After a push the top is another register.
            if instruction.fpu_stack_increment_info().increment() < 0 {
                list.push((vec![Reg::St0], write));
            }
        }
        _ => {
            let codes = RflagsBits::C0 | RflagsBits::C1 | RflagsBits::C2 | RflagsBits::C3;
            if instruction.rflags_read() & codes != 0 {
                list.push((vec![Reg::X87Status], read));
            }
            if instruction.rflags_modified() & codes != 0 {
                list.push((vec![Reg::X87Status], write | access::CONDITIONAL));
            }
        }
    }
    list
}
