//! The call in place of a procedure.
//!
//! It is the first inserted code at the procedure's entry, before all calls that observe. Two words are pushed, zeros, and
//! the routine gets their address. If it stores anything but 0 in the first, the code returns to the procedure's caller at
//! once, with the second word in rax. Otherwise the procedure runs as it would have.
//!
//! The procedure is a function by the C ABI, so nothing is kept below rsp at its entry, and a return that does not come
//! from its own code must find the registers that callees keep. The test changes no flag.

use super::code::Asm;
use super::site::{self, Point, SiteCall};
use super::wrapper::Wrappers;
use crate::live::RegSet;
use crate::tool::operand::OUTCOME_SIZE;
use crate::tool::value::Value;
use crate::x86::asm::{Gpr, Mem};

/// Size in bytes of a word on the stack.
const WORD: i32 = 8;

/// Emits the call, whose code starts at the offset `base`, and the way back to the caller. Yields the cold path.
pub fn emit(
    (asm, base): (&mut Asm, usize),
    mut call: SiteCall,
    point: Point,
    wrappers: &mut Wrappers,
) -> Asm {
    call.body = None;
    for value in &mut call.values {
        if let Value::Stack(at) = value {
            *at += OUTCOME_SIZE;
        }
    }
    asm.push_imm(0);
    asm.push_imm(0);
    let point = Point {
        live: point.live | RegSet::CALLEE_SAVED,
        free_below: true,
        ..point
    };
    let emitted = site::emit(asm, base, &[call], point, wrappers);
    asm.push(Gpr::RCX);
    asm.load(Gpr::RCX, Mem::at(Gpr::RSP, WORD));
    let original = asm.jump_if_rcx_zero(false);
    asm.pop(Gpr::RCX);
    asm.load(Gpr::RAX, Mem::at(Gpr::RSP, WORD));
    asm.move_stack(OUTCOME_SIZE);
    asm.ret();
    asm.land(original);
    asm.at_depth((OUTCOME_SIZE + WORD) as u32);
    asm.pop(Gpr::RCX);
    asm.move_stack(OUTCOME_SIZE);
    emitted.cold_part
}
