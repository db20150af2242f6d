//! Arguments and cells as the specialiser sees them, and what calls add to cells.

use crate::analysis::specialise::ops::{Base, Known, Symbol};
use crate::analysis::specialise::{Bound, Count, Specialiser};
use crate::tool::value::Value;

/// A counter in memory that inserted code adds to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cell {
    /// The cell at an offset in the plan's data.
    Data(u32),
    /// The cell at an address of the tool's file.
    Analysis(u64),
}

/// An addition of a constant to a 64-bit cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Increment {
    /// Place of the cell.
    pub cell: Cell,
    /// Number that is added.
    pub amount: i64,
    /// True if the addition is atomic.
    pub locked: bool,
}

/// What the specialiser may assume of an argument.
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

/// Finds the additions of calls to cells. Most calls of a tool are of few kinds, so the results of the
/// latest kinds are cached here, for one thread.
pub struct Increments<'a> {
    specialiser: &'a Specialiser<'a>,
    kinds: Vec<Kind>,
    /// Index of the kind that is replaced next.
    next: usize,
}

/// Calls for which the specialiser has the same answer.
struct Kind {
    routine: u64,
    bounds: Vec<Bound>,
    counts: Option<Vec<Count>>,
}

/// Number of kinds of calls that are kept.
const KINDS: usize = 8;

impl<'a> Increments<'a> {
    /// Makes an empty cache.
    pub fn new(specialiser: &'a Specialiser<'a>) -> Self {
        Self {
            specialiser,
            kinds: Vec::new(),
            next: 0,
        }
    }

    /// Finds the additions of a call, if the routine does nothing with these arguments but add constants
    /// to cells that are known now; else false. The additions are in `found`.
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

    /// Asks the specialiser about the routine with these bounds; returns the number of the kind.
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
