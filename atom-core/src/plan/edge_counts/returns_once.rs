//! Finding the procedures that certainly return to their caller exactly once for each call.
//!
//! Flow is conserved across a call only if the call returns exactly once. `exit` never returns, `longjmp`
//! or an exception goes elsewhere, `setjmp` or a switch of stacks may return again. A procedure is trusted
//! if neither it nor the procedures that it calls can do any of these. It calls no unknown code, makes only
//! harmless system calls, jumps nowhere by pointer, has a stack that can be followed instruction by
//! instruction, and does not change the word of its return address. A procedure that never ends, or that
//! ends by a fault, does no harm, as the process does not end in order then.
//!
//! Signal handlers that do not return are not considered; see `docs/limits.md`.

use rayon::prelude::*;

use super::members::index_of;
use crate::cfg::{Cfg, Proc, ProcKind, Status, Succ};
use crate::grouped::Grouped;
use crate::ids::{BlockId, InstId, ProcId};
use crate::image::{Image, ImageDecoder};
use crate::x86::{
    Code, ControlFlow, Instruction, Memo, Mnemonic, OpKind, Register, branch, opcode,
};

/// Library functions that return for all arguments: by the C standard and POSIX they call no function of
/// the program and throw no exception.
const LIBRARY: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "memchr",
    "memrchr",
    "mempcpy",
    "rawmemchr",
    "bcmp",
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcpy",
    "strncpy",
    "strcat",
    "strncat",
    "strchr",
    "strchrnul",
    "strrchr",
    "strstr",
    "strspn",
    "strcspn",
    "strpbrk",
    "stpcpy",
    "stpncpy",
    "strcasecmp",
    "strncasecmp",
    "strcoll",
    "strtok_r",
    "strdup",
    "strndup",
    "memmem",
    "wcslen",
    "wmemset",
    "wmemcpy",
    "wmemcmp",
    "wcscmp",
    "wcschr",
    "toupper",
    "tolower",
    "isalpha",
    "isalnum",
    "isdigit",
    "isspace",
    "isupper",
    "islower",
    "isprint",
    "ispunct",
    "isxdigit",
    "abs",
    "labs",
    "sin",
    "cos",
    "tan",
    "exp",
    "exp2",
    "log",
    "log2",
    "log10",
    "pow",
    "sqrt",
    "floor",
    "ceil",
    "fmod",
    "floorf",
    "ceilf",
    "sqrtf",
    "ldexp",
    "frexp",
    "rint",
    "round",
    "trunc",
    "atan",
    "atan2",
    "strtol",
    "strtoul",
    "strtod",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "_ZdlPv",
    "_ZdlPvm",
    "__ctype_b_loc",
    "__ctype_tolower_loc",
    "__ctype_toupper_loc",
    "__errno_location",
];

/// Numbers of the system calls that may not return to the same place in the same process: they end,
/// replace, duplicate or resume something.
const ODD_SYSTEM_CALLS: [libc::c_long; 9] = [
    libc::SYS_rt_sigreturn,
    libc::SYS_clone,
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_execve,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_execveat,
    libc::SYS_clone3,
];

/// Number of groups in one piece of parallel work.
const CHUNK: usize = 64;

/// Number of groups after which the program's pages are given back.
const WAVE: usize = 8192;

/// Depth of the stack in bytes: bytes pushed since the procedure was entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stack {
    depth: i64,
    /// The depth that rbp points to, if it is a frame pointer.
    frame: Option<i64>,
}

/// Results for some procedures, without those of the procedures that they call.
#[derive(Default)]
struct Facts {
    /// Procedures that are trusted.
    trusted: Vec<u32>,
    /// Calls that they make: callee and caller.
    calls: Vec<(u32, u32)>,
}

/// For each procedure, whether a call of it certainly returns once.
pub fn certain(image: &Image, cfg: &Cfg, groups: &[Vec<ProcId>]) -> Vec<bool> {
    // Most procedures are lost because of their callees, which are known without decoding instructions.
    let may = spread(cfg, &facts(image, cfg, groups, |_| true, false));
    let facts = facts(image, cfg, groups, |p| may[p.index()], true);
    spread(cfg, &facts)
}

/// Results for the procedures that are asked for, by each of their instructions or only by the successors
/// of their blocks.
fn facts<'a>(
    image: &'a Image,
    cfg: &'a Cfg,
    groups: &'a [Vec<ProcId>],
    is_asked: impl Fn(ProcId) -> bool + Sync,
    in_full: bool,
) -> Vec<Facts> {
    let read = |reader: &mut Reader<'a>, some: &'a [Vec<ProcId>]| {
        let mut facts = Facts::default();
        for procs in some.iter().filter(|procs| is_asked(procs[0])) {
            reader.callees.clear();
            let follower = Follower {
                image,
                cfg,
                procs,
                in_full,
                reader,
            };
            if follower.run().is_some() {
                let me = procs[0].0;
                facts.trusted.push(me);
                let calls = reader.callees.iter().map(|callee| (*callee, me));
                facts.calls.extend(calls);
            }
        }
        facts
    };
    let mut facts = Vec::new();
    for wave in groups.chunks(WAVE) {
        let some = wave.par_chunks(CHUNK);
        facts.par_extend(some.map_init(|| Reader::new(image), read));
        image.release_pages();
    }
    facts
}

/// For each procedure, whether it is trusted with all that it calls.
fn spread(cfg: &Cfg, facts: &[Facts]) -> Vec<bool> {
    let mut certain = vec![false; cfg.procs.len()];
    for me in facts.iter().flat_map(|f| &f.trusted) {
        certain[*me as usize] = true;
    }
    let calls = || facts.iter().flat_map(|f| f.calls.iter().copied());
    let callers = Grouped::new(cfg.procs.len(), calls);
    let mut lost: Vec<u32> = (0..cfg.procs.len() as u32).collect();
    lost.retain(|p| !certain[*p as usize]);
    while let Some(callee) = lost.pop() {
        for &caller in callers.of(callee as usize) {
            if std::mem::replace(&mut certain[caller as usize], false) {
                lost.push(caller);
            }
        }
    }
    certain
}

fn is_library(proc: &Proc) -> bool {
    let name = proc.name.as_deref().unwrap_or_default();
    let name = name.strip_suffix("@plt").unwrap_or_default();
    proc.kind == ProcKind::Plt && LIBRARY.contains(&name)
}

/// Storage that is reused for one procedure after the other.
struct Reader<'a> {
    decoder: ImageDecoder<'a>,
    /// Cache of the instructions that leave the stack as it is, see [`leaves_stack`].
    plain: Memo<bool>,
    /// For each block of the procedure, the stack at its start, once control has reached it.
    at: Vec<Option<Stack>>,
    /// Blocks that control reaches with this stack, to be followed.
    work: Vec<(BlockId, Stack)>,
    /// Procedures that it calls.
    callees: Vec<u32>,
}

impl<'a> Reader<'a> {
    fn new(image: &'a Image) -> Self {
        Self {
            decoder: ImageDecoder::new(image),
            plain: Memo::new(),
            at: Vec::new(),
            work: Vec::new(),
            callees: Vec::new(),
        }
    }
}

struct Follower<'a, 'r> {
    image: &'a Image,
    cfg: &'a Cfg,
    procs: &'a [ProcId],
    /// True to follow each instruction; else no instruction counts as changing the stack.
    in_full: bool,
    reader: &'r mut Reader<'a>,
}

impl Follower<'_, '_> {
    /// Follows all paths through the procedure. `None` if it cannot be trusted.
    fn run(mut self) -> Option<()> {
        let cfg = self.cfg;
        let proc = cfg.proc(self.procs[0]);
        if is_library(proc) {
            return Some(());
        }
        let fine = |p: &ProcId| cfg.proc(*p).is_movable() && cfg.proc(*p).status == Status::Full;
        if proc.kind != ProcKind::Normal || !self.procs.iter().all(fine) {
            return None;
        }
        let blocks: usize = self
            .procs
            .iter()
            .map(|p| cfg.proc(*p).block_count as usize)
            .sum();
        self.reader.at.clear();
        self.reader.at.resize(blocks, None);
        let start = Stack {
            depth: 0,
            frame: None,
        };
        self.reader.work.clear();
        self.reader.work.push((proc.first_block, start));
        while let Some((b, stack)) = self.reader.work.pop() {
            let place = &mut self.reader.at[index_of(cfg, self.procs, b)?];
            let stack = match place {
                None => stack,
                Some(known) if known.depth != stack.depth => return None,
                Some(known) if known.frame == stack.frame || known.frame.is_none() => continue,
                Some(known) => Stack {
                    frame: None,
                    ..*known
                },
            };
            *place = Some(stack);
            self.block(b, stack)?;
        }
        Some(())
    }

    fn block(&mut self, b: BlockId, mut stack: Stack) -> Option<()> {
        let cfg = self.cfg;
        let block = cfg.block(b);
        let flow = cfg.inst(block.last()).flow;
        if self.in_full {
            stack = self.insts(b, stack)?;
        } else if flow != ControlFlow::FallThrough {
            self.end(block.first, block.last(), &stack)?;
        }
        for succ in cfg.succs(b) {
            match *succ {
                Succ::Fall(to) | Succ::Branch(to) => self.reader.work.push((to, stack)),
                Succ::Tail(to) => {
                    let pc = to.get();
                    let to = cfg.block_at(pc)?;
                    let owner = cfg.block(to).proc;
                    if self.procs.contains(&owner) {
                        self.reader.work.push((to, stack));
                    } else if stack.depth == 0
                        && cfg.proc(owner).start == pc
                        && flow != ControlFlow::Call
                    {
                        self.reader.callees.push(owner.0);
                    } else {
                        return None;
                    }
                }
                Succ::Unknown if flow == ControlFlow::Return => {}
                Succ::Unknown => return None,
            }
        }
        Some(())
    }

    /// Follows the instructions of a block; returns the stack at its end.
    fn insts(&mut self, b: BlockId, mut stack: Stack) -> Option<Stack> {
        let cfg = self.cfg;
        let block = cfg.block(b);
        for (id, (inst, bytes)) in block.insts().zip(cfg.block_bytes(self.image, b)) {
            let Reader { decoder, plain, .. } = &mut *self.reader;
            let mut decode = || decoder.again(cfg.inst_pc(id));
            let is_next = inst.flow == ControlFlow::FallThrough;
            if is_next && plain.of(inst, bytes, || leaves_stack(&decode())) {
                continue;
            }
            // Direct branches and calls have no operand in memory.
            if !inst.flow.is_direct() {
                let instruction = decode();
                if touches_return_address(&instruction, &stack) {
                    return None;
                }
                if is_next {
                    stack = step(&instruction, stack)?;
                    continue;
                }
            }
            self.end(block.first, id, &stack)?;
        }
        Some(stack)
    }

    /// Follows the last instruction of a block.
    fn end(&mut self, first: InstId, inst: InstId, stack: &Stack) -> Option<()> {
        let cfg = self.cfg;
        let decode = || cfg.decode(self.image, inst);
        let trusted = match cfg.inst(inst).flow {
            ControlFlow::Call if !cfg.inst(inst).special => {
                let target = cfg.direct_target(self.image, inst)?;
                let callee = cfg.proc_at(target)?;
                self.reader.callees.push(callee.0);
                cfg.proc(callee).start == target
            }
            ControlFlow::Return => {
                let plain = [opcode::RET];
                let is_plain = self.image.bytes_at(cfg.inst_pc(inst), 1) == Some(&plain);
                stack.depth == 0 && (is_plain || decode().code() == Code::Retnq)
            }
            ControlFlow::Jump => true,
            ControlFlow::CondJump if is_plain_jcc(self.image, cfg, inst) => true,
            ControlFlow::CondJump => {
                let instruction = decode();
                instruction.is_jcc_short_or_near()
                    || instruction.is_jcx_short()
                    || instruction.is_loop()
                    || instruction.is_loopcc()
            }
            ControlFlow::IndirectJump => cfg
                .jump_tables
                .binary_search_by_key(&inst, |t| t.jump)
                .is_ok(),
            ControlFlow::Syscall => {
                let before = (first.0..inst.0).rev().map(InstId);
                self.is_harmless(before)
            }
            ControlFlow::Halt | ControlFlow::Trap => true,
            _ => false,
        };
        trusted.then_some(())
    }

    /// True if the number of the system call is known and harmless.
    fn is_harmless(&self, before: impl Iterator<Item = InstId>) -> bool {
        for inst in before {
            let instruction = self.cfg.decode(self.image, inst);
            let sets = instruction.op_count() > 0
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register().full_register() == Register::RAX;
            if !sets
                && !matches!(
                    instruction.mnemonic(),
                    Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Xor
                )
            {
                return false;
            }
            if !sets {
                continue;
            }
            let wide = matches!(instruction.op0_register(), Register::EAX | Register::RAX);
            let number = match instruction.mnemonic() {
                Mnemonic::Mov if instruction.op1_kind() == OpKind::Immediate32 => {
                    Some(libc::c_long::from(instruction.immediate32()))
                }
                Mnemonic::Xor
                    if instruction.op1_kind() == OpKind::Register
                        && instruction.op1_register() == instruction.op0_register() =>
                {
                    Some(0)
                }
                _ => None,
            };
            return wide && number.is_some_and(|n| !ODD_SYSTEM_CALLS.contains(&n));
        }
        false
    }
}

/// True for a conditional jump without prefixes.
fn is_plain_jcc(image: &Image, cfg: &Cfg, inst: InstId) -> bool {
    let bytes = image.bytes_at(cfg.inst_pc(inst), usize::from(cfg.inst(inst).len));
    bytes.is_some_and(branch::is_plain_jcc)
}

/// True if an instruction, at any depth of the stack, neither uses a return address nor changes the
/// depth.
fn leaves_stack(instruction: &Instruction) -> bool {
    let based = [Register::RSP, Register::RBP].contains(&instruction.memory_base());
    // An instruction that depends on the depth at all behaves differently at these depths.
    let stacks = [(0, None), (800, None), (800, Some(80))];
    !based
        && stacks.iter().all(|&(depth, frame)| {
            let stack = Stack { depth, frame };
            step(instruction, stack) == Some(stack)
        })
}

/// True if an operand is the word that holds the return address.
fn touches_return_address(instruction: &Instruction, stack: &Stack) -> bool {
    let depth = match instruction.memory_base() {
        Register::RSP => stack.depth,
        Register::RBP => match stack.frame {
            Some(frame) => frame,
            None => return false,
        },
        _ => return false,
    };
    if instruction.memory_index() != Register::None {
        return false;
    }
    let size = instruction.memory_size().size().max(1) as i64;
    let at = instruction.memory_displacement64() as i64;
    at < depth + 8 && at + size > depth
}

/// The stack after an instruction that continues to the next. `None` if that is not known.
fn step(instruction: &Instruction, stack: Stack) -> Option<Stack> {
    let Stack { depth, frame } = stack;
    let immediate = || match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(instruction.immediate(1) as i64),
        _ => None,
    };
    let is = |op: u32, register| {
        instruction.op_kind(op) == OpKind::Register && instruction.op_register(op) == register
    };
    let to_stack = instruction.op_count() > 0 && is(0, Register::RSP);
    let to_frame = instruction.op_count() > 0
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RBP;
    let based = |wanted: Register| {
        (instruction.memory_base() == wanted && instruction.memory_index() == Register::None)
            .then(|| instruction.memory_displacement64() as i64)
    };
    // This may be a pointer to the return address, or a stack that is kept to be resumed.
    if instruction.op_count() > 1 && is(1, Register::RSP) {
        let kept = instruction.op0_kind() == OpKind::Register && depth > 0;
        let compared = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
        if !kept && !compared && !to_frame {
            return None;
        }
    }
    let next = match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop
            if to_stack || instruction.memory_base() == Register::RSP =>
        {
            return None;
        }
        Mnemonic::Push if instruction.stack_pointer_increment() == -8 => Stack {
            depth: depth + 8,
            frame,
        },
        Mnemonic::Pop if instruction.stack_pointer_increment() == 8 => Stack {
            depth: depth - 8,
            frame: frame.filter(|_| !to_frame),
        },
        Mnemonic::Sub if to_stack => Stack {
            depth: depth.checked_add(immediate()?)?,
            frame,
        },
        Mnemonic::Add if to_stack => Stack {
            depth: depth.checked_sub(immediate()?)?,
            frame,
        },
        Mnemonic::Lea if to_stack => match (based(Register::RSP), based(Register::RBP), frame) {
            (Some(disp), ..) => Stack {
                depth: depth.checked_sub(disp)?,
                frame,
            },
            (_, Some(disp), Some(f)) => Stack {
                depth: f.checked_sub(disp)?,
                frame,
            },
            _ => return None,
        },
        Mnemonic::Mov if to_stack && is(1, Register::RBP) => Stack {
            depth: frame?,
            frame,
        },
        Mnemonic::Mov if to_frame && is(0, Register::RBP) && is(1, Register::RSP) => Stack {
            depth,
            frame: Some(depth),
        },
        Mnemonic::Leave => Stack {
            depth: frame? - 8,
            frame: None,
        },
        // Comparisons only: any other instruction with rsp as its first operand changes it.
        Mnemonic::Cmp | Mnemonic::Test => stack,
        Mnemonic::Rdsspq
        | Mnemonic::Rdsspd
        | Mnemonic::Incsspq
        | Mnemonic::Int
        | Mnemonic::Enter => {
            return None;
        }
        _ if instruction.stack_pointer_increment() != 0 || to_stack => return None,
        // An exchange changes its second operand too.
        Mnemonic::Xchg | Mnemonic::Xadd
            if (0..2).any(|op| is(op, Register::RSP) || is(op, Register::RBP)) =>
        {
            return None;
        }
        _ if to_frame => Stack { depth, frame: None },
        _ => stack,
    };
    (next.depth >= 0).then_some(next)
}
