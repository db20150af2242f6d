//! Whether a program may have more than one thread.
//!
//! Tools ask this to know whether their counters can do without atomic operations. The answer "no" must
//! be certain, "yes" may be wrong. The answer is "no" if all of these hold:
//! - nothing that starts threads is imported or, in a static program with
//!   symbols, linked in; a static program without symbols cannot tell;
//! - every library that the program names is known neither to start threads by itself
//!   nor to load further libraries;
//! - no system call in the program's own code, nor a call of `syscall`, is or may be
//!   `clone` or `clone3`, except in the C library's `fork` and
//!   `posix_spawn`, whose children are processes.

use std::collections::HashSet;

use object::elf;
use rayon::prelude::*;

use super::constants::Constants;
use crate::cfg::{Cfg, Proc, ProcKind};
use crate::ids::InstId;
use crate::image::{Image, ObjectKind};
use crate::x86::{Code, ControlFlow, Instruction, Mnemonic, OpKind, Register, decode_at};

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

/// Starters that belong to the C library of every static program; there only calls of them count.
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
];

/// Functions of the C library that run a child in the memory of the process. It executes code of its own there, so it
/// needs data of its own where that code is seen.
const SPAWNERS: &[&str] = &["posix_spawn", "posix_spawnp", "system", "popen"];

/// Libraries that belong to the C library, by name up to `.so`. Their own threads (timers, asynchronous
/// input and output) are started by functions of [`STARTERS`], which callers import.
const C_LIBRARIES: &[&str] = &[
    "libc",
    "libpthread",
    "librt",
    "libdl",
    "libm",
    "libanl",
    "libresolv",
];

const SYS_CLONE: u64 = 56;
const SYS_FORK: u64 = 57;
const SYS_CLONE3: u64 = 435;
const SYS_ARCH_PRCTL: u64 = 158;

/// True unless it is certain that the program has one thread only.
pub fn may_have_threads(image: &Image, cfg: &Cfg) -> bool {
    // Nothing is known of the process that loads a library.
    if image.is_lone {
        return true;
    }
    let linked = if image.kind.is_static() {
        static_starts(image)
    } else {
        dynamic_starts(image)
    };
    linked || code_starts(image, cfg)
}

/// True unless it is certain that a process of these objects has one thread only, and no child in its memory: what its libraries
/// start is seen in the objects that ask for it, so the C library itself and the loader do not count.
pub fn process_may_have_threads<'a>(objects: impl Iterator<Item = (&'a Image, &'a Cfg)>) -> bool {
    let objects: Vec<_> = objects.collect();
    match objects[..] {
        [(image, cfg)] => may_have_threads(image, cfg),
        _ => {
            let all = objects.iter().filter(|(image, _)| !is_c_library(image));
            all.into_iter().any(|(image, cfg)| {
                imports_starter(image) || imports_spawner(image) || code_starts(image, cfg)
            })
        }
    }
}

/// True if an object of a process sets the base of gs. The C library has a function for it, which counts
/// where it is called.
pub fn process_uses_gs<'a>(objects: impl Iterator<Item = (&'a Image, &'a Cfg)>) -> bool {
    let objects: Vec<_> = objects.collect();
    let is_alone = objects.len() == 1;
    let mut others = (objects.into_iter()).filter(|(image, _)| is_alone || !is_c_library(image));
    others.any(|(image, cfg)| uses_gs(image, cfg))
}

/// True for the objects that have the functions which start threads, and for the loader.
fn is_c_library(image: &Image) -> bool {
    let name = image.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let stem = name.split(".so").next().unwrap_or_default();
    image.kind == ObjectKind::Interpreter || C_LIBRARIES.contains(&stem)
}

fn bare(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

fn imports_starter(image: &Image) -> bool {
    let mut imports = image.dynamic_symbols.iter().filter(|s| s.is_undefined);
    imports.any(|s| {
        let name = bare(&s.name);
        // GNU and LLVM run parallel regions on threads.
        STARTERS.contains(&name) || name.starts_with("GOMP_") || name.starts_with("__kmpc_")
            // Other signatures of std::thread's start, in other versions.
            || name.contains("_M_start_thread")
    })
}

fn imports_spawner(image: &Image) -> bool {
    let mut imports = image.dynamic_symbols.iter().filter(|s| s.is_undefined);
    imports.any(|s| SPAWNERS.contains(&bare(&s.name)))
}

fn dynamic_starts(image: &Image) -> bool {
    if imports_starter(image) {
        return true;
    }
    let strings = image.dynamic_value(elf::DT_STRTAB).unwrap_or(0);
    let needed = image.dynamic.iter().filter(|d| d.0 == elf::DT_NEEDED);
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
                || SPAWNERS.contains(&name)
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
    // By range: unwind information may cut one of them in two.
    let process_makers: Vec<_> = image
        .symbols
        .iter()
        .filter(|s| s.is_func && PROCESS_MAKERS.contains(&bare(&s.name)))
        .map(|s| s.address..s.address.saturating_add(s.size.max(1)))
        .collect();
    let makes_processes = |p: &Proc| process_makers.iter().any(|range| range.contains(&p.start));
    let is_local = |address: &u64| cfg.proc_at(*address).is_none_or(|p| cfg.proc(p).is_local);
    if image.kind.is_static() && !starters.iter().all(is_local) {
        // A starter whose address is taken may be called from anywhere.
        return true;
    }
    let calls_clone = |proc: &Proc| {
        let mut numbers = None;
        let mut number_of = |inst, register| {
            let numbers = numbers.get_or_insert_with(|| Constants::new(image, cfg, proc));
            numbers.may_be(inst, register, &[SYS_CLONE, SYS_CLONE3])
        };
        // An instruction that transfers control ends its block.
        proc.blocks()
            .map(|block| cfg.block(block).last())
            .any(|inst| match cfg.inst(inst).flow {
                ControlFlow::Syscall => number_of(inst, Register::RAX),
                ControlFlow::Call | ControlFlow::Jump => {
                    let target = cfg.direct_target(image, inst).unwrap_or(0);
                    starters.contains(&target)
                        || (syscall.contains(&target) && number_of(inst, Register::RDI))
                }
                _ => false,
            })
    };
    let reaches = |target: u64| starters.contains(&target) || syscall.contains(&target);
    cfg.procs
        .iter()
        .filter(|p| !makes_processes(p) && !syscall.contains(&p.start))
        .any(|p| {
            if p.is_movable() {
                calls_clone(p)
            } else {
                bytes_may_call(image, p, reaches)
            }
        })
}

/// True if a system call, or a direct call or jump whose target `reaches` accepts, is anywhere in
/// the bytes of a procedure that is not understood.
fn bytes_may_call(image: &Image, proc: &Proc, reaches: impl Fn(u64) -> bool) -> bool {
    let rest = image.rest_at(proc.start).unwrap_or(&[]);
    let size = usize::try_from(proc.end - proc.start).unwrap_or(usize::MAX);
    let bytes = &rest[..size.min(rest.len())];
    bytes.windows(2).any(|pair| pair == [0x0f, 0x05])
        || bytes.windows(5).enumerate().any(|(i, window)| {
            let [0xe8 | 0xe9, displacement @ ..] = window else {
                return false;
            };
            let displacement = displacement
                .first_chunk()
                .map_or(0, |d| i32::from_le_bytes(*d));
            reaches((proc.start + i as u64 + 5).wrapping_add_signed(displacement.into()))
        })
}

/// System calls of the program's own code that may start a thread. The thread starts after the
/// system call.
pub fn may_start_threads(image: &Image, cfg: &Cfg) -> Vec<InstId> {
    may_make(image, cfg, &[SYS_CLONE, SYS_CLONE3])
}

/// Instructions of the program's own code after which a process with a copy of the memory may begin: system calls,
/// and, unless all libraries are instrumented, calls of the C library's `fork`.
pub fn may_fork(image: &Image, cfg: &Cfg, is_whole: bool) -> Vec<InstId> {
    let mut found = may_make(image, cfg, &[SYS_CLONE, SYS_FORK, SYS_CLONE3]);
    if is_whole || image.kind.is_static() {
        return found;
    }
    let stubs: HashSet<u64> = (cfg.procs.iter())
        .filter(|p| p.kind == ProcKind::Plt && p.name.as_deref() == Some("fork@plt"))
        .map(|p| p.start)
        .collect();
    let slots: HashSet<u64> = (image.relocs.iter())
        .filter(|r| {
            let symbol = image.dynamic_symbols.get(r.symbol as usize);
            matches!(r.kind, elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT)
                && symbol.is_some_and(|s| bare(&s.name) == "fork")
        })
        .map(|r| r.address)
        .collect();
    if stubs.is_empty() && slots.is_empty() {
        return found;
    }
    let is_call = |inst: &InstId| match cfg.inst(*inst).flow {
        ControlFlow::Call => {
            (cfg.direct_target(image, *inst)).is_some_and(|to| stubs.contains(&to))
        }
        ControlFlow::IndirectCall if cfg.inst(*inst).rip_relative => {
            slots.contains(&cfg.decode(image, *inst).ip_rel_memory_address())
        }
        _ => false,
    };
    // A call ends its block.
    let lasts = moved(cfg).flat_map_iter(|proc| proc.blocks().map(|block| cfg.block(block).last()));
    found.par_extend(lasts.filter(is_call));
    found
}

/// System calls of the program's own code whose number may be one of these.
fn may_make(image: &Image, cfg: &Cfg, wanted: &[u64]) -> Vec<InstId> {
    moved(cfg)
        .flat_map_iter(|proc| {
            let mut numbers = None;
            let mut found = Vec::new();
            // A system call ends its block.
            for inst in proc.blocks().map(|block| cfg.block(block).last()) {
                let numbers = match cfg.inst(inst).flow {
                    ControlFlow::Syscall => {
                        numbers.get_or_insert_with(|| Constants::new(image, cfg, proc))
                    }
                    _ => continue,
                };
                if numbers.may_be(inst, Register::RAX, wanted) {
                    found.push(inst);
                }
            }
            found
        })
        .collect()
}

/// True if inserted code must leave the gs segment alone, because the program uses it,
/// or because a static program may start threads in code that is not understood.
pub fn uses_gs(image: &Image, cfg: &Cfg) -> bool {
    let sets_by_call = image
        .dynamic_symbols
        .iter()
        .any(|s| s.is_undefined && bare(&s.name) == "arch_prctl");
    sets_by_call
        || moved(cfg).any(|proc| {
            let mut numbers = None;
            proc.blocks().any(|b| {
                let block = cfg.block(b);
                // A system call ends its block.
                if cfg.inst(block.last()).flow == ControlFlow::Syscall {
                    let numbers = numbers.get_or_insert_with(|| Constants::new(image, cfg, proc));
                    if sets_gs(numbers, block.last()) {
                        return true;
                    }
                }
                let pc = cfg.block_pc(b);
                let size = (cfg.inst_end(block.last()) - pc) as usize;
                let bytes = image.bytes_at(pc, size).unwrap_or_default();
                bytes.iter().any(is_of_gs)
                    && cfg.block_bytes(image, b).any(|(inst, bytes)| {
                        let pc = cfg.base + u64::from(inst.offset);
                        touches_gs(&bytes[..usize::from(inst.len)], pc)
                    })
            })
        })
        || cfg
            .procs
            .par_iter()
            .filter(|p| !p.is_movable())
            .any(|proc| {
                let rest = image.rest_at(proc.start).unwrap_or(&[]);
                let size = usize::try_from(proc.end - proc.start).unwrap_or(usize::MAX);
                let bytes = &rest[..size.min(rest.len())];
                let mut at = 0;
                // The number that the next system call certainly has.
                let mut number = None;
                while at < bytes.len() {
                    let pc = proc.start + at as u64;
                    let Some(instruction) = decode_at(&bytes[at..bytes.len().min(at + 15)], pc)
                    else {
                        at += 1;
                        number = None;
                        continue;
                    };
                    let len = instruction.len();
                    let is_call = instruction.code() == Code::Syscall;
                    if touches_gs(&bytes[at..at + len], pc)
                        || image.kind.is_static() && is_call && may_share_gs(number)
                    {
                        return true;
                    }
                    number = number_after(number, &instruction);
                    at += len;
                }
                false
            })
}

/// True if a system call of code that is not understood may start a thread or set the gs base. `number` is its number, if
/// that is certain.
fn may_share_gs(number: Option<u64>) -> bool {
    const CALLS: [u64; 3] = [SYS_CLONE, SYS_CLONE3, SYS_ARCH_PRCTL];
    number.is_none_or(|number| CALLS.contains(&number))
}

/// The number in eax after an instruction, if it is certain, from the number before it. Simple instructions alone may be
/// between the move of a number and its system call.
fn number_after(before: Option<u64>, instruction: &Instruction) -> Option<u64> {
    use Mnemonic::{Add, And, Cmp, Lea, Mov, Movsxd, Or, Sub, Test, Xor};
    let has_eax = (0..instruction.op_count())
        .any(|i| instruction.op_register(i).full_register() == Register::RAX);
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mov, OpKind::Immediate32 | OpKind::Immediate32to64) if has_eax => {
            Some(instruction.immediate(1))
        }
        (Add | And | Cmp | Lea | Mov | Movsxd | Or | Sub | Test | Xor, _) if !has_eax => before,
        _ => None,
    }
}

fn moved(cfg: &Cfg) -> impl ParallelIterator<Item = &Proc> {
    cfg.procs.par_iter().filter(|p| p.is_movable())
}

/// True if a system call certainly is `arch_prctl` and may set the gs base. A system call with an
/// unknown number does not count, since a C library's `syscall` has one.
fn sets_gs(numbers: &mut Constants<'_>, inst: InstId) -> bool {
    const ARCH_SET_GS: u64 = 0x1001;
    numbers.may_be(inst, Register::RAX, &[SYS_ARCH_PRCTL])
        && !numbers.may_be(inst, Register::RAX, &[u64::MAX])
        && numbers.may_be(inst, Register::RDI, &[ARCH_SET_GS])
}

/// True for bytes of which each instruction that touches gs has one, and few others have any.
fn is_of_gs(byte: &u8) -> bool {
    // A table, because each byte of the program is looked up.
    const KNOWN: [bool; 256] = {
        let mut known = [false; 256];
        let bytes = [0x65, 0xae, 0x8e, 0xa9, 0xb5, 0xf8];
        let mut i = 0;
        while i < bytes.len() {
            known[bytes[i]] = true;
            i += 1;
        }
        known
    };
    KNOWN[usize::from(*byte)]
}

/// True if the instruction reads or writes gs, its base, or memory through it.
fn touches_gs(bytes: &[u8], pc: u64) -> bool {
    // Each instruction that names gs has one of these bytes too.
    let names = |b: &u8| matches!(b, 0x65 | 0x8c | 0x8e | 0x0f);
    if !bytes.iter().any(names) || !bytes.iter().any(is_of_gs) {
        return false;
    }
    let Some(instruction) = decode_at(bytes, pc) else {
        return false;
    };
    let through = (0..instruction.op_count()).any(|i| {
        instruction.op_register(i) == Register::GS
            || matches!(
                instruction.op_kind(i),
                OpKind::Memory
                    | OpKind::MemorySegRSI
                    | OpKind::MemorySegESI
                    | OpKind::MemorySegRDI
                    | OpKind::MemorySegEDI
            ) && instruction.memory_segment() == Register::GS
                && instruction.mnemonic() != Mnemonic::Nop
    });
    through
        || matches!(
            instruction.mnemonic(),
            Mnemonic::Wrgsbase | Mnemonic::Rdgsbase | Mnemonic::Swapgs | Mnemonic::Lgs
        )
}
