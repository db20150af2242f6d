//! Calls with an outcome: what the routine decides changes the program.
//!
//! Two words are pushed, zeros, and the routine gets their address. If it stores anything but 0 in the first, the second is
//! its result. No instruction here changes a flag.
//!
//! *In place of a procedure*, as the first inserted code at its entry: with a result, control goes back to the procedure's
//! caller at once, with the result in rax. Otherwise the procedure runs as it would have. The procedure is a function by
//! the C ABI, so nothing is kept below rsp at its entry, and a return that does not come from its own code must find the
//! registers that callees keep.
//!
//! *At an instruction*: a general register gets the result.

use super::code::Asm;
use super::site::{self, Point, SiteCall};
use super::wrapper::Wrappers;
use crate::live::RegSet;
use crate::x86::asm::{Gpr, Mem, Patch};

/// Size in bytes of a word on the stack.
const WORD: i32 = 8;
/// Size in bytes of the two words.
const SIZE: i32 = 2 * WORD;

/// Code that is emitted so far, and the call's cold path.
struct Decision {
    cold_part: Asm,
    /// To where the program continues if there is no result.
    none: Patch,
}

/// Emits the call, whose code starts at the offset `base`, and a jump if there is no result. rcx is pushed then.
fn decide(
    asm: &mut Asm,
    base: usize,
    mut call: SiteCall,
    point: Point,
    wrappers: &mut Wrappers,
) -> Decision {
    let zone = point.red_zone();
    asm.move_stack(-zone);
    asm.push_imm(0);
    asm.push_imm(0);
    call.body = None;
    let point = Point {
        free_below: true,
        pushed: zone + SIZE,
        ..point
    };
    let emitted = site::emit(asm, base, &[call], point, wrappers);
    asm.push(Gpr::RCX);
    asm.load(Gpr::RCX, Mem::at(Gpr::RSP, WORD));
    Decision {
        cold_part: emitted.cold_part,
        none: asm.jump_if_rcx_zero(false),
    }
}

/// Emits the call in place of a procedure, and the way back to the caller. Yields the cold path.
pub fn in_place_of_procedure(
    asm: &mut Asm,
    base: usize,
    call: SiteCall,
    point: Point,
    wrappers: &mut Wrappers,
) -> Asm {
    let point = Point {
        live: point.live | RegSet::CALLEE_SAVED,
        free_below: true,
        ..point
    };
    let decision = decide(asm, base, call, point, wrappers);
    asm.pop(Gpr::RCX);
    asm.load(Gpr::RAX, Mem::at(Gpr::RSP, WORD));
    asm.move_stack(SIZE);
    asm.ret();
    asm.land(decision.none);
    asm.at_depth((SIZE + WORD) as u32);
    asm.pop(Gpr::RCX);
    asm.move_stack(SIZE);
    decision.cold_part
}

/// Emits a call at an instruction that may set a register. Yields the cold path.
pub fn for_register(
    asm: &mut Asm,
    base: usize,
    call: SiteCall,
    register: Gpr,
    point: Point,
    wrappers: &mut Wrappers,
) -> Asm {
    let decision = decide(asm, base, call, point, wrappers);
    let result = Mem::at(Gpr::RSP, SIZE);
    if register == Gpr::RCX {
        asm.load(Gpr::RCX, result);
        asm.store(Mem::at(Gpr::RSP, 0), Gpr::RCX);
    } else {
        asm.load(register, result);
    }
    asm.land(decision.none);
    asm.pop(Gpr::RCX);
    asm.move_stack(point.red_zone() + SIZE);
    decision.cold_part
}
