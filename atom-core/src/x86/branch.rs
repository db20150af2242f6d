//! Direct branches by their bytes: finding them, their targets, and writing them.
//!
//! The common forms, without prefixes, are known by their bytes alone; the others need decoding.

use super::opcode::{
    CALL, ESCAPE, INT3, JCC, JCC_LAST, JCC_SHORT, JCC_SHORT_LAST, JMP, JMP_SHORT, JRCXZ, LOOPNE,
};
use super::{Cond, Instruction, decode_at, direct_target};

/// Size in bytes of `jmp rel32` and of `call rel32`.
pub const JMP_LEN: usize = 5;

/// Size in bytes of `jcc rel32`.
pub const JCC_LEN: usize = 6;

/// Size in bytes of `jmp rel8`.
pub const JMP_SHORT_LEN: usize = 2;

/// `endbr64`, which marks a place that indirect branches may lead to.
pub const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Difference between the second byte of `jcc rel32` and the opcode of `jcc rel8`.
const JCC_NEAR_MINUS_SHORT: u8 = JCC - JCC_SHORT;

/// `jmp rel32` at an address.
pub const fn jump(from: u64, to: u64) -> [u8; JMP_LEN] {
    let distance = to.wrapping_sub(from + JMP_LEN as u64) as i32;
    let d = distance.to_le_bytes();
    [JMP, d[0], d[1], d[2], d[3]]
}

/// `jmp rel8` at an address.
pub const fn short_jump(from: u64, to: u64) -> [u8; JMP_SHORT_LEN] {
    let distance = to.wrapping_sub(from + JMP_SHORT_LEN as u64) as u8;
    [JMP_SHORT, distance]
}

/// The target of the direct branch or call that these bytes are.
pub fn target_of(bytes: &[u8], address: u64) -> Option<u64> {
    plain_target(bytes, address).or_else(|| direct_target(&decode_at(bytes, address)?))
}

/// The target of a branch or call without prefixes.
fn plain_target(bytes: &[u8], address: u64) -> Option<u64> {
    let distance = match *bytes {
        [JCC_SHORT..=JCC_SHORT_LAST | LOOPNE..=JRCXZ | JMP_SHORT, d] => i64::from(d as i8),
        [CALL | JMP, a, b, c, d] | [ESCAPE, JCC..=JCC_LAST, a, b, c, d] => {
            i64::from(i32::from_le_bytes([a, b, c, d]))
        }
        _ => return None,
    };
    let next = address.wrapping_add(bytes.len() as u64);
    Some(next.wrapping_add_signed(distance))
}

/// Where the 32-bit displacement is in the branch or call without prefixes that starts
/// these bytes.
pub fn near_field(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [CALL | JMP, ..] => Some(1),
        [ESCAPE, JCC..=JCC_LAST, ..] => Some(2),
        _ => None,
    }
}

/// True if the bytes of an instruction are a `jcc` without prefixes.
pub fn is_plain_jcc(bytes: &[u8]) -> bool {
    matches!(
        bytes,
        [JCC_SHORT..=JCC_SHORT_LAST, _] | [ESCAPE, JCC..=JCC_LAST, ..]
    )
}

/// The form of a direct branch.
#[derive(Clone, Copy)]
pub struct BranchForm {
    /// It counts or tests rcx (`loop`, `jrcxz`).
    pub uses_rcx: bool,
    /// Its displacement has one byte.
    pub is_short: bool,
}

/// The form of a direct jump. `None` if the bytes alone do not tell.
pub fn plain_form(bytes: &[u8]) -> Option<BranchForm> {
    let (uses_rcx, is_short) = match bytes {
        [JCC_SHORT..=JCC_SHORT_LAST | JMP_SHORT, _] => (false, true),
        [LOOPNE..=JRCXZ, _] => (true, true),
        [JMP, ..] | [ESCAPE, JCC..=JCC_LAST, ..] => (false, false),
        _ => return None,
    };
    Some(BranchForm { uses_rcx, is_short })
}

/// The opcode of `jmp rel8` or `jcc rel8` with the same condition as this jump, if it is of
/// their kind; `decode` is asked if the bytes alone do not tell.
pub fn short_opcode(bytes: &[u8], decode: impl FnOnce() -> Instruction) -> Option<u8> {
    match *bytes {
        [opcode @ JCC_SHORT..=JCC_SHORT_LAST, _] => Some(opcode),
        [ESCAPE, opcode @ JCC..=JCC_LAST, ..] => Some(opcode - JCC_NEAR_MINUS_SHORT),
        [JMP_SHORT | JMP, ..] => Some(JMP_SHORT),
        _ => {
            let instruction = decode();
            match Cond::of(instruction.condition_code()) {
                Some(cond) => Some(JCC_SHORT | cond.0),
                None => instruction.is_jmp_short_or_near().then_some(JMP_SHORT),
            }
        }
    }
}

/// The opcode of `jcc rel32`, by that of `jcc rel8`.
pub const fn near_jcc(short: u8) -> [u8; 2] {
    [ESCAPE, short + JCC_NEAR_MINUS_SHORT]
}

/// The opcode of `xbegin rel32`.
pub const XBEGIN: [u8; 2] = [0xc7, 0xf8];

/// What follows a branch on rcx, of which there is no form with a displacement of 32 bits, in place of its displacement:
/// `jrcxz 1f; jmp 2f; 1: jmp target; 2:`, up to the displacement of the last jump.
pub const FAR_COUNTED_TAIL: [u8; 4] = [JMP_SHORT_LEN as u8, JMP_SHORT, JMP_LEN as u8, JMP];

/// Number of bytes by which such a branch is longer than the original.
pub const FAR_COUNTED_MORE: usize = FAR_COUNTED_TAIL.len() - 1 + 4;

/// `push rax; lea rax, [rip + displacement]`, up to the displacement: the start of what pushes an
/// address and changes no register.
pub const PUSH_ADDRESS_HEAD: [u8; 4] = [0x50, 0x48, 0x8d, 0x05];

/// `xchg rax, [rsp]`: the end of it.
pub const PUSH_ADDRESS_TAIL: [u8; 4] = [0x48, 0x87, 0x04, 0x24];

/// Size in bytes of what pushes an address.
pub const PUSH_ADDRESS_LEN: usize = PUSH_ADDRESS_HEAD.len() + 4 + PUSH_ADDRESS_TAIL.len();

/// The start of what makes a call and replaces the pushed address by another, up to the displacement of that
/// address: `call 1f; int3; 1: push rax; lea rax, [rip + displacement]`.
pub const PUSHED_HEAD: [u8; 10] = [CALL, 1, 0, 0, 0, INT3, 0x50, 0x48, 0x8d, 0x05];

/// The end of it, in front of the jump to the callee: `mov [rsp+8], rax; pop rax`.
pub const PUSHED_TAIL: [u8; 6] = [0x48, 0x89, 0x44, 0x24, 0x08, 0x58];

/// Size in bytes of what is in front of the jump.
pub const PUSHED_LEN: usize = PUSHED_HEAD.len() + 4 + PUSHED_TAIL.len();

/// Distances in bytes by which the stack pointer is lower in that code, each with the offset from which it holds.
pub const PUSHED_DEPTHS: [(u64, u32); 3] = [(6, 8), (7, 16), (PUSHED_LEN as u64, 8)];

/// A jump through a pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PointerJump {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Offset of the displacement, if that is relative to the jump's end.
    pub relative: Option<usize>,
}

/// The jump that leads where a call through a pointer leads, after one word has been pushed. `None` if the call has
/// another form, or an operand that depends on the stack pointer.
pub fn jump_of_call(bytes: &[u8]) -> Option<PointerJump> {
    const GROUP: u8 = 0xff;
    let is_prefix = |b: &&u8| {
        matches!(
            **b,
            0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64 | 0x65 | 0xf2
        )
    };
    let prefixes = bytes.iter().take_while(is_prefix).count();
    let &[GROUP, modrm, ref rest @ ..] = &bytes[prefixes..] else {
        return None;
    };
    let rex = prefixes.checked_sub(1).map_or(0, |i| bytes[i]);
    let extends_base = rex & 0xf1 == 0x41;
    let base = match (modrm >> 6, modrm & 7) {
        (3, register) => register,
        (_, 4) => rest.first()? & 7,
        (_, register) => register,
    };
    if modrm >> 3 & 7 != 2 || base == 4 && !extends_base {
        return None;
    }
    let mut jump = bytes.to_vec();
    jump[prefixes + 1] = modrm & !0x38 | 4 << 3;
    Some(PointerJump {
        bytes: jump,
        relative: (modrm & 0xc7 == 5).then_some(prefixes + 2),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_where_they_are_to() {
        for to in [0x1000, 0x1100, 0x0f00] {
            assert_eq!(target_of(&jump(0x1000, to), 0x1000), Some(to));
        }
        assert_eq!(target_of(&short_jump(0x1000, 0xff0), 0x1000), Some(0xff0));
    }

    #[test]
    fn calls_through_pointers_as_jumps() {
        let jump = |bytes: &[u8]| {
            let found = jump_of_call(bytes)?;
            Some(decode_at(&found.bytes, 0x1000)?.to_string())
        };
        let cases: [(&[u8], Option<&str>); 9] = [
            (&[0xff, 0xd0], Some("jmp rax")),
            (&[0x41, 0xff, 0xd4], Some("jmp r12")),
            (&[0x41, 0xff, 0x54, 0x24, 8], Some("jmp qword [r12+8]")),
            (
                &[0xff, 0x14, 0xc5, 0, 16, 0, 0],
                Some("jmp qword [rax*8+1000h]"),
            ),
            (&[0xff, 0x15, 2, 0, 0, 0], Some("jmp qword [rel 1008h]")),
            (&[0xff, 0x54, 0x24, 8], None),
            (&[0xff, 0x14, 0x04], None),
            (&[0xff, 0xd4], None),
            (&[0xe8, 0, 0, 0, 0], None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(jump(bytes).as_deref(), expected, "{bytes:x?}");
        }
        assert_eq!(
            jump_of_call(&[0xff, 0x15, 2, 0, 0, 0]).and_then(|j| j.relative),
            Some(2)
        );
    }

    #[test]
    fn bytes_tell_the_same_as_decoding() {
        let jcc = |n: u8| [vec![JCC_SHORT | n, 2], vec![ESCAPE, JCC | n, 1, 0, 0, 0]];
        for (n, bytes) in (0..16).flat_map(|n| jcc(n).map(|bytes| (n, bytes))) {
            let decoded = decode_at(&bytes, 0x1000).expect("it is valid");
            assert_eq!(direct_target(&decoded), plain_target(&bytes, 0x1000));
            assert_eq!(Cond::of(decoded.condition_code()), Some(Cond(n)));
            let by_bytes = short_opcode(&bytes, || unreachable!("the bytes tell"));
            assert_eq!(by_bytes, Some(JCC_SHORT | n));
            assert_eq!(short_opcode(&[], || decoded), by_bytes);
            assert!(is_plain_jcc(&bytes));
        }
    }
}
