//! Shapes of the code in procedure linkage tables.

use super::{Code, FlowControl, decode_at, is_rip_relative};

/// Size of an entry in bytes.
pub const ENTRY: u64 = 16;

/// Size in bytes of an entry that is only a jump, in a table without lazy binding.
pub const SHORT_ENTRY: u64 = 8;

/// What fills an entry after its jump: `xchg ax, ax`.
pub const PADDING: [u8; 2] = [0x66, 0x90];

/// `jmp [rip + displacement]`, up to the displacement.
const JUMP: [u8; 2] = [0xff, 0x25];

/// Size of the same in bytes with the displacement.
const JUMP_LEN: usize = 6;

/// True if the table's entries are only `jmp [slot]` and padding, as without lazy binding.
pub fn has_short_entries(table: &[u8]) -> bool {
    table.starts_with(&JUMP) && table.get(JUMP_LEN..SHORT_ENTRY as usize) == Some(&PADDING)
}

/// Size of the entry that asks the loader to bind a function: it pushes a word
/// of memory before its jump.
pub fn header_size(bytes: &[u8], start: u64) -> u64 {
    let mut at = 0;
    let mut pushes = false;
    while let Some(instruction) = decode_at(&bytes[at..], start + at as u64) {
        at += instruction.len();
        pushes |= instruction.code() == Code::Push_rm64;
        if instruction.is_jmp_near_indirect() {
            return if pushes {
                (at as u64).next_multiple_of(ENTRY)
            } else {
                0
            };
        }
        if instruction.flow_control() != FlowControl::Next || at >= bytes.len() {
            break;
        }
    }
    0
}

/// True if the last instruction of an entry ends where the entry does. What
/// is after its last jump is padding, whatever that is.
pub fn is_whole(entry: &[u8], start: u64) -> bool {
    let mut at = 0;
    while at < entry.len() {
        let Some(instruction) = decode_at(&entry[at..], start + at as u64) else {
            return false;
        };
        at += instruction.len();
        if matches!(
            instruction.flow_control(),
            FlowControl::IndirectBranch | FlowControl::UnconditionalBranch
        ) {
            return true;
        }
    }
    // Padding only, as a table's last entry may be.
    entry.iter().all(|b| *b == entry[0])
}

/// The address of the slot that an entry jumps through, if that is named relative to rip.
pub fn slot(entry: &[u8], start: u64) -> Option<u64> {
    let mut at = 0;
    while at < entry.len() {
        let instruction = decode_at(&entry[at..], start + at as u64)?;
        if instruction.is_jmp_near_indirect() {
            return is_rip_relative(&instruction).then(|| instruction.memory_displacement64());
        }
        at += instruction.len();
    }
    None
}
