//! The code of a binary search in a sorted table of pairs of 32-bit numbers, which looks up the
//! original of a return address.
//!
//! rdi is the table: the number of entries, padding of 4 bytes, then entries of 8 bytes, sorted
//! by their first half (signed). rax is the address looked for.

/// rax becomes its distance from the table; ZF tells whether that fits 32 bits, with its sign.
pub const FITS_32_BITS: [u8; 9] = [
    0x48, 0x29, 0xf8, // sub rax, rdi
    0x48, 0x63, 0xc8, // movsxd rcx, eax
    0x48, 0x39, 0xc1, // cmp rcx, rax
];

/// Finds the entry of eax: continues after this code if there is none, and five bytes further if
/// rsi is its number. Entries from ecx up to, not including, edx may be the one.
pub const FIND: [u8; 30] = [
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
          // 3: here is a jump of five bytes; 4: after it
];

/// eax becomes the second half of the entry.
pub const FOUND: [u8; 4] = [0x8b, 0x44, 0xf7, 0x0c]; // mov eax, [rdi + 8 * rsi + 12]
