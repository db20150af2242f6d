//! Calls that are rarely made, in few bytes at the point.
//!
//! The point pushes what only it knows and calls a piece that all such points share. That
//! saves all that the routine may change, fills the arguments, and on its way back
//! drops what was pushed (`ret n`): after the call nothing has changed.
//!
//! On the stack, upwards from the saved rbp: the return address, then the words
//! in the opposite of the order in which they were pushed.

use super::args::Value;
use super::asm::{Asm, Gpr, Mem};
use super::code::Target;
use super::site::ARGUMENT_REGISTERS;

/// Constants below this are part of the shared piece: few pieces come of it.
const SMALL: u64 = 256;

/// Where an argument comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fill {
    /// There is no such argument.
    Nothing,
    /// The same at all points that share the piece.
    Const(u64),
    /// An offset in the plan's data, likewise.
    Data(u32),
    /// The running thread's copy of what lies at `at`, likewise.
    Thread {
        /// Offset of the slot with the copy's distance.
        slot: u32,
        /// What is added.
        offset: i32,
    },
    /// The word of this number that was pushed.
    Pushed(u8),
    /// It is an offset in the plan's data.
    PushedData(u8),
}

/// What a shared piece does beside calling the routine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Detour {
    /// The arguments in registers.
    pub fills: [Fill; 6],
    /// Bytes that it drops when it returns.
    pub back: u16,
}

impl Detour {
    /// How the arguments of a call get there, and which of them are to be pushed, the first
    /// first; `None` if it cannot be done so. `common` tells which are always the same.
    pub fn new(values: &[Value], common: u64) -> Option<(Self, Vec<usize>)> {
        let mut fills = [Fill::Nothing; 6];
        if values.len() > fills.len() {
            return None;
        }
        let mut pushed = Vec::new();
        for (i, (value, fill)) in values.iter().zip(&mut fills).enumerate() {
            let number = pushed.len() as u8;
            let is_common = common >> i & 1 != 0;
            *fill = match *value {
                Value::Const(n) if n < SMALL || is_common => Fill::Const(n),
                Value::Data(at) if is_common => Fill::Data(at),
                Value::Thread { block, at } => Fill::Thread {
                    slot: block + atom_abi::THREAD_THIS as u32,
                    offset: (at - block) as i32,
                },
                Value::Const(n) if i32::try_from(n as i64).is_err() => return None,
                Value::Data(at) if i32::try_from(at).is_err() => return None,
                Value::Data(_) => Fill::PushedData(number),
                Value::Const(_) | Value::Reg(_) | Value::Stack(_) | Value::Address(_) => {
                    Fill::Pushed(number)
                }
                _ => return None,
            };
            if matches!(fill, Fill::Pushed(_) | Fill::PushedData(_)) {
                pushed.push(i);
            }
        }
        let back = 8 * pushed.len() as u16;
        Some((Self { fills, back }, pushed))
    }

    /// Fills the argument registers; rax is free.
    pub fn fill(&self, asm: &mut Asm) {
        let words = self.fills.iter();
        let words = words.filter(|f| matches!(f, Fill::Pushed(_) | Fill::PushedData(_)));
        let last = words.count() as i32 - 1;
        // Above rbp: the saved rbp and the return address.
        let word = |number: u8| Mem::at(Gpr::RBP, 16 + 8 * (last - i32::from(number)));
        for (fill, to) in self.fills.iter().zip(ARGUMENT_REGISTERS) {
            match *fill {
                Fill::Nothing => {}
                Fill::Const(n) => asm.mov_imm(to, n),
                Fill::Data(at) => asm.lea_target(to, Target::Data(at)),
                Fill::Thread { slot, offset } => {
                    asm.gs();
                    asm.load_target(to, Target::Data(slot));
                    asm.lea(to, Mem::at(to, offset));
                }
                Fill::Pushed(number) => asm.load(to, word(number)),
                Fill::PushedData(number) => {
                    asm.load(Gpr::RAX, word(number));
                    asm.lea_target(to, Target::Data(0));
                    asm.lea(to, Mem::indexed(to, Gpr::RAX, 1));
                }
            }
        }
    }
}
