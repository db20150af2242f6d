//! Guards: code between a pad and the new text, at places where a thread may enter that does not
//! have its own data yet.
//!
//! A guard compares the thread pointer, which the C libraries keep at fs:0, with
//! the owner of the block that the gs base names (see `atom_abi::ThreadBlock`).
//! The two nearly always agree. A *light* guard changes r11 and the flags: it is at the entry
//! of a procedure that does not read them, and whose red zone is unused there. A *clean* guard
//! changes no register and keeps the red zone.

use crate::ids::BlockId;
use crate::plan::{Guard, Plan};
use crate::x86::guard;

const ALIGN: u64 = 8;

/// Place of a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GuardPlace {
    pub block: BlockId,
    pub guard: Guard,
    pub address: u64,
}

/// Places the guards of the pads that lead to `blocks`, from `cursor` on, and moves `cursor` after it
/// them.
pub(crate) fn place(
    plan: &Plan,
    blocks: impl Iterator<Item = BlockId>,
    cursor: &mut u64,
) -> Vec<GuardPlace> {
    let Some(guards) = &plan.guards else {
        return Vec::new();
    };
    let mut places: Vec<GuardPlace> = blocks
        .filter_map(|block| {
            Some(GuardPlace {
                block,
                guard: guards.of(block)?,
                address: 0,
            })
        })
        .collect();
    places.sort_unstable_by_key(|place| place.block);
    places.dedup_by_key(|place| place.block);
    for place in &mut places {
        place.address = cursor.next_multiple_of(ALIGN);
        *cursor = place.address + size(place.guard);
    }
    places
}

/// Changes of the stack pointer in a guard: the offset in the guard, and the distance in bytes by
/// which rsp is lower from there on.
pub(crate) const fn depths(guard: Guard) -> &'static [(u8, u32)] {
    match guard {
        Guard::Light => &[],
        Guard::Clean => guard::CLEAN_DEPTHS,
    }
}

/// The code of a guard.
pub(crate) const fn template(guard: Guard) -> &'static [guard::Piece] {
    match guard {
        Guard::Light => guard::LIGHT,
        Guard::Clean => guard::CLEAN,
    }
}

/// Size of a guard in bytes.
pub(crate) const fn size(guard: Guard) -> u64 {
    guard::size(template(guard))
}
