//! The known state of the machine while inserted code runs.
//!
//! Each value is described by the program's state at the point where the inserted code begins: a
//! register holds the value that another register had there, or a word of the stack holds the
//! flags. A value without such a description is unknown, which is always right.

use std::collections::BTreeMap;

use crate::live::RegSet;

/// rsp's hardware number.
pub const RSP: usize = 4;

/// The five flags that `lahf` stores.
pub const STATUS: RegSet = RegSet(RegSet::FLAGS.0 & !RegSet::OF.0);

/// The contents of a register or of a word in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Unknown, or no value of the program.
    Unknown,
    /// The value of a general register at the point, plus a constant.
    Sum(u8, i64),
    /// The aligned stack pointer, or where the stack of analysis routines begins, plus a constant.
    Aligned(i64),
    /// ax with the result of `lahf` in ah and the overflow flag in al. The set has the flags that
    /// are the program's.
    Ax(RegSet),
    /// The result of `pushfq`: the set of flags that are the program's, and whether the direction
    /// flag is.
    Word(RegSet, bool),
    /// The return address of a call in inserted code.
    Return(u64),
}

/// Origin of an offset on the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Base {
    /// rsp at the point.
    Point,
    /// rsp after it was aligned, or after it was set to a stack of analysis routines.
    Aligned,
}

/// A stored item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Eight bytes.
    Word(Value),
    /// The 16 bytes that a vector register held at the point.
    Vector(u8),
}

impl Slot {
    fn size(self) -> i64 {
        match self {
            Self::Word(_) => 8,
            Self::Vector(_) => 16,
        }
    }
}

/// The machine's state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct State {
    /// General registers, by hardware number.
    pub gprs: [Value; 16],
    /// Mask of vector registers that have the values they had at the point.
    pub xmms: u16,
    /// Flags that have the values they had at the point.
    pub flags: RegSet,
    /// True if the direction flag has the value it had at the point.
    pub direction: bool,
    stack: BTreeMap<(Base, i64), Slot>,
}

impl State {
    /// The state at the point itself.
    pub fn at_point() -> Self {
        Self {
            gprs: std::array::from_fn(|n| Value::Sum(n as u8, 0)),
            xmms: !0,
            flags: RegSet::FLAGS,
            direction: true,
            stack: BTreeMap::new(),
        }
    }

    /// The place to which rsp points, if it is known.
    pub fn stack_pointer(&self) -> Option<(Base, i64)> {
        place(self.gprs[RSP])
    }

    /// Forgets items that overlap a range of the stack.
    pub fn forget(&mut self, base: Base, from: i64, size: i64) {
        let overlapping: Vec<_> = self
            .stack
            .range((base, from.saturating_sub(16))..(base, from + size))
            .filter(|(key, slot)| key.1 + slot.size() > from)
            .map(|(key, _)| *key)
            .collect();
        for key in overlapping {
            self.stack.remove(&key);
        }
    }

    /// Forgets items below rsp: a callee or a signal handler writes there.
    pub fn forget_below(&mut self) {
        let Some((base, limit)) = self.stack_pointer() else {
            return;
        };
        // The aligned frame lies below everything that is counted from the point.
        self.stack.retain(|key, _| match (base, key.0) {
            (Base::Point, Base::Aligned) => false,
            (Base::Aligned, Base::Point) => true,
            _ => key.1 >= limit,
        });
    }

    /// Stores an item.
    pub fn store(&mut self, base: Base, at: i64, slot: Slot) {
        self.forget(base, at, slot.size());
        self.stack.insert((base, at), slot);
    }

    /// The item that was stored at exactly this place.
    pub fn load(&self, base: Base, at: i64) -> Option<Slot> {
        self.stack.get(&(base, at)).copied()
    }

    /// Keeps the facts that hold in both states. True if `self` changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let facts = |state: &Self| (state.xmms, state.flags, state.direction, state.stack.len());
        let before = facts(self);
        let mut changed = false;
        for (mine, theirs) in self.gprs.iter_mut().zip(other.gprs) {
            if *mine != theirs && *mine != Value::Unknown {
                *mine = Value::Unknown;
                changed = true;
            }
        }
        self.xmms &= other.xmms;
        self.flags = self.flags & other.flags;
        self.direction &= other.direction;
        self.stack
            .retain(|key, slot| other.stack.get(key) == Some(slot));
        changed || facts(self) != before
    }
}

/// The place on the stack that a value points to.
pub fn place(value: Value) -> Option<(Base, i64)> {
    match value {
        Value::Sum(4, offset) => Some((Base::Point, offset)),
        Value::Aligned(offset) => Some((Base::Aligned, offset)),
        _ => None,
    }
}
