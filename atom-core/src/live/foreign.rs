//! Where rsp may lead to data and not to a stack.
//!
//! Assembly may use rsp as one more pointer: it loads an address into rsp, reads an array by `pop` or fills one by
//! `push`, and then puts the stack pointer back. Nothing but the program's own pushes may be written below such an
//! rsp. A switch from one stack to another looks the same, until a call or a return shows what rsp is.
//!
//! A value comes from the stack pointer if it is rsp, a copy of rsp, or the result of arithmetic on one. Each procedure
//! starts with rsp and rbp from its stack. Where rsp gets a value that does not certainly come from the stack
//! pointer, it counts as *foreign*, up to the next such load of rsp, or to a call, which writes below rsp by itself. A
//! word of a frame, or of known address, holds the stack pointer if the procedure saves it there. In some code rsp
//! counts as foreign everywhere ([`super::units`]).

use crate::cfg::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::Image;
use crate::live::RegSet;
use crate::x86::{
    ControlFlow, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Masks of the registers of the frame, by numbers in encodings.
const RSP: u16 = 1 << 4;
const RBP: u16 = 1 << 5;

/// Number of rounds after which words that hold the stack pointer are no longer looked for.
const MOST_ROUNDS: usize = 4;

/// The instructions of a procedure at which rsp may be foreign.
#[derive(Default, Debug)]
pub struct Foreign {
    /// The first instruction of the procedure.
    first: usize,
    /// For each instruction of the procedure whether rsp may be foreign before it, and after it. Empty if rsp is foreign
    /// nowhere.
    insts: Vec<[bool; 2]>,
}

impl Foreign {
    /// Looks for foreign values of rsp in a procedure. `info` is working storage.
    pub fn of(image: &Image, cfg: &Cfg, id: ProcId, info: &mut InstructionInfoFactory) -> Self {
        let proc = cfg.proc(id);
        // Go's scheduler alone changes stacks, and in Go's code routines have stacks of their own.
        if proc.is_go || proc.kind == ProcKind::Plt || !may_load(image, cfg, id) {
            return Self::default();
        }
        Flow::new(image, cfg, id, info).run()
    }

    /// rsp may be foreign at each instruction of a procedure.
    pub fn everywhere(cfg: &Cfg, id: ProcId) -> Self {
        let insts = cfg.proc_insts(id);
        Self {
            first: insts.start,
            insts: vec![[true; 2]; insts.len()],
        }
    }

    /// True if rsp is foreign nowhere in the procedure.
    pub fn is_empty(&self) -> bool {
        self.insts.is_empty()
    }

    /// True if rsp may be foreign before an instruction of the procedure.
    pub fn before(&self, inst: InstId) -> bool {
        self.at(inst, 0)
    }

    /// True if rsp may be foreign after an instruction of the procedure.
    pub fn after(&self, inst: InstId) -> bool {
        self.at(inst, 1)
    }

    fn at(&self, inst: InstId, side: usize) -> bool {
        let number = inst.index().wrapping_sub(self.first);
        self.insts.get(number).is_some_and(|sides| sides[side])
    }
}

/// True if any procedure of an object that may be instrumented has a foreign rsp somewhere.
pub fn has_foreign(image: &Image, cfg: &Cfg) -> bool {
    let mut info = InstructionInfoFactory::new();
    let mut ids = (0..cfg.procs.len()).map(ProcId::from_index);
    ids.any(|id| cfg.proc(id).is_movable() && !Foreign::of(image, cfg, id, &mut info).is_empty())
}

/// True if some instruction of a procedure may put a value into rsp that comes from elsewhere, as their first bytes show.
fn may_load(image: &Image, cfg: &Cfg, id: ProcId) -> bool {
    let (mut from_frame, mut sets_frame) = (false, false);
    for b in cfg.proc(id).blocks() {
        for (inst, bytes) in cfg.block_bytes(image, b) {
            match load_of(&bytes[..usize::from(inst.len).min(bytes.len())]) {
                Load::Any => return true,
                Load::FromFrame => from_frame = true,
                Load::Frame => sets_frame = true,
                Load::None => {}
            }
        }
    }
    from_frame && sets_frame
}

/// What the first bytes of an instruction say of its effect on rsp and rbp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Load {
    /// It may put any value into rsp.
    Any,
    /// rsp gets a value that is computed from rbp.
    FromFrame,
    /// rbp may get a value that does not come from rsp.
    Frame,
    /// Nothing of this kind.
    None,
}

fn load_of(bytes: &[u8]) -> Load {
    const SP: u8 = 4;
    const BP: u8 = 5;
    let mut rest = bytes;
    while let [
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3,
        more @ ..,
    ] = rest
    {
        rest = more;
    }
    let rex = match rest {
        [rex @ 0x40..=0x4f, more @ ..] => {
            rest = more;
            *rex
        }
        _ => 0x40,
    };
    let (wide_reg, wide_base) = ((rex >> 2 & 1) << 3, (rex & 1) << 3);
    let is_two = rest.first() == Some(&0x0f);
    if is_two {
        rest = &rest[1..];
    }
    let &[opcode, ref operands @ ..] = rest else {
        return Load::None;
    };
    let modrm = operands.first().copied().unwrap_or_default();
    let is_register = modrm >> 6 == 3;
    let reg = modrm >> 3 & 7 | wide_reg;
    let rm = modrm & 7 | wide_base;
    // The register in the opcode's lower bits.
    let low = opcode & 7 | wide_base;
    let set = |register: u8| match register {
        SP => Load::Any,
        BP => Load::Frame,
        _ => Load::None,
    };
    let set_rm = || if is_register { set(rm) } else { Load::None };
    let either = |a: Load, b: Load| match (a, b) {
        (Load::Any, _) | (_, Load::Any) => Load::Any,
        (Load::None, other) => other,
        (one, _) => one,
    };
    match (is_two, opcode) {
        (false, 0xc9) => Load::FromFrame,
        // `pop`, and `mov` of a constant. `pop rbp` ends a frame.
        (false, 0x58..=0x5f) if low == SP => Load::Any,
        (false, 0x8f) if is_register && rm == SP => Load::Any,
        (false, 0xb8..=0xbf) => set(low),
        (false, 0xc7) => set_rm(),
        (false, 0x89) if is_register && (rm, reg) == (SP, BP) => Load::FromFrame,
        (false, 0x89) if is_register && (rm, reg) == (BP, SP) => Load::None,
        (false, 0x8b) if is_register && (reg, rm) == (SP, BP) => Load::FromFrame,
        (false, 0x8b) if is_register && (reg, rm) == (BP, SP) => Load::None,
        (false, 0x89) => set_rm(),
        (false, 0x8b | 0x63) => set(reg),
        (false, 0x86 | 0x87) => either(set(reg), set_rm()),
        (false, 0x91..=0x97) => set(low),
        (false, 0x90) => Load::None,
        (false, 0x8d) => {
            // A base of rsp or r12 needs a SIB byte.
            let base = match operands.get(1) {
                Some(sib) if modrm & 7 == SP => sib & 7 | wide_base,
                _ => rm,
            };
            match (reg, base) {
                (SP, SP) | (BP, SP) => Load::None,
                (SP, BP) => Load::FromFrame,
                _ => set(reg),
            }
        }
        // `xor`, by which registers are also exchanged.
        (false, 0x31) => set_rm(),
        (false, 0x33) => set(reg),
        // `cmov`, `cmpxchg`, `xadd`, `movzx` and `movsx`.
        (true, 0x40..=0x4f | 0xb6 | 0xb7 | 0xbe | 0xbf) => set(reg),
        (true, 0xb0 | 0xb1) => set_rm(),
        (true, 0xc0 | 0xc1) => either(set(reg), set_rm()),
        _ => Load::None,
    }
}

/// A word that may hold the stack pointer: the number of its base register, if it has one, and the displacement.
type Word = (Option<u8>, u64);

/// Where a procedure saves the stack pointer.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Saved {
    /// Words to which it is stored.
    words: Vec<Word>,
    /// Mask of the registers that hold it and are pushed.
    pushed: u16,
}

impl Saved {
    /// True if a load of a register, whose bit is `to`, may yield the stack pointer. `set` is the mask of the registers
    /// whose values come from it.
    fn is_loaded(&self, set: u16, to: u16, instruction: &Instruction) -> bool {
        word(set, instruction).is_some_and(|word| {
            self.words.contains(&word) || word.0.is_some() && self.pushed & to != 0
        })
    }
}

/// The flow of the stack pointer through a procedure.
struct Flow<'a> {
    cfg: &'a Cfg,
    id: ProcId,
    info: &'a mut InstructionInfoFactory,
    /// The instructions of each block.
    blocks: Vec<(BlockId, Vec<Instruction>)>,
    /// Mask of the registers whose values come from the stack pointer where each block starts, on some way there or on
    /// all ways; `None` if no way to the block is known yet.
    starts: Vec<Option<u16>>,
    saved: Saved,
}

impl<'a> Flow<'a> {
    fn new(image: &Image, cfg: &'a Cfg, id: ProcId, info: &'a mut InstructionInfoFactory) -> Self {
        let proc = cfg.proc(id);
        let decode = |b: BlockId| (b, cfg.decode_block(image, b).collect());
        let is_start = |b: BlockId| {
            let block = cfg.block(b);
            let is_entered = block.is_entry || block.is_indirect_target || b == proc.first_block;
            is_entered.then_some(RSP | RBP)
        };
        Self {
            cfg,
            id,
            info,
            blocks: proc.blocks().map(decode).collect(),
            starts: proc.blocks().map(is_start).collect(),
            saved: Saved::default(),
        }
    }

    fn run(mut self) -> Foreign {
        // A register is saved where it holds the stack pointer on some way: a loop may save rsp again that it has loaded.
        let entered = self.starts.clone();
        for _ in 0..MOST_ROUNDS {
            self.spread(|some, others| some | others);
            let is_more = self.find_saved();
            self.starts.clone_from(&entered);
            if !is_more {
                break;
            }
        }
        self.spread(|some, others| some & others);
        let mut insts = Vec::with_capacity(self.cfg.proc_insts(self.id).len());
        for (number, (b, instructions)) in self.blocks.iter().enumerate() {
            // Nothing is known of a block to which no way leads.
            let mut set = self.starts[number].unwrap_or(RSP | RBP);
            for (inst, instruction) in self.cfg.block(*b).insts().zip(instructions) {
                let before = set & RSP == 0;
                set = after(set, self.flow_of(inst), instruction, &self.saved, self.info);
                insts.push([before, set & RSP == 0]);
            }
        }
        if insts.iter().flatten().all(|is_foreign| !is_foreign) {
            return Foreign::default();
        }
        Foreign {
            first: self.cfg.proc_insts(self.id).start,
            insts,
        }
    }

    fn flow_of(&self, inst: InstId) -> ControlFlow {
        self.cfg.inst(inst).flow
    }

    /// Spreads the sets along the control flow, until they stay as they are. Where ways meet, the sets are joined.
    fn spread(&mut self, join: impl Fn(u16, u16) -> u16) {
        let first = self.cfg.proc(self.id).first_block;
        let mut work: Vec<usize> = (0..self.blocks.len())
            .filter(|i| self.starts[*i].is_some())
            .collect();
        while let Some(number) = work.pop() {
            let Some(mut set) = self.starts[number] else {
                continue;
            };
            let (b, instructions) = &self.blocks[number];
            for (inst, instruction) in self.cfg.block(*b).insts().zip(instructions) {
                set = after(set, self.flow_of(inst), instruction, &self.saved, self.info);
            }
            for succ in self.cfg.succs(*b) {
                let (Succ::Fall(to) | Succ::Branch(to)) = *succ else {
                    continue;
                };
                let to = to.index().wrapping_sub(first.index());
                let Some(start) = self.starts.get_mut(to) else {
                    continue;
                };
                let joined = start.map_or(set, |old| join(old, set));
                if *start != Some(joined) {
                    *start = Some(joined);
                    work.push(to);
                }
            }
        }
    }

    /// Finds further places where the stack pointer is saved; false if there are none.
    fn find_saved(&mut self) -> bool {
        let mut found = self.saved.clone();
        for (number, (b, instructions)) in self.blocks.iter().enumerate() {
            let Some(mut set) = self.starts[number] else {
                continue;
            };
            for (inst, instruction) in self.cfg.block(*b).insts().zip(instructions) {
                // A caller's rbp is no stack pointer of the procedure's own.
                let is_own = |operand: u32| {
                    register(instruction, operand).filter(|bit| set & bit & !RBP != 0)
                };
                match instruction.mnemonic() {
                    Mnemonic::Mov
                        if instruction.op0_kind() == OpKind::Memory && is_own(1).is_some() =>
                    {
                        found.words.extend(word(set, instruction));
                    }
                    Mnemonic::Push => found.pushed |= is_own(0).unwrap_or_default() & !RSP,
                    _ => {}
                }
                set = after(set, self.flow_of(inst), instruction, &self.saved, self.info);
            }
        }
        found.words.sort_unstable();
        found.words.dedup();
        let is_more = found != self.saved;
        self.saved = found;
        is_more
    }
}

/// Bit of a general register.
fn bit(register: Register) -> Option<u16> {
    let is_general = register.is_gpr();
    is_general.then(|| 1 << register.full_register().number())
}

/// Bit of an operand that is a general register of 64 bits.
fn register(instruction: &Instruction, operand: u32) -> Option<u16> {
    let is_register = instruction.op_kind(operand) == OpKind::Register;
    let register = is_register.then(|| instruction.op_register(operand))?;
    register.is_gpr64().then(|| bit(register)).flatten()
}

/// The word that an instruction accesses, if it is in a frame or at a known address. `set` is the mask of the registers
/// whose values come from the stack pointer.
fn word(set: u16, instruction: &Instruction) -> Option<Word> {
    let is_plain = instruction.memory_index() == Register::None
        && !matches!(instruction.memory_segment(), Register::FS | Register::GS);
    let base = instruction.memory_base();
    let base = match bit(base) {
        Some(bit) if set & bit == 0 => return None,
        Some(_) => Some(base.full_register().number() as u8),
        None => None,
    };
    is_plain.then(|| (base, instruction.memory_displacement64()))
}

/// Mask of the registers whose values come from the stack pointer after an instruction, from the mask `set` before it.
fn after(
    set: u16,
    flow: ControlFlow,
    instruction: &Instruction,
    saved: &Saved,
    info: &mut InstructionInfoFactory,
) -> u16 {
    if matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall) {
        return set & RegSet::CALLEE_SAVED.gpr_mask() | RSP;
    }
    let with = |to: u16, is_stack: bool| if is_stack { set | to } else { set & !to };
    let holds = |bit: Option<u16>| bit.is_some_and(|bit| set & bit != 0);
    let to = register(instruction, 0);
    match (instruction.mnemonic(), to) {
        (Mnemonic::Mov, Some(to)) => {
            let is_stack = match instruction.op1_kind() {
                OpKind::Register => holds(register(instruction, 1)),
                OpKind::Memory => saved.is_loaded(set, to, instruction),
                _ => false,
            };
            with(to, is_stack)
        }
        (Mnemonic::Lea, Some(to)) => {
            let parts = [instruction.memory_base(), instruction.memory_index()];
            with(to, parts.into_iter().any(|part| holds(bit(part))))
        }
        (Mnemonic::Xchg, Some(a)) => match register(instruction, 1) {
            Some(b) if set & a == 0 && set & b != 0 => set & !b | a,
            Some(b) if set & a != 0 && set & b == 0 => set & !a | b,
            Some(_) => set,
            None => with(a, false),
        },
        (Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Or, Some(to)) => {
            // The sum of a number and an address of the stack is one, too.
            let is_sum = instruction.mnemonic() == Mnemonic::Add;
            with(
                to,
                set & to != 0 || is_sum && holds(register(instruction, 1)),
            )
        }
        (Mnemonic::Inc | Mnemonic::Dec, Some(_)) => set,
        // A frame's end: rbp is the caller's again.
        (Mnemonic::Leave, _) if set & RBP != 0 => set | RSP,
        (Mnemonic::Leave, _) => set & !RSP,
        (Mnemonic::Enter, _) => with(RBP, set & RSP != 0),
        (Mnemonic::Pop, Some(RSP)) => set & !RSP,
        (Mnemonic::Pop, Some(to)) => {
            let is_saved = to == RBP || saved.pushed & to != 0;
            with(to, set & RSP != 0 && is_saved)
        }
        _ => {
            let used = info.info_options(instruction, InstructionInfoOptions::NO_MEMORY_USAGE);
            let writes = |access: OpAccess| {
                !matches!(
                    access,
                    OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
                )
            };
            let written = used.used_registers().iter();
            let written = written.filter(|u| writes(u.access()));
            let written = written.filter_map(|u| bit(u.register()));
            let written = written.fold(0, |set, bit| set | bit);
            if instruction.is_stack_instruction() {
                set & !(written & !RSP)
            } else {
                set & !written
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::x86::assembler::code_asm::*;
    use crate::x86::{decode_at, flow_of};

    /// For each instruction of straight code whether rsp may be foreign after it.
    fn foreign(
        write: impl Fn(&mut CodeAssembler) -> std::result::Result<(), crate::x86::assembler::IcedError>,
    ) -> Vec<bool> {
        let mut asm = CodeAssembler::new(64).unwrap();
        write(&mut asm).unwrap();
        let bytes = asm.assemble(0x1000).unwrap();
        let (mut at, mut set, mut all) = (0, RSP | RBP, Vec::new());
        let mut info = InstructionInfoFactory::new();
        let mut shown = [false; 3];
        while at < bytes.len() {
            let instruction = decode_at(&bytes[at..], 0x1000 + at as u64).unwrap();
            let end = at + instruction.len();
            match load_of(&bytes[at..end]) {
                Load::Any => shown[0] = true,
                Load::FromFrame => shown[1] = true,
                Load::Frame => shown[2] = true,
                Load::None => {}
            }
            set = after(
                set,
                flow_of(&instruction),
                &instruction,
                &Saved::default(),
                &mut info,
            );
            all.push(set & RSP == 0);
            at = end;
        }
        let is_shown = shown[0] || shown[1] && shown[2];
        assert!(
            is_shown || all.iter().all(|f| !f),
            "the bytes do not show it"
        );
        all
    }

    #[test]
    fn a_load_from_elsewhere_is_foreign_until_rsp_is_put_back() {
        let moved = foreign(|a| {
            a.mov(r8, rsp)?;
            a.mov(rsp, rdi)?;
            a.pop(rax)?;
            a.push(rax)?;
            a.add(rsp, 16)?;
            a.mov(rsp, r8)
        });
        assert_eq!(moved, [false, true, true, true, true, false]);
        let exchanged = foreign(|a| {
            a.xchg(rsp, rdi)?;
            a.pop(rax)?;
            a.xchg(rdi, rsp)
        });
        assert_eq!(exchanged, [true, true, false]);
        assert_eq!(foreign(|a| a.pop(rsp)), [true]);
        assert_eq!(foreign(|a| a.mov(rsp, qword_ptr(rdi + 8))), [true]);
        assert_eq!(foreign(|a| a.lea(rsp, qword_ptr(rdi + 8))), [true]);
        assert_eq!(foreign(|a| a.cmovne(rsp, rdi)), [true]);
        assert_eq!(foreign(|a| a.mov(rsp, 0x1000u64)), [true]);
        let left = foreign(|a| {
            a.push(rbp)?;
            a.mov(rbp, rdi)?;
            a.leave()
        });
        assert_eq!(left, [false, false, true]);
    }

    #[test]
    fn frames_are_not_foreign() {
        let all = foreign(|a| {
            a.push(rbp)?;
            a.mov(rbp, rsp)?;
            a.mov(rbx, rsp)?;
            a.and(rsp, -64)?;
            a.sub(rsp, rax)?;
            a.lea(r10, qword_ptr(rsp + 8))?;
            a.mov(rsp, rbx)?;
            a.lea(rsp, qword_ptr(r10 - 8))?;
            a.mov(qword_ptr(rdi), rsp)?;
            a.lea(rsp, qword_ptr(rbp - 40))?;
            a.pop(rbx)?;
            a.leave()
        });
        assert!(all.iter().all(|f| !f), "{all:?}");
    }

    #[test]
    fn a_call_shows_that_rsp_leads_to_a_stack() {
        let all = foreign(|a| {
            a.mov(rsp, rdi)?;
            a.call(rax)?;
            a.pop(rax)
        });
        assert_eq!(all, [true, false, false]);
    }
}
