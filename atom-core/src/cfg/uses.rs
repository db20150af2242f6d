//! Uses of a computed address: what code does with an address tells whether data or code is there.
//!
//! An address that serves as the base of loads is the address of data. An address to which control goes, or which
//! is passed to a function of the C library as a function, is the address of code: nothing else would run.

use crate::image::Image;
use crate::x86::abi::CALLEE_SAVED;
use crate::x86::{
    ConditionCode, ControlFlow, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, Run, decode_at, flow_of, plt,
};

/// Number of instructions for which the uses of an address are followed at most.
const FOLLOWED: usize = 256;

/// What code does with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// It is the base of a memory operand.
    Data,
    /// Control goes there.
    Code,
    /// Control goes to the sum of the address and something else.
    NearCode,
    /// No use is certain.
    Unknown,
}

/// The registers that hold an address, as bits by number.
#[derive(Clone, Copy, Default)]
struct Holders {
    /// The registers with the address itself.
    exact: u16,
    /// The registers with the sum of the address and something else.
    sum: u16,
}

impl Holders {
    fn all(self) -> u16 {
        self.exact | self.sum
    }

    fn keep(&mut self, mask: u16) {
        self.exact &= mask;
        self.sum &= mask;
    }

    /// What a jump or a call through registers in `mask` makes of the address.
    fn entered(self, mask: u16) -> Option<Use> {
        match mask {
            _ if self.exact & mask != 0 => Some(Use::Code),
            _ if self.sum & mask != 0 => Some(Use::NearCode),
            _ => None,
        }
    }
}

fn bit(register: Register) -> u16 {
    match register.full_register() {
        r if r.is_gpr64() => 1 << r.number(),
        _ => 0,
    }
}

/// What happens to the address that an instruction puts into a register: follows the register and its copies as long
/// as control is certain to go the same way or continues.
pub(super) fn use_of(image: &Image, instruction: &Instruction) -> Use {
    if instruction.op0_kind() != OpKind::Register {
        return Use::Unknown;
    }
    let mut factory = InstructionInfoFactory::new();
    let mut holders = Holders {
        exact: bit(instruction.op0_register()),
        sum: 0,
    };
    let mut pc = instruction.next_ip();
    let mut run = Run::new(image.rest_at(pc).unwrap_or(&[]), pc);
    let mut i = Instruction::default();
    for _ in 0..FOLLOWED {
        if holders.all() == 0 || !run.next_into(&mut i) {
            return Use::Unknown;
        }
        let info = factory.info(&i);
        let uses = |base, index| holders.all() & (bit(base) | bit(index)) != 0;
        let is_access = info
            .used_memory()
            .iter()
            .filter(|m| m.access() != OpAccess::NoMemAccess)
            .any(|m| uses(m.base(), m.index()));
        if is_access && i.mnemonic() != Mnemonic::Nop {
            return Use::Data;
        }
        let flow = flow_of(&i);
        if let Some(found) = destination(image, &i, flow, holders) {
            return found;
        }
        let from = match i.op_count() {
            2 if i.op1_kind() == OpKind::Register => bit(i.op1_register()),
            _ => 0,
        };
        let (copied, added) = match i.mnemonic() {
            Mnemonic::Lea => {
                let whole = bit(i.memory_base()) | bit(i.memory_index());
                (0, holders.all() & whole != 0)
            }
            Mnemonic::Mov if i.op0_kind() == OpKind::Register => {
                (holders.exact & from, holders.sum & from != 0)
            }
            // A conditional move: what is done with the result is done with each of the two.
            _ if i.condition_code() != ConditionCode::None && from != 0 => {
                (holders.exact & from, holders.sum & from != 0)
            }
            Mnemonic::Add | Mnemonic::Sub if i.op0_kind() == OpKind::Register => {
                (0, holders.all() & from != 0)
            }
            _ => (0, false),
        };
        for used in info.used_registers() {
            let register = bit(used.register());
            match used.access() {
                OpAccess::Write => holders.keep(!register),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    holders.sum |= holders.exact & register;
                    holders.exact &= !register;
                }
                _ => {}
            }
        }
        if copied != 0 {
            holders.exact |= bit(i.op0_register());
        } else if added {
            holders.sum |= bit(i.op0_register());
        }
        match flow {
            ControlFlow::FallThrough | ControlFlow::CondJump => {}
            ControlFlow::Jump => {
                pc = i.near_branch_target();
                run = Run::new(image.rest_at(pc).unwrap_or(&[]), pc);
            }
            ControlFlow::Call | ControlFlow::IndirectCall => holders.keep(CALLEE_SAVED),
            _ => return Use::Unknown,
        }
    }
    Use::Unknown
}

/// What an instruction makes of the address by going there, or by passing it to a function that will.
fn destination(image: &Image, i: &Instruction, flow: ControlFlow, holders: Holders) -> Option<Use> {
    let passes = |slot: Option<u64>| {
        let mask = image.code_parameters().of(slot?);
        (holders.exact & mask != 0).then_some(Use::Code)
    };
    match flow {
        ControlFlow::IndirectCall | ControlFlow::IndirectJump => match i.op0_kind() {
            OpKind::Register => holders.entered(bit(i.op0_register())),
            _ if i.is_ip_rel_memory_operand() => passes(Some(i.ip_rel_memory_address())),
            _ => None,
        },
        ControlFlow::Call => {
            let entry = i.near_branch_target();
            let bytes = image.bytes_at(entry, plt::ENTRY as usize)?;
            passes(plt::slot(bytes, entry))
        }
        _ if i.mnemonic() == Mnemonic::Push && i.op0_kind() == OpKind::Register => {
            let is_held = holders.exact & bit(i.op0_register()) != 0;
            (is_held && begins_handler(image, i.next_ip())).then_some(Use::Code)
        }
        _ => None,
    }
}

/// True if the code at an address, after a push, makes the top of the stack the newest frame of a chain of exception
/// handlers: it pushes the place of the previous one, and puts rsp there. OCaml enters a `try` so.
fn begins_handler(image: &Image, address: u64) -> bool {
    let decode = |pc: u64| decode_at(image.rest_at(pc)?, pc);
    let Some((push, store)) = decode(address).and_then(|i| Some((i, decode(i.next_ip())?))) else {
        return false;
    };
    let is_same_place = match push.op0_kind() {
        OpKind::Register => {
            store.op0_kind() == OpKind::Register && push.op0_register() == store.op0_register()
        }
        OpKind::Memory => {
            store.op0_kind() == OpKind::Memory
                && (push.memory_base(), push.memory_index())
                    == (store.memory_base(), store.memory_index())
                && push.memory_displacement64() == store.memory_displacement64()
        }
        _ => false,
    };
    push.mnemonic() == Mnemonic::Push
        && store.mnemonic() == Mnemonic::Mov
        && store.op1_kind() == OpKind::Register
        && store.op1_register() == Register::RSP
        && is_same_place
}
