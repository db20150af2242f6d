//! Tables whose entries are relative to a label of the code, not to the table.
//!
//! C code that subtracts addresses of labels makes such tables: `static const int offsets[] = { &&one - &&base, ... }`.
//! The formatting functions of glibc have many, and a table of bytes turns the character into the entry's index:
//!
//! `movzx eax,[bytes+rax]; lea rdi,[rip+table]; movsxd rax,[rdi+rax*4]; add rax,rsi; jmp rax`
//!
//! Neither address may be guessed, since entries added to a wrong base may lead into the procedure by chance. So the
//! addresses count only where all instructions from their computation to the jump are in one basic block.

use super::traverse::{Body, mark};
use crate::image::{Image, decoded};
use crate::x86::jump_table::is_address;
use crate::x86::{
    ControlFlow, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// Number of instructions before the jump that are examined at most.
const WINDOW: usize = 48;

/// A table whose entries are relative to a label.
pub(super) struct LabelTable {
    /// Address of the instruction that loads an entry.
    pub load: u64,
    /// Address of the first entry.
    pub table: u64,
    /// Address of the label.
    pub label: u64,
    /// Address of the table of bytes that gives the index, if there is one.
    pub bytes: Option<u64>,
}

/// The instructions of the basic block that ends with instruction number `at`, nearest first and without that
/// instruction. Each runs right before the one that follows it, and control enters at none but the first.
fn block_before<'a>(
    image: &'a Image,
    body: &'a Body,
    at: usize,
) -> impl Iterator<Item = Instruction> + 'a {
    let mut first = at;
    while first > 0 && at - first < WINDOW {
        let (before, next) = (&body.insts[first - 1], &body.insts[first]);
        let address = image.base + u64::from(next.offset);
        if body.mark_at(address) & mark::LEADER != 0
            || before.offset + u32::from(before.len) != next.offset
            || before.flow != ControlFlow::FallThrough
        {
            break;
        }
        first -= 1;
    }
    decoded(image, body.insts[first..at].iter().rev())
}

/// True if the instruction may change the register, which is a whole one of 64 bits.
pub(super) fn may_change(
    factory: &mut InstructionInfoFactory,
    i: &Instruction,
    register: Register,
) -> bool {
    let info = factory.info(i);
    info.used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    })
}

/// The last instruction of `code`, nearest first, that may change a register: its place and itself.
fn last_change(code: &[Instruction], register: Register) -> Option<(usize, &Instruction)> {
    let mut factory = InstructionInfoFactory::new();
    let changes = |(_, i): &(usize, &Instruction)| may_change(&mut factory, i, register);
    code.iter().enumerate().find(changes)
}

/// The address that a register certainly holds after `code`, nearest first.
fn address_in(code: &[Instruction], register: Register) -> Option<u64> {
    address_of(last_change(code, register)?.1, register)
}

/// The address that an instruction computes in the whole of a register.
fn address_of(i: &Instruction, register: Register) -> Option<u64> {
    let is_whole = i.op0_kind() == OpKind::Register && i.op0_register() == register;
    (is_address(i) && is_whole).then(|| i.memory_displacement64())
}

/// The address that a register holds before instruction number `at`, if it is computed in the same basic block.
pub(super) fn address_in_block(
    image: &Image,
    body: &Body,
    at: usize,
    register: Register,
) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let mut block = block_before(image, body, at);
    let last = block.find(|i| may_change(&mut factory, i, register))?;
    address_of(&last, register)
}

/// The table through which a jump goes to a label plus an entry. `at` is the jump's number.
pub(super) fn find(image: &Image, body: &Body, at: usize, target: Register) -> Option<LabelTable> {
    let block: Vec<Instruction> = block_before(image, body, at).collect();
    // add target, label
    let (sum_at, sum) = last_change(&block, target)?;
    if sum.mnemonic() != Mnemonic::Add
        || sum.op0_register() != target
        || sum.op1_kind() != OpKind::Register
    {
        return None;
    }
    let before_sum = &block[sum_at + 1..];
    let other = sum.op1_register();
    // Either register has the entry.
    let is_entry = |register: Register| {
        let (place, i) = last_change(before_sum, register)?;
        (i.mnemonic() == Mnemonic::Movsxd
            && i.op0_register() == register
            && i.op1_kind() == OpKind::Memory
            && i.memory_index_scale() == 4
            && i.memory_displacement64() == 0
            && i.memory_base() != Register::None
            && i.memory_index() != Register::None
            && i.segment_prefix() == Register::None)
            .then_some((place, i))
    };
    let ((load_at, load), base) = match (is_entry(target), is_entry(other)) {
        (Some(load), None) => (load, other),
        (None, Some(load)) => (load, target),
        _ => return None,
    };
    let label = address_in(before_sum, base)?;
    let before_load = &before_sum[load_at + 1..];
    let table = address_in(before_load, load.memory_base())?;
    let is_label = body.contains(label) && body.mark_at(label) & mark::INSIDE == 0;
    (is_label && table != label).then(|| LabelTable {
        load: load.ip(),
        table,
        label,
        bytes: byte_table(before_load, load.memory_index()),
    })
}

/// Address of the table of bytes from which a register was loaded.
fn byte_table(code: &[Instruction], register: Register) -> Option<u64> {
    let (place, i) = last_change(code, register)?;
    if i.mnemonic() != Mnemonic::Movzx
        || i.op1_kind() != OpKind::Memory
        || i.memory_size().size() != 1
        || i.memory_index_scale() != 1
        || i.memory_displacement64() != 0
    {
        return None;
    }
    let operands = [i.memory_base(), i.memory_index()];
    let known = operands.iter().filter(|r| **r != Register::None);
    known
        .into_iter()
        .find_map(|r| address_in(&code[place + 1..], *r))
}
