//! The residual code of a routine: instructions over values.
//!
//! A value is written once (static single assignment), and every path through a body has its own end,
//! so a body is a tree. Instructions keep the shape of their encoding (an opcode, a register field, a
//! register or memory field, an immediate), so emitting them takes no table of operations.

use crate::x86::Cond;
pub use crate::x86::asm::machine::Imm;
use crate::x86::opcode::{self, Alu, Unary};

/// A value that the body computes, or one of its inputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct V(pub u8);

impl V {
    /// Bit of the value in a set.
    pub const fn bit(self) -> u128 {
        1 << self.0
    }
}

/// Base of an address or a number that is known when the output is written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// Value of the argument with this number.
    Argument(u8),
    /// Address 0 of the tool's file.
    Image,
}

/// A value that is known when the output is written, if not earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol {
    /// Base of the value.
    pub base: Base,
    /// Number added to the base.
    pub offset: i64,
}

/// A known value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// A number.
    Number(u64),
    /// A symbol.
    Symbol(Symbol),
}

/// The use of a register by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// No register: a part of the opcode.
    Extension(u8),
    /// The register is read.
    Use(V),
    /// The register is written in whole.
    Define(V),
    /// The register is read and written.
    Modify {
        /// Value before the instruction.
        old: V,
        /// Value after the instruction.
        new: V,
    },
}

/// First part of a memory operand's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// 0
    Nothing,
    /// A value.
    Value(V),
    /// A symbol.
    Symbol(Symbol),
}

/// A memory operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mem {
    /// First part of the address.
    pub start: Start,
    /// A value and its factor 1, 2, 4 or 8, added.
    pub index: Option<(V, u8)>,
    /// Displacement in bytes.
    pub disp: i32,
}

/// The operand of an instruction that may be in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rm {
    /// No operand: the instruction is the opcode alone.
    None,
    /// A register.
    Reg(Slot),
    /// Memory.
    Mem(Mem),
}

/// An instruction of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// Loads a known value into a register; leaves the flags alone.
    Constant(V, Known),
    /// Any other instruction.
    Machine(Machine),
}

/// An instruction with a ModRM byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Opcode, as in [`opcode`](crate::x86::opcode).
    pub opcode: u16,
    /// Operand size in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// True if the register field is a byte register.
    pub byte_reg: bool,
    /// True if the other operand, as a register, is a byte register.
    pub byte_rm: bool,
    /// True for a `lock` prefix.
    pub lock: bool,
    /// True for the prefix F3 (`tzcnt`, `lzcnt`, `popcnt`).
    pub rep: bool,
    /// Register field.
    pub reg: Slot,
    /// Operand that may be in memory.
    pub rm: Rm,
    /// Immediate operand.
    pub imm: Imm,
    /// A value that must be in cl.
    pub count: Option<V>,
    /// Flags that it reads, as a set.
    pub reads: u8,
    /// Flags that it may change, as a set.
    pub changes: u8,
    /// True if it writes to memory.
    pub stores: bool,
}

impl Machine {
    /// An instruction with this opcode and this width in bytes, and no operands.
    pub const fn plain(opcode: u16, width: u8) -> Self {
        Self {
            opcode,
            width,
            byte_reg: false,
            byte_rm: false,
            lock: false,
            rep: false,
            reg: Slot::Extension(0),
            rm: Rm::None,
            imm: Imm::None,
            count: None,
            reads: 0,
            changes: 0,
            stores: false,
        }
    }
}

impl Machine {
    /// The operation that takes back what this one has stored, if there is one: for an addition to memory a subtraction,
    /// and the other way round. Other threads may see a store with a `lock` prefix, so nothing takes it back.
    pub fn inverse(&self) -> Option<Self> {
        const INC: Slot = Slot::Extension(Unary::Inc as u8);
        const DEC: Slot = Slot::Extension(Unary::Dec as u8);
        const ADD: Slot = Slot::Extension(Alu::Add.extension());
        const SUB: Slot = Slot::Extension(Alu::Sub.extension());
        const ADD_RM_R: u16 = Alu::Add.rm_r();
        const SUB_RM_R: u16 = Alu::Sub.rm_r();
        if self.lock || self.width == 1 || !matches!(self.rm, Rm::Mem(_)) {
            return None;
        }
        let (opcode, reg) = match (self.opcode, self.reg) {
            (opcode::GROUP_5, INC) => (opcode::GROUP_5, DEC),
            (opcode::GROUP_5, DEC) => (opcode::GROUP_5, INC),
            (opcode @ (opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8), ADD) => (opcode, SUB),
            (opcode @ (opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8), SUB) => (opcode, ADD),
            (ADD_RM_R, reg @ Slot::Use(_)) => (SUB_RM_R, reg),
            (SUB_RM_R, reg @ Slot::Use(_)) => (ADD_RM_R, reg),
            _ => return None,
        };
        Some(Self {
            opcode,
            reg,
            ..*self
        })
    }
}

/// Straight code and its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Operations in order.
    pub ops: Vec<Op>,
    /// End of the straight code.
    pub end: End,
    /// Sets of live values: those that are read at or after each operation, and after the last.
    pub live: Vec<u128>,
}

impl Node {
    /// Makes a node; live values are not known yet.
    pub fn new(ops: Vec<Op>, end: End) -> Self {
        Self {
            ops,
            end,
            live: Vec::new(),
        }
    }

    /// True if it does nothing.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.end == End::Return
    }

    /// True if some path calls the routine.
    pub fn may_call(&self) -> bool {
        match &self.end {
            End::Return => false,
            End::Call => true,
            End::Branch(_, sides) => sides.iter().any(Self::may_call),
        }
    }

    /// Finds the live values; returns those that are live at the start.
    pub fn find_live(&mut self) -> u128 {
        let mut live = match &mut self.end {
            End::Branch(_, sides) => sides[0].find_live() | sides[1].find_live(),
            _ => 0,
        };
        self.live = vec![live];
        for op in self.ops.iter().rev() {
            live = live & !op.writes() | op.reads();
            self.live.push(live);
        }
        self.live.reverse();
        live
    }
}

/// The end of straight code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The body is done.
    Return,
    /// The routine is called with its arguments, from its start. Nothing has been stored on the path
    /// to this end, or it has been taken back.
    Call,
    /// A conditional branch: the side where the condition holds, then the other.
    Branch(Cond, Box<[Node; 2]>),
}

impl Slot {
    /// Value that is read.
    pub fn read(self) -> Option<V> {
        match self {
            Self::Use(v) | Self::Modify { old: v, .. } => Some(v),
            _ => None,
        }
    }

    /// Value that is written.
    pub fn written(self) -> Option<V> {
        match self {
            Self::Define(v) | Self::Modify { new: v, .. } => Some(v),
            _ => None,
        }
    }
}

impl Mem {
    /// Set of values that the address is computed from.
    pub fn values(&self) -> u128 {
        let start = match self.start {
            Start::Value(v) => v.bit(),
            _ => 0,
        };
        start | self.index.map_or(0, |(v, _)| v.bit())
    }
}

impl Op {
    /// Set of values that it reads.
    pub fn reads(&self) -> u128 {
        let Self::Machine(m) = self else { return 0 };
        let rm = match m.rm {
            Rm::None => 0,
            Rm::Reg(slot) => slot.read().map_or(0, V::bit),
            Rm::Mem(mem) => mem.values(),
        };
        rm | m.reg.read().map_or(0, V::bit) | m.count.map_or(0, V::bit)
    }

    /// Set of values that it writes.
    pub fn writes(&self) -> u128 {
        match self {
            Self::Constant(v, _) => v.bit(),
            Self::Machine(m) => {
                let rm = match m.rm {
                    Rm::Reg(slot) => slot.written().map_or(0, V::bit),
                    _ => 0,
                };
                rm | m.reg.written().map_or(0, V::bit)
            }
        }
    }

    /// Set of flags that it reads.
    pub fn flags_read(&self) -> u8 {
        match self {
            Self::Constant(..) => 0,
            Self::Machine(m) => m.reads,
        }
    }

    /// Set of flags that it may change.
    pub fn flags_changed(&self) -> u8 {
        match self {
            Self::Constant(..) => 0,
            Self::Machine(m) => m.changes,
        }
    }

    /// True if it writes to memory.
    pub fn stores(&self) -> bool {
        matches!(self, Self::Machine(m) if m.stores)
    }
}
