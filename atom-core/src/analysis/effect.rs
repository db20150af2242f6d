//! The effect of single instructions on registers, flags and stack.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::x86::{
    EncodingKind, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::code::Function;

/// Caller-saved registers as a mask: rax, rcx, rdx, rsi, rdi, r8 to r11.
pub const CALLER_SAVED: u16 = 0x0FC7;

/// Largest number of bytes below its return address that a routine may need on the program's stack. A signal takes up to
/// three times as many.
pub const MOST_ON_PROGRAM_STACK: u32 = 1024;

/// The effect of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// General registers that may differ afterwards; bit n is the register with the number n in
    /// encodings. Never rsp.
    pub gprs: u16,
    /// Vector registers 0 to 15 that may differ afterwards, as a mask.
    pub xmms: u16,
    /// True if the arithmetic flags may differ afterwards.
    pub flags: bool,
    /// True if it computes in floating point: reads MXCSR's modes, sets its exception flags.
    pub fp: bool,
    /// True if it uses the x87 or MMX registers.
    pub x87: bool,
    /// True if it uses AVX encodings, which change more state than a legacy save covers.
    pub avx: bool,
    /// True if it calls nothing, not even on paths that never return.
    pub leaf: bool,
    /// True if it calls a function on a path that returns.
    pub calls: bool,
    /// True if rsp must be aligned to 16 bytes before the call, as the ABI demands.
    pub aligned_stack: bool,
    /// Bytes of the caller's stack that it uses below its return address on paths that return; `None` if not known.
    pub stack: Option<u32>,
    /// True if it can return at all.
    pub returns: bool,
}

impl Summary {
    /// Summary of a function of which only the ABI is known.
    pub const UNKNOWN: Summary = Summary {
        gprs: CALLER_SAVED,
        xmms: 0xFFFF,
        flags: true,
        fp: true,
        x87: false,
        avx: false,
        leaf: false,
        calls: true,
        aligned_stack: true,
        stack: None,
        returns: true,
    };

    pub(super) const NOTHING: Summary = Summary {
        gprs: 0,
        xmms: 0,
        flags: false,
        fp: false,
        x87: false,
        avx: false,
        leaf: true,
        calls: false,
        aligned_stack: false,
        stack: Some(0),
        returns: false,
    };

    /// True if the program's stack is large enough for the routine wherever it is called.
    pub fn fits_program_stack(&self) -> bool {
        self.stack
            .is_some_and(|bytes| bytes <= MOST_ON_PROGRAM_STACK)
    }

    /// Adds changes to registers and flags.
    pub(super) fn add(&mut self, other: &Summary) {
        self.gprs |= other.gprs;
        self.xmms |= other.xmms;
        self.flags |= other.flags;
        self.fp |= other.fp;
        self.x87 |= other.x87;
        self.avx |= other.avx;
    }
}

/// Bytes below rsp that the instruction uses, by pushing or in the red zone.
pub(super) fn below_rsp(i: &Instruction) -> u32 {
    if i.memory_base() == Register::RSP && (i.memory_displacement64() as i64) < 0 {
        return (i.memory_displacement64() as i64).unsigned_abs().min(4096) as u32;
    }
    i.stack_pointer_increment().min(0).unsigned_abs()
}

/// For each instruction, the bytes that rsp is below its value at the entry before it, where that is
/// known.
pub(super) fn depths(function: &Function) -> FxHashMap<u64, u32> {
    let mut known = FxHashMap::default();
    let mut conflict = FxHashSet::default();
    let mut frame = None;
    let mut work = vec![(function.entry, 0i64)];
    while let Some((at, depth)) = work.pop() {
        match known.get(&at) {
            Some(d) if *d == depth => continue,
            Some(_) => {
                conflict.insert(at);
                continue;
            }
            None => known.insert(at, depth),
        };
        let Some(inst) = function.insts.get(&at) else {
            continue;
        };
        let raw = &inst.raw;
        if raw.mnemonic() == Mnemonic::Mov
            && raw.op0_register() == Register::RBP
            && raw.op1_register() == Register::RSP
        {
            frame = Some(depth);
        }
        if let Some(after) = depth_after(raw, depth, frame) {
            work.extend(inst.next.iter().map(|n| (*n, after)));
        }
    }
    known
        .into_iter()
        .filter(|(at, _)| !conflict.contains(at))
        .filter_map(|(at, d)| Some((at, u32::try_from(d).ok()?)))
        .collect()
}

fn depth_after(raw: &Instruction, depth: i64, frame: Option<i64>) -> Option<i64> {
    let to_rsp = raw.op_count() > 0
        && raw.op0_kind() == OpKind::Register
        && raw.op0_register() == Register::RSP;
    let immediate = || match raw.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => Some(raw.immediate(1) as i64),
        _ => None,
    };
    match raw.mnemonic() {
        Mnemonic::Call => Some(depth),
        Mnemonic::Leave => Some(frame? - 8),
        Mnemonic::Sub if to_rsp => Some(depth + immediate()?),
        Mnemonic::Add if to_rsp => Some(depth - immediate()?),
        // The instruction rounds rsp down by less than the alignment.
        Mnemonic::And if to_rsp => Some(depth + immediate()?.checked_neg()?),
        Mnemonic::Lea if to_rsp && raw.memory_index() == Register::None => {
            let displacement = raw.memory_displacement64() as i64;
            match raw.memory_base() {
                Register::RSP => Some(depth - displacement),
                Register::RBP => Some(frame? - displacement),
                _ => None,
            }
        }
        Mnemonic::Mov if to_rsp => (raw.op1_register() == Register::RBP).then_some(frame?),
        Mnemonic::Cmp | Mnemonic::Test => Some(depth),
        _ if to_rsp && !raw.is_stack_instruction() => None,
        _ => Some(depth - i64::from(raw.stack_pointer_increment())),
    }
}

/// Bit of a general register in a mask, for any part of the register; 0 for other registers.
pub(super) fn gpr_bit(register: Register) -> u16 {
    let full = register.full_register();
    if full.is_gpr64() {
        1 << full.number()
    } else {
        0
    }
}

/// The effect of one instruction.
pub(super) fn effect(raw: &Instruction, info: &mut InstructionInfoFactory) -> Summary {
    let mut sum = Summary::NOTHING;
    if raw.is_invalid() {
        return sum;
    }
    let used = info.info(raw);
    for r in used.used_registers() {
        let register = r.register();
        sum.avx |= register.is_ymm() || register.is_zmm() || register.is_k();
        sum.x87 |= register.is_st() || register.is_mm();
        let writes = matches!(
            r.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if writes {
            sum.gprs |= gpr_bit(register);
            if register.is_vector_register() && register.number() < 16 {
                sum.xmms |= 1 << register.number();
            }
        }
    }
    if raw.mnemonic() == Mnemonic::Syscall {
        sum.gprs |= 1; // the kernel's answer
    }
    sum.flags = raw.rflags_modified() != 0;
    sum.avx |= !matches!(raw.encoding(), EncodingKind::Legacy);
    sum.x87 |= raw.fpu_stack_increment_info().writes_top();
    sum.fp = is_floating_point(raw.mnemonic());
    let on_stack = matches!(raw.memory_base(), Register::RSP | Register::RBP);
    let vector = used.used_registers().iter().any(|r| r.register().is_xmm());
    sum.aligned_stack = on_stack && vector && !is_unaligned_access(raw);
    sum
}

/// True if a vector instruction's access to memory needs no alignment: unaligned moves, and accesses
/// of less than 16 bytes.
fn is_unaligned_access(raw: &Instruction) -> bool {
    raw.memory_size().size() < 16
        || matches!(
            raw.mnemonic(),
            Mnemonic::Movups | Mnemonic::Movupd | Mnemonic::Movdqu | Mnemonic::Lddqu
        )
}

/// True if an instruction rounds, can raise a floating-point exception flag, or sets MXCSR.
fn is_floating_point(m: Mnemonic) -> bool {
    use Mnemonic::*;
    matches!(
        m,
        Addss
            | Addsd
            | Addps
            | Addpd
            | Subss
            | Subsd
            | Subps
            | Subpd
            | Mulss
            | Mulsd
            | Mulps
            | Mulpd
            | Divss
            | Divsd
            | Divps
            | Divpd
            | Sqrtss
            | Sqrtsd
            | Sqrtps
            | Sqrtpd
            | Minss
            | Minsd
            | Minps
            | Minpd
            | Maxss
            | Maxsd
            | Maxps
            | Maxpd
            | Cmpss
            | Cmpsd
            | Cmpps
            | Cmppd
            | Comiss
            | Comisd
            | Ucomiss
            | Ucomisd
            | Cvtsi2ss
            | Cvtsi2sd
            | Cvtss2si
            | Cvtsd2si
            | Cvttss2si
            | Cvttsd2si
            | Cvtss2sd
            | Cvtsd2ss
            | Cvtps2pd
            | Cvtpd2ps
            | Cvtdq2ps
            | Cvtdq2pd
            | Cvtps2dq
            | Cvtpd2dq
            | Cvttps2dq
            | Cvttpd2dq
            | Cvtpi2ps
            | Cvtpi2pd
            | Cvtps2pi
            | Cvtpd2pi
            | Cvttps2pi
            | Cvttpd2pi
            | Addsubps
            | Addsubpd
            | Haddps
            | Haddpd
            | Hsubps
            | Hsubpd
            | Roundss
            | Roundsd
            | Roundps
            | Roundpd
            | Dpps
            | Dppd
            | Rcpss
            | Rcpps
            | Rsqrtss
            | Rsqrtps
            | Ldmxcsr
            | Fxrstor
            | Fxrstor64
    )
}
