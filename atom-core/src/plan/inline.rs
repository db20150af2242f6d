//! Calls that become part of the point: what remains of the routine stands
//! there in place of a call.

use super::args::Value;
use crate::analysis::specialise::ops::{Base, Known, Symbol};
use crate::analysis::specialise::{Bound, Specialiser};

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

/// What is known of an argument before the program runs.
pub fn bound(value: &Value) -> Bound {
    match value {
        Value::Const(n) => Bound::Const(*n),
        Value::Data(_) | Value::Thread { .. } | Value::Original(_) => Bound::Address,
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
