//! Whether a program may have more than one thread.
//!
//! Tools ask so that their counters can do without atomic operations. "No" must
//! be certain, "yes" may be wrong. It is "no" if all of these hold:
//! - nothing that starts threads is imported or, in a static program with
//!   symbols, linked in; a static program without symbols cannot tell;
//! - every library that it names is known neither to start threads by itself
//!   nor to load further libraries;
//! - no system call in its own code, nor a call of `syscall`, is or may be
//!   `clone` or `clone3`, but for those of the C library's `fork` and
//!   `posix_spawn`, whose children are processes.

use std::collections::HashSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::cfg::Cfg;
use crate::decode::{Flow, direct_target};
use crate::ids::{BlockId, InstId};
use crate::image::Image;

/// Functions that start threads, run callbacks on threads of their own, or load
/// libraries that might.
const STARTERS: &[&str] = &[
    "pthread_create",
    "__pthread_create",
    "__pthread_create_2_1",
    "thrd_create",
    "clone",
    "__clone",
    "clone3",
    "timer_create",
    "mq_notify",
    "aio_read",
    "aio_write",
    "aio_fsync",
    "lio_listio",
    "getaddrinfo_a",
    "dlopen",
    "dlmopen",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
];

/// In a static program these merely belong to the C library: whether they are
/// called by the program is looked at.
const STATIC_ONLY_IF_CALLED: &[&str] = &["clone", "__clone", "clone3", "dlopen", "dlmopen"];

/// Libraries that do not start threads, by name up to `.so`.
const QUIET_LIBRARIES: &[&str] = &[
    "ld-linux-x86-64",
    "libacl",
    "libattr",
    "libbz2",
    "libc",
    "libcap",
    "libcrypt",
    "libdl",
    "libexpat",
    "libgcc_s",
    "libgmp",
    "libhistory",
    "libm",
    "libmagic",
    "libmpc",
    "libmpfr",
    "libncurses",
    "libncursesw",
    "libpcre2-8",
    "libpthread",
    "libreadline",
    "libresolv",
    "librt",
    "libselinux",
    "libstdc++",
    "libtinfo",
    "libutil",
    "libuuid",
    "libz",
];

/// Procedures of C libraries whose own `clone` makes a process, not a thread.
const PROCESS_MAKERS: &[&str] = &[
    "_Fork",
    "__libc_fork",
    "fork",
    "__fork",
    "arch_fork",
    "vfork",
    "__vfork",
    "__spawnix",
    "__spawni",
    "posix_spawn",
    "__posix_spawn",
    "__clone_internal",
    "__clone_internal_fallback",
    "__clone3_internal",
    "clone",
    "__clone",
    "__clone3",
    "clone3",
    "do_system",
];

const SYS_CLONE: u64 = 56;
const SYS_CLONE3: u64 = 435;
const DT_NEEDED: i64 = 1;
const DT_STRTAB: i64 = 5;

/// True unless it is certain that the program has one thread only.
pub fn may_have_threads(image: &Image, cfg: &Cfg) -> bool {
    let linked = if image.is_static() {
        static_starts(image)
    } else {
        dynamic_starts(image)
    };
    linked || code_starts(image, cfg)
}

fn bare(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

fn dynamic_starts(image: &Image) -> bool {
    let imports = image.dynamic_symbols.iter().filter(|s| s.is_undefined);
    if imports.into_iter().any(|s| {
        let name = bare(&s.name);
        // GNU and LLVM run parallel regions on threads.
        STARTERS.contains(&name) || name.starts_with("GOMP_") || name.starts_with("__kmpc_")
            // Other signatures of std::thread's start, in other versions.
            || name.contains("_M_start_thread")
    }) {
        return true;
    }
    let strings = image.dynamic_value(DT_STRTAB).unwrap_or(0);
    let needed = image.dynamic.iter().filter(|d| d.0 == DT_NEEDED);
    needed.into_iter().any(|&(_, offset)| {
        let name = strings.checked_add(offset).and_then(|at| image.rest_at(at));
        let name = name
            .and_then(|bytes| bytes.split(|b| *b == 0).next())
            .unwrap_or(&[]);
        let stem = std::str::from_utf8(name)
            .ok()
            .and_then(|n| n.split(".so").next());
        !stem.is_some_and(|stem| QUIET_LIBRARIES.contains(&stem))
    })
}

fn static_starts(image: &Image) -> bool {
    let mut functions = image
        .symbols
        .iter()
        .filter(|s| s.is_func && !s.is_undefined)
        .peekable();
    functions.peek().is_none()
        || functions.any(|s| {
            let name = bare(&s.name);
            (STARTERS.contains(&name) && !STATIC_ONLY_IF_CALLED.contains(&name))
                || name.contains("_M_start_thread")
                // Go starts threads before main.
                || name == "runtime.newosproc"
        })
}

/// Looks for `clone` in the program's own code.
fn code_starts(image: &Image, cfg: &Cfg) -> bool {
    let named = |names: &'static [&'static str]| -> HashSet<u64> {
        let own = cfg
            .procs
            .iter()
            .filter_map(|p| Some((p.name.as_deref()?, p.start)));
        let all = image.symbols.iter().filter(|s| s.is_func && s.address != 0);
        own.chain(all.map(|s| (s.name.as_str(), s.address)))
            .filter(|(name, _)| names.contains(&bare(name)))
            .map(|(_, address)| address)
            .collect()
    };
    let syscall = named(&["syscall"]);
    let starters = named(STATIC_ONLY_IF_CALLED);
    let process_makers = named(PROCESS_MAKERS);
    let is_local = |address: &u64| cfg.proc_at(*address).is_none_or(|p| cfg.proc(p).is_local);
    if image.is_static() && !starters.iter().all(is_local) {
        // Called through a pointer, from who knows where.
        return true;
    }
    let mut factory = InstructionInfoFactory::new();
    for (i, block) in cfg.blocks.iter().enumerate() {
        let proc = cfg.proc(block.proc);
        if process_makers.contains(&proc.start) || syscall.contains(&proc.start) {
            continue;
        }
        for inst in block.insts() {
            let number = match cfg.inst(inst).flow {
                Flow::Syscall => constant_before(
                    image,
                    cfg,
                    BlockId::from_index(i),
                    inst,
                    Register::RAX,
                    &mut factory,
                ),
                Flow::Call | Flow::Jump => {
                    let target = direct_target(&cfg.decode(image, inst)).unwrap_or(0);
                    if starters.contains(&target) {
                        return true;
                    }
                    if !syscall.contains(&target) {
                        continue;
                    }
                    constant_before(
                        image,
                        cfg,
                        BlockId::from_index(i),
                        inst,
                        Register::RDI,
                        &mut factory,
                    )
                }
                _ => continue,
            };
            if number.is_none_or(|n| n == SYS_CLONE || n == SYS_CLONE3) {
                return true;
            }
        }
    }
    false
}

/// The constant that a register holds before an instruction.
///
/// Where the block does not tell, the compiler may have kept the number in
/// another register since an earlier block: going back over the procedure and
/// its copies must then lead to some constant, and no constant of the procedure
/// may be one that makes a thread.
fn constant_before(
    image: &Image,
    cfg: &Cfg,
    block: BlockId,
    before: InstId,
    register: Register,
    factory: &mut InstructionInfoFactory,
) -> Option<u64> {
    let first = cfg.block(block).first;
    let whole = cfg.proc_insts(cfg.block(block).proc);
    let mut register = register;
    let mut in_block = true;
    for id in (whole.start as u32..before.0).rev().map(InstId) {
        let instruction = cfg.decode(image, id);
        if id < first && in_block {
            in_block = false;
            let makes_threads = whole.clone().any(|i| {
                constant_of(&cfg.decode(image, InstId(i as u32)))
                    .is_some_and(|n| n == SYS_CLONE || n == SYS_CLONE3)
            });
            if makes_threads {
                return None;
            }
        }
        let info = factory.info(&instruction);
        let written = info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && !matches!(
                    used.access(),
                    iced_x86::OpAccess::Read | iced_x86::OpAccess::CondRead
                )
        });
        if written {
            let is_copy = instruction.mnemonic() == Mnemonic::Mov
                && instruction.op0_kind() == OpKind::Register
                && instruction.op1_kind() == OpKind::Register
                && instruction.op0_register().size() >= 4;
            if !is_copy {
                return constant_of(&instruction);
            }
            register = instruction.op1_register().full_register();
        }
    }
    None
}

/// The constant that `mov r, imm` or `xor r, r` gives a register of 32 or 64 bits.
fn constant_of(instruction: &Instruction) -> Option<u64> {
    if instruction.op_count() != 2
        || instruction.op0_kind() != OpKind::Register
        || instruction.op0_register().size() < 4
    {
        return None;
    }
    match instruction.mnemonic() {
        Mnemonic::Mov
            if instruction.op1_kind() != OpKind::Register
                && instruction.op1_kind() != OpKind::Memory =>
        {
            Some(instruction.immediate(1))
        }
        Mnemonic::Xor
            if instruction.op1_kind() == OpKind::Register
                && instruction.op0_register() == instruction.op1_register() =>
        {
            Some(0)
        }
        _ => None,
    }
}
