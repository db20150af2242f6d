//! The call of the allocator that a thread is in.
//!
//! The size is known at an allocator's entry, the block at its exit. Only the outermost of nested calls counts: `operator
//! new` calls `malloc`, or jumps to it; `malloc` calls `mmap`.

use super::{Allocator, RETURN_ADDRESS, Role};
use crate::data::thread_data::ThreadCell;
use crate::thread_state;

/// Number of bits of a role in a number of [`OpenCall::what`].
const ROLE_BITS: u32 = 4;
/// Roles that are no known procedure: those with the size in the third place. The others are like known ones.
const THIRD: u32 = (1 << ROLE_BITS) - 1;
/// The highest address that a system call returns; above are errors.
const HIGHEST: u64 = u64::MAX - 4096;

/// What an outermost call begins to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// It frees a block; 0 for none.
    Frees {
        /// The block.
        block: u64,
    },
    /// It unmaps memory.
    Unmaps {
        /// First address.
        start: u64,
        /// In bytes.
        size: u64,
    },
    /// It allocates a block, which [`OpenCall::leave`] tells.
    Allocates {
        /// The block is mapped memory.
        is_mapping: bool,
    },
}

/// What an outermost call has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct New {
    /// Address of the block; 0 if there is none.
    pub block: u64,
    /// Its requested size in bytes.
    pub size: u64,
    /// The block that is gone, because it has been moved, made larger or smaller, or because `realloc` to a size of 0 has
    /// freed it; 0 if there is none.
    pub old: u64,
    /// What [`OpenCall::set_tag`] has kept.
    pub tag: u64,
    /// It is mapped memory.
    pub is_mapping: bool,
}

thread_state! {
    /// The outermost call of the allocator that a thread is in.
    pub struct OpenCall {
        /// rsp at its entry; 0 if there is none.
        sp: ThreadCell<u64>,
        /// The number of [`OpenCall::what`].
        what: ThreadCell<u32>,
        _unused: ThreadCell<u32>,
        size: ThreadCell<u64>,
        /// The old block, or for `posix_memalign` where the block's address will be.
        other: ThreadCell<u64>,
        tag: ThreadCell<u64>,
    }
}

impl OpenCall {
    /// Instrument side: the number by which [`OpenCall::enter`] knows a procedure. `proc` is any number of the procedure below
    /// 2^28.
    pub fn what(role: Role, proc: u32) -> u32 {
        let role = match role {
            Role::Known(known) => known as u32,
            Role::Frees => Allocator::Free as u32,
            Role::Sized(2) => Allocator::Aligned as u32,
            Role::Sized(3) => THIRD,
            Role::Sized(_) => Allocator::Malloc as u32,
        };
        proc << ROLE_BITS | role
    }

    /// At an allocator's entry, with rsp and the first three arguments. `None` if the call is inside of another one.
    pub fn enter(&self, what: u32, sp: u64, args: [u64; 3]) -> Option<Call> {
        let outer = self.sp.get();
        if outer > sp || outer == sp && self.what.get() != what {
            return None;
        }
        let role = what % (1 << ROLE_BITS);
        let known = Allocator::from_number(role.into());
        let (size, other) = if role == THIRD {
            (args[2], 0)
        } else {
            known.request(args)
        };
        self.what.set(what);
        self.size.set(size);
        self.other.set(other);
        self.tag.set(0);
        self.sp.set(sp);
        Some(match known {
            Allocator::Free if role != THIRD => Call::Frees { block: args[0] },
            Allocator::Munmap if role != THIRD => Call::Unmaps {
                start: args[0],
                size: args[1],
            },
            _ => Call::Allocates {
                is_mapping: role != THIRD && known.is_mapping(),
            },
        })
    }

    /// The number of the procedure whose entry has begun the open call.
    pub fn proc(&self) -> u32 {
        self.what.get() >> ROLE_BITS
    }

    /// Keeps a number with the open call.
    pub fn set_tag(&self, tag: u64) {
        self.tag.set(tag);
    }

    /// Before an instruction by which an allocator may be left, with rsp and the result. `None` if this is not the end of the
    /// outermost call, or of one that frees.
    pub fn leave(&self, sp: u64, result: u64) -> Option<New> {
        if self.sp.get() != sp || sp == 0 {
            return None;
        }
        self.sp.set(0);
        let role = self.what.get() % (1 << ROLE_BITS);
        let (size, other) = (self.size.get(), self.other.get());
        let known = if role == THIRD {
            Allocator::Malloc
        } else {
            Allocator::from_number(role.into())
        };
        let block = match known {
            Allocator::Free | Allocator::Munmap => return None,
            // It answers 0 and has stored the address.
            // SAFETY: the allocator has just written it there.
            Allocator::PosixMemalign if result == 0 => unsafe {
                *std::ptr::with_exposed_provenance::<u64>(other as usize)
            },
            Allocator::PosixMemalign => 0,
            _ if known.is_mapping() && result > HIGHEST => 0,
            _ => result,
        };
        // A call that fails leaves the old block; `realloc` to a size of 0 frees it.
        let is_taken = known.takes_block() && (block != 0 || size == 0);
        Some(New {
            block,
            size,
            old: if is_taken { other } else { 0 },
            tag: self.tag.get(),
            is_mapping: known.is_mapping(),
        })
    }

    /// As [`OpenCall::leave`], after a call instruction.
    pub fn left(&self, sp: u64, result: u64) -> Option<New> {
        self.leave(sp.wrapping_sub(RETURN_ADDRESS), result)
    }

    /// Before a jump to a place that is not known.
    pub fn lose(&self, sp: u64) {
        if self.sp.get() == sp {
            self.sp.set(0);
        }
    }

    /// Where control comes back by an exception or `longjmp`, with rsp.
    pub fn landed(&self, sp: u64) {
        if self.sp.get() < sp {
            self.sp.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::thread_data::ThreadState;

    fn known(known: Allocator, proc: u32) -> u32 {
        OpenCall::what(Role::Known(known), proc)
    }

    #[test]
    fn only_the_outermost_call_counts() {
        let open = OpenCall::zero();
        let [new, malloc, mmap] = [
            (Allocator::Malloc, 1),
            (Allocator::Malloc, 2),
            (Allocator::Mmap, 3),
        ]
        .map(|(kind, proc)| known(kind, proc));
        let is_mapping = false;
        let outer = open.enter(new, 1000, [70, 0, 0]);
        assert_eq!(outer, Some(Call::Allocates { is_mapping }));
        open.set_tag(5);
        // By a jump, and by a call.
        assert_eq!(open.enter(malloc, 1000, [70, 0, 0]), None);
        assert_eq!(open.enter(mmap, 900, [0, 4096, 3]), None);
        assert_eq!(open.leave(900, 0x7000), None);
        let made = open.left(1008, 0x7010);
        let block = New {
            block: 0x7010,
            size: 70,
            old: 0,
            tag: 5,
            is_mapping,
        };
        assert_eq!(made, Some(block));
        assert_eq!(open.leave(1000, 0x7010), None);
        // A call that was left by `longjmp` is over when another one begins further out.
        assert!(open.enter(malloc, 800, [1, 0, 0]).is_some());
        assert!(open.enter(malloc, 900, [2, 0, 0]).is_some());
        assert_eq!(open.leave(900, 0x8000).map(|new| new.size), Some(2));
        // So it is when control comes back further out; a landing inside of the call is no end of it.
        assert!(open.enter(malloc, 900, [3, 0, 0]).is_some());
        open.landed(850);
        assert_eq!(open.enter(mmap, 800, [0, 4096, 3]), None);
        open.landed(908);
        assert!(open.enter(malloc, 800, [4, 0, 0]).is_some());
        assert_eq!(open.leave(800, 0x9000).map(|new| new.size), Some(4));
    }

    #[test]
    fn what_is_taken_is_told() {
        let open = OpenCall::zero();
        let realloc = known(Allocator::Realloc, 0);
        for (size, result, old) in [(10, 0x30, 0x20), (10, 0, 0), (0, 0, 0x20)] {
            assert!(open.enter(realloc, 50, [0x20, size, 0]).is_some());
            assert_eq!(open.leave(50, result).map(|new| new.old), Some(old));
        }
        let free = open.enter(OpenCall::what(Role::Frees, 9), 50, [0x20, 0, 0]);
        assert_eq!(free, Some(Call::Frees { block: 0x20 }));
        assert_eq!(open.proc(), 9);
        assert_eq!(open.leave(50, 7), None);
        let third = OpenCall::what(Role::Sized(3), 9);
        assert!(open.enter(third, 50, [1, 2, 3]).is_some());
        assert_eq!(
            open.leave(50, 0x40).map(|new| (new.block, new.size)),
            Some((0x40, 3))
        );
        let place = 0x1234u64;
        let at = std::ptr::from_ref(&place).expose_provenance() as u64;
        let aligned = known(Allocator::PosixMemalign, 1);
        for (result, block) in [(0, 0x1234), (12, 0)] {
            assert!(open.enter(aligned, 50, [at, 64, 100]).is_some());
            assert_eq!(
                open.leave(50, result).map(|new| (new.block, new.size)),
                Some((block, 100))
            );
        }
        let mmap = known(Allocator::Mmap, 1);
        assert!(open.enter(mmap, 50, [0, 4096, 3]).is_some());
        assert_eq!(open.leave(50, -12i64 as u64).map(|new| new.block), Some(0));
    }
}
