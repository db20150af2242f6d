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

/// A number that is counted down, and a rare case where it becomes negative.
#[test]
fn the_rare_case_takes_back_the_one_store_before_it() {
    let with = |stores: usize, locked: bool| {
        let image = image(|a| {
            let mut rare = a.create_label();
            for i in 1..stores {
                a.inc(qword_ptr(rdi + 64 * i as i32)).unwrap();
            }
            if locked {
                a.lock().sub(qword_ptr(rdi), 5).unwrap()
            } else {
                a.sub(qword_ptr(rdi), 5).unwrap()
            }
            a.js(rare).unwrap();
            a.ret().unwrap();
            a.set_label(&mut rare).unwrap();
            a.syscall().unwrap();
            a.ret().unwrap();
        });
        Specialiser::new(&image).body(ENTRY, &[Bound::Address])
    };
    let body = with(1, false).unwrap();
    let End::Branch(_, sides) = &body.root.end else {
        panic!("{body:?}");
    };
    let [Op::Machine(store)] = &body.root.ops[..] else {
        panic!("{body:?}");
    };
    let rare = sides.iter().find(|side| side.end == End::Call).unwrap();
    assert_eq!(rare.ops, [Op::Machine(store.inverse().unwrap())]);
    assert_eq!(store.inverse().and_then(|op| op.inverse()), Some(*store));
    assert_ne!(store.inverse(), Some(*store));
    // Two stores are not taken back, and neither is one that other threads may have seen.
    assert!(with(2, false).is_none());
    assert!(with(1, true).is_none());
}
