//! Whether a procedure keeps anything below rsp.
//!
//! The System V ABI lets a procedure use the 128 bytes below rsp (the red zone); only a
//! procedure that calls nothing can do so. Data there is reached from rsp with a
//! negative displacement, through a copy of rsp, such as the frame pointer, or by lowering rsp
//! below the data. A procedure in which none of these occurs leaves the red zone free for inserted
//! code. In doubt it counts as not free: where other procedures enter in the middle, where some of
//! the code is not known, and where control goes to the middle of another procedure. That procedure
//! may read data left in the red zone, as a cold part of a procedure that calls nothing can look like a
//! procedure of its own.

use crate::cfg::{Cfg, ProcKind, Status, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::x86::{ControlFlow, Instruction, Mnemonic, OpKind, Register};

/// How a procedure's instructions use addresses on the stack.
#[derive(Default)]
struct Uses {
    /// Memory below rsp is used, or that cannot be excluded.
    below: bool,
    /// rsp is copied to another register.
    copied: bool,
    /// The block has raised rsp. If it lowers rsp again, it can reach the data that lay there.
    raised: bool,
}

impl Uses {
    fn add(&mut self, instruction: &Instruction) {
        let is_stack = |r: Register| r.is_gpr() && r.full_register() == Register::RSP;
        let moves_stack =
            instruction.op0_kind() == OpKind::Register && is_stack(instruction.op0_register());
        for operand in 0..instruction.op_count() {
            match instruction.op_kind(operand) {
                OpKind::Memory => {
                    let is_negative = (instruction.memory_displacement64() as i64) < 0;
                    let is_lea = instruction.mnemonic() == Mnemonic::Lea;
                    if is_stack(instruction.memory_base()) && !(is_lea && moves_stack) {
                        let has_index = instruction.memory_index() != Register::None;
                        self.below |= is_negative;
                        // An address with an index may lead anywhere, as one made from a copy may.
                        self.copied |= is_lea || has_index;
                    }
                }
                OpKind::Register if is_stack(instruction.op_register(operand)) => {
                    match instruction.mnemonic() {
                        Mnemonic::Xchg | Mnemonic::Xadd | Mnemonic::Cmpxchg => self.below = true,
                        _ if operand == 0 => {}
                        _ => self.copied = true,
                    }
                }
                _ => {}
            }
        }
        self.copied |= instruction.mnemonic() == Mnemonic::Enter;
        let change = match instruction.mnemonic() {
            Mnemonic::Pop => 1,
            Mnemonic::Lea if moves_stack => instruction.memory_displacement64() as i64,
            Mnemonic::Add if moves_stack => instruction.try_immediate(1).unwrap_or(0) as i64,
            Mnemonic::Sub if moves_stack => {
                (instruction.try_immediate(1).unwrap_or(1) as i64).saturating_neg()
            }
            _ => 0,
        };
        self.below |= self.raised && change < 0;
        self.raised |= change > 0;
    }
}

/// True if the program keeps nothing below rsp at any place of the procedure.
pub fn is_free_below(image: &Image, cfg: &Cfg, id: ProcId) -> bool {
    let proc = cfg.proc(id);
    if proc.is_go {
        return keeps_go(image, cfg, id);
    }
    // Binding at the first call, which an entry of the PLT may lead to, overwrites what is below rsp.
    if proc.kind == ProcKind::Plt {
        return true;
    }
    if proc.kind != ProcKind::Normal || proc.status != Status::Full {
        return false;
    }
    let mut uses = Uses::default();
    let mut calls = false;
    for b in proc.blocks() {
        if cfg.block(b).is_entry && b != proc.first_block {
            return false;
        }
        let mut ends_in_call = false;
        uses.raised = false;
        for (inst, instruction) in cfg.block(b).insts().zip(cfg.decode_block(image, b)) {
            ends_in_call = matches!(
                cfg.inst(inst).flow,
                ControlFlow::Call | ControlFlow::IndirectCall
            );
            calls |= ends_in_call;
            uses.add(&instruction);
            if uses.below {
                return false;
            }
        }
        // No data below rsp outlives a call. The bytes after the procedure's last call are often
        // no code at all, because the callee never returns.
        if !ends_in_call && cfg.succs(b).iter().any(|succ| leads_into(cfg, *succ)) {
            return false;
        }
    }
    calls || !uses.copied
}

/// What the names of the functions begin with that a debugger calls in a program of Go, with a number below rsp.
const DEBUG_CALL: &str = "runtime.debugCallV";

/// The same for a function of Go. Go's convention has no red zone, and the check of the stack's size computes addresses
/// below rsp without using them. But a caller of `duffzero` and `duffcopy`, which it enters in the middle, keeps
/// rbp below the return address, and a debugger leaves a number there for [`DEBUG_CALL`].
fn keeps_go(image: &Image, cfg: &Cfg, id: ProcId) -> bool {
    let proc = cfg.proc(id);
    let is_entered_inside = |b: BlockId| cfg.block(b).is_entry && b != proc.first_block;
    let is_below = |i: &Instruction| {
        let by_stack = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory)
            && i.memory_base() == Register::RSP
            && (i.memory_displacement64() as i64) < 0;
        let is_used = i.mnemonic() != Mnemonic::Lea || i.op0_register() == Register::RBP;
        by_stack && is_used
    };
    let uses = |b: BlockId| cfg.decode_block(image, b).any(|i| is_below(&i));
    let is_debug_call = proc
        .name
        .as_ref()
        .is_some_and(|n| n.starts_with(DEBUG_CALL));
    !is_debug_call && !proc.blocks().any(|b| is_entered_inside(b) || uses(b))
}

/// True if control goes to another procedure, but not to its start.
fn leads_into(cfg: &Cfg, succ: Succ) -> bool {
    let Succ::Tail(target) = succ else {
        return false;
    };
    let target = target.get();
    cfg.proc_at(target)
        .is_none_or(|proc| cfg.proc(proc).start != target)
}

#[cfg(test)]
mod tests {
    use super::Uses;
    use crate::x86::assembler::code_asm::*;

    fn uses(
        write: impl Fn(&mut CodeAssembler) -> Result<(), crate::x86::assembler::IcedError>,
    ) -> Uses {
        let mut asm = CodeAssembler::new(64).unwrap();
        write(&mut asm).unwrap();
        let mut uses = Uses::default();
        for instruction in asm.instructions() {
            uses.add(instruction);
        }
        uses
    }

    #[test]
    fn what_lies_below_is_seen() {
        assert!(uses(|a| a.mov(qword_ptr(rsp - 8), rax)).below);
        assert!(uses(|a| a.lea(rdi, qword_ptr(rsp - 24))).below);
        assert!(uses(|a| a.xchg(rsp, rdi)).below);
    }

    #[test]
    fn what_was_popped_may_be_needed_again() {
        assert!(
            uses(|a| {
                a.pop(qword_ptr(r14 + 8))?;
                a.sub(rsp, 8)
            })
            .below
        );
        assert!(
            uses(|a| {
                a.add(rsp, 16)?;
                a.lea(rsp, qword_ptr(rsp - 16))
            })
            .below
        );
    }

    #[test]
    fn a_frame_of_its_own_is_not_below() {
        let frame = uses(|a| {
            a.push(rbx)?;
            a.sub(rsp, 32)?;
            a.mov(qword_ptr(rsp + 8), rdi)?;
            a.lea(rsp, qword_ptr(rsp - 16))?;
            a.mov(rax, qword_ptr(rdi - 8))?;
            a.pop(rbx)
        });
        assert!(!frame.below && !frame.copied);
    }

    #[test]
    fn a_frame_pointer_is_a_copy() {
        let frame = uses(|a| {
            a.mov(rbp, rsp)?;
            a.mov(dword_ptr(rbp - 4), edi)
        });
        assert!(!frame.below && frame.copied);
        assert!(uses(|a| a.lea(rax, qword_ptr(rsp + 8))).copied);
        assert!(uses(|a| a.add(rax, rsp)).copied);
        assert!(uses(|a| a.mov(eax, dword_ptr(rsp + rcx * 4))).copied);
        assert!(uses(|a| a.mov(eax, dword_ptr(rsp + rcx * 4 - 64))).below);
    }
}
