//! Calls that are rarely made, in few bytes at the point.
//!
//! The point pushes what only it knows and calls a piece that all such points share. That
//! does what the routine does, keeps all registers, and drops what was pushed on its way back
//! (`ret n`): after the call nothing has changed. The piece is made as the calls of a point
//! are, so a routine that can be in line is in line there.
//!
//! The words lie above the return address, the last one pushed first.

use crate::tool::value::{Address, Value};
use crate::x86::asm::Gpr;

/// Constants below this are part of the shared piece: few pieces come of it.
const SMALL: u64 = 256;

/// Arguments at most.
const MOST: usize = 8;

/// Where an argument comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fill {
    /// There is no such argument.
    Nothing,
    /// The same at all points that share the piece.
    Const(u64),
    /// An offset in the plan's data, likewise.
    Data(u32),
    /// The running thread's copy of what lies in the main block, likewise.
    Thread {
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in the plan's data.
        at: u32,
    },
    /// The word of this number that was pushed.
    Pushed(u8),
}

/// What a shared piece does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Detour {
    /// The arguments.
    pub fills: [Fill; MOST],
    /// Bytes that it drops when it returns.
    pub back: u16,
}

impl Detour {
    /// How the arguments of a call get there, and which of them are to be pushed, the first
    /// first; `None` if it cannot be done so. `common` tells which are always the same.
    pub fn new(values: &[Value], common: u64) -> Option<(Self, Vec<usize>)> {
        let mut fills = [Fill::Nothing; MOST];
        if values.len() > fills.len() {
            return None;
        }
        let mut pushed = Vec::new();
        for (i, (value, fill)) in values.iter().zip(&mut fills).enumerate() {
            let is_common = common >> i & 1 != 0;
            *fill = match *value {
                Value::Const(n) if n < SMALL || is_common => Fill::Const(n),
                Value::Data(at) if is_common => Fill::Data(at),
                Value::Thread { block, at } if is_common => Fill::Thread { block, at },
                Value::Const(n) if i32::try_from(n as i64).is_err() => return None,
                Value::Const(_)
                | Value::Data(_)
                | Value::Reg(_)
                | Value::Stack(_)
                | Value::Address(_) => {
                    pushed.push(i);
                    Fill::Pushed(pushed.len() as u8 - 1)
                }
                _ => return None,
            };
        }
        let back = 8 * pushed.len() as u16;
        Some((Self { fills, back }, pushed))
    }

    /// The arguments as the piece finds them.
    pub fn values(&self) -> Vec<Value> {
        let words = self.fills.iter();
        let words = words.filter(|f| matches!(f, Fill::Pushed(_))).count() as i64;
        let value = |fill: &Fill| match *fill {
            Fill::Nothing => None,
            Fill::Const(n) => Some(Value::Const(n)),
            Fill::Data(at) => Some(Value::Data(at)),
            Fill::Thread { block, at } => Some(Value::Thread { block, at }),
            Fill::Pushed(number) => {
                let at = 8 * (words - i64::from(number));
                Some(Value::Load(Address::at(Gpr::RSP, at), 8))
            }
        };
        self.fills.iter().map_while(value).collect()
    }
}
