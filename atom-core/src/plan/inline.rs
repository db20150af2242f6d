//! Calls that become part of the point: what remains of the routine stands
//! there in place of a call.

use crate::analysis::specialise::ops::{Base, Known, Symbol};
use crate::analysis::specialise::{Bound, Count, Specialiser};
use crate::tool::value::Value;

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

/// Finds what calls add to cells. Most calls of a tool are of few kinds, so
/// what their routines do is kept here, where no other thread looks at it.
pub struct Increments<'a> {
    specialiser: &'a Specialiser<'a>,
    kinds: Vec<Kind>,
    /// The kind that is replaced next.
    next: usize,
}

/// Calls for which the specialiser knows one answer.
struct Kind {
    routine: u64,
    bounds: Vec<Bound>,
    counts: Option<Vec<Count>>,
}

/// Kinds of calls that are kept.
const KINDS: usize = 8;

impl<'a> Increments<'a> {
    /// Nothing is known yet.
    pub fn new(specialiser: &'a Specialiser<'a>) -> Self {
        Self {
            specialiser,
            kinds: Vec::new(),
            next: 0,
        }
    }

    /// If all that the routine does with these arguments is to add constants to
    /// cells that are known now, what it adds to which. The result is in `found`.
    pub fn find(&mut self, routine: u64, values: &[Value], found: &mut Vec<Increment>) -> bool {
        found.clear();
        let bounds = || values.iter().map(bound);
        let known = |k: &Kind| k.routine == routine && bounds().eq(k.bounds.iter().copied());
        let at = match self.kinds.iter().position(known) {
            Some(at) => at,
            None => self.learn(routine, bounds().collect()),
        };
        let Some(counts) = &self.kinds[at].counts else {
            return false;
        };
        for count in counts {
            let (Some(cell), Some(amount)) =
                (cell(count.cell, values), number(count.amount, values))
            else {
                return false;
            };
            found.push(Increment {
                cell,
                amount,
                locked: count.locked,
            });
        }
        true
    }

    /// Asks the specialiser about the routine with these bounds; yields
    /// the number of the kind.
    fn learn(&mut self, routine: u64, bounds: Vec<Bound>) -> usize {
        let body = self.specialiser.body(routine, &bounds);
        let kind = Kind {
            routine,
            bounds,
            counts: body.and_then(|b| b.counts()),
        };
        if self.kinds.len() < KINDS {
            self.kinds.push(kind);
            return self.kinds.len() - 1;
        }
        let at = self.next;
        self.next = (at + 1) % KINDS;
        self.kinds[at] = kind;
        at
    }
}
