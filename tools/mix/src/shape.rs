//! The shape of an instruction: everything about it that the report adds up. Instructions of one shape differ in
//! registers, addresses and constants only, so a program has some hundreds to some thousands of shapes.

use std::collections::HashMap;

use atom_tool::prelude::*;
use atom_tool::{InstInfo, MemoryAccess, Operand, Repeat};

plain_data! {
    /// Everything that is counted of an instruction.
    #[derive(PartialEq, Eq, Hash, Debug)]
    pub struct Shape {
        /// Key of its mnemonic.
        pub mnemonic: u32,
        /// Key of the instruction set extensions that it needs.
        pub isa: u32,
        /// Key of its class.
        pub class: u32,
        /// Size of its widest operand in bits, 0 without operands.
        pub width: u32,
        /// Number of loads, and bytes of each.
        pub loads: [u32; 2],
        /// Number of stores, and bytes of each.
        pub stores: [u32; 2],
        /// Size of its floating-point numbers in bits, 0 if it does not calculate with any.
        pub precision: u32,
        /// Size of its vectors in bits, 0 if it calculates with one number.
        pub vector: u32,
        /// How many numbers its vectors have.
        pub numbers: u32,
        /// Floating-point operations for each number.
        pub each: u32,
        /// A mask chooses the numbers.
        pub is_masked: bool,
        /// It is repeated.
        pub is_repeated: bool,
        pub _unused: [u8; 2],
    }
}

impl Shape {
    /// Floating-point operations of one execution; for a mask none, since those are counted one by one.
    pub fn operations(&self) -> u64 {
        if self.is_masked {
            0
        } else {
            u64::from(self.numbers) * u64::from(self.each)
        }
    }
}

/// Instrument side: the shapes of a program.
#[derive(Default)]
pub struct Shapes {
    /// All shapes.
    pub all: Vec<Shape>,
    numbers: HashMap<Shape, u32>,
    /// Numbers by the bytes of instructions.
    known: HashMap<Box<[u8]>, u32>,
}

impl Shapes {
    /// The number of an instruction's shape.
    pub fn number(&mut self, inst: Inst<'_>, names: &mut StringList) -> u32 {
        if let Some(number) = self.known.get(inst.bytes()) {
            return *number;
        }
        let shape = shape(inst, names);
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(shape).or_insert(next);
        if number == next {
            self.all.push(shape);
        }
        self.known.insert(inst.bytes().into(), number);
        number
    }
}

fn shape(inst: Inst<'_>, names: &mut StringList) -> Shape {
    let memory = inst.memory();
    let accesses = |is: fn(&MemoryAccess) -> bool| {
        let some = || memory.iter().filter(|access| is(access));
        let count = some().map(|access| access.count).sum();
        [count, some().map(|access| access.size).max().unwrap_or(0)]
    };
    let ops = inst.float_ops();
    let has_mask = inst.info(InstInfo::MaskRegister).is_some();
    Shape {
        mnemonic: names.intern(inst.mnemonic()),
        isa: names.intern(&extensions(inst.isa())),
        class: names.intern(&format!("{:?}", inst.class())),
        width: width(&inst.operands()),
        loads: accesses(|access| access.access.reads()),
        stores: accesses(|access| access.access.writes()),
        precision: ops.map_or(0, |ops| ops.precision),
        vector: ops.map_or(0, |ops| ops.vector),
        numbers: ops.map_or(0, |ops| ops.numbers),
        each: ops.map_or(0, |ops| ops.each),
        // A mask register is known in its lower 16 bits.
        is_masked: has_mask && ops.is_some_and(|ops| ops.numbers <= 16),
        is_repeated: inst.repeat().is_some_and(|repeat| repeat != Repeat::Once),
        _unused: [0; 2],
    }
}

/// The extensions as people know them. What every processor with 64 bits has is one set.
fn extensions(isa: &str) -> String {
    let is_base = |name: &&str| name.starts_with("INTEL") || ["X64", "CMOV", "CX8"].contains(name);
    if isa.split('+').all(|name| is_base(&name)) {
        "x86-64".into()
    } else {
        isa.replace('_', ".")
    }
}

/// Size in bits of the widest operand.
fn width(operands: &[Operand]) -> u32 {
    let bytes = |operand: &Operand| match *operand {
        Operand::Register { size, .. } | Operand::Memory { size, .. } => size,
        Operand::Constant(_) | Operand::Target(_) => 0,
    };
    operands.iter().map(bytes).max().unwrap_or(0) * 8
}
