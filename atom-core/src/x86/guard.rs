//! The code of guards, in pieces that end with a field to be filled in.
//!
//! What a guard is for is in `layout/guards.rs`. A guard compares the thread pointer (fs:0)
//! with the owner of the thread's block, and calls a shared piece of code if they differ.

/// What a field of a guard leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// No field.
    None,
    /// The owner in the main block of the threads' data.
    Owner,
    /// The owner there with its sign changed.
    MinusOwner,
    /// The shared code for a thread that is new.
    Enter,
    /// What the guard is in front of.
    Next,
}

impl Field {
    const fn size(self) -> usize {
        match self {
            Self::None => 0,
            _ => 4,
        }
    }
}

/// Some instructions of a guard; the last one ends with the field, which has 32 bits and counts
/// from its own end.
pub struct Piece {
    /// The bytes before the field.
    pub bytes: &'static [u8],
    /// The field.
    pub field: Field,
}

const fn piece(bytes: &'static [u8], field: Field) -> Piece {
    Piece { bytes, field }
}

/// Size in bytes of a guard.
pub const fn size(guard: &[Piece]) -> u64 {
    let (mut size, mut i) = (0, 0);
    while i < guard.len() {
        size += guard[i].bytes.len() + guard[i].field.size();
        i += 1;
    }
    size as u64
}

/// A guard that may change r11 and the flags, and write below rsp.
pub const LIGHT: &[Piece] = &[
    // mov r11, fs:[0]
    piece(&[0x64, 0x4c, 0x8b, 0x1c, 0x25, 0, 0, 0, 0], Field::None),
    // cmp r11, gs:[owner]
    piece(&[0x65, 0x4c, 0x3b, 0x1d], Field::Owner),
    // je next
    piece(&[0x0f, 0x84], Field::Next),
    // call enter
    piece(&[0xe8], Field::Enter),
    // jmp next
    piece(&[0xe9], Field::Next),
];

/// A guard that changes nothing and leaves the red zone alone.
pub const CLEAN: &[Piece] = &[
    // lea rsp, [rsp - 128]; push rcx; push rax
    piece(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x51, 0x50], Field::None),
    // mov rcx, gs:[minus_owner]
    piece(&[0x65, 0x48, 0x8b, 0x0d], Field::MinusOwner),
    // mov rax, fs:[0]
    piece(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0], Field::None),
    // lea rcx, [rcx + rax]
    piece(&[0x48, 0x8d, 0x0c, 0x01], Field::None),
    // jrcxz over the call
    piece(&[0xe3, 5], Field::None),
    // call enter
    piece(&[0xe8], Field::Enter),
    // pop rax; pop rcx; lea rsp, [rsp + 128]
    piece(
        &[0x58, 0x59, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0],
        Field::None,
    ),
    // jmp next
    piece(&[0xe9], Field::Next),
];

/// Where [`CLEAN`] moves the stack pointer: offset after the instruction that does, and bytes
/// from the program's rsp down to rsp from there on.
pub const CLEAN_DEPTHS: &[(u8, u32)] =
    &[(5, 128), (6, 136), (7, 144), (36, 136), (37, 128), (45, 0)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::{Instruction, Run};

    #[test]
    fn depths_are_those_of_the_instructions() {
        let mut code = Vec::new();
        for piece in CLEAN {
            code.extend_from_slice(piece.bytes);
            code.extend(std::iter::repeat_n(0, piece.field.size()));
        }
        assert_eq!(code.len() as u64, size(CLEAN));
        let mut run = Run::new(&code, 0);
        let mut instruction = Instruction::default();
        let (mut depth, mut depths) = (0, Vec::new());
        while run.next_into(&mut instruction) {
            let moved = match instruction.op_count() {
                2 if instruction.op0_register() == crate::x86::Register::RSP => {
                    -(instruction.memory_displacement64() as i64)
                }
                _ if instruction.is_call_near() => 0,
                _ => -i64::from(instruction.stack_pointer_increment()),
            };
            if moved != 0 {
                depth += moved;
                depths.push((instruction.next_ip() as u8, depth as u32));
            }
        }
        assert_eq!(depths, CLEAN_DEPTHS);
    }
}
