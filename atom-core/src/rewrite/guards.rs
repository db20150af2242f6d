//! The machine code of guards. The head of `layout/guards.rs` says what they are for.

use atom_abi::{THREAD_MINUS_OWNER, THREAD_OWNER};

use crate::error::{Error, Result};
use crate::layout::guards::{GuardPlace, size, template};
use crate::layout::{BaseAddresses, Layout};
use crate::plan::Guards;
use crate::x86::guard::Field;

use super::{DOING, rel32};

/// The bytes of a guard. `next` is the address in the new text to which the guard leads.
pub(super) fn encode(
    place: &GuardPlace,
    guards: &Guards,
    layout: &Layout,
    bases: &BaseAddresses,
    next: u64,
) -> Result<Vec<u8>> {
    let block = bases.data + u64::from(guards.block);
    let enter = layout.start + u64::from(layout.shared[guards.enter as usize]);
    let mut code = Code {
        at: place.address,
        bytes: Vec::with_capacity(64),
    };
    for piece in template(place.guard) {
        code.bytes.extend_from_slice(piece.bytes);
        match piece.field {
            Field::None => {}
            Field::Owner => code.field(block + THREAD_OWNER as u64)?,
            Field::MinusOwner => code.field(block + THREAD_MINUS_OWNER as u64)?,
            Field::Enter => code.field(enter)?,
            Field::Next => code.field(next)?,
        }
    }
    if code.bytes.len() as u64 != size(place.guard) {
        let reason =
            "a guard has another size than was reserved (a defect of atom, please report it)";
        return Err(Error::new(DOING, reason).address(place.address));
    }
    Ok(code.bytes)
}

struct Code {
    at: u64,
    bytes: Vec<u8>,
}

impl Code {
    /// A relative field at the end of an instruction.
    fn field(&mut self, target: u64) -> Result<()> {
        let next = self.at + self.bytes.len() as u64 + 4;
        self.bytes.extend(rel32(target, next)?);
        Ok(())
    }
}
