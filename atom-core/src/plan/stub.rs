//! Calls that are rarely made, in few bytes at the point.
//!
//! The code is an out-of-line stub that many points share. A point pushes the arguments that only it
//! knows and calls the stub. The stub does the work of the routine, keeps all registers, and drops the
//! pushed words when it returns (`ret n`), so after the call nothing has changed. Its code is made like
//! the calls of a point, so a routine that can be in line is in line there.
//!
//! The words are above the return address; the word pushed last has the lowest address.

use crate::tool::value::{Address, Value};
use crate::x86::asm::Gpr;

/// Constants below this are part of the stub. There are few of them, so few stubs are needed.
const SMALL: u64 = 256;

/// Largest number of arguments.
const MOST: usize = 8;

/// Source of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fill {
    /// There is no such argument.
    Nothing,
    /// A constant, the same at all points that share the stub.
    Const(u64),
    /// An address at an offset in the plan's data, the same at all points.
    Data(u32),
    /// The address of the running thread's copy of data in the main block, the same at all points.
    Thread {
        /// Offset of the main block in the plan's data.
        block: u32,
        /// Offset in the plan's data.
        at: u32,
    },
    /// The pushed word with this number.
    Pushed(u8),
}

/// What a shared stub does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stub {
    /// Sources of the arguments.
    pub fills: [Fill; MOST],
    /// Number of bytes that it drops when it returns.
    pub back: u16,
}

impl Stub {
    /// The stub for a call with these arguments, and the numbers of those that the point pushes, in the
    /// order of pushing. `None` if a stub cannot get them. `common` is a mask of the arguments that are
    /// the same in all calls of the routine.
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
                | Value::Thread { .. }
                | Value::Reg(_)
                | Value::Stack(_)
                | Value::Original(_)
                | Value::Load(_, 8)
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

    /// The arguments as values, seen from the stub.
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
