//! Calls that become part of the point: what remains of the routine stands
//! there in place of a call.

use std::sync::Arc;

use super::Clobbers;
use super::args::Value;
use super::site::{NO_ROUTINE, SiteCall};
use crate::analysis::specialise::ops::{
    Base, End, Imm, Known, Machine, Mem, Node, Op, Rm, Slot, Start, Symbol, V, flags,
};
use crate::analysis::specialise::{Body, Bound, Specialiser};

/// A cell of memory that inserted code counts in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cell {
    /// At an offset in the plan's data.
    Data(u32),
    /// At an address of the tool's file.
    Analysis(u64),
}

/// An addition of a constant to a 64-bit cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Increment {
    /// The cell.
    pub cell: Cell,
    /// What is added.
    pub amount: i64,
    /// In one step for all threads.
    pub locked: bool,
}

/// What adds to cells, to be made at a point like a call. It needs no register
/// and leaves the flags alone where they are live.
pub fn counting(increments: &[Increment]) -> impl Iterator<Item = SiteCall> {
    const EACH: usize = 32;
    increments.chunks(EACH).map(counting_call)
}

fn counting_call(increments: &[Increment]) -> SiteCall {
    let mut values = Vec::with_capacity(increments.len());
    let mut ops = Vec::with_capacity(increments.len());
    let mut constants = 0;
    for increment in increments {
        let (base, offset) = match increment.cell {
            Cell::Data(at) => {
                values.push(Value::Data(at));
                (Base::Argument(values.len() as u8 - 1), 0)
            }
            Cell::Analysis(at) => (Base::Image, at as i64),
        };
        let mem = Mem {
            start: Start::Symbol(Symbol { base, offset }),
            index: None,
            disp: 0,
        };
        let mut op = Machine::plain(0xff, 8);
        (op.rm, op.lock, op.stores) = (Rm::Mem(mem), increment.locked, true);
        op.changes = flags::ALL & !flags::CF;
        let amount = increment.amount;
        match (amount, i8::try_from(amount), i32::try_from(amount)) {
            (1, ..) => op.reg = Slot::Extension(0),
            (-1, ..) => op.reg = Slot::Extension(1),
            (_, Ok(n), _) => (op.opcode, op.imm) = (0x83, Imm::Byte(n)),
            (_, _, Ok(n)) => (op.opcode, op.imm) = (0x81, Imm::Wide(n)),
            _ => {
                let v = V(constants);
                constants += 1;
                ops.push(Op::Constant(v, Known::Number(amount as u64)));
                (op.opcode, op.reg) = (0x01, Slot::Use(v));
            }
        }
        if op.opcode != 0xff {
            op.changes = flags::ALL;
        }
        ops.push(Op::Machine(op));
    }
    SiteCall {
        routine: NO_ROUTINE,
        clobbers: Clobbers::EVERYTHING,
        values,
        body: Some(Arc::new(Body::new(Node::new(ops, End::Return), Vec::new()))),
    }
}

/// What is known of an argument before the program runs.
pub fn bound(value: &Value) -> Bound {
    match value {
        Value::Const(n) => Bound::Const(*n),
        Value::Data(_) | Value::Original(_) => Bound::Address,
        _ => Bound::Input,
    }
}

fn cell(symbol: Symbol, values: &[Value]) -> Option<Cell> {
    match symbol.base {
        Base::Image => Some(Cell::Analysis(symbol.offset as u64)),
        Base::Argument(i) => match values.get(usize::from(i))? {
            Value::Data(at) => {
                let offset = u32::try_from(i64::from(*at).checked_add(symbol.offset)?);
                offset.ok().map(Cell::Data)
            }
            _ => None,
        },
    }
}

fn number(known: Known, values: &[Value]) -> Option<i64> {
    match known {
        Known::Number(n) => Some(n as i64),
        Known::Symbol(Symbol {
            base: Base::Argument(i),
            offset,
        }) => match values.get(usize::from(i))? {
            Value::Const(n) => Some((*n as i64).wrapping_add(offset)),
            _ => None,
        },
        Known::Symbol(_) => None,
    }
}

/// If all that the routine does with these arguments is to add constants to
/// cells that are known now, what it adds to which.
pub fn increments(
    specialiser: &Specialiser,
    routine: u64,
    values: &[Value],
) -> Option<Vec<Increment>> {
    let bounds: Vec<Bound> = values.iter().map(bound).collect();
    let counts = specialiser.body(routine, &bounds)?.counts()?;
    let increment = |count: &crate::analysis::specialise::Count| {
        Some(Increment {
            cell: cell(count.cell, values)?,
            amount: number(count.amount, values)?,
            locked: count.locked,
        })
    };
    counts.iter().map(increment).collect()
}
