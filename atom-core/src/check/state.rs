//! What is known of the machine while inserted code runs.
//!
//! Everything is told in terms of the program's state at the point where the
//! inserted code begins: this register holds what that one held there, that
//! word of the stack holds the flags. What cannot be told so is unknown, which
//! is always right.

use std::collections::BTreeMap;

use crate::live::RegSet;

/// rsp's hardware number.
pub const RSP: usize = 4;

/// The five flags that `lahf` stores.
pub const STATUS: RegSet = RegSet(RegSet::FLAGS.0 & !RegSet::OF.0);

/// The contents of a register or of a word in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Not known, or nothing of the program's.
    Unknown,
    /// What this general register held at the point, and this added.
    Sum(u8, i64),
    /// The stack pointer after it was aligned, and this added.
    Aligned(i64),
    /// In ah what `lahf` stored, in al the overflow flag: the flags that are
    /// the program's.
    Ax(RegSet),
    /// What `pushfq` stored: the flags that are the program's, and whether the
    /// direction flag is.
    Word(RegSet, bool),
    /// The return address of a call in inserted code.
    Return(u64),
}

/// What a place on the stack is counted from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Base {
    /// rsp at the point.
    Point,
    /// rsp once it was aligned.
    Aligned,
}

/// A stored item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Eight bytes.
    Word(Value),
    /// The 16 bytes of a vector register, as at the point.
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
    /// Vector registers that hold what they held at the point.
    pub xmms: u16,
    /// Flags that are as they were.
    pub flags: RegSet,
    /// The direction flag is as it was.
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

    /// Where rsp points, if that is known.
    pub fn stack_pointer(&self) -> Option<(Base, i64)> {
        place(self.gprs[RSP])
    }

    /// Forgets what overlaps a range of the stack.
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

    /// Forgets what lies below rsp: a callee or a signal handler writes there.
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

    /// What is true in both states. Yields whether `self` changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        for (mine, theirs) in self.gprs.iter_mut().zip(other.gprs) {
            if *mine != theirs {
                *mine = Value::Unknown;
            }
        }
        self.xmms &= other.xmms;
        self.flags = self.flags & other.flags;
        self.direction &= other.direction;
        self.stack
            .retain(|key, slot| other.stack.get(key) == Some(slot));
        *self != before
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
