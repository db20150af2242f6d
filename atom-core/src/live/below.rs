//! Whether a procedure keeps anything below rsp.
//!
//! The System V ABI lets a procedure use the 128 bytes below rsp (the red zone), and only
//! procedures that call nothing can. What lies there is reached from rsp with a
//! negative displacement, or from a copy of rsp, such as the frame pointer. A procedure in
//! which neither occurs leaves the place free for inserted code. In doubt it is not free: where
//! others enter in the middle, or where some of the code is not known.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::cfg::{Cfg, ProcKind, Status};
use crate::decode::Flow;
use crate::ids::ProcId;
use crate::image::Image;

/// What a procedure's instructions do with addresses on the stack.
#[derive(Default)]
struct Uses {
    /// Memory below rsp, or nobody knows.
    below: bool,
    /// rsp is copied to another register.
    copied: bool,
    /// Memory below what another register points to.
    below_others: bool,
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
                    if !is_stack(instruction.memory_base()) {
                        self.below_others |= is_negative;
                    } else if !(is_lea && moves_stack) {
                        let has_index = instruction.memory_index() != Register::None;
                        self.below |= is_negative || has_index;
                        self.copied |= is_lea;
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
    }
}

/// True if nothing below rsp is the program's, wherever in the procedure.
pub fn is_free_below(image: &Image, cfg: &Cfg, id: ProcId) -> bool {
    let proc = cfg.proc(id);
    if proc.kind != ProcKind::Normal || proc.status != Status::Full {
        return false;
    }
    let mut uses = Uses::default();
    let mut calls = false;
    for b in proc.blocks() {
        if cfg.block(b).is_entry && b != proc.first_block {
            return false;
        }
        for (inst, instruction) in cfg.block(b).insts().zip(cfg.decode_block(image, b)) {
            calls |= matches!(cfg.inst(inst).flow, Flow::Call | Flow::IndirectCall);
            uses.add(&instruction);
            if uses.below {
                return false;
            }
        }
    }
    calls || !uses.copied || !uses.below_others
}
