//! What an instruction does, in ATOM's words: its types and its class.
//!
//! Accesses to memory come from the decoder's own table. So implicit accesses count (`push`,
//! `call`, string instructions), and mere address computations do not (`lea`, long `nop`s,
//! prefetches). The operation of a mnemonic is told by its name, which covers the vector families
//! without a list of two thousand entries. [`Classifier`] reads each name once.

use atom_abi::host::{Class, InstType};
use iced_x86::{
    CpuidFeature, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::opcode::prefix;
use super::{ControlFlow, branch, flow_of};

/// Operation of a mnemonic, whatever its operands are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    Other,
    Move,
    Arithmetic,
    Multiply,
    Divide,
    Logical,
    Shift,
    CondMove,
    Compare,
    /// Between integers and floating point, or between formats.
    Convert,
    /// Vector or floating-point division of single (or half) precision.
    DivideSingle,
    /// Vector or floating-point division of double or extended precision.
    DivideDouble,
}

/// Tells types and classes of instructions.
pub struct Classifier {
    /// For each mnemonic: bits of [`InstType`] for arithmetic, and the operation.
    names: Vec<(u32, Operation)>,
    factory: InstructionInfoFactory,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether an instruction reads memory, and whether it writes memory.
#[derive(Clone, Copy, Default, Debug)]
pub struct Accesses {
    /// It reads.
    pub loads: bool,
    /// It writes.
    pub stores: bool,
}

impl Classifier {
    /// Makes a classifier; reads the names of all mnemonics.
    pub fn new() -> Self {
        let names = Mnemonic::values()
            .map(|m| by_name(&format!("{m:?}")))
            .collect();
        Self {
            names,
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Types of an instruction, as bits of [`InstType`].
    pub fn types(&mut self, instruction: &Instruction) -> u32 {
        let Accesses { loads, stores } = self.accesses(instruction);
        let mut types = self.names[instruction.mnemonic() as usize].0;
        let mut add = |condition: bool, kind: InstType| {
            if condition {
                types |= kind as u32;
            }
        };
        let flow = flow_of(instruction);
        add(loads, InstType::Load);
        add(stores, InstType::Store);
        add(is_conditional_branch(instruction), InstType::CondBr);
        add(flow == ControlFlow::Jump, InstType::UncondBr);
        add(
            matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall),
            InstType::Call,
        );
        add(flow == ControlFlow::Return, InstType::Ret);
        add(
            matches!(
                flow,
                ControlFlow::IndirectJump | ControlFlow::IndirectCall | ControlFlow::Return
            ),
            InstType::Jump,
        );
        add(flow == ControlFlow::Syscall, InstType::Syscall);
        types
    }

    /// Whether the instruction reads memory, and whether it writes memory.
    pub fn accesses(&mut self, instruction: &Instruction) -> Accesses {
        let mut all = Accesses::default();
        for memory in self.factory.info(instruction).used_memory() {
            let access = memory.access();
            all.loads |= matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            all.stores |= matches!(
                access,
                OpAccess::Write
                    | OpAccess::CondWrite
                    | OpAccess::ReadWrite
                    | OpAccess::ReadCondWrite
            );
        }
        all
    }

    /// Class of an instruction.
    pub fn class(&mut self, instruction: &Instruction) -> Class {
        match flow_of(instruction) {
            ControlFlow::CondJump if is_conditional_branch(instruction) => return Class::Ibranch,
            ControlFlow::Jump | ControlFlow::IndirectJump => return Class::Ibranch,
            ControlFlow::Call | ControlFlow::IndirectCall | ControlFlow::Return => {
                return Class::Subroutine;
            }
            ControlFlow::CondJump
            | ControlFlow::Syscall
            | ControlFlow::Halt
            | ControlFlow::Trap => return Class::Null,
            ControlFlow::FallThrough => {}
        }
        if instruction.is_string_instruction() {
            return string_class(instruction);
        }
        let kind = self.names[instruction.mnemonic() as usize].1;
        let Accesses { loads, stores } = self.accesses(instruction);
        if is_vector(instruction) {
            return match kind {
                _ if is_state(instruction) => Class::Null,
                // No vector instruction computes in memory: it stores a result.
                _ if stores => Class::Fstore,
                Operation::Move if loads => Class::Fload,
                Operation::DivideSingle => Class::Fdivs,
                Operation::DivideDouble => Class::Fdivd,
                _ => Class::Fpop,
            };
        }
        match kind {
            Operation::Move => move_class(instruction, loads, stores),
            Operation::Arithmetic => Class::Iarithmetic,
            Operation::Multiply if operand_size(instruction) == 8 => Class::Imultiplyq,
            Operation::Multiply => Class::Imultiplyl,
            Operation::Logical => Class::Ilogical,
            Operation::Shift => Class::Ishift,
            Operation::CondMove => Class::Icondmove,
            Operation::Compare => Class::Icompare,
            // With operands in memory and general registers only.
            Operation::Convert => Class::Fpop,
            Operation::Other
            | Operation::Divide
            | Operation::DivideSingle
            | Operation::DivideDouble => Class::Null,
        }
    }
}

/// True for the branches for which BrCondValue has a meaning: `jcc`, `jrcxz`, `loop`, `loope` and
/// `loopne`. (`xbegin` does not branch on a known condition.)
pub fn is_conditional_branch(instruction: &Instruction) -> bool {
    instruction.is_jcc_short_or_near()
        || instruction.is_jcx_short()
        || instruction.is_loop()
        || instruction.is_loopcc()
}

/// Class of a string instruction. String instructions share names with vector moves (`movsd`, `cmpsd`).
fn string_class(instruction: &Instruction) -> Class {
    use Mnemonic::*;
    match instruction.mnemonic() {
        Lodsb | Lodsw | Lodsd | Lodsq => Class::Load,
        Stosb | Stosw | Stosd | Stosq | Movsb | Movsw | Movsd | Movsq => Class::Store,
        Cmpsb | Cmpsw | Cmpsd | Cmpsq | Scasb | Scasw | Scasd | Scasq => Class::Icompare,
        _ => Class::Null,
    }
}

fn move_class(instruction: &Instruction, loads: bool, stores: bool) -> Class {
    use Mnemonic::*;
    match instruction.mnemonic() {
        Push | Pushf | Pushfq | Enter => return Class::Store,
        Pop if instruction.op0_kind() == OpKind::Register
            && !is_system(instruction.op0_register()) =>
        {
            return Class::Load;
        }
        // To memory, or to a segment register.
        Pop => {
            return if instruction.op0_kind() == OpKind::Register {
                Class::Null
            } else {
                Class::Store
            };
        }
        Leave | Xlatb => return Class::Load,
        _ => {}
    }
    let registers = (0..instruction.op_count())
        .filter(|&i| instruction.op_kind(i) == OpKind::Register)
        .map(|i| instruction.op_register(i));
    if registers.into_iter().any(is_system) {
        Class::Null
    } else if stores {
        Class::Store
    } else if loads {
        Class::Load
    } else {
        Class::Iarithmetic
    }
}

fn is_system(register: Register) -> bool {
    register.is_segment_register() || register.is_cr() || register.is_dr() || register.is_tr()
}

/// True if it works on vector, mask or x87 registers.
fn is_vector(instruction: &Instruction) -> bool {
    is_x87(instruction)
        || (0..instruction.op_count()).any(|i| {
            let r = instruction.op_register(i);
            instruction.op_kind(i) == OpKind::Register
                && (r.is_vector_register() || r.is_mm() || r.is_k() || r.is_tmm())
        })
}

fn is_x87(instruction: &Instruction) -> bool {
    instruction.cpuid_features().iter().any(|f| {
        matches!(
            f,
            CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387
        )
    })
}

/// True if it saves, loads or resets the floating-point unit itself and does not compute.
fn is_state(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Fnsave
            | Frstor
            | Fldenv
            | Fnstenv
            | Fldcw
            | Fnstcw
            | Fnstsw
            | Fninit
            | Fnclex
            | Fnop
            | Wait
            | Emms
            | Vzeroall
            | Vzeroupper
    )
}

/// Size in bytes of the operation's destination.
fn operand_size(instruction: &Instruction) -> usize {
    match instruction.op0_kind() {
        OpKind::Register => instruction.op0_register().size(),
        _ => instruction.memory_size().size(),
    }
}

/// Types and operation of a mnemonic by its name, as the decoder spells it (`Vaddps`).
fn by_name(name: &str) -> (u32, Operation) {
    let lower = name.to_ascii_lowercase();
    // An AVX form has the name of its SSE form with `v` in front.
    let base = match lower.strip_prefix('v') {
        Some(rest) if !matches!(lower.as_str(), "verr" | "verw") && !rest.starts_with('m') => rest,
        Some(rest)
            if ["mov", "mul", "max", "min", "mask"]
                .iter()
                .any(|m| rest.starts_with(m)) =>
        {
            rest
        }
        _ => lower.as_str(),
    };
    let starts = |list: &[&str]| list.iter().any(|prefix| base.starts_with(prefix));
    let is = |list: &[&str]| list.contains(&base);

    let mut types = 0;
    let fused = starts(&["fmadd", "fmsub", "fnmadd", "fnmsub", "fmaddsub", "fmsubadd"]);
    let dot_product = starts(&["pdp", "tdp"]) || is(&["dpps", "dppd", "dpbf16ps"]);
    if is(&["inc", "adc", "adcx", "adox", "xadd", "fiadd"])
        || starts(&["add", "padd", "phadd", "hadd", "fadd", "kadd", "pmadd"])
        || dot_product
        || (fused && base.contains("add"))
    {
        types |= InstType::Add as u32;
    }
    if is(&["dec", "sbb", "fisub", "fisubr", "addsubps", "addsubpd"])
        || starts(&["sub", "psub", "phsub", "hsub", "fsub"])
        || (fused && base.contains("sub"))
    {
        types |= InstType::Sub as u32;
    }
    if fused || dot_product || is(&["imul", "fimul"]) || starts(&["mul", "pmul", "pmadd", "fmul"]) {
        types |= InstType::Mul as u32;
    }
    if is(&["idiv", "fidiv", "fidivr"]) || starts(&["div", "fdiv"]) {
        types |= InstType::Div as u32;
    }

    let kind = if is(&["div", "idiv"]) {
        Operation::Divide
    } else if is(&["divps", "divss", "divph", "divsh"]) {
        Operation::DivideSingle
    } else if types & InstType::Div as u32 != 0 {
        Operation::DivideDouble
    } else if is(&["imul", "mul", "mulx"]) {
        Operation::Multiply
    } else if starts(&["cmov", "fcmov"]) || base.starts_with("set") && !is(&["setssbsy"]) {
        Operation::CondMove
    } else if is(&["cmp", "test", "bt", "cmpxchg", "cmpxchg8b", "cmpxchg16b"]) {
        Operation::Compare
    } else if is(&[
        "shl", "shr", "sal", "sar", "rol", "ror", "rcl", "rcr", "shld", "shrd", "shlx", "shrx",
        "sarx", "rorx",
    ]) {
        Operation::Shift
    } else if is(&[
        "and", "or", "xor", "not", "andn", "bts", "btr", "btc", "bsf", "bsr", "bswap", "blsi",
        "blsr", "blsmsk", "bextr", "bzhi", "pdep", "pext", "tzcnt", "lzcnt", "popcnt", "crc32",
    ]) {
        Operation::Logical
    } else if is(&[
        "add", "adc", "sub", "sbb", "inc", "dec", "neg", "adcx", "adox", "lea", "xadd", "xchg",
        "cbw", "cwde", "cdqe", "cwd", "cdq", "cqo",
    ]) {
        Operation::Arithmetic
    } else if starts(&["cvt"]) {
        Operation::Convert
    } else if is_move(base) {
        Operation::Move
    } else {
        Operation::Other
    };
    (types, kind)
}

/// True for moves between memory and registers, integer or vector.
fn is_move(base: &str) -> bool {
    let moves = [
        "mov",
        "kmov",
        "maskmov",
        "pmaskmov",
        "broadcast",
        "pbroadcast",
        "fld",
        "fst",
        "fild",
        "fist",
        "fbld",
        "fbstp",
        "push",
        "gather",
        "pgather",
        "expand",
        "pexpand",
        "pmovsx",
        "pmovzx",
        "tileload",
    ];
    let no_moves = [
        "fldenv", "fldcw", "movmsk", "pmovmsk", "fstenv", "fstsw", "fstcw",
    ];
    let exact = [
        "pop", "popw", "popf", "popfq", "enter", "leave", "xlatb", "lddqu",
    ];
    exact.contains(&base)
        || (moves.iter().any(|m| base.starts_with(m))
            && !no_moves.iter().any(|m| base.starts_with(m)))
}

/// Types of an instruction if its control flow and its bytes tell them without decoding; else
/// `None`. That is so for direct branches and calls, which tools ask for most.
pub(crate) fn types_of_flow(flow: ControlFlow, code_bytes: &[u8]) -> Option<u32> {
    const XBEGIN: u8 = branch::XBEGIN[0];
    // Only `xbegin` starts so among the conditional jumps of the cfg.
    let is_xbegin = || {
        let first = code_bytes.first();
        first.is_none_or(|b| matches!(*b, XBEGIN | prefix::OPERAND_SIZE))
    };
    match flow {
        ControlFlow::CondJump if !is_xbegin() => Some(InstType::CondBr as u32),
        ControlFlow::Jump => Some(InstType::UncondBr as u32),
        ControlFlow::Call => Some(InstType::Call as u32 | InstType::Store as u32),
        _ => None,
    }
}
