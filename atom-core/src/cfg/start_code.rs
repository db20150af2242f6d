//! Functions that a program's start code passes to the C library: `main`, initialiser and finaliser.
//!
//! In a stripped program without unwind tables nothing else leads to `main`. The start code of glibc and of musl is
//! known by its form, so what it passes is the address of code for certain, also in static programs, where the callee
//! has no name.

use object::elf;

use super::pointers::word_at;
use crate::image::Image;
use crate::x86::jump_table::constant;
use crate::x86::{ControlFlow, Instruction, Mnemonic, OpKind, Register, Run, flow_of};

/// Number of instructions of start code at most.
const LONGEST: usize = 32;

/// The registers with functions: `main`, initialiser and finaliser.
const PASSED: [Register; 3] = [Register::RDI, Register::RCX, Register::R8];

/// What straight code does up to a call or a jump.
#[derive(Default)]
struct Start {
    /// The constants in [`PASSED`].
    passed: [Option<u64>; 3],
    /// True if rdx, in which the kernel and the dynamic loader pass a finaliser, went to r9, the sixth argument.
    passes_finaliser: bool,
    /// True if the number of arguments was taken from the stack to rsi, the second argument.
    pops_count: bool,
    /// True if the stack's top went to rdi, the first argument.
    passes_stack: bool,
    /// Target of the call or jump, if it is direct.
    target: Option<u64>,
    /// True if `hlt` follows the call.
    is_last: bool,
}

/// The functions that the start code passes to the C library.
pub(super) fn functions(image: &Image) -> Vec<u64> {
    let Some(start) = image.entry.and_then(|entry| read(image, entry)) else {
        return Vec::new();
    };
    let is_glibc = start.passes_finaliser && start.pops_count && start.is_last;
    let passed = match is_glibc {
        true => Some(start.passed),
        false if start.passes_stack => start.target.and_then(|target| of_musl(image, target)),
        false => None,
    };
    let all = passed.into_iter().flatten().flatten();
    all.filter(|address| image.is_code(*address)).collect()
}

/// What musl's start code in C passes: it is called with the stack's top, and passes `_init` and `_fini` besides `main`.
fn of_musl(image: &Image, address: u64) -> Option<[Option<u64>; 3]> {
    let ends = [(".init", elf::DT_INIT), (".fini", elf::DT_FINI)].map(|(name, tag)| {
        let section = image.section(name).map(|section| section.address);
        section.or_else(|| image.dynamic_value(tag))
    });
    let passed = read(image, address)?.passed;
    let is_right = ends.iter().all(Option::is_some) && passed[1..] == ends;
    is_right.then_some(passed)
}

/// Reads straight code up to a call or a jump.
fn read(image: &Image, address: u64) -> Option<Start> {
    let mut start = Start::default();
    let mut run = Run::new(image.rest_at(address)?, address);
    let mut i = Instruction::default();
    for _ in 0..LONGEST {
        if !run.next_into(&mut i) {
            return None;
        }
        match flow_of(&i) {
            ControlFlow::FallThrough => start.note(image, &i),
            ControlFlow::Call | ControlFlow::Jump => {
                start.target = Some(i.near_branch_target());
                break;
            }
            ControlFlow::IndirectCall => break,
            _ => return None,
        }
    }
    start.is_last = run.next_into(&mut i) && i.mnemonic() == Mnemonic::Hlt;
    Some(start)
}

impl Start {
    /// Notes what an instruction does.
    fn note(&mut self, image: &Image, i: &Instruction) {
        if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
            return;
        }
        let to = i.op0_register().full_register();
        let from = match (i.mnemonic(), i.op_count()) {
            (Mnemonic::Mov, 2) if i.op1_kind() == OpKind::Register => i.op1_register(),
            _ => Register::None,
        };
        self.pops_count |= i.mnemonic() == Mnemonic::Pop && to == Register::RSI;
        self.passes_finaliser |= from == Register::RDX && to == Register::R9;
        self.passes_stack |= from == Register::RSP && to == Register::RDI;
        if let Some(n) = PASSED.iter().position(|r| *r == to) {
            self.passed[n] = match i.mnemonic() {
                Mnemonic::Lea if i.is_ip_rel_memory_operand() => Some(i.ip_rel_memory_address()),
                Mnemonic::Mov if i.is_ip_rel_memory_operand() => {
                    word_at(image, i.ip_rel_memory_address())
                }
                Mnemonic::Mov if i.op1_kind() != OpKind::Memory => constant(i),
                _ => None,
            };
        }
    }
}
