//! The floating-point operations of an instruction, from its mnemonic and the size of its vector registers.

use std::ops::RangeInclusive;

use crate::{Inst, Operand, Reg};

/// The floating-point operations of one execution of an instruction.
///
/// Additions, subtractions, multiplications, divisions, square roots, reciprocals, minima and maxima are one operation
/// for each number of a vector, multiplications with addition two. Moves, conversions, roundings and comparisons are
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FloatOps {
    /// Size of a number in bits: 16, 32, 64, or 80 for the x87 unit.
    pub precision: u32,
    /// Size of the vectors in bits; 0 for an instruction that works on one number.
    pub vector: u32,
    /// How many numbers the vectors have.
    pub numbers: u32,
    /// Operations for each number.
    pub each: u32,
}

impl FloatOps {
    /// All operations; of a vector also for numbers that a mask leaves out.
    pub fn count(self) -> u64 {
        u64::from(self.numbers) * u64::from(self.each)
    }
}

impl Inst<'_> {
    /// Its floating-point operations; none if it has none.
    pub fn float_ops(&self) -> Option<FloatOps> {
        float_ops(self.mnemonic(), || vector_bits(&self.operands()))
    }
}

/// Operations of an instruction with this mnemonic; `width` gives the bits of its vectors.
fn float_ops(name: &str, width: impl FnOnce() -> u32) -> Option<FloatOps> {
    if let Some(x87) = name.strip_prefix('f') {
        return is_x87_operation(x87).then_some(FloatOps {
            precision: 80,
            vector: 0,
            numbers: 1,
            each: 1,
        });
    }
    let name = name.strip_prefix('v').unwrap_or(name);
    let (name, kind) = name.split_at_checked(name.len().checked_sub(2)?)?;
    let precision = match kind.as_bytes() {
        [_, b's'] => 32,
        [_, b'd'] => 64,
        [_, b'h'] => 16,
        _ => return None,
    };
    let each = match name {
        "add" | "sub" | "mul" | "div" | "sqrt" | "min" | "max" | "addsub" | "rcp" | "rsqrt"
        | "hadd" | "hsub" => 1,
        "rcp14" | "rsqrt14" | "rcp28" | "rsqrt28" => 1,
        // A product of vectors: multiplications, and additions of all but one.
        "dp" => 2,
        // Two products of half the size, and their additions.
        "dpbf16" => 4,
        _ => {
            let fused = name.strip_prefix("fn").or_else(|| name.strip_prefix('f'))?;
            match fused.trim_end_matches(['1', '2', '3']) {
                "madd" | "msub" | "maddsub" | "msubadd" => 2,
                _ => return None,
            }
        }
    };
    let (vector, numbers) = match kind.as_bytes()[0] {
        b's' => (0, 1),
        b'p' => {
            let bits = width();
            (bits, bits / precision)
        }
        _ => return None,
    };
    Some(FloatOps {
        precision,
        vector,
        numbers,
        each,
    })
}

/// Numbers of the vector registers.
const VECTORS: RangeInclusive<u32> = Reg::Xmm0.number()..=Reg::Xmm31.number();

/// Number of bits of the widest vector register among the operands, at least the 128 bits of an xmm register.
fn vector_bits(operands: &[Operand]) -> u32 {
    let bits = |operand: &Operand| match *operand {
        Operand::Register {
            reg: Some(reg),
            size,
            ..
        } if VECTORS.contains(&reg.number()) => size * 8,
        _ => 0,
    };
    operands.iter().map(bits).max().unwrap_or(0).max(128)
}

fn is_x87_operation(name: &str) -> bool {
    let name = name.strip_prefix('i').unwrap_or(name);
    let name = name.strip_suffix('p').unwrap_or(name);
    let name = name.strip_suffix('r').unwrap_or(name);
    matches!(name, "add" | "sub" | "mul" | "div" | "sqrt")
}

#[cfg(test)]
mod tests {
    use super::float_ops;

    #[test]
    fn operations_are_counted() {
        for (name, bits, operations) in [
            ("addsd", 128, 1),
            ("mulps", 128, 4),
            ("vaddpd", 256, 4),
            ("vfmadd231ps", 512, 32),
            ("vfnmsub132sd", 128, 2),
            ("vfmaddsub213pd", 128, 4),
            ("sqrtss", 128, 1),
            ("faddp", 128, 1),
            ("fisubr", 128, 1),
            ("fdivrp", 128, 1),
            ("fld", 128, 0),
            ("fxch", 128, 0),
            ("movaps", 128, 0),
            ("cvtsi2sd", 128, 0),
            ("comisd", 128, 0),
            ("paddd", 128, 0),
            ("add", 128, 0),
            ("vaddsubps", 256, 8),
            ("vdpbf16ps", 512, 64),
            ("ret", 128, 0),
            ("vs", 128, 0),
        ] {
            let found = float_ops(name, || bits);
            assert_eq!(found.map_or(0, |ops| ops.count()), operations, "{name}");
        }
    }
}
