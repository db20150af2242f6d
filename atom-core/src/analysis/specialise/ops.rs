//! The residual code of a routine: instructions over values.
//!
//! A value is written once and every path through a body ends on its own, so
//! a body is a tree in which each value has one definition. Instructions keep
//! the encoding's shape (an opcode, a register field, a register or memory
//! field, an immediate), so that what emits them needs no table of operations.

use crate::x86::Cond;
pub use crate::x86::asm::machine::Imm;

/// A value that the body computes, or one of its inputs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct V(pub u8);

impl V {
    /// Its bit in a set of values.
    pub const fn bit(self) -> u128 {
        1 << self.0
    }
}

/// What an address or a number that is known at link time counts from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// The value of this argument.
    Argument(u8),
    /// Address 0 of the tool's file.
    Image,
}

/// A value that is known when the output is written, if not earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol {
    /// What it counts from.
    pub base: Base,
    /// What is added.
    pub offset: i64,
}

/// A known value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// As a number.
    Number(u64),
    /// As a symbol.
    Symbol(Symbol),
}

/// The use of a register by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Not a register: a part of the opcode.
    Extension(u8),
    /// Read.
    Use(V),
    /// Written in whole.
    Define(V),
    /// Read and written, in the same register.
    Modify {
        /// Before.
        old: V,
        /// After.
        new: V,
    },
}

/// What a memory operand's address starts from.
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
    /// Where it starts from.
    pub start: Start,
    /// A value times 1, 2, 4 or 8.
    pub index: Option<(V, u8)>,
    /// Added.
    pub disp: i32,
}

/// The operand of an instruction that may lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rm {
    /// None: the instruction is the opcode alone.
    None,
    /// A register.
    Reg(Slot),
    /// Memory.
    Mem(Mem),
}

/// An instruction of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// A known value into a register; leaves the flags alone.
    Constant(V, Known),
    /// Any other.
    Machine(Machine),
}

/// An instruction with a ModRM byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Machine {
    /// Opcode; beyond 0xff in the map that 0F opens.
    pub opcode: u16,
    /// Operand size in bytes: 1, 2, 4 or 8.
    pub width: u8,
    /// The register field is a byte register.
    pub byte_reg: bool,
    /// The other one is, if a register.
    pub byte_rm: bool,
    /// `lock` prefix.
    pub lock: bool,
    /// F3 prefix (`tzcnt`, `lzcnt`, `popcnt`).
    pub rep: bool,
    /// The register field.
    pub reg: Slot,
    /// The other operand.
    pub rm: Rm,
    /// The immediate.
    pub imm: Imm,
    /// A value that must lie in cl.
    pub count: Option<V>,
    /// Flags that it reads.
    pub reads: u8,
    /// Flags that it may change.
    pub changes: u8,
    /// It writes to memory.
    pub stores: bool,
}

impl Machine {
    /// An instruction of this opcode and width, without anything else.
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

/// A piece of straight code and what comes after it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// In order.
    pub ops: Vec<Op>,
    /// What comes after.
    pub end: End,
    /// The values that are read at or after each operation, and after the last.
    pub live: Vec<u128>,
}

impl Node {
    /// Straight code; what is live is not known yet.
    pub fn new(ops: Vec<Op>, end: End) -> Self {
        Self {
            ops,
            end,
            live: Vec::new(),
        }
    }

    /// Nothing at all.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.end == End::Return
    }

    /// The routine may have to be called.
    pub fn may_call(&self) -> bool {
        match &self.end {
            End::Return => false,
            End::Call => true,
            End::Branch(_, sides) => sides.iter().any(Self::may_call),
        }
    }

    /// Notes what is live where; the result is live at the start.
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
    /// The routine is done.
    Return,
    /// The routine is to be called with its arguments, as if nothing had been
    /// done so far; nothing has been stored on the way here.
    Call,
    /// A conditional branch: the side where the condition holds, then the other.
    Branch(Cond, Box<[Node; 2]>),
}

impl Slot {
    /// The value that is read.
    pub fn read(self) -> Option<V> {
        match self {
            Self::Use(v) | Self::Modify { old: v, .. } => Some(v),
            _ => None,
        }
    }

    /// The value that is written.
    pub fn written(self) -> Option<V> {
        match self {
            Self::Define(v) | Self::Modify { new: v, .. } => Some(v),
            _ => None,
        }
    }
}

impl Mem {
    /// The values that the address is made of.
    pub fn values(&self) -> u128 {
        let start = match self.start {
            Start::Value(v) => v.bit(),
            _ => 0,
        };
        start | self.index.map_or(0, |(v, _)| v.bit())
    }
}

impl Op {
    /// The values that it reads.
    pub fn reads(&self) -> u128 {
        let Self::Machine(m) = self else { return 0 };
        let rm = match m.rm {
            Rm::None => 0,
            Rm::Reg(slot) => slot.read().map_or(0, V::bit),
            Rm::Mem(mem) => mem.values(),
        };
        rm | m.reg.read().map_or(0, V::bit) | m.count.map_or(0, V::bit)
    }

    /// The values that it writes.
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

    /// The flags that it reads.
    pub fn flags_read(&self) -> u8 {
        match self {
            Self::Constant(..) => 0,
            Self::Machine(m) => m.reads,
        }
    }

    /// The flags that it may change.
    pub fn flags_changed(&self) -> u8 {
        match self {
            Self::Constant(..) => 0,
            Self::Machine(m) => m.changes,
        }
    }

    /// It writes to memory.
    pub fn stores(&self) -> bool {
        matches!(self, Self::Machine(m) if m.stores)
    }
}
