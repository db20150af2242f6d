//! Conventions: what holds at calls and returns whose other side is not known.
//!
//! Code in C and its like keeps to the System V ABI. Functions of Go keep to Go's internal ABI:
//! arguments and results are in rax, rbx, rcx, rdi, rsi, r8 to r11 and xmm0 to xmm14, rdx has the
//! closure, r14 the goroutine, and xmm15 is zero. A callee may change all others. So at a return of a
//! function of Go, rdx, r12, r13, r15 and the flags are dead, and all but rdx are dead at its entry.
//!
//! Go's runtime goes from goroutine to goroutine with jumps through a saved address, which is a function's entry or is
//! after a call. Both expect no more than an entry does.
//!
//! OCaml's code passes arguments in up to ten general registers, rbx, rbp, r12 and r13 among them.
//!
//! Functions of Go that were written in assembly do not all keep to it:
//!
//! - Those that are called directly may have conventions of their own, which the solver finds as it finds those of C
//!   (see `graph.rs`).
//! - C and the kernel may call some, which then keep what the System V ABI says.
//! - `runtime.asyncPreempt`, which the runtime makes a thread call at any instruction, keeps all registers. It is known by
//!   restoring the flags with `popfq`.
//! - `runtime.gcWriteBarrier` and its like keep all registers by storing and loading them, which does not mean that
//!   their values matter.

use super::RegSet;
use crate::cfg::Proc;
use crate::unwind::go::Origin;

/// Registers that carry results of a function of Go.
const GO_RESULTS: RegSet = RegSet(0x0fcb | 0x7fff << 16);
/// Registers that carry arguments of a function of Go that is called through a pointer.
const GO_ARGUMENTS: RegSet = GO_RESULTS.with(RegSet::gpr(2));
/// Registers that a function of Go keeps: rsp, rbp, r14 and xmm15.
const GO_KEPT: RegSet = RegSet(1 << 4 | 1 << 5 | 1 << 14 | 1 << 31);
/// Registers that count as live everywhere in a program of Go: rsp, and rbp, since the runtime follows the frame pointers
/// of interrupted code.
pub const ALWAYS_IN_GO: RegSet = RegSet(1 << 4 | 1 << 5);
/// What begins the names of functions that keep all registers but store them.
const KEEPING: &str = "runtime.gcWriteBarrier";

/// What may be live at the entry of a function of Go that is entered through a pointer.
pub const AT_GO_ENTRY: RegSet = GO_ARGUMENTS.with(GO_KEPT);

/// What is live before a call through a pointer in code of Go, from what is live after it. The callee may be a function of C,
/// such as the vDSO's, whose caller relies on what the System V ABI keeps.
pub fn before_go_pointer(after: RegSet) -> RegSet {
    AT_GO_ENTRY | (after & RegSet::CALLEE_SAVED)
}

/// What is live before the call of a function that keeps all registers, from what is live at its entry as the code tells, and
/// after it. Its arguments are in general registers.
pub fn before_keeping(at_entry: RegSet, after: RegSet) -> RegSet {
    (at_entry & AT_GO_ENTRY & RegSet::GPRS) | after
}

/// The convention of a procedure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Convention {
    /// What is live at a return whatever the known callers read.
    pub at_return: RegSet,
    /// What is live before a direct call of the procedure, whatever its code reads: unwinding finds the values of registers
    /// that callees keep. Go's needs none.
    pub at_call: RegSet,
    /// True for a function of Go.
    pub is_go: bool,
    /// True for one that Go's compiler wrote. What is live at its entry and returns follows from the convention alone.
    pub is_compiled: bool,
    /// True if the procedure's returns and calls through pointers are not understood.
    pub is_open: bool,
    /// True if the procedure keeps all registers, although it stores them.
    pub keeps_all: bool,
}

impl Default for Convention {
    fn default() -> Self {
        Self::SYSTEM_V
    }
}

impl Convention {
    /// The System V ABI's, with the registers in which LLVM returns larger values.
    pub const SYSTEM_V: Self = Self {
        at_return: RegSet::CALLEE_SAVED.with(RegSet::RESULTS),
        at_call: RegSet::CALLEE_SAVED,
        is_go: false,
        is_compiled: false,
        is_open: false,
        keeps_all: false,
    };

    /// The convention of OCaml's code, which passes arguments in more registers than the System V ABI.
    pub const OCAML: Self = Self {
        at_return: RegSet::ALL,
        is_open: true,
        ..Self::SYSTEM_V
    };

    /// The convention of a procedure in a program of Go.
    pub fn in_go(proc: &Proc) -> Self {
        let at_return = GO_RESULTS.with(GO_KEPT);
        let name = proc.name.as_deref().unwrap_or_default();
        let go = Self {
            at_return,
            at_call: GO_KEPT,
            is_go: true,
            is_compiled: true,
            is_open: false,
            keeps_all: false,
        };
        match proc.go_origin {
            Origin::Go => go,
            Origin::Assembly => Self {
                at_return: at_return | RegSet::CALLEE_SAVED,
                is_compiled: false,
                keeps_all: name.starts_with(KEEPING),
                ..go
            },
            // Code of Go may call it.
            Origin::Other => Self {
                at_return: RegSet::ALL,
                at_call: RegSet::CALLEE_SAVED,
                is_go: false,
                is_compiled: false,
                is_open: true,
                ..go
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_at_returns_of_go() {
        let at_return = GO_RESULTS | GO_KEPT;
        let dead: Vec<usize> = (0..32)
            .filter(|n| !at_return.contains(RegSet(1 << n)))
            .collect();
        assert_eq!(dead, [2, 12, 13, 15]);
        assert!(!at_return.intersects(RegSet::FLAGS));
    }

    #[test]
    fn kept_over_calls_of_the_vdso() {
        let r12 = RegSet::gpr(12);
        assert!(before_go_pointer(r12).contains(r12));
        assert!(!before_go_pointer(RegSet::FLAGS).intersects(r12 | RegSet::FLAGS));
    }

    #[test]
    fn kept_over_write_barriers() {
        let kept = RegSet::xmm(3) | RegSet::gpr(13);
        let before = before_keeping(RegSet::ALL, kept);
        assert!(before.contains(kept | RegSet::gpr(7)));
        assert!(!before.intersects(RegSet::gpr(12) | RegSet::FLAGS));
    }
}
