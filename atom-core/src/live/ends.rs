//! How control leaves a block, and what it may meet there.

use super::RegSet;
use super::convention::Convention;
use super::expectations::{NameId, Names};
use crate::cfg::{Cfg, ProcKind, Succ};
use crate::ids::{BlockId, ProcId};
use crate::image::Image;
use crate::x86::{Code, ControlFlow, Instruction, Mnemonic, OpKind, Register};

/// The program and its names.
#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// The program's file.
    pub image: &'a Image,
    /// Its code.
    pub cfg: &'a Cfg,
    /// The names of functions by which it calls others.
    pub names: &'a Names,
}

/// Where a direct call or a jump out of a procedure leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// A block of a procedure whose code is known.
    Known(BlockId, ProcId),
    /// A procedure that the dynamic loader finds, such as another object's.
    Import(NameId),
    /// Any code.
    Unknown,
}

/// How control leaves a block, as far as the block's successors do not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// To the block's successors.
    Plain,
    /// A call.
    Call(Callee),
    /// A call through a pointer.
    CallPointer,
    /// A call through a pointer in code of Go.
    CallGo,
    /// A call of an unknown function with a convention of its own: the caller sets registers that the ABI does
    /// not pass, and reads none of them before the call.
    CallStrange,
    /// A call through a pointer whose callee may keep every register: the
    /// sequence that computes a thread-local address by a TLS descriptor.
    CallKeeping,
    /// A return to a caller.
    Return,
    /// A jump through a pointer to a function.
    TailCall,
    /// The jump of an entry of the PLT, to a procedure of another object.
    Import,
    /// A jump through a pointer in code of Go: to a function, or to a place where Go's runtime left a goroutine.
    JumpGo,
    /// A jump through a pointer that was loaded, to a function or to a label of this procedure.
    Dispatch,
    /// No code runs after the block.
    Dead,
    /// Any code may run after the block.
    Unknown,
}

impl End {
    /// True if control leaves the procedure for its caller, perhaps after a function that it jumps to.
    pub fn leaves(self) -> bool {
        matches!(
            self,
            Self::Return | Self::JumpGo | Self::TailCall | Self::Import | Self::Dispatch
        )
    }

    /// The end of a block that sets the registers in `fresh` and does not read them. A compiler does not set what
    /// nobody reads, so the callee reads them.
    pub fn of_caller(self, fresh: RegSet) -> Self {
        let passed = match self {
            Self::Call(Callee::Import(_)) => RegSet::ARGUMENTS,
            Self::CallPointer => RegSet::POINTER_ARGUMENTS,
            _ => return self,
        };
        if fresh.without(passed | RegSet::CALLEE_SAVED).is_empty() {
            self
        } else {
            Self::CallStrange
        }
    }
}

/// How many words at rsp a block stored there itself. The one after them is the return address that the caller's `call`
/// pushed, as far as the block tells.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct StackTop {
    own_words: u32,
}

/// How an instruction changes the top of the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum StackChange {
    /// It pushes a word.
    Pushes,
    /// It pops a word.
    Pops,
    /// It stores to the word at rsp.
    Stores,
    /// It moves rsp, or the word at rsp is a return address after it.
    Moves,
}

impl StackTop {
    /// The state after a change.
    pub fn after(self, change: StackChange) -> Self {
        let own_words = match change {
            StackChange::Pushes => self.own_words.saturating_add(1),
            StackChange::Pops => self.own_words.saturating_sub(1),
            StackChange::Stores => self.own_words.max(1),
            StackChange::Moves => 0,
        };
        Self { own_words }
    }

    /// True if `ret` is a jump to a word that the block stored. Such a `ret` enters a function with its arguments live
    /// (setcontext, retpolines, first functions of threads).
    fn is_computed(self) -> bool {
        self.own_words > 0
    }
}

impl StackChange {
    /// What an instruction does; `None` if it does not change the top of the stack.
    pub fn of(instruction: &Instruction) -> Option<Self> {
        let to_rsp = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::RSP;
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Test => return None,
            Mnemonic::Push | Mnemonic::Pushfq => return Some(Self::Pushes),
            Mnemonic::Pop | Mnemonic::Popfq if !to_rsp => return Some(Self::Pops),
            Mnemonic::Leave | Mnemonic::Call => return Some(Self::Moves),
            _ if to_rsp => return Some(Self::Moves),
            _ => {}
        }
        let stores_at_top = instruction.op0_kind() == OpKind::Memory
            && instruction.memory_base() == Register::RSP
            && instruction.memory_index() == Register::None
            && instruction.memory_displacement64() == 0;
        stores_at_top.then_some(Self::Stores)
    }
}

/// Where the target of an indirect jump comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pointer {
    /// Loaded without an index. In a procedure none of whose inner addresses is used as data, such a
    /// pointer leads to a function: the jump is a tail call, with arguments live.
    Loaded,
    /// Loaded with an index. The pointer may lead to a label too, where any register may be live.
    /// A flag is live only if it is live at a place whose address is used as data.
    LookedUp,
    /// Computed. The pointer may lead anywhere, into the middle of unrolled assembly too.
    Other,
}

impl Pointer {
    /// Follows the register of the jump `last` through its block.
    fn of(last: &Instruction, block: impl Iterator<Item = Instruction>) -> Self {
        let loaded = |i: &Instruction| match i.memory_index() {
            Register::None => Self::Loaded,
            _ => Self::LookedUp,
        };
        if last.op0_kind() == OpKind::Memory {
            return loaded(last);
        }
        let mut origin = Self::Other;
        for instruction in block {
            let writes = instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().full_register() == last.op0_register();
            if writes
                && !matches!(
                    instruction.mnemonic(),
                    Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push
                )
            {
                let load = instruction.code() == Code::Mov_r64_rm64
                    && instruction.op1_kind() == OpKind::Memory;
                origin = if load {
                    loaded(&instruction)
                } else {
                    Self::Other
                };
            }
        }
        origin
    }
}

/// How control leaves a block. `top` is the top of the stack at its last instruction.
pub fn end_of(program: Program<'_>, b: BlockId, top: StackTop, convention: Convention) -> End {
    let Program { image, cfg, names } = program;
    let is_open = convention.is_open;
    let block = cfg.block(b);
    let inst = cfg.inst(block.last());
    let succs = cfg.succs(b);
    // For most ends the facts in the cfg are enough, without decoding.
    let last = match inst.flow {
        ControlFlow::IndirectCall
        | ControlFlow::Return
        | ControlFlow::Halt
        | ControlFlow::IndirectJump => cfg.decode(image, block.last()),
        _ => Instruction::default(),
    };
    match inst.flow {
        ControlFlow::Call if inst.special => End::Unknown,
        ControlFlow::Call => match cfg.direct_target(image, block.last()) {
            Some(target) => End::Call(callee_at(program, target, convention)),
            None => End::Unknown,
        },
        ControlFlow::IndirectCall if is_open || last.code() != Code::Call_rm64 => End::Unknown,
        ControlFlow::IndirectCall if convention.is_go => End::CallGo,
        ControlFlow::IndirectCall
            if last.op0_kind() == OpKind::Memory
                && last.memory_base() == Register::RAX
                && last.memory_index() == Register::None
                && last.memory_displacement64() == 0 =>
        {
            End::CallKeeping
        }
        ControlFlow::IndirectCall if last.is_ip_rel_memory_operand() => {
            match names.of_slot(last.ip_rel_memory_address()) {
                Some(name) => End::Call(Callee::Import(name)),
                None => End::CallPointer,
            }
        }
        ControlFlow::IndirectCall => End::CallPointer,
        ControlFlow::Return if is_open || top.is_computed() => End::Unknown,
        ControlFlow::Return if !matches!(last.mnemonic(), Mnemonic::Ret) => End::Unknown,
        ControlFlow::Return => End::Return,
        ControlFlow::Halt if last.mnemonic() == Mnemonic::Ud2 => End::Dead,
        // A signal handler sees all registers.
        ControlFlow::Halt | ControlFlow::Trap => End::Unknown,
        ControlFlow::IndirectJump => {
            let bounded = cfg
                .jump_tables
                .binary_search_by_key(&cfg.block(b).last(), |t| t.jump)
                .is_ok();
            let inner = succs.iter().any(|s| matches!(s, Succ::Branch(_)));
            let before = cfg.decode_block(image, b).take(block.count as usize - 1);
            let is_odd = is_open || convention.is_go;
            match (bounded && inner, Pointer::of(&last, before)) {
                (true, _) => End::Plain,
                (false, Pointer::Loaded) if !inner && !is_odd => match cfg.proc(block.proc).kind {
                    ProcKind::Plt if sets_register(program, b, &last) => End::Unknown,
                    ProcKind::Plt => End::Import,
                    _ => End::TailCall,
                },
                (false, Pointer::Loaded) if !inner && convention.is_go => End::JumpGo,
                (false, Pointer::Loaded | Pointer::LookedUp) if !is_odd => End::Dispatch,
                // A switch: its table is not bounded by a comparison, but leads to the function's own labels.
                (false, Pointer::LookedUp) if inner && convention.is_compiled => End::Plain,
                _ => End::Unknown,
            }
        }
        ControlFlow::FallThrough
        | ControlFlow::Syscall
        | ControlFlow::CondJump
        | ControlFlow::Jump => {
            // `xbegin` needs both successors: its abort handler runs with the registers of the beginning.
            let enough = if inst.flow == ControlFlow::CondJump {
                2
            } else {
                1
            };
            let whole = succs.len() >= enough && !succs.contains(&Succ::Unknown);
            if whole { End::Plain } else { End::Unknown }
        }
    }
}

/// True if a block sets a general register before its last instruction, a jump that does not read the register. mold's
/// entries of the PLT tell the binding code their number in r11.
fn sets_register(program: Program<'_>, b: BlockId, jump: &Instruction) -> bool {
    let count = program.cfg.block(b).count as usize;
    let mut before = program.cfg.decode_block(program.image, b).take(count - 1);
    before.any(|i| {
        let is_register = i.op_count() > 0 && i.op0_kind() == OpKind::Register;
        let register = i.op0_register().full_register();
        let is_read =
            jump.op0_kind() == OpKind::Register && jump.op0_register().full_register() == register;
        is_register && register.is_gpr() && !is_read
    })
}

/// The targets outside of its procedure to which a block leads.
pub fn tails_of(
    program: Program<'_>,
    b: BlockId,
    convention: Convention,
) -> impl Iterator<Item = Callee> + '_ {
    let cfg = program.cfg;
    let last = cfg.block(b).last();
    let table = match cfg.inst(last).flow {
        ControlFlow::IndirectJump => cfg.jump_tables.binary_search_by_key(&last, |t| t.jump).ok(),
        _ => None,
    };
    let targets = table.map_or(&[][..], |t| &cfg.jump_tables[t].targets[..]);
    let proc = cfg.proc(cfg.block(b).proc);
    let outside = targets
        .iter()
        .copied()
        .filter(|t| *t < proc.start || *t >= proc.end);
    let tails = cfg.succs(b).iter().filter_map(|s| match s {
        Succ::Tail(target) => Some(target.get()),
        _ => None,
    });
    let targets = tails.chain(outside);
    targets.map(move |target| callee_at(program, target, convention))
}

fn callee_at(program: Program<'_>, target: u64, convention: Convention) -> Callee {
    let Program { cfg, names, .. } = program;
    let Some(proc) = cfg.proc_at(target) else {
        return Callee::Unknown;
    };
    if cfg.proc(proc).kind == ProcKind::Plt {
        // Another object's function that code of Go calls may be one of Go, too.
        let keeps_to_abi = cfg.proc(proc).start == target && !convention.is_go;
        return if keeps_to_abi {
            Callee::Import(names.of_plt(cfg.proc(proc)))
        } else {
            Callee::Unknown
        };
    }
    match cfg.block_at(target) {
        Some(block) => Callee::Known(block, proc),
        None => Callee::Unknown,
    }
}
