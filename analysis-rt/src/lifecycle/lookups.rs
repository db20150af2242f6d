//! Look-ups that fault where the program's own reference is about to.
//!
//! A tool may keep a byte for each few bytes of the process, and look the byte up before each reference. An address that no
//! process has leads to a place that none has, either (it is not canonical), so the look-up faults before the reference can.
//! Where the tool says so, such a look-up answers 0: the thread continues, and the reference faults as in the original.
//!
//! ABI: an instruction is REX, opcode, ModRM, SIB and displacement; ModRM has the mode in bits 6 and 7, the register in bits 3
//! to 5, and the base in bits 0 to 2.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::lifecycle::actions::{Answer, Context};

/// True if a tool has look-ups that answer 0.
static ANSWER: AtomicBool = AtomicBool::new(false);

/// From now on a load of a byte by code in line answers 0 if its address is none of a process.
pub fn lookups_may_fault() {
    ANSWER.store(true, Ordering::Relaxed);
}

/// A load of a byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Load {
    /// What it leaves in a register; `None` if it compares the byte with 0.
    register: Option<Answer>,
    /// Size of the instruction in bytes.
    size: usize,
}

/// Answers 0 to the load at which a thread faulted. False if it is none that is known.
///
/// # Safety
/// Inserted code is at the context's address.
pub(super) unsafe fn answer(context: &mut Context) -> bool {
    if !ANSWER.load(Ordering::Relaxed) {
        return false;
    }
    let code = core::ptr::with_exposed_provenance::<u8>(context.address as usize);
    // SAFETY: the caller's promise; only bytes of the instruction are read.
    let Some(load) = load_in(|i| unsafe { code.add(i).read() }) else {
        return false;
    };
    context.answer_byte(load.size as u64, load.register);
    true
}

/// The load of a byte that an instruction is, whose bytes `code` gives. It asks for no byte after the instruction.
fn load_in(code: impl Fn(usize) -> u8) -> Option<Load> {
    const REX: u8 = 0x40;
    let has_rex = code(0) & 0xf0 == REX;
    let rex = if has_rex { code(0) } else { 0 };
    let at = usize::from(has_rex);
    let (opcode, modrm_at) = match code(at) {
        0x0f => (0x0f00 | u16::from(code(at + 1)), at + 2),
        other => (other.into(), at + 1),
    };
    let modrm = code(modrm_at);
    let (mode, reg, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let has_sib = base == 4;
    let no_base = mode == 0 && (base == 5 || has_sib && code(modrm_at + 1) & 7 == 5);
    let displacement = match mode {
        0 if no_base => 4,
        0 => 0,
        1 => 1,
        2 => 4,
        _ => return None,
    };
    let end = modrm_at + 1 + usize::from(has_sib) + displacement;
    let number = reg | (rex & 4) << 1;
    // Without REX the numbers 4 to 7 are ah, ch, dh and bh.
    let is_low = has_rex || reg < 4;
    let register = |kept, sets_flags| {
        Some(Answer {
            number,
            kept,
            sets_flags,
        })
    };
    let (register, size) = match opcode {
        0x80 if reg == 7 && code(end) == 0 => (None, end + 1),
        0x8a if is_low => (register(!0xff, false), end),
        0x0a if is_low => (register(!0, true), end),
        0x0fb6 | 0x0fbe => (register(0, false), end),
        _ => return None,
    };
    Some(Load { register, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(code: &[u8]) -> Option<Load> {
        load_in(|i| code[i])
    }

    #[test]
    fn loads_of_a_byte_are_known_with_their_sizes() {
        let loaded = |number, kept, sets_flags| {
            Some(Answer {
                number,
                kept,
                sets_flags,
            })
        };
        let known: [(&[u8], Option<Answer>); 7] = [
            // cmp byte ptr [rcx+0x7fff8000], 0
            (&[0x80, 0xb9, 0, 0x80, 0xff, 0x7f, 0], None),
            // cmp byte ptr [r9+0x7fff8000], 0
            (&[0x41, 0x80, 0xb9, 0, 0x80, 0xff, 0x7f, 0], None),
            // movzx eax, byte ptr [rdx+0x7fff8000]
            (
                &[0x0f, 0xb6, 0x82, 0, 0x80, 0xff, 0x7f],
                loaded(0, 0, false),
            ),
            // movsx r10d, byte ptr [r8]
            (&[0x45, 0x0f, 0xbe, 0x10], loaded(10, 0, false)),
            // mov cl, [rax+rdx*2+8]
            (&[0x8a, 0x4c, 0x50, 8], loaded(1, !0xff, false)),
            // or sil, [rbp*1+0x7fff8000]
            (
                &[0x40, 0x0a, 0x34, 0x2d, 0, 0x80, 0xff, 0x7f],
                loaded(6, !0, true),
            ),
            // mov al, [rip+5]
            (&[0x8a, 0x05, 5, 0, 0, 0], loaded(0, !0xff, false)),
        ];
        for (code, register) in known {
            let size = code.len();
            assert_eq!(load(code), Some(Load { register, size }), "{code:x?}");
        }
        // A comparison with 1, a load of `dh`, a register, a load of a word, a store.
        let others: [&[u8]; 5] = [
            &[0x80, 0x39, 1],
            &[0x8a, 0x31],
            &[0x8a, 0xc1],
            &[0x8b, 0x01],
            &[0x88, 0x01],
        ];
        for code in others {
            assert_eq!(load(code), None, "{code:x?}");
        }
    }
}
