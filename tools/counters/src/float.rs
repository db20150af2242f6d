//! The number of floating-point operations of an instruction, from its mnemonic and the size of its
//! vector registers.
//!
//! Additions, subtractions, multiplications, divisions, square roots, minima and maxima
//! count one for each number of a vector, multiplications with addition two, also for numbers
//! that a mask leaves out. Moves, conversions and comparisons count none.

use std::ops::RangeInclusive;

use atom_tool::{Inst, Operand, Reg};

/// Operations of one execution of an instruction.
pub fn operations(inst: Inst<'_>) -> u64 {
    count(inst.mnemonic(), || vector_bits(&inst.operands()))
}

/// Operations of an instruction with this mnemonic; `width` gives the bits of its vectors.
fn count(name: &str, width: impl FnOnce() -> u64) -> u64 {
    if let Some(x87) = name.strip_prefix('f') {
        return x87_operations(x87);
    }
    let name = name.strip_prefix('v').unwrap_or(name);
    let Some((name, kind)) = name.split_at_checked(name.len().saturating_sub(2)) else {
        return 0;
    };
    let bits = match kind.as_bytes() {
        [_, b's'] => 32,
        [_, b'd'] => 64,
        [_, b'h'] => 16,
        _ => return 0,
    };
    let numbers = match kind.as_bytes()[0] {
        b's' => 1,
        b'p' => width() / bits,
        _ => return 0,
    };
    let each = match name {
        "add" | "sub" | "mul" | "div" | "sqrt" | "min" | "max" | "addsub" | "rcp" | "rsqrt"
        | "hadd" | "hsub" => 1,
        "rcp14" | "rsqrt14" | "rcp28" | "rsqrt28" => 1,
        // A product of vectors: multiplications, and additions of all but one.
        "dp" => 2,
        _ => {
            let fused = name.strip_prefix("fn").or_else(|| name.strip_prefix('f'));
            let fused = fused.map(|rest| rest.trim_end_matches(['1', '2', '3']));
            match fused {
                Some("madd" | "msub" | "maddsub" | "msubadd") => 2,
                _ => 0,
            }
        }
    };
    numbers * each
}

/// Numbers of the vector registers.
const VECTORS: RangeInclusive<u32> = Reg::Xmm0.number()..=Reg::Xmm31.number();

/// Number of bits of the widest vector register among the operands, at least the 128 bits of an xmm register.
fn vector_bits(operands: &[Operand]) -> u64 {
    let bits = |operand: &Operand| match *operand {
        Operand::Register {
            reg: Some(reg),
            size,
            ..
        } if VECTORS.contains(&reg.number()) => u64::from(size) * 8,
        _ => 0,
    };
    operands.iter().map(bits).max().unwrap_or(0).max(128)
}

fn x87_operations(name: &str) -> u64 {
    let name = name.strip_prefix('i').unwrap_or(name);
    let name = name.strip_suffix('p').unwrap_or(name);
    let name = name.strip_suffix('r').unwrap_or(name);
    match name {
        "add" | "sub" | "mul" | "div" | "sqrt" => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::count;

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
            ("ret", 128, 0),
            ("vs", 128, 0),
        ] {
            assert_eq!(count(name, || bits), operations, "{name}");
        }
    }
}
