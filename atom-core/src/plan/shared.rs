//! Out-of-line stubs that points share: wrappers around routines, and stubs for rare calls.

use super::Clobbers;
use super::code::{Asm, Home, assembler};
use super::inline;
use super::site::{self, Point, SiteCall};
use super::stub::Stub;
use super::wrapper::{Wrapper, Wrappers};
use crate::analysis::specialise::Specialiser;
use crate::live::RegSet;

/// Emits the shared code of a wrapper. Wrappers that it calls in turn are added at the list's end.
pub fn emit(
    wrapper: &Wrapper,
    bodies: Option<&Specialiser<'_>>,
    home: Home,
    absolute: bool,
    wrappers: &mut Wrappers,
) -> Asm {
    match &wrapper.stub {
        Some(stub) => {
            let mut asm = assembler(home);
            emit_stub(&mut asm, stub, wrapper, bodies, absolute, wrappers);
            asm
        }
        None => {
            let mut asm = assembler(home);
            wrapper.emit(&mut asm);
            asm
        }
    }
}

/// Emits the shared code of a rare call.
fn emit_stub(
    asm: &mut Asm,
    stub: &Stub,
    wrapper: &Wrapper,
    bodies: Option<&Specialiser<'_>>,
    absolute: bool,
    wrappers: &mut Wrappers,
) {
    let values = stub.values();
    let bounds: Vec<_> = values.iter().map(inline::bound).collect();
    let call = SiteCall {
        routine: wrapper.routine,
        clobbers: Clobbers {
            gprs: wrapper.gprs,
            xmms: wrapper.xmms,
            flags: true,
            mxcsr: wrapper.mxcsr,
            is_leaf: false,
            needs_alignment: wrapper.align,
            is_apart: wrapper.apart.is_some(),
        },
        body: bodies.and_then(|b| b.whole_body(wrapper.routine, &bounds)),
        values,
        common: 0,
    };
    let point = Point {
        live: if wrapper.flags {
            RegSet::ALL
        } else {
            RegSet::ALL.without(RegSet::FLAGS)
        },
        may_set_df: false,
        absolute,
        is_piece: true,
        free_below: true,
        is_private: false,
        pushed: 0,
    };
    let emitted = site::emit(asm, 0, &[call], point, wrappers);
    asm.ret_dropping(stub.back);
    emitted.join(asm, 0);
}
