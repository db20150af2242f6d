//! The memory operands of an instruction, written and implied.
//!
//! Their order: first the operands as Intel syntax writes them, then the implicit accesses (the
//! stack of `push`, `pop`, `call` and `ret`, the frame of `leave`). `movs` has its destination
//! first and `cmps` its source, in the order of their operands. Mere address computations (`lea`,
//! long `nop`s, prefetches) are no accesses and are not listed.

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess, OpKind,
    Register,
};

/// Segments that have a base in 64-bit mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Segment {
    /// The other segments, whose base is 0.
    Flat,
    /// `fs`
    Fs,
    /// `gs`
    Gs,
}

/// One memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryOperand {
    /// Base register, or [`Register::None`]. It stands for its value before the instruction, also
    /// where the instruction moves rsp first (`push`, `pop [rsp]`).
    pub base: Register,
    /// Index register, or [`Register::None`]: the vector of indices of a gather or scatter, al of
    /// `xlat`.
    pub index: Register,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u8,
    /// Displacement in bytes, or the address itself if `is_relative`.
    pub displacement: i64,
    /// True if it is relative to the instruction pointer: it is in the image, at `displacement`.
    pub is_relative: bool,
    /// True if the sum is taken modulo 2^32, before the segment's base is added.
    pub is_narrow: bool,
    /// Segment.
    pub segment: Segment,
    /// Size of one access in bytes; 0 where only the processor knows it (`xsave`).
    pub size: u32,
    /// Number of elements: 1, or more for a gather or scatter, which makes one access for each element
    /// that its mask selects.
    pub elements: u8,
    /// Size of an index of a gather or scatter in bytes, 4 or 8; else 0.
    pub index_size: u8,
    /// The register of `bt`, `btc`, `btr` and `bts` whose bits above the operand's size count further
    /// operands up or down from the address; else [`Register::None`].
    pub bit_offset: Register,
    /// True if the instruction reads it.
    pub reads: bool,
    /// True if the instruction writes it.
    pub writes: bool,
    /// True if the access may not happen, or only in part: it is masked, or repeated perhaps 0 times.
    pub is_conditional: bool,
    /// True if the access is repeated; rcx has the number of times.
    pub is_repeated: bool,
    /// True if it is not written as a memory operand: stack, string and other fixed operands.
    pub is_implicit: bool,
}

/// Finds memory operands.
pub struct MemoryOperands {
    factory: InstructionInfoFactory,
    list: Vec<MemoryOperand>,
}

impl Default for MemoryOperands {
    fn default() -> Self {
        Self {
            factory: InstructionInfoFactory::new(),
            list: Vec::new(),
        }
    }
}

impl MemoryOperands {
    /// The memory operands of an instruction, in the order of this module's head.
    pub fn of(&mut self, instruction: &Instruction) -> &[MemoryOperand] {
        self.list.clear();
        let written = (0..instruction.op_count())
            .filter(|i| instruction.op_kind(*i) == OpKind::Memory)
            .count();
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let info = self.factory.info_options(instruction, options);
        let mut explicit_left = written;
        for memory in info.used_memory() {
            let is_explicit = explicit_left > 0;
            explicit_left = explicit_left.saturating_sub(1);
            let access = memory.access();
            let (reads, writes) = match access {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => continue,
            };
            let is_relative = is_explicit && instruction.is_ip_rel_memory_operand();
            let is_vector = memory.index().is_vector_register();
            let is_narrow = match (memory.base(), memory.index()) {
                _ if is_relative => instruction.memory_base() == Register::EIP,
                (Register::None, i) if i == Register::None || is_vector => {
                    memory.address_size() == iced_x86::CodeSize::Code32
                }
                (Register::None, index) => index.is_gpr32(),
                (base, _) => base.is_gpr32(),
            };
            let displacement = if is_narrow && !is_relative {
                i64::from(memory.displacement() as i32)
            } else {
                memory.displacement() as i64
            };
            let is_masked = instruction.has_op_mask() || is_masked(instruction);
            self.list.push(MemoryOperand {
                base: memory.base(),
                index: memory.index(),
                scale: memory.scale() as u8,
                displacement,
                is_relative,
                is_narrow,
                segment: match memory.segment() {
                    Register::FS => Segment::Fs,
                    Register::GS => Segment::Gs,
                    _ => Segment::Flat,
                },
                size: size(instruction, memory.memory_size().size() as u32, is_vector),
                elements: if is_vector { elements(instruction) } else { 1 },
                index_size: if is_vector {
                    memory.vsib_size() as u8
                } else {
                    0
                },
                bit_offset: bit_offset(instruction),
                reads,
                writes,
                is_conditional: is_masked
                    || is_vector
                    || repeats(instruction)
                    || matches!(access, OpAccess::CondRead | OpAccess::CondWrite),
                is_repeated: repeats(instruction),
                is_implicit: !is_explicit,
            });
        }
        in_order(instruction, &mut self.list);
        &self.list
    }
}

/// True if it is a string instruction that a prefix repeats.
pub fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix())
}

/// True for moves under a mask other than a mask register of AVX-512.
fn is_masked(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Maskmovq | Maskmovdqu | Vmaskmovdqu | Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq
    )
}

/// The register that selects a bit of a bit string in memory, or [`Register::None`].
fn bit_offset(instruction: &Instruction) -> Register {
    use Mnemonic::{Bt, Btc, Btr, Bts};
    match instruction.mnemonic() {
        Bt | Btc | Btr | Bts if instruction.op1_kind() == OpKind::Register => {
            instruction.op1_register()
        }
        _ => Register::None,
    }
}

/// Size of one access in bytes: of an element for a gather or scatter, of one iteration for a
/// repeated instruction, whose number of iterations is not known.
fn size(instruction: &Instruction, all: u32, is_vector: bool) -> u32 {
    let memory = instruction.memory_size();
    match is_vector {
        true if memory.element_size() != 0 => memory.element_size() as u32,
        _ if repeats(instruction) => memory.size() as u32,
        _ => all,
    }
}

/// Number of elements of a gather or scatter: as many as fit both the vector of indices and the
/// vector of data.
fn elements(instruction: &Instruction) -> u8 {
    let data = (0..instruction.op_count())
        .filter(|i| instruction.op_kind(*i) == OpKind::Register)
        .map(|i| instruction.op_register(i))
        .find(|r| r.is_vector_register())
        .map_or(0, Register::size);
    let index = instruction.memory_index().size();
    let index_size = match instruction.vsib() {
        Some(true) => 8,
        _ => 4,
    };
    let element = instruction.memory_size().element_size().max(1);
    let by_data = if data == 0 {
        usize::MAX
    } else {
        data / element
    };
    (index / index_size).min(by_data) as u8
}

/// Puts the two operands of a string instruction in the order in which it names them.
fn in_order(instruction: &Instruction, list: &mut [MemoryOperand]) {
    use OpKind::{
        MemoryESEDI, MemoryESRDI, MemorySegEDI, MemorySegESI, MemorySegRDI, MemorySegRSI,
    };
    if list.len() != 2 || !instruction.is_string_instruction() {
        return;
    }
    let first = match instruction.op0_kind() {
        MemoryESRDI | MemoryESEDI | MemorySegRDI | MemorySegEDI => Register::RDI,
        MemorySegRSI | MemorySegESI => Register::RSI,
        _ => return,
    };
    if list[0].base.full_register() != first {
        list.swap(0, 1);
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::Code;

    use super::*;

    /// The operands as words: `r`, `w` or `rw`, the size, the address, and marks: `n` narrow, `c`
    /// conditional, `*` repeated, `i` implicit, `b` bit string.
    fn words(bytes: &[u8]) -> String {
        let instruction = crate::x86::decode_at(bytes, 0x1000).expect("valid bytes");
        let mut operands = MemoryOperands::default();
        let word = |o: &MemoryOperand| {
            let mut text = String::new();
            let mut add = |when: bool, what: &str| {
                if when {
                    text += what;
                }
            };
            add(o.reads, "r");
            add(o.writes, "w");
            add(true, &o.size.to_string());
            add(
                o.elements != 1,
                &format!("x{}/{}", o.elements, o.index_size),
            );
            add(o.segment != Segment::Flat, &format!("{:?}:", o.segment));
            add(o.is_relative, "@");
            add(o.base != Register::None, &format!("{:?}", o.base));
            let index = format!("+{:?}*{}", o.index, o.scale);
            add(o.index != Register::None, &index);
            add(true, &format!("{:+}", o.displacement));
            add(o.is_narrow, "n");
            add(o.is_conditional, "c");
            add(o.is_repeated, "*");
            add(o.is_implicit, "i");
            add(o.bit_offset != Register::None, "b");
            text
        };
        let all: Vec<_> = operands.of(&instruction).iter().map(word).collect();
        all.join(" ")
    }

    #[test]
    fn operands_in_order() {
        let cases: &[(&[u8], &str)] = &[
            (&[0xa4], "w1RDI+0i r1RSI+0i"),
            (&[0xf3, 0x48, 0xa5], "w8RDI+0c*i r8RSI+0c*i"),
            (&[0xa6], "r1RSI+0i r1RDI+0i"),
            (&[0xf3, 0x67, 0xa6], "r1ESI+0nc*i r1EDI+0nc*i"),
            (&[0x64, 0xa5], "w4RDI+0i r4Fs:RSI+0i"),
            (&[0xf2, 0xae], "r1RDI+0c*i"),
            (&[0xd7], "r1RBX+AL*1+0"),
            (&[0x50], "w8RSP-8i"),
            (&[0x66, 0x50], "w2RSP-2i"),
            (&[0x9c], "w8RSP-8i"),
            // The address is computed after rsp has moved.
            (&[0x8f, 0x44, 0x24, 8], "w8RSP+16 r8RSP+0i"),
            (&[0xff, 0x74, 0x24, 8], "r8RSP+8 w8RSP-8i"),
            (&[0xc8, 16, 0, 0], "w8RSP-8i"),
            (&[0xc8, 16, 0, 2], "w8RSP-8i r8RBP-8i w8RSP-16i w8RSP-24i"),
            (&[0xc9], "r8RBP+0i"),
            (&[0xc2, 8, 0], "r8RSP+0i"),
            (&[0xff, 0x15, 1, 0, 0, 0], "r8@+4103 w8RSP-8i"),
            (&[0xe8, 1, 0, 0, 0], "w8RSP-8i"),
            (&[0x67, 0x8b, 5, 1, 0, 0, 0], "r4@+4104n"),
            (&[0x64, 0x8b, 5, 1, 0, 0, 0], "r4Fs:@+4104"),
            (&[0x64, 0x48, 0x8b, 4, 0x25, 0x28, 0, 0, 0], "r8Fs:+40"),
            (&[0x48, 0x8b, 4, 0x25, 0, 0, 0, 0x80], "r8-2147483648"),
            (&[0x0f, 0xa3, 0x08], "r4RAX+0b"),
            (&[0xf0, 0x48, 0x0f, 0xb1, 8], "rw8RAX+0"),
            (&[0xc4, 0xe2, 0x6d, 0x90, 0x0c, 0xb0], "r4x8/4RAX+YMM6*4+0c"),
            (&[0xc4, 0xe2, 0xed, 0x91, 0x0c, 0xb0], "r8x4/8RAX+YMM6*4+0c"),
            (&[0xc4, 0xe2, 0xed, 0x90, 0x0c, 0xb0], "r8x4/4RAX+XMM6*4+0c"),
            (&[0xc4, 0xe2, 0x6d, 0x91, 0x0c, 0xb0], "r4x4/8RAX+YMM6*4+0c"),
            (&[0xc4, 0xe2, 0x69, 0x91, 0x0c, 0xb0], "r4x2/8RAX+XMM6*4+0c"),
            (&[0xc4, 0xe2, 0xe9, 0x90, 0x0c, 0xb0], "r8x2/4RAX+XMM6*4+0c"),
            (
                &[0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x0c, 0xb0],
                "w4x16/4RAX+ZMM6*4+0c",
            ),
            (&[0x66, 0x0f, 0xf7, 0xc1], "w16RDI+0ci"),
            (&[0xc4, 0xe2, 0x79, 0x2c, 0x08], "r16RAX+0c"),
            (&[0x62, 0xf1, 0x7e, 0x49, 0x6f, 0x00], "r64RAX+0c"),
            (&[0x0f, 0x18, 0x08], ""),
            (&[0x8d, 0x00], ""),
            (&[0x0f, 0x1f, 0x00], ""),
            (&[0x0f, 0x05], ""),
        ];
        for (bytes, expected) in cases {
            assert_eq!(words(bytes), *expected, "{bytes:x?}");
        }
    }

    /// Checks for each instruction there is that every written memory operand that it accesses is
    /// listed.
    #[test]
    fn all_codes_have_plausible_operands() {
        let mut operands = MemoryOperands::default();
        for code in Code::values() {
            let op_code = code.op_code();
            if !op_code.mode64() || !op_code.is_instruction() {
                continue;
            }
            let mut i = Instruction::new();
            i.set_code(code);
            let mut has_memory = false;
            for n in 0..op_code.op_count() {
                use iced_x86::OpCodeOperandKind as K;
                let kind = match op_code.op_kind(n) {
                    K::mem
                    | K::mem_offs
                    | K::mem_mpx
                    | K::mem_mib
                    | K::r8_or_mem
                    | K::r16_or_mem
                    | K::r32_or_mem
                    | K::r64_or_mem
                    | K::xmm_or_mem
                    | K::ymm_or_mem
                    | K::zmm_or_mem
                    | K::mm_or_mem => OpKind::Memory,
                    _ => OpKind::Immediate8,
                };
                has_memory |= kind == OpKind::Memory;
                i.set_op_kind(n, kind);
            }
            if !has_memory {
                continue;
            }
            i.set_memory_base(Register::RAX);
            let mine = operands.of(&i).iter().filter(|o| !o.is_implicit).count();
            let mut factory = InstructionInfoFactory::new();
            let info = factory.info(&i);
            let accessed = (0..op_code.op_count()).any(|n| {
                i.op_kind(n) == OpKind::Memory
                    && !matches!(info.op_access(n), OpAccess::None | OpAccess::NoMemAccess)
            });
            assert_eq!(mine, usize::from(accessed), "{code:?}");
        }
    }
}
