//! Operands, memory accesses and encodings of instructions; source frames.

use atom_abi::host::Reg;
use atom_abi::query::{
    InstInfo, MemoryRecord, OperandKind, OperandRecord, Repeat, SourceFrameRecord, memory,
};

use crate::navigation::handle::Inst;
use crate::navigation::program::Program;
use crate::navigation::program::each;
use crate::navigation::registers::Access;
use crate::{Error, InstType, Result};

/// An operand as the instruction is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// A register or a part of one.
    Register {
        /// The whole register; none for control, debug and segment registers.
        reg: Option<Reg>,
        /// First byte of the part.
        offset: u32,
        /// Size in bytes.
        size: u32,
        /// How it is accessed.
        access: Access,
    },
    /// Memory; [`Inst::memory`] has the address.
    Memory {
        /// Size in bytes, 0 if unknown.
        size: u32,
        /// How it is accessed; not at all by `lea`.
        access: Access,
    },
    /// A constant, extended to 64 bits as the instruction does it.
    Constant(u64),
    /// The target of a branch.
    Target(u64),
}

/// A memory operand of an instruction, also one that its text does not show.
///
/// Its address is base + index * scale + displacement, plus the segment's base,
/// with the registers' values before the instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryAccess {
    /// Read, written, both; perhaps only under a condition.
    pub access: Access,
    /// Size in bytes of an element; 0 if it depends on the processor's state.
    pub size: u32,
    /// Number of elements with addresses of their own: more than 1 for gather and
    /// scatter only, where each element of the index makes one address.
    pub count: u32,
    /// [`Reg::FsBase`] or [`Reg::GsBase`].
    pub segment: Option<Reg>,
    /// Base; [`Reg::Pc`] stands for the address of the next instruction.
    pub base: Option<Reg>,
    /// Index; a vector register for gather and scatter.
    pub index: Option<Reg>,
    /// Factor of the index: 1, 2, 4 or 8.
    pub scale: u32,
    /// Displacement in bytes.
    pub displacement: i64,
    /// The address, if it depends on no register but a segment base.
    pub address: Option<u64>,
    /// Size in bytes of one index of a gather or scatter; 0 for other instructions.
    pub index_size: u32,
    /// For `bt`, `bts`, `btr` and `btc`: the register whose bits above the operand's size count
    /// further operands up or down from the address.
    pub bit_offset: Option<Reg>,
    flags: u32,
}

impl MemoryAccess {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// True if the text does not show it as an operand: the stack of `push`, both operands of `movsb`.
    pub fn is_implicit(&self) -> bool {
        self.has(memory::IMPLICIT)
    }

    /// True if it belongs to a string instruction.
    pub fn is_string(&self) -> bool {
        self.has(memory::STRING)
    }

    /// True if the access is repeated rcx times or until a comparison ends it; each time it has
    /// `size` bytes.
    pub fn is_repeated(&self) -> bool {
        self.has(memory::REPEATED)
    }

    /// True if one element is read and used for all (AVX-512).
    pub fn is_broadcast(&self) -> bool {
        self.has(memory::BROADCAST)
    }

    /// True if only the lowest byte of the index is used (`xlatb`).
    pub fn has_8_bit_index(&self) -> bool {
        self.has(memory::INDEX_8)
    }

    /// True if base and index are used as 32 bits.
    pub fn has_32_bit_address(&self) -> bool {
        self.has(memory::ADDRESS_32)
    }
}

/// A function that an address belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceFrame<'a> {
    /// Its name for people.
    pub name: &'a str,
    /// Its name as in the debug information.
    pub symbol: &'a str,
    /// Source file.
    pub file: Option<&'a str>,
    /// Line: of the instruction in the first frame, of the inlined call in the others.
    pub line: Option<u32>,
    /// Column of that line.
    pub column: Option<u32>,
}

impl<'a> Program<'a> {
    /// The program's bytes at an address, as in its file: `len` of them, or fewer
    /// where the file has no more.
    pub fn bytes_at(&self, address: u64, len: usize) -> &'a [u8] {
        let host = self.session.host;
        let bytes = (host.bytes_at)(host.context, address, len);
        // SAFETY: the host's view of its image lives as long as the session.
        unsafe { std::slice::from_raw_parts(bytes.ptr, bytes.len) }
    }

    /// The functions that an address belongs to by inlining, innermost first;
    /// none without debug information.
    pub fn source_frames(&self, address: u64) -> Vec<SourceFrame<'a>> {
        let host = self.session.host;
        let mut list = Vec::new();
        each(
            |arg, sink| (host.source_frames)(host.context, address, arg, sink),
            |frame: &SourceFrameRecord| {
                let file = self.session.text(frame.file);
                list.push(SourceFrame {
                    name: self.session.text(frame.name),
                    symbol: self.session.text(frame.function),
                    file: (!file.is_empty()).then_some(file),
                    line: (frame.line != 0).then_some(frame.line),
                    column: (frame.column != 0).then_some(frame.column),
                });
            },
        );
        list
    }
}

impl<'a> Inst<'a> {
    fn wrong(&self, what: &str) -> Error {
        format!("`{}` at {:#x} is no {what}", self.text(), self.pc()).into()
    }

    /// Target of a branch, if the target is a known instruction. None for an indirect branch.
    ///
    /// # Errors
    /// If the instruction is no branch.
    pub fn branch_target(&self) -> Result<Option<Self>> {
        let branches = [
            InstType::CondBr,
            InstType::UncondBr,
            InstType::Jump,
            InstType::Call,
        ];
        if branches.iter().any(|t| self.is_type(*t)) {
            Ok(self.target())
        } else {
            Err(self.wrong("branch"))
        }
    }

    /// Name of the procedure that a call calls, directly or through the slot of an import. None if
    /// the callee is known only at run time.
    ///
    /// # Errors
    /// If the instruction is no call.
    pub fn called_name(&self) -> Result<Option<&'a str>> {
        if !self.is_type(InstType::Call) {
            return Err(self.wrong("call"));
        }
        let host = self.session.host;
        let name = self.session.text((host.called_name)(host.context, self.id));
        Ok((!name.is_empty()).then_some(name))
    }

    /// A fact of its encoding; none if it has no such fact.
    pub fn info(&self, what: InstInfo) -> Option<i64> {
        let host = self.session.host;
        let mut value = 0;
        (host.inst_info)(host.context, self.id, what as u32, &mut value).then_some(value)
    }

    /// How the instruction is repeated; none if it is no string instruction.
    pub fn repeat(&self) -> Option<Repeat> {
        let number = self.info(InstInfo::Repeat)?;
        Repeat::from_number(u32::try_from(number).ok()?)
    }

    /// Its operands as written, the destination first.
    pub fn operands(&self) -> Vec<Operand> {
        let host = self.session.host;
        let mut list = Vec::new();
        each(
            |arg, sink| (host.inst_operands)(host.context, self.id, arg, sink),
            |o: &OperandRecord| {
                let access = Access::new(o.access);
                let is = |kind: OperandKind| o.kind == kind as u32;
                list.push(if is(OperandKind::Register) {
                    Operand::Register {
                        reg: Reg::from_number(o.reg),
                        offset: o.offset,
                        size: o.size,
                        access,
                    }
                } else if is(OperandKind::Memory) {
                    let size = o.size;
                    Operand::Memory { size, access }
                } else if is(OperandKind::Target) {
                    Operand::Target(o.value)
                } else {
                    Operand::Constant(o.value)
                });
            },
        );
        list
    }

    /// The register of operand `n`, or the register that the operand is a part of.
    pub fn operand_reg(&self, n: usize) -> Option<Reg> {
        match self.operands().get(n)? {
            Operand::Register { reg, .. } => *reg,
            _ => None,
        }
    }

    /// Its memory operands: first those that the text shows, in Intel's order, then those that it
    /// does not show, such as the stack.
    pub fn memory(&self) -> Vec<MemoryAccess> {
        let host = self.session.host;
        let mut list = Vec::new();
        each(
            |arg, sink| (host.inst_memory)(host.context, self.id, arg, sink),
            |m: &MemoryRecord| {
                list.push(MemoryAccess {
                    access: Access::new(m.access),
                    size: m.size,
                    count: m.count,
                    segment: Reg::from_number(m.segment),
                    base: Reg::from_number(m.base),
                    index: Reg::from_number(m.index),
                    scale: m.scale,
                    displacement: m.displacement,
                    address: (m.flags & memory::FIXED != 0).then_some(m.address),
                    index_size: m.index_size,
                    bit_offset: Reg::from_number(m.bit_offset),
                    flags: m.flags,
                });
            },
        );
        list
    }

    /// The functions that it belongs to by inlining, innermost first.
    pub fn source_frames(&self) -> Vec<SourceFrame<'a>> {
        Program {
            session: self.session,
        }
        .source_frames(self.pc())
    }
}
