//! What procedures do with their own return addresses.
//!
//! Calls in the new text push addresses of the new text, and what follows the call there differs from
//! the original. A procedure that only returns does not notice. Others do: they
//! return to an address that they compute from their return address, or read what is there.

use crate::image::{Image, decoded};
use crate::x86::{
    ControlFlow, FlowControl, Inst, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, OpAccess, OpKind, Register,
};

use super::traverse::Body;

/// What a procedure does with its return address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// It reads what is there, or goes to an address computed from it.
    Reads,
    /// It changes the word on the stack to an address computed from it.
    Changes,
}

/// The use that a procedure, or a local subroutine that starts at `start`, makes of its return address; `None` for
/// one that only returns.
pub(super) fn use_of(image: &Image, body: &Body, start: u64) -> Option<Use> {
    let found = if may_compute(image, body, start) {
        Walk::new().over(instructions(image, body, start))
    } else {
        None
    };
    found.or_else(|| reads(image, body, start).then_some(Use::Reads))
}

/// Number of instructions that are looked at from a procedure's start.
const NEAR: usize = 96;

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Other,
    /// The return address, or an address computed from it.
    Return {
        changed: bool,
    },
    /// The address of a byte of the stack, as its distance from the word with the return address.
    Stack(i64),
}

/// The state of a walk over the code of a procedure in address order.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Distance in bytes from rsp to the word with the return address; `None` if not known.
    depth: Option<i64>,
    held: [Held; 16],
}

/// A walk over the code of a procedure in address order.
struct Walk {
    /// `None` where control does not come from the instruction before.
    state: Option<State>,
    /// States at targets of branches farther on.
    ahead: Vec<(u64, State)>,
    uses: InstructionInfoFactory,
}

impl Walk {
    fn new() -> Self {
        let start = State {
            depth: Some(0),
            held: [Held::Other; 16],
        };
        Self {
            state: Some(start),
            ahead: Vec::new(),
            uses: InstructionInfoFactory::new(),
        }
    }

    fn over(mut self, code: impl Iterator<Item = Instruction>) -> Option<Use> {
        let mut found = None;
        for inst in code.take(NEAR) {
            if let Some((_, state)) = self.ahead.iter().find(|a| a.0 == inst.ip()) {
                self.state = Some(*state);
            }
            let Some(state) = &mut self.state else {
                continue;
            };
            match state.step(&inst, &mut self.uses) {
                Some(Use::Changes) => return Some(Use::Changes),
                Some(Use::Reads) => found = Some(Use::Reads),
                None => {}
            }
            let state = *state;
            match inst.flow_control() {
                FlowControl::ConditionalBranch => {
                    self.ahead.push((inst.near_branch_target(), state))
                }
                FlowControl::UnconditionalBranch => {
                    self.ahead.push((inst.near_branch_target(), state));
                    self.state = None;
                }
                FlowControl::IndirectBranch | FlowControl::Return => self.state = None,
                _ => {}
            }
        }
        found
    }
}

impl State {
    fn get(&self, register: Register) -> Held {
        match register {
            Register::RSP => self.depth.map_or(Held::Other, |d| Held::Stack(-d)),
            r if r.is_gpr64() => self.held[r.number()],
            _ => Held::Other,
        }
    }

    fn set(&mut self, register: Register, held: Held) {
        match register.full_register() {
            Register::RSP => {
                self.depth = match held {
                    Held::Stack(at) => Some(-at),
                    _ => None,
                }
            }
            r if r.is_gpr64() => self.held[r.number()] = held,
            _ => {}
        }
    }

    /// True if the memory operand is the word with the return address.
    fn is_word(&self, inst: &Instruction) -> bool {
        let base = self.get(inst.memory_base());
        inst.memory_index() == Register::None
            && matches!(base, Held::Stack(at) if at.wrapping_add(inst.memory_displacement64() as i64) == 0)
    }

    /// What an instruction does with the return address.
    fn step(&mut self, inst: &Instruction, uses: &mut InstructionInfoFactory) -> Option<Use> {
        let has_memory = (0..inst.op_count()).any(|i| inst.op_kind(i) == OpKind::Memory);
        let is_lea = inst.mnemonic() == Mnemonic::Lea;
        let reads_there =
            has_memory && !is_lea && matches!(self.get(inst.memory_base()), Held::Return { .. });
        let is_word = has_memory && !is_lea && self.is_word(inst);
        let changed = Held::Return { changed: true };
        let source = match inst.op_count() {
            0 => Held::Other,
            n => match inst.op_kind(n - 1) {
                OpKind::Register => self.get(inst.op_register(n - 1)),
                OpKind::Memory if is_word => Held::Return { changed: false },
                _ => Held::Other,
            },
        };
        let to_register = inst.op_count() > 0 && inst.op0_kind() == OpKind::Register;
        let mut found = reads_there.then_some(Use::Reads);
        match inst.mnemonic() {
            Mnemonic::Push if inst.stack_pointer_increment() == -8 => {
                self.depth = self.depth.map(|d| d + 8);
                if self.depth == Some(0) && source == changed {
                    found = Some(Use::Changes);
                }
            }
            Mnemonic::Pop if inst.stack_pointer_increment() == 8 => {
                let taken = match self.depth {
                    Some(0) => Held::Return { changed: false },
                    _ => Held::Other,
                };
                self.depth = self.depth.map(|d| d - 8);
                if to_register {
                    self.set(inst.op0_register(), taken);
                }
            }
            Mnemonic::Mov if to_register => self.set(inst.op0_register(), source),
            Mnemonic::Mov if is_word && source == changed => found = Some(Use::Changes),
            Mnemonic::Mov => {}
            Mnemonic::Xchg | Mnemonic::Xadd if is_word => {
                let other = self.get(inst.op1_register());
                self.set(inst.op1_register(), Held::Return { changed: false });
                if inst.mnemonic() == Mnemonic::Xadd || other == changed {
                    found = Some(Use::Changes);
                }
            }
            Mnemonic::Lea if to_register => {
                let base = self.get(inst.memory_base());
                let held = match base {
                    Held::Return { .. } => changed,
                    Held::Stack(at) if inst.memory_index() == Register::None => {
                        Held::Stack(at.wrapping_add(inst.memory_displacement64() as i64))
                    }
                    _ => Held::Other,
                };
                self.set(inst.op0_register(), held);
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec if to_register => {
                self.add(inst, source);
            }
            // `lock add [rsp], 0` is a memory barrier.
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec
                if is_word && !inst.has_lock_prefix() =>
            {
                found = Some(Use::Changes);
            }
            Mnemonic::Leave => {
                let frame = self.get(Register::RBP);
                self.set(Register::RSP, frame);
                self.depth = self.depth.map(|d| d - 8);
                self.set(Register::RBP, Held::Other);
            }
            Mnemonic::Jmp | Mnemonic::Call => {
                if to_register && self.get(inst.op0_register()) == changed {
                    found = Some(Use::Reads);
                }
                if inst.mnemonic() == Mnemonic::Call {
                    use Register::{R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
                    for register in [RAX, RCX, RDX, RSI, RDI, R8, R9, R10, R11] {
                        self.set(register, Held::Other);
                    }
                }
            }
            _ => {
                let info = uses.info_options(inst, InstructionInfoOptions::NO_MEMORY_USAGE);
                for used in info.used_registers() {
                    if !matches!(used.access(), OpAccess::Read | OpAccess::CondRead) {
                        self.set(used.register(), Held::Other);
                    }
                }
            }
        }
        found
    }

    /// An addition to a register, or a subtraction.
    fn add(&mut self, inst: &Instruction, source: Held) {
        let register = inst.op0_register();
        let constant = match inst.mnemonic() {
            Mnemonic::Inc => Some(1),
            Mnemonic::Dec => Some(-1),
            _ if matches!(inst.op1_kind(), OpKind::Register | OpKind::Memory) => None,
            Mnemonic::Sub => Some((inst.immediate(1) as i64).wrapping_neg()),
            _ => Some(inst.immediate(1) as i64),
        };
        let held = match (self.get(register), constant) {
            (Held::Return { .. }, _) => Held::Return { changed: true },
            (_, None) if matches!(source, Held::Return { .. }) => Held::Return { changed: true },
            (Held::Stack(at), Some(by)) => Held::Stack(at.wrapping_add(by)),
            _ => Held::Other,
        };
        self.set(register, held);
    }
}

/// A cheap necessary condition for what [`Walk`] finds: near the start an operand or a `lea` that names the word with
/// the return address or one near it, or more words popped than pushed.
fn may_compute(image: &Image, body: &Body, start: u64) -> bool {
    const AROUND: i64 = 64;
    let mut depth = 0i64;
    let mut framed = None;
    for inst in insts_from(image, body, start).iter().take(NEAR) {
        let pc = image.base + u64::from(inst.offset);
        let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
        if inst.flow.ends_flow() {
            // Other paths have their own depth.
            depth = i64::MAX / 2;
        }
        let is_prefix = |b: &&u8| matches!(**b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
        let code = &bytes[bytes.iter().take_while(is_prefix).count()..];
        let code = code.strip_prefix(&[0x0f]).unwrap_or(code);
        match *code {
            [0x50..=0x57] => depth += 8,
            [0x58..=0x5f] if depth <= 0 => return true,
            [0x58..=0x5f] => depth -= 8,
            // sub rsp and add rsp; mov rbp, rsp
            [0x83, 0xec, by] => depth += i64::from(by as i8),
            [0x83, 0xc4, by] => depth -= i64::from(by as i8),
            [0x81, 0xec, a, b, c, d] => depth += i64::from(i32::from_le_bytes([a, b, c, d])),
            [0x89, 0xe5] => framed = Some(depth),
            // A copy of rsp.
            [0x89, modrm] if modrm & 0xf8 == 0xe0 => return depth <= AROUND,
            [_, modrm, ref rest @ ..] if modrm < 0xc0 => {
                let (base, rest) = match (modrm & 7, rest) {
                    (4, [0x24, rest @ ..]) => (Some(depth), rest),
                    (5, rest) if modrm >= 0x40 => (framed, rest),
                    _ => continue,
                };
                let displacement = match (modrm >> 6, rest) {
                    (1, [d, ..]) => i64::from(*d as i8),
                    (2, &[a, b, c, d, ..]) => i64::from(i32::from_le_bytes([a, b, c, d])),
                    _ => 0,
                };
                let Some(base) = base else { continue };
                let distance = displacement.wrapping_sub(base);
                if distance == 0 || code[0] == 0x8d && distance.abs() <= AROUND {
                    return true;
                }
            }
            _ => {}
        }
    }
    false
}
/// True if a procedure takes its return address off the stack for good, or
/// returns it as a value. The bytes after the call are then data, or the address is used in a computation.
/// (`vfork` pops its return address too, but pushes it again.) True also for a procedure that goes
/// to an address computed from its return address (split stacks: `__morestack` calls the address
/// one byte after its call).
///
/// `start` is the first address of the procedure or of a local subroutine.
fn reads(image: &Image, body: &Body, start: u64) -> bool {
    let mut own = instructions(image, body, start);
    let Some(first) = own.find(|i| i.mnemonic() != Mnemonic::Endbr64) else {
        return false;
    };
    match first.mnemonic() {
        Mnemonic::Pop if first.op0_kind() == OpKind::Register => {
            let register = first.op0_register();
            !own.any(|i| i.mnemonic() == Mnemonic::Push && i.op0_register() == register)
        }
        Mnemonic::Mov => {
            first.op1_kind() == OpKind::Memory
                && first.memory_base() == Register::RSP
                && first.memory_index() == Register::None
                && first.memory_displacement64() == 0
                && own.next().is_some_and(|i| i.mnemonic() == Mnemonic::Ret)
        }
        Mnemonic::Push if first.op0_register() == Register::RBP => {
            let framed = own.next().is_some_and(|i| {
                i.mnemonic() == Mnemonic::Mov
                    && i.op0_register() == Register::RBP
                    && i.op1_register() == Register::RSP
            });
            framed && may_load_return_address(image, body, start) && goes_behind_its_call(own)
        }
        _ => false,
    }
}

/// The instructions of a body from an address on, without decoding.
fn insts_from<'a>(image: &Image, body: &'a Body, start: u64) -> &'a [Inst] {
    let from = (start - image.base) as u32;
    &body.insts[body.insts.partition_point(|i| i.offset < from)..]
}

/// A cheap necessary condition for [`goes_behind_its_call`]: a call or jump through
/// a pointer, and `mov 8(%rbp), %reg`.
fn may_load_return_address(image: &Image, body: &Body, start: u64) -> bool {
    let insts = insts_from(image, body, start);
    let by_pointer = |i: &Inst| {
        matches!(
            i.flow,
            ControlFlow::IndirectCall | ControlFlow::IndirectJump
        )
    };
    let is_load = |inst: &Inst| {
        let pc = image.base + u64::from(inst.offset);
        let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
        bytes.windows(3).any(|b| {
            b[0] == 0x8b
                && matches!(
                    (b[1] & 0xc7, b[2]),
                    (0x45, 8) | (0x85, 8) | (0x44 | 0x84, _)
                )
        })
    };
    insts.iter().any(by_pointer) && insts.iter().any(is_load)
}

/// The instructions of a body from an address on, decoded.
fn instructions<'a>(
    image: &'a Image,
    body: &'a Body,
    start: u64,
) -> impl Iterator<Item = Instruction> + 'a {
    decoded(image, insts_from(image, body, start).iter())
}

/// True if code with a frame at rbp loads its return address and calls or
/// jumps to it, changed or not, before control goes elsewhere.
fn goes_behind_its_call(code: impl Iterator<Item = Instruction>) -> bool {
    let mut holder = Register::None;
    for inst in code {
        match inst.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if holder != Register::None
                    && inst.op0_kind() == OpKind::Register
                    && inst.op0_register() == holder =>
            {
                return true;
            }
            FlowControl::Next => {}
            _ => {
                holder = Register::None;
                continue;
            }
        }
        let is_load = inst.mnemonic() == Mnemonic::Mov
            && inst.op0_kind() == OpKind::Register
            && inst.op1_kind() == OpKind::Memory
            && inst.memory_base() == Register::RBP
            && inst.memory_index() == Register::None
            && inst.memory_displacement64() == 8;
        let changes = inst.op0_kind() == OpKind::Register
            && holder != Register::None
            && inst.op0_register().full_register() == holder;
        let computes = matches!(
            inst.mnemonic(),
            Mnemonic::Inc | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea
        );
        if is_load {
            holder = inst.op0_register();
        } else if changes && !computes && inst.mnemonic() != Mnemonic::Cmp {
            holder = Register::None;
        }
    }
    false
}
