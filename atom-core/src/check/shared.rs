//! What is known of shared code: code outside of the procedures that inserted code of many points calls.
//!
//! What such code does depends on the state in which it is called, and on nothing else of the point. So it is followed
//! once for each state, which is described by what the program has at the point.

use rustc_hash::FxHashMap;

use super::state::{RSP, Slot, State, Value};

/// Stands for the return address of the call.
pub const CALLER: u64 = u64::MAX;

/// Most states that are kept.
const MOST: usize = 1 << 12;

/// A call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Address of the shared code.
    pub to: u64,
    /// The state before the call.
    pub state: State,
    /// True if the direction flag matters.
    pub direction: bool,
    /// True if the program keeps nothing below rsp.
    pub no_red_zone: bool,
    /// True if rsp may lead to data.
    pub is_foreign: bool,
}

/// The state after the call and the number of instructions, if they depend on nothing else.
type Effect = Option<(State, usize)>;

/// Calls whose effects are known.
#[derive(Default)]
pub struct SharedCode(FxHashMap<Key, Effect>);

impl SharedCode {
    /// What is known of a call.
    pub fn get(&self, key: &Key) -> Option<&Effect> {
        self.0.get(key)
    }

    /// Keeps the effect of a call.
    pub fn insert(&mut self, key: Key, effect: Effect) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, effect);
    }
}

/// The state of a call without facts that shared code hardly needs and that differ from point to point: what is below
/// rsp, what was written, and values that are no whole register of the program.
pub fn called_in(state: &State) -> State {
    let mut state = state.clone();
    state.drop_below();
    state.set_written(None);
    for (n, value) in state.gprs.iter_mut().enumerate().filter(|(n, _)| *n != RSP) {
        let is_own = *value == Value::Sum(n as u8, 0);
        if !is_own {
            *value = simple(*value);
        }
    }
    state.change_slots(|slot| match slot {
        Slot::Word(value) => Slot::Word(simple(value)),
        vector @ Slot::Vector(_) => vector,
    });
    state
}

/// The value, or an unknown one in the place of an address that is computed from a register other than rsp.
fn simple(value: Value) -> Value {
    match value {
        Value::Sum(register, at) if at != 0 && usize::from(register) != RSP => Value::Unknown,
        other => other,
    }
}
