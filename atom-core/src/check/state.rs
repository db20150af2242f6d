//! The known state of the machine while inserted code runs.
//!
//! Each value is described by the program's state at the point where the inserted code begins: a
//! register holds the value that another register had there, or a word of the stack holds the
//! flags. A value without such a description is unknown, which is always right.

use crate::live::RegSet;

/// rsp's hardware number.
pub const RSP: usize = 4;

/// The five flags that `lahf` stores.
pub const STATUS: RegSet = RegSet(RegSet::FLAGS.0 & !RegSet::OF.0);

/// The contents of a register or of a word in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    /// rsp at the point.
    Point,
    /// rsp after it was aligned, or after it was set to a stack of analysis routines.
    Aligned,
}

/// A stored item.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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

/// An address of inserted code's own data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Own {
    /// The address. Data of each thread has the address that it has in the first thread's block.
    pub address: u64,
    /// True if it names the running thread's data, by the gs segment.
    pub of_thread: bool,
}

/// The machine's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    /// General registers, by hardware number.
    pub gprs: [Value; 16],
    /// Mask of vector registers that have the values they had at the point.
    pub xmms: u16,
    /// Flags that have the values they had at the point.
    pub flags: RegSet,
    /// True if the direction flag has the value it had at the point.
    pub direction: bool,
    /// What is stored where, in the order of places. There are few items at a time.
    stack: Vec<((Base, i64), Slot)>,
    /// Range around all places that were written, from and to an offset from rsp at the point.
    written: Written,
    /// rsp as an offset from rsp at the point, before it was aligned.
    aligned_at: i64,
    /// The last word of inserted code's own data to which a register was stored, and its contents: the top of a private
    /// stack, or what keeps a register.
    pub kept: Option<(Own, Value)>,
}

/// Places that inserted code has written: from and to an offset from the program's rsp.
pub type Written = Option<(i64, i64)>;

/// The range around two others.
pub fn around(a: Written, b: Written) -> Written {
    let (Some(a), Some(b)) = (a, b) else {
        return a.or(b);
    };
    Some((a.0.min(b.0), a.1.max(b.1)))
}

impl State {
    /// The state at the point itself.
    pub fn at_point() -> Self {
        Self {
            gprs: std::array::from_fn(|n| Value::Sum(n as u8, 0)),
            xmms: !0,
            flags: RegSet::FLAGS,
            direction: true,
            stack: Vec::new(),
            written: None,
            aligned_at: 0,
            kept: None,
        }
    }

    /// The state at a point in front of which inserted code has written.
    pub fn after(written: Written) -> Self {
        Self {
            written,
            ..Self::at_point()
        }
    }

    /// Range around all places that were written.
    pub fn written(&self) -> Written {
        self.written
    }

    /// True if a word may have been written, at an offset from rsp at the point.
    pub fn has_written(&self, at: i64) -> bool {
        self.written
            .is_some_and(|(from, to)| from < at.saturating_add(8) && at < to)
    }

    /// rsp is set to an aligned address.
    pub fn align(&mut self) {
        if let Some((Base::Point, at)) = self.stack_pointer() {
            self.aligned_at = at;
        }
        self.gprs[RSP] = Value::Aligned(0);
    }

    /// rsp is set to an address of own data. Yields false if it was not stored there before, so that this is no private
    /// stack.
    pub fn go_private(&mut self, to: Own) -> bool {
        let Some((top, value @ Value::Sum(4, 0))) = self.kept else {
            return false;
        };
        if top.of_thread != to.of_thread || self.is_private() {
            return false;
        }
        // Nothing of the program's is there.
        self.aligned_at = i64::MIN;
        self.gprs[RSP] = Value::Aligned(to.address.wrapping_sub(top.address) as i64);
        self.store(Base::Aligned, 0, Slot::Word(value));
        true
    }

    /// rsp goes from a private stack to the thread's stack for routines, which is anywhere else: here far below. Yields
    /// false if it was not on a private stack.
    pub fn go_on_from_private(&mut self) -> bool {
        const AWAY: i64 = 1 << 24;
        let is_private = self.is_private();
        if let (true, Value::Aligned(at)) = (is_private, self.gprs[RSP]) {
            self.gprs[RSP] = Value::Aligned((at - AWAY) & -16);
        }
        is_private
    }

    /// True if rsp leads to a private stack.
    pub fn is_private(&self) -> bool {
        matches!(self.stack_pointer(), Some((Base::Aligned, _))) && self.aligned_at == i64::MIN
    }

    fn note_written(&mut self, base: Base, from: i64, to: i64) {
        let range = match base {
            Base::Point => (from, to),
            Base::Aligned => (i64::MIN, self.aligned_at),
        };
        self.written = around(self.written, Some(range));
    }

    /// Becomes a copy of another state; keeps its own memory.
    pub fn copy(&mut self, other: &Self) {
        self.stack.clone_from(&other.stack);
        let stack = std::mem::take(&mut self.stack);
        *self = Self { stack, ..*other };
    }

    /// The place to which rsp points, if it is known.
    pub fn stack_pointer(&self) -> Option<(Base, i64)> {
        place(self.gprs[RSP])
    }

    /// Forgets items that overlap a range of the stack, which is written.
    pub fn forget(&mut self, base: Base, from: i64, size: i64) {
        self.note_written(base, from, from + size);
        self.stack.retain(|(key, slot)| {
            key.0 != base || key.1 >= from + size || key.1 + slot.size() <= from
        });
    }

    /// Forgets items below rsp: a callee or a signal handler writes there.
    pub fn forget_below(&mut self) {
        let Some((base, limit)) = self.stack_pointer() else {
            return;
        };
        self.note_written(base, i64::MIN, limit);
        // The aligned frame is below everything that is counted from the point.
        self.stack.retain(|(key, _)| match (base, key.0) {
            (Base::Point, Base::Aligned) => false,
            (Base::Aligned, Base::Point) => true,
            _ => key.1 >= limit,
        });
    }

    /// Forgets items below rsp, though nothing has written there.
    pub fn drop_below(&mut self) {
        if let Some((base, limit)) = self.stack_pointer() {
            self.stack
                .retain(|(key, _)| key.0 != base || key.1 >= limit);
        }
    }

    /// Sets the range around all places that were written.
    pub fn set_written(&mut self, written: Written) {
        self.written = written;
    }

    /// Replaces each item by one of the same size.
    pub fn change_slots(&mut self, change: impl Fn(Slot) -> Slot) {
        (self.stack.iter_mut()).for_each(|(_, slot)| *slot = change(*slot));
    }

    /// Stores an item.
    pub fn store(&mut self, base: Base, at: i64, slot: Slot) {
        self.forget(base, at, slot.size());
        let place = self.stack.partition_point(|item| item.0 < (base, at));
        self.stack.insert(place, ((base, at), slot));
    }

    /// The item that was stored at exactly this place.
    pub fn load(&self, base: Base, at: i64) -> Option<Slot> {
        let found = self.stack.binary_search_by_key(&(base, at), |item| item.0);
        found.ok().map(|place| self.stack[place].1)
    }

    /// Keeps the facts that hold in both states. True if `self` changed.
    pub fn join(&mut self, other: &Self) -> bool {
        let facts = |state: &Self| {
            let stack = (
                state.stack.len(),
                state.written,
                state.aligned_at,
                state.kept,
            );
            (state.xmms, state.flags, state.direction, stack)
        };
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
        self.written = around(self.written, other.written);
        self.aligned_at = self.aligned_at.max(other.aligned_at);
        self.kept = self.kept.filter(|kept| other.kept == Some(*kept));
        self.stack
            .retain(|((base, at), slot)| other.load(*base, *at) == Some(*slot));
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
