//! Small routines, as compilers make them, and their bodies.

use crate::x86::assembler::code_asm::*;

use super::ops::{Base, Symbol};
use super::*;

const ENTRY: u64 = 0x1000;
const DATA: u64 = 0x3000;

/// Makes an image with one function at [`ENTRY`] and data at [`DATA`].
pub fn image(write: impl FnOnce(&mut CodeAssembler)) -> AnalysisImage {
    let mut asm = CodeAssembler::new(64).unwrap();
    write(&mut asm);
    let code = asm.assemble(ENTRY).unwrap();
    let end = ENTRY + code.len() as u64;
    let mut text = vec![0; ENTRY as usize];
    text.extend(code);
    let functions = std::iter::once(ENTRY..end).collect();
    AnalysisImage::for_test(text, functions, DATA, 0x1000)
}

fn count(argument: u8, offset: i64, amount: i64, locked: bool) -> Count {
    Count {
        cell: Symbol {
            base: Base::Argument(argument),
            offset,
        },
        amount: Known::Number(amount as u64),
        locked,
    }
}

#[test]
fn counting_a_block_is_a_pure_counter() {
    for locked in [false, true] {
        let image = image(|a| {
            if locked {
                a.lock().inc(qword_ptr(rdi)).unwrap();
            } else {
                a.inc(qword_ptr(rdi)).unwrap();
            }
            a.ret().unwrap();
        });
        let bodies = Specialiser::new(&image);
        let body = bodies.body(ENTRY, &[Bound::Address]).unwrap();
        assert_eq!(body.counts(), Some(vec![count(0, 0, 1, locked)]));
        let again = bodies.body(ENTRY, &[Bound::Address]).unwrap();
        assert!(Arc::ptr_eq(&body, &again));
        // An address that is known only at run time does not belong to a counter.
        let body = bodies.body(ENTRY, &[Bound::Input]).unwrap();
        assert_eq!(body.counts(), None);
    }
}

/// Routine of the tool `branch`, with one cell for each direction.
#[test]
fn counting_a_branch_is_a_pure_counter_for_each_direction() {
    let image = image(|a| {
        a.xor(eax, eax).unwrap();
        a.test(rsi, rsi).unwrap();
        a.setne(al).unwrap();
        a.inc(qword_ptr(rdi + rax * 8)).unwrap();
        a.ret().unwrap();
    });
    let bodies = Specialiser::new(&image);
    for (taken, offset) in [(0, 0), (1, 8), (77, 8)] {
        let body = bodies.body(ENTRY, &[Bound::Address, Bound::Const(taken)]);
        let counts = body.unwrap().counts();
        assert_eq!(counts, Some(vec![count(0, offset, 1, false)]));
    }
    let body = bodies.body(ENTRY, &[Bound::Address, Bound::Input]).unwrap();
    assert_eq!(body.counts(), None);
    assert_eq!(body.inputs.len(), 1, "{body:?}");
}

#[test]
fn a_constant_whose_value_does_not_matter_is_not_part_of_the_shape() {
    let image = image(|a| {
        a.add(qword_ptr(rdi), rsi).unwrap();
        a.sub(qword_ptr(rdi + 8), 5).unwrap();
        a.ret().unwrap();
    });
    let bodies = Specialiser::new(&image);
    let body = |n| {
        bodies
            .body(ENTRY, &[Bound::Address, Bound::Const(n)])
            .unwrap()
    };
    assert!(Arc::ptr_eq(&body(1), &body(2)));
    let mut first = count(0, 0, 0, false);
    first.amount = Known::Symbol(Symbol {
        base: Base::Argument(1),
        offset: 0,
    });
    assert_eq!(body(1).counts(), Some(vec![first, count(0, 8, -5, false)]));
}
