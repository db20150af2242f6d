//! How many operations on floating-point numbers an instruction makes, from its text.
//!
//! Additions, subtractions, multiplications, divisions, square roots, minima and maxima
//! count one for each number of a vector, multiplications with addition two, also for numbers
//! that a mask leaves out. Moves, conversions and comparisons count none.

/// Operations, given the instruction in words.
pub fn operations(text: &str) -> u64 {
    let (name, operands) = text.split_once(' ').unwrap_or((text, ""));
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
        b'p' => width(operands) / bits,
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

/// Bits of the widest vector register that is named.
fn width(operands: &str) -> u64 {
    match () {
        _ if operands.contains("zmm") => 512,
        _ if operands.contains("ymm") => 256,
        _ => 128,
    }
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
    use super::operations;

    #[test]
    fn operations_are_counted() {
        for (text, count) in [
            ("addsd xmm0,xmm1", 1),
            ("mulps xmm0,[rdi]", 4),
            ("vaddpd ymm0,ymm1,ymm2", 4),
            ("vfmadd231ps zmm0,zmm1,[rax]", 32),
            ("vfnmsub132sd xmm0,xmm1,xmm2", 2),
            ("vfmaddsub213pd xmm0,xmm1,xmm2", 4),
            ("sqrtss xmm1,xmm1", 1),
            ("faddp st1,st0", 1),
            ("fisubr dword [rax]", 1),
            ("fdivrp st1,st0", 1),
            ("fld qword [rax]", 0),
            ("fxch st0,st1", 0),
            ("movaps xmm0,xmm1", 0),
            ("cvtsi2sd xmm0,eax", 0),
            ("comisd xmm0,xmm1", 0),
            ("paddd xmm0,xmm1", 0),
            ("add rax,rcx", 0),
            ("vaddsubps ymm0,ymm1,ymm2", 8),
            ("ret", 0),
            ("vs", 0),
        ] {
            assert_eq!(operations(text), count, "{text}");
        }
    }
}
