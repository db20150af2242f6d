//! Instructions: eight bytes each in the [`cfg`](crate::cfg), decoded in full on demand.
//!
//! A program with 10 MB of text has about 2.5 million instructions. So only facts that every later
//! stage asks for are kept; operands are decoded again from the image's bytes where they are needed.

use super::opcode::{self, ESCAPE, modrm, prefix};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

/// How control leaves an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ControlFlow {
    /// To the next instruction.
    FallThrough,
    /// Direct jump.
    Jump,
    /// Direct conditional branch, `loop` and `jrcxz` included.
    CondJump,
    /// Direct call.
    Call,
    /// Jump through a register or memory.
    IndirectJump,
    /// Call through a register or memory.
    IndirectCall,
    /// `ret`.
    Return,
    /// `syscall`: to the next instruction, by way of the kernel.
    Syscall,
    /// Raises a signal and does not continue: `ud2`, `hlt`, `int3`.
    Halt,
    /// Raises a signal, and the program may continue with the next instruction, by way of a signal
    /// handler. The bytes of `Halt` and `Trap` are the same; the cfg tells them apart.
    Trap,
}

impl ControlFlow {
    /// True if control never reaches the next instruction by itself.
    pub const fn ends_flow(self) -> bool {
        matches!(
            self,
            Self::Jump | Self::IndirectJump | Self::Return | Self::Halt
        )
    }

    /// True if a basic block ends after it.
    ///
    /// Calls end blocks, as in ATOM, whose BlockAfter speaks of a block that "ends with a jsr": the
    /// call may not return, so the code after it has a count of its own. System calls end blocks for
    /// the same reason.
    pub const fn ends_block(self) -> bool {
        !matches!(self, Self::FallThrough)
    }

    /// True if the instruction has a direct target ([`direct_target`]).
    pub const fn is_direct(self) -> bool {
        matches!(self, Self::Jump | Self::CondJump | Self::Call)
    }
}

/// One instruction of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inst {
    /// Virtual address minus the image's base.
    pub offset: u32,
    /// Length in bytes, 1 to 15.
    pub len: u8,
    /// How control leaves it.
    pub flow: ControlFlow,
    /// True if a memory operand is relative to the instruction pointer.
    pub rip_relative: bool,
    /// True if its meaning is not the one that its bytes have: a call whose return address the
    /// program uses as an address of data.
    pub special: bool,
}

/// Decodes the instruction at the start of `bytes`, which is at `address`.
/// `None` if the bytes are no valid 64-bit instruction or are cut off.
pub fn decode_at(bytes: &[u8], address: u64) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// Decodes an instruction of the cfg from `bytes`, which start with it.
pub fn decode_again(inst: &Inst, bytes: &[u8], address: u64) -> Instruction {
    bytes
        .get(..usize::from(inst.len))
        .and_then(|own| decode_at(own, address))
        .expect("an instruction of the cfg decodes as it did when the cfg was built")
}

/// True for padding, which fills the space between procedures and before aligned code: any `nop`, or `int3`.
pub fn is_padding(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        iced_x86::Mnemonic::Nop | iced_x86::Mnemonic::Int3
    )
}

/// Size in bytes of the longest instruction there can be.
pub const MAX_LEN: usize = 15;

/// Length in bytes of the [padding](is_padding) instruction at the start of `bytes`, if there is one.
pub fn padding_len(bytes: &[u8]) -> Option<usize> {
    // Padding as assemblers write it: a `nop` for each length.
    let is_size = |b: &&u8| **b == prefix::OPERAND_SIZE;
    let prefixes = bytes.iter().take(6).take_while(is_size).count();
    let rest = &bytes[prefixes..];
    let (prefixes, rest) = match rest {
        [prefix::CS, rest @ ..] => (prefixes + 1, rest),
        _ => (prefixes, rest),
    };
    const NOP_RM: u8 = opcode::NOP_RM as u8;
    match *rest {
        [opcode::NOP, ..] | [opcode::INT3, ..] if prefixes == 0 => return Some(1),
        [ESCAPE, NOP_RM, 0x00, ..] => return Some(prefixes + 3),
        [ESCAPE, NOP_RM, 0x40, _, ..] => return Some(prefixes + 4),
        [ESCAPE, NOP_RM, 0x44, 0x00, _, ..] => return Some(prefixes + 5),
        [ESCAPE, NOP_RM, 0x80, _, _, _, _, ..] => return Some(prefixes + 7),
        [ESCAPE, NOP_RM, 0x84, 0x00, _, _, _, _, ..] => return Some(prefixes + 8),
        _ => {}
    }
    let instruction = decode_at(&bytes[..bytes.len().min(MAX_LEN)], 0)?;
    is_padding(&instruction).then_some(instruction.len())
}

/// Decodes instructions that follow each other. One decoder for all costs less than one for each.
pub struct Run<'a> {
    decoder: Decoder<'a>,
}

impl<'a> Run<'a> {
    /// Starts at `address`, where `bytes` are.
    pub fn new(bytes: &'a [u8], address: u64) -> Self {
        Self {
            decoder: Decoder::with_ip(64, bytes, address, DecoderOptions::NONE),
        }
    }

    /// Decodes the next instruction; false if there is no valid one.
    pub fn next_into(&mut self, instruction: &mut Instruction) -> bool {
        self.decoder.decode_out(instruction);
        !instruction.is_invalid()
    }
}

/// How control leaves a decoded instruction.
pub fn flow_of(instruction: &Instruction) -> ControlFlow {
    match instruction.flow_control() {
        // User code may not halt the processor: `hlt` faults.
        FlowControl::Next if instruction.code() == Code::Hlt => ControlFlow::Halt,
        FlowControl::Next => ControlFlow::FallThrough,
        FlowControl::UnconditionalBranch => ControlFlow::Jump,
        FlowControl::ConditionalBranch => ControlFlow::CondJump,
        FlowControl::Call => match instruction.code() {
            Code::Syscall => ControlFlow::Syscall,
            _ if is_near_direct(instruction) => ControlFlow::Call,
            Code::Sysenter | Code::Vmcall | Code::Vmlaunch | Code::Vmresume => {
                ControlFlow::FallThrough
            }
            _ => ControlFlow::IndirectCall,
        },
        FlowControl::IndirectCall => ControlFlow::IndirectCall,
        FlowControl::IndirectBranch => ControlFlow::IndirectJump,
        FlowControl::Return => ControlFlow::Return,
        // `int n` continues; `int3` is padding or a deliberate stop.
        FlowControl::Interrupt => match instruction.code() {
            Code::Int3 | Code::Int1 => ControlFlow::Halt,
            _ => ControlFlow::FallThrough,
        },
        // `xbegin` continues, or jumps to its abort handler.
        FlowControl::XbeginXabortXend => match instruction.code() {
            Code::Xbegin_rel16 | Code::Xbegin_rel32 => ControlFlow::CondJump,
            _ => ControlFlow::FallThrough,
        },
        FlowControl::Exception => ControlFlow::Halt,
    }
}

fn is_near_direct(instruction: &Instruction) -> bool {
    instruction.op_count() > 0
        && matches!(
            instruction.op0_kind(),
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
        )
}

/// Target of a direct branch or call; `None` for other instructions.
pub fn direct_target(instruction: &Instruction) -> Option<u64> {
    is_near_direct(instruction).then(|| instruction.near_branch_target())
}

/// True if a memory operand is relative to the instruction pointer.
pub fn is_rip_relative(instruction: &Instruction) -> bool {
    instruction.memory_base() == Register::RIP || instruction.memory_base() == Register::EIP
}

/// Offset of the 32-bit displacement in the bytes of an instruction with an operand relative to
/// `rip`. `None` for unusual forms, which need decoding.
pub fn rip_field(bytes: &[u8]) -> Option<usize> {
    let is_prefix = |b: &&u8| {
        matches!(
            **b,
            prefix::ES
                | prefix::CS
                | prefix::SS
                | prefix::DS
                | prefix::FS
                | prefix::GS
                | prefix::OPERAND_SIZE
                | prefix::LOCK
                | prefix::REPNE
                | prefix::REP
        )
    };
    let mut at = bytes.iter().take_while(is_prefix).count();
    if matches!(*bytes.get(at)?, prefix::REX..=prefix::REX_LAST) {
        at += 1;
    }
    let field = at
        + match bytes.get(at..)? {
            [ESCAPE, opcode::ESCAPE_38 | opcode::ESCAPE_3A, ..] => 3,
            [ESCAPE, ..] => 2,
            [prefix::VEX2, ..] => 3,
            [prefix::VEX3, ..] => 4,
            [prefix::EVEX | prefix::XOP | prefix::ADDRESS_SIZE, ..] => return None,
            _ => 1,
        };
    let is_relative = *bytes.get(field)? & modrm::MODE_AND_RM == modrm::RIP;
    (is_relative && field + 5 <= bytes.len()).then_some(field + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_what_the_decoder_takes_for_it() {
        let slow = |bytes: &[u8]| {
            let instruction = decode_at(&bytes[..bytes.len().min(15)], 0)?;
            is_padding(&instruction).then_some(instruction.len())
        };
        let cores = [0x90, 0xcc, 0xc3, 0xe8].map(|opcode| vec![opcode]);
        let forms = (0..=255u8).map(|modrm| vec![0x0f, 0x1f, modrm]);
        let mut found = 0;
        for core in cores.into_iter().chain(forms) {
            for (count, prefix) in (0..9).flat_map(|n| [(n, &[][..]), (n, &[0x2e]), (n, &[0xf3])]) {
                for tail in [[0; 6], [0x24, 1, 2, 3, 4, 5], [0x90; 6]] {
                    let bytes = [&vec![0x66; count], prefix, &core, &tail].concat();
                    for end in 0..=bytes.len() {
                        let expected = slow(&bytes[..end]);
                        assert_eq!(padding_len(&bytes[..end]), expected, "{:x?}", &bytes[..end]);
                        found += usize::from(expected.is_some());
                    }
                }
            }
        }
        assert!(found > 10_000, "{found}");
    }

    /// Tries every opcode of every map after several prefixes, with an operand relative to rip.
    #[test]
    fn field_of_rip_is_where_the_decoder_has_it() {
        const PREFIXES: [&[u8]; 10] = [
            &[],
            &[0x66],
            &[0xf3],
            &[0xf2, 0x48],
            &[0x66, 0x44],
            &[0x65],
            &[0x67],
            &[0xc5, 0xf9],
            &[0xc4, 0xe2, 0x79],
            &[0x62, 0xf1, 0x7c, 0x48],
        ];
        let mut compared = 0;
        for prefix in PREFIXES {
            for escape in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
                for (opcode, reg) in (0..=255u8).flat_map(|o| [(o, 0u8), (o, 1), (o, 6)]) {
                    let modrm = [opcode, 5 | reg << 3, 0x44, 0x33, 0x22, 0x11];
                    let bytes = [prefix, escape, &modrm, &[7; 8]].concat();
                    let mut decoder = Decoder::with_ip(64, &bytes, 0, DecoderOptions::NONE);
                    let instruction = decoder.decode();
                    if instruction.is_invalid() || !is_rip_relative(&instruction) {
                        continue;
                    }
                    let own = &bytes[..instruction.len()];
                    let offsets = decoder.get_constant_offsets(&instruction);
                    let unusual = prefix.starts_with(&[0x67]) || prefix.starts_with(&[0x62]);
                    let expected = (!unusual && own.first() != Some(&0x8f))
                        .then_some(offsets.displacement_offset());
                    if let Some(found) = rip_field(own) {
                        assert_eq!(Some(found), expected, "{own:x?}");
                        compared += 1;
                    }
                }
            }
        }
        assert!(compared > 2000, "{compared}");
    }
}
