//! Compiled code that runs on stacks of a language's runtime.
//!
//! Procedures of Poly/ML begin with a comparison of rsp with a limit, to which a register of the runtime leads; small ones
//! need no comparison, as 400 bytes are free below the limit. Inserted code and what it calls may need more, and no page
//! guards the end of such a stack. Go's functions and OCaml's have rules of their own.

use rayon::prelude::*;

use super::seeds::FrameFacts;
use super::traverse::Body;
use crate::image::Image;

/// Number of instructions of a procedure among which the comparison is.
const BEGINNING: usize = 4;

/// Smallest number of procedures with a comparison that shows what the code between them is.
const FEWEST: usize = 8;

/// Numbers of the bodies that may run on such a stack: those without a frame description between the first and the last
/// one with a comparison.
pub(super) fn limited(image: &Image, frames: &FrameFacts, bodies: &[Box<Body>]) -> Vec<usize> {
    if !frames.go.is_empty() {
        return Vec::new();
    }
    let is_described = |body: &Body| {
        let after = frames.ranges.partition_point(|r| r.start <= body.start);
        after > 0 && body.start < frames.ranges[after - 1].end
    };
    let compares = |body: &Body| {
        let mut insts = body.insts.iter().take(BEGINNING);
        insts.any(|inst| {
            let pc = image.base + u64::from(inst.offset);
            let bytes = image.bytes_at(pc, inst.len.into());
            bytes.is_some_and(is_comparison)
        })
    };
    let is_checked = |body: &Body| !is_described(body) && compares(body);
    let numbers = bodies.par_iter().enumerate();
    let checked: Vec<usize> = numbers
        .filter(|(_, body)| is_checked(body))
        .map(|(i, _)| i)
        .collect();
    let (&[first, ..], &[.., last]) = (&checked[..], &checked[..]) else {
        return Vec::new();
    };
    if checked.len() < FEWEST {
        return Vec::new();
    }
    (first..=last)
        .filter(|i| !is_described(&bodies[*i]))
        .collect()
}

/// True for `cmp rsp, [register + displacement]` and for the same with exchanged operands.
fn is_comparison(bytes: &[u8]) -> bool {
    const SP: u8 = 4;
    let &[rex, 0x39 | 0x3b, modrm, ref rest @ ..] = bytes else {
        return false;
    };
    // REX.W without REX.R: the register operand is rsp.
    let is_wide = rex & 0xfc == 0x48;
    let (mode, reg, base) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let has_register = match (mode, base) {
        (3, _) | (0, 5) => false,
        (0, SP) => rest.first().is_some_and(|sib| sib & 7 != 5),
        _ => true,
    };
    is_wide && reg == SP && has_register
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_of_rsp_with_a_limit_are_told() {
        let yes: [&[u8]; 4] = [
            &[0x48, 0x3b, 0x65, 0x18],       // cmp rsp, [rbp+0x18]
            &[0x49, 0x3b, 0x66, 0x10],       // cmp rsp, [r14+0x10]
            &[0x48, 0x39, 0x23],             // cmp [rbx], rsp
            &[0x49, 0x3b, 0x64, 0x24, 0x08], // cmp rsp, [r12+8]
        ];
        let no: [&[u8]; 5] = [
            &[0x48, 0x39, 0xc4],                        // cmp rsp, rax
            &[0x48, 0x3b, 0x25, 0, 0, 0, 0],            // cmp rsp, [rip]
            &[0x64, 0x48, 0x3b, 0x24, 0x25, 112, 0, 0], // cmp rsp, fs:[112]
            &[0x4c, 0x3b, 0x65, 0x18],                  // cmp r12, [rbp+0x18]
            &[0x3b, 0x65, 0x18],                        // cmp esp, [rbp+0x18]
        ];
        assert!(yes.iter().all(|bytes| is_comparison(bytes)));
        assert!(no.iter().all(|bytes| !is_comparison(bytes)));
    }
}
