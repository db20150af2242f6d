//! DWARF expressions whose value depends on the program counter.
//!
//! The linker describes the procedure linkage table by one expression: an
//! entry's last part has pushed a word, and which part it is follows from the
//! low bits of the address. Code that moves has other low bits, so such an
//! expression is replaced by its value for each original address.

use crate::unwind::{Cursor, Read};
use crate::x86::asm::Frame;

/// DWARF's numbers of the stack pointer and the return address column.
const RSP: u8 = 7;
const RIP: u8 = 16;

/// True if the value may depend on the program counter. The value of an unknown operation may.
pub(super) fn uses_rip(expression: &[u8]) -> bool {
    let mut c = Cursor::new(expression, 0, 0);
    while !c.at_end() {
        match step(&mut c) {
            Ok(Op::Register(RIP, _)) | Ok(Op::Unknown) | Err(_) => return true,
            Ok(_) => {}
        }
    }
    false
}

/// The value at program counter `rip` as an offset from the stack pointer, if
/// it has that form.
pub(super) fn offset_from_rsp(expression: &[u8], rip: u64) -> Option<i64> {
    let mut c = Cursor::new(expression, 0, 0);
    // Values are constants, with or without the stack pointer added.
    let mut stack: Vec<(bool, i64)> = Vec::new();
    while !c.at_end() {
        let value = match step(&mut c).ok()? {
            Op::Register(RSP, offset) => (true, offset),
            Op::Register(RIP, offset) => (false, (rip as i64).wrapping_add(offset)),
            Op::Constant(value) => (false, value),
            Op::AddConstant(value) => {
                let (rsp, n) = stack.pop()?;
                (rsp, n.wrapping_add(value))
            }
            Op::Binary(code) => {
                let (right_rsp, right) = stack.pop()?;
                let (left_rsp, left) = stack.pop()?;
                match (code, left_rsp, right_rsp) {
                    (0x22, ..) if !(left_rsp && right_rsp) => {
                        (left_rsp || right_rsp, left.wrapping_add(right))
                    }
                    (0x1c, _, false) => (left_rsp, left.wrapping_sub(right)),
                    (_, false, false) => (false, binary(code, left, right)?),
                    _ => return None,
                }
            }
            _ => return None,
        };
        stack.push(value);
    }
    match stack.pop()? {
        (true, offset) => Some(offset),
        _ => None,
    }
}

/// Appends operations whose value is rsp, as it was before inserted code has moved it to `frame`, plus an offset. `None`
/// if the sum is too large.
pub(super) fn rsp_plus(offset: i64, frame: Frame, out: &mut Vec<u8>) -> Option<()> {
    const DEREF: u8 = 0x06;
    const CONSTS: u8 = 0x11;
    const PLUS: u8 = 0x22;
    const PLUS_UCONST: u8 = 0x23;
    out.push(0x70 + RSP);
    match frame {
        Frame::Below(depth) => leb128::push_signed(out, offset.checked_add(depth.into())?),
        Frame::Stored(at) => {
            leb128::push_signed(out, at.into());
            out.push(DEREF);
            // Some readers know no signed constants (Valgrind), and offsets are hardly ever negative.
            if let Ok(offset) = u64::try_from(offset) {
                out.push(PLUS_UCONST);
                leb128::push(out, offset);
            } else {
                out.push(CONSTS);
                leb128::push_signed(out, offset);
                out.push(PLUS);
            }
        }
        Frame::Base => return None,
    }
    Some(())
}

/// The expression for a place where inserted code has moved rsp to `frame`, and whether it uses rsp at all.
/// `None` if it cannot be adapted.
pub(super) fn adjusted(expression: &[u8], frame: Frame) -> Option<(Vec<u8>, bool)> {
    let mut c = Cursor::new(expression, 0, 0);
    let mut out = Vec::with_capacity(expression.len() + 4);
    let (mut uses_rsp, mut jumps) = (false, false);
    while !c.at_end() {
        let from = c.pos();
        match step(&mut c).ok()? {
            Op::Register(RSP, offset) => {
                rsp_plus(offset, frame, &mut out)?;
                uses_rsp = true;
                continue;
            }
            Op::Unknown => return None,
            _ => jumps |= matches!(expression[from], 0x28 | 0x2f),
        }
        out.extend_from_slice(&expression[from..c.pos()]);
    }
    // A jump counts bytes, whose number may have changed.
    (!(jumps && uses_rsp)).then_some((out, uses_rsp))
}

fn binary(code: u8, left: i64, right: i64) -> Option<i64> {
    let shift = u32::try_from(right).ok();
    Some(match code {
        0x1a => left & right,
        0x1e => left.wrapping_mul(right),
        0x21 => left | right,
        0x24 => left.checked_shl(shift?)?,
        0x25 => (left as u64).checked_shr(shift?)? as i64,
        0x27 => left ^ right,
        0x29 => i64::from(left == right),
        0x2a => i64::from(left >= right),
        0x2b => i64::from(left > right),
        0x2c => i64::from(left <= right),
        0x2d => i64::from(left < right),
        0x2e => i64::from(left != right),
        _ => return None,
    })
}

enum Op {
    Register(u8, i64),
    Constant(i64),
    AddConstant(i64),
    Binary(u8),
    /// An operation of which only the length is known.
    Other,
    Unknown,
}

fn step(c: &mut Cursor<'_>) -> Read<Op> {
    Ok(match c.u8()? {
        // Memory at the top of the stack; stack operations; unary operations.
        0x06 | 0x12..=0x14 | 0x16..=0x17 | 0x19 | 0x1f | 0x20 | 0x96 => Op::Other,
        0x03 => {
            c.u64()?;
            Op::Other
        }
        0x08 => Op::Constant(c.u8()?.into()),
        0x09 => Op::Constant((c.u8()? as i8).into()),
        0x0a => Op::Constant(c.u16()?.into()),
        0x0b => Op::Constant((c.u16()? as i16).into()),
        0x0c => Op::Constant(c.u32()?.into()),
        0x0d => Op::Constant((c.u32()? as i32).into()),
        0x0e | 0x0f => Op::Constant(c.u64()? as i64),
        0x10 => Op::Constant(c.uleb()? as i64),
        0x11 => Op::Constant(c.sleb()?),
        0x15 | 0x94 => {
            c.u8()?;
            Op::Other
        }
        0x23 => Op::AddConstant(c.uleb()? as i64),
        code @ (0x1a..=0x1e | 0x21 | 0x22 | 0x24..=0x27 | 0x29..=0x2e) => Op::Binary(code),
        0x28 | 0x2f => {
            c.u16()?;
            Op::Other
        }
        code @ 0x30..=0x4f => Op::Constant((code - 0x30).into()),
        code @ 0x50..=0x6f if code - 0x50 != RIP => Op::Other,
        code @ 0x70..=0x8f => Op::Register(code - 0x70, c.sleb()?),
        0x92 => {
            let register = c.uleb()?;
            let offset = c.sleb()?;
            Op::Register(u8::try_from(register).unwrap_or(u8::MAX), offset)
        }
        _ => Op::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Valgrind ends when it reads an operation that it does not know, as a signed constant is.
    #[test]
    fn a_stored_stack_pointer_has_an_unsigned_offset() {
        let written = |offset| {
            let mut out = Vec::new();
            rsp_plus(offset, Frame::Stored(16), &mut out).unwrap();
            out
        };
        assert_eq!(written(8), [0x77, 16, 0x06, 0x23, 8]);
        assert_eq!(written(200), [0x77, 16, 0x06, 0x23, 0xc8, 0x01]);
        assert_eq!(written(-8), [0x77, 16, 0x06, 0x11, 0x78, 0x22]);
    }
}
