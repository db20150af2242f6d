//! The original of a return address.
//!
//! Calls in the new text push addresses of the new text. An analysis routine
//! that asks where a return goes is to see what the original program would hold
//! there, so a table made by the rewriter leads from the one to the other. An
//! address that is not in it was pushed by code that did not move, and stands
//! for itself.

use super::code::{Asm, Target};
use crate::x86::asm::{Cond, Gpr, Mem};
use crate::x86::search;

/// Size of the table's head: the number of entries, as 32 bits, and padding.
pub const HEAD: u64 = 8;
/// Size of an entry: the return address of the new text as a distance from the
/// table (signed), and that of the original text as a distance from the image's
/// base, 32 bits each. Entries are sorted by the first.
pub const ENTRY: u64 = 8;

/// Emits a function that takes a word on the stack, above its own return
/// address, and replaces it by the original return address that it stands for.
/// It changes no register and no flag.
pub fn emit(asm: &mut Asm, base: u64) {
    let saved = [Gpr::RAX, Gpr::RCX, Gpr::RDX, Gpr::RSI, Gpr::RDI];
    saved.iter().for_each(|r| asm.push(*r));
    asm.push_flags();
    let word = Mem::at(Gpr::RSP, 8 * (saved.len() as i32 + 2));
    asm.load(Gpr::RAX, word);
    asm.lea_target(Gpr::RDI, Target::ReturnMap);
    // rax: the distance from the table; out if it is not one of 32 bits.
    asm.raw(&search::FITS_32_BITS);
    let far = asm.jump_if(Cond::NE);
    asm.raw(&search::FIND);
    let none = asm.jump();
    asm.raw(&search::FOUND);
    asm.lea_target(Gpr::RCX, Target::original(base));
    asm.lea(Gpr::RAX, Mem::indexed(Gpr::RAX, Gpr::RCX, 1));
    asm.store(word, Gpr::RAX);
    asm.land(far);
    asm.land(none);
    asm.pop_flags();
    saved.iter().rev().for_each(|r| asm.pop(*r));
    asm.ret();
}
