//! The original of a return address.
//!
//! Calls in the new text push addresses of the new text. An analysis routine
//! that asks where a return goes is to see what the original program would hold
//! there, so a table made by the rewriter leads from the one to the other. An
//! address that is not in it was pushed by code that did not move, and stands
//! for itself.

use super::code::{Asm, Target};
use crate::x86::asm::{Gpr, Mem};

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
    asm.raw(&[
        0x48, 0x29, 0xf8, // sub rax, rdi
        0x48, 0x63, 0xc8, // movsxd rcx, eax
        0x48, 0x39, 0xc1, // cmp rcx, rax
    ]);
    let far = asm.jump_if(crate::x86::asm::Cond::NE);
    // Entries from ecx to edx may be the one.
    asm.raw(&[
        0x8b, 0x17, // mov edx, [rdi]
        0x31, 0xc9, // xor ecx, ecx
        0x39, 0xd1, // 0: cmp ecx, edx
        0x73, 0x16, // jae 3f
        0x8d, 0x34, 0x11, // lea esi, [rcx + rdx]
        0xd1, 0xee, // shr esi, 1
        0x3b, 0x44, 0xf7, 0x08, // cmp eax, [rdi + 8 * rsi + 8]
        0x74, 0x10, // je 4f
        0x7c, 0x05, // jl 2f
        0x8d, 0x4e, 0x01, // lea ecx, [rsi + 1]
        0xeb, 0xea, // jmp 0b
        0x89, 0xf2, // 2: mov edx, esi
        0xeb, 0xe6, // jmp 0b
    ]);
    let none = asm.jump(); // 3:
    asm.raw(&[0x8b, 0x44, 0xf7, 0x0c]); // 4: mov eax, [rdi + 8 * rsi + 12]
    asm.lea_target(Gpr::RCX, Target::original(base));
    asm.lea(Gpr::RAX, Mem::indexed(Gpr::RAX, Gpr::RCX, 1));
    asm.store(word, Gpr::RAX);
    asm.land(far);
    asm.land(none);
    asm.pop_flags();
    saved.iter().rev().for_each(|r| asm.pop(*r));
    asm.ret();
}
