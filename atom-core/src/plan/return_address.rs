//! Original return addresses of calls in the new text.
//!
//! Calls in the new text push addresses of the new text. An analysis routine that asks for the target of
//! a return is to see the address that the original program would have pushed. So the rewriter makes a
//! table from return addresses of the new text to those of the original. An address that is not in the
//! table was pushed by code that did not move, and stands for itself.

use super::code::{Asm, Target};
use crate::x86::asm::{Cond, Gpr, Mem};
use crate::x86::search;

/// Size of the table's head in bytes: the number of entries, as 32 bits, and padding.
pub const HEAD: u64 = 8;
/// Size of an entry in bytes. Its first half is the return address of the new text minus the table's
/// address (signed), its second half the original return address minus the image's base, 32 bits each.
/// Entries are sorted by the first half.
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
    // rax becomes the distance from the table. An address whose distance exceeds 32 bits has no entry.
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
