//! Ground truth for values: what each instruction accesses, reads, writes, and
//! where it goes, from the registers and the memory before and after each step.
//!
//! For programs with one process, one thread and no signals. Libraries run at full speed where
//! that is asked for ([`super::gate`]). Addresses of operands come from the decoder's own
//! arithmetic on register values; stack accesses from how rsp moved. It shares no code with the
//! instrumenter.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use libc::pid_t;

use super::gate::{Gate, OUTSIDE_STEPS};
use super::ptrace;
use super::text::{Text, will_take};
use super::trace::{begin_traced, entry_point};
use crate::error::{Error, Result};

/// Kinds of records; the tool `trace` has the same list.
#[allow(missing_docs)]
pub mod kind {
    pub const ADDRESS: u64 = 1;
    pub const SIZE: u64 = 2;
    pub const LOADED: u64 = 3;
    pub const STORED: u64 = 4;
    pub const LOADED_AFTER: u64 = 5;
    pub const STORED_AFTER: u64 = 6;
    pub const TARGET: u64 = 7;
    pub const NEXT: u64 = 8;
    pub const REGISTER: u64 = 9;
    pub const VECTOR: u64 = 10;
    pub const TAKEN: u64 = 11;
    pub const RETURNED: u64 = 12;
}

/// A value at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// A [`kind`], plus 256 times the number of the operand or register.
    pub kind: u64,
    /// The program counter, at run time.
    pub pc: u64,
    /// The value.
    pub first: u64,
    /// A second value; 0 where there is one only.
    pub second: u64,
    /// Values that differ from run to run: bit 0 for the first, bit 1 for the second. The loader
    /// and libraries leave such values in registers.
    pub unknown: u8,
}

impl Record {
    /// True if the other has the same values as far as these are known.
    pub fn agrees(&self, other: &Record) -> bool {
        let same = |a: u64, b: u64, bit: u8| a == b || self.unknown & bit != 0;
        (self.kind, self.pc) == (other.kind, other.pc)
            && same(self.first, other.first, 1)
            && same(self.second, other.second, 2)
    }
}

/// The values of a run.
#[derive(Default, PartialEq, Eq)]
pub struct Values {
    /// Records in order of execution.
    pub records: Vec<Record>,
    /// Values that must be passed somewhere: `(pc, operand, is a store)` of each
    /// access that certainly happens, by link-time address.
    pub definite: HashSet<(u64, u64, bool)>,
    /// Run-time address minus link-time address.
    pub bias: u64,
}

/// A memory operand of one execution.
struct Access {
    number: u64,
    /// Address of the operand, or of each element that is accessed.
    addresses: Vec<u64>,
    size: u32,
    reads: bool,
    writes: bool,
    /// Whether the access certainly happens, once.
    is_definite: bool,
}

/// An instruction under way.
struct Instance {
    link: u64,
    pc: u64,
    instruction: Instruction,
    accesses: Vec<Access>,
    records: Vec<Record>,
    state: Registers,
}

struct Registers {
    general: libc::user_regs_struct,
    /// The extended state as `xsave` stores it; empty if not read.
    extended: Vec<u8>,
}

/// Parts of the extended state, by their numbers in `xsave`'s layout.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Part {
    /// Upper halves of ymm0 to ymm15.
    UpperYmm = 2,
    /// Mask registers.
    Masks = 5,
    /// Upper halves of zmm0 to zmm15.
    UpperZmm = 6,
    /// zmm16 to zmm31.
    HighZmm = 7,
}

/// Offset of a part in the extended state, in bytes. The processor is asked once: in a virtual
/// machine each `cpuid` is a way to the hypervisor and back.
fn offset(part: Part) -> usize {
    static OFFSETS: OnceLock<[usize; 8]> = OnceLock::new();
    let ask = |part| std::arch::x86_64::__cpuid_count(0xd, part as u32).ebx as usize;
    OFFSETS.get_or_init(|| std::array::from_fn(ask))[part as usize]
}

impl Registers {
    /// A vector register as 64 bytes, zeros where it has fewer.
    fn vector(&self, number: usize) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut part = |at: usize, from: usize, size: usize| {
            if let Some(source) = self.extended.get(from..from + size) {
                bytes[at..at + size].copy_from_slice(source);
            }
        };
        if number < 16 {
            part(0, 160 + 16 * number, 16);
            part(16, offset(Part::UpperYmm) + 16 * number, 16);
            part(32, offset(Part::UpperZmm) + 32 * number, 32);
        } else {
            part(0, offset(Part::HighZmm) + 64 * (number - 16), 64);
        }
        bytes
    }

    fn mask(&self, number: usize) -> u64 {
        let at = offset(Part::Masks) + 8 * number;
        let bytes = self.extended.get(at..at + 8);
        bytes.map_or(0, |b| u64::from_le_bytes(b.try_into().expect("8 bytes")))
    }

    fn general(&self, register: Register) -> u64 {
        let g = &self.general;
        let all = [
            g.rax, g.rcx, g.rdx, g.rbx, g.rsp, g.rbp, g.rsi, g.rdi, g.r8, g.r9, g.r10, g.r11,
            g.r12, g.r13, g.r14, g.r15,
        ];
        let value = all[register.full_register().number()];
        match register.size() {
            1 if register.number() >= 4 && register < Register::SPL => value >> 8 & 0xff,
            1 => value & 0xff,
            2 => value & 0xffff,
            4 => value & 0xffff_ffff,
            _ => value,
        }
    }

    fn get(&self, register: Register, element: usize, size: usize) -> Option<u64> {
        Some(match register {
            Register::FS => self.general.fs_base,
            Register::GS => self.general.gs_base,
            r if r.is_segment_register() => 0,
            r if r.is_gpr() => self.general(r),
            r if r.is_vector_register() => {
                let bytes = self.vector(r.number());
                let part = &bytes[element * size..(element + 1) * size];
                part.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
            }
            _ => return None,
        })
    }
}

fn low(value: u64, size: u32) -> u64 {
    match size {
        1 => value & 0xff,
        2 | 3 => value & 0xffff,
        4..=7 => value & 0xffff_ffff,
        _ => value,
    }
}

/// Values that are wanted, and how to run the program for them.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Instructions, by link-time address.
    pub points: &'a HashSet<u64>,
    /// Whether the values of registers are wanted too.
    pub registers: bool,
    /// Whether library code runs at full speed.
    pub skip_libraries: bool,
}

/// Runs `command` and yields the values at the instructions that are wanted.
pub fn values(program: &Path, command: &mut Command, wanted: Wanted<'_>) -> Result<Values> {
    let text = Text::read(program)?;
    let fail = |e: io::Error| Error::new("stepping the program", e.to_string()).file(program);
    command.stdout(Stdio::null());
    begin_traced(command);
    let child = crate::start::spawn(command).map_err(fail)?;
    let mut run = Run {
        tid: child.id() as pid_t,
        text,
        wanted,
        outside: OUTSIDE_STEPS,
        values: Values::default(),
        calls: Vec::new(),
        known: 1 << 4,
        factory: InstructionInfoFactory::new(),
    };
    let result = run.run();
    if result.is_err() {
        // SAFETY: kill with the id of a process that this call started.
        unsafe { libc::kill(run.tid, libc::SIGKILL) };
        while ptrace::wait(-1).is_ok() {}
    }
    result.map_err(fail)?;
    Ok(run.values)
}

struct Run<'a> {
    tid: pid_t,
    text: Text,
    wanted: Wanted<'a>,
    /// Number of steps taken outside the program's text since control left it.
    outside: u32,
    values: Values,
    /// Calls that have not returned: return address, rsp there, the call's address.
    calls: Vec<(u64, u64, u64)>,
    /// Registers that the program's own code has written since libraries ran:
    /// bits 0 to 15 general ones, then 32 vector registers.
    known: u64,
    factory: InstructionInfoFactory,
}

impl Run<'_> {
    fn run(&mut self) -> io::Result<()> {
        let tid = self.tid;
        ptrace::wait(tid)?;
        ptrace::set_options(tid, libc::PTRACE_O_EXITKILL)?;
        self.values.bias = entry_point(tid)?.wrapping_sub(self.text.entry);
        let gate = Gate::find(tid).filter(|_| self.wanted.skip_libraries);
        let mut pending: Option<Instance> = None;
        // A repeated instruction that has been recorded and continues.
        let mut going_on: Option<Instance> = None;
        loop {
            let pc = ptrace::pc(tid)?;
            if let Some(instance) = pending.take() {
                if repeats(&instance.instruction) && instance.pc == pc {
                    going_on = Some(instance);
                } else {
                    self.after(instance, pc)?;
                }
            }
            self.returned(pc)?;
            let address = pc.wrapping_sub(self.values.bias);
            if !self.text.contains(address) {
                // rsp, rbx, rbp, r12 to r15 come back.
                self.known &= 0xf038;
                self.outside += 1;
                if let Some(gate) = gate.filter(|_| self.outside > OUTSIDE_STEPS) {
                    if self.run_libraries(gate)? {
                        continue;
                    } else {
                        return Ok(());
                    }
                }
            } else {
                self.outside = 0;
            }
            if self.wanted.points.contains(&address) {
                pending = match going_on.take() {
                    None => Some(self.before(address, pc)?),
                    same => same,
                };
            }
            ptrace::step(tid, 0)?;
            let (_, status) = ptrace::wait(tid)?;
            if libc::WIFEXITED(status) {
                if let Some(instance) = pending {
                    self.values.records.extend(instance.records);
                }
                return Ok(());
            }
            if !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) != libc::SIGTRAP {
                return Err(io::Error::other(format!("it got a signal ({status:#x})")));
            }
        }
    }

    /// Runs at full speed until control comes back to the program's text, or the process ends:
    /// whether it came back.
    fn run_libraries(&mut self, gate: Gate) -> io::Result<bool> {
        let (tid, bias) = (self.tid, self.values.bias);
        gate.protect(tid, self.text.ranges_at(bias), false)?;
        ptrace::resume(tid, 0)?;
        let (_, status) = ptrace::wait(tid)?;
        if libc::WIFEXITED(status) {
            return Ok(false);
        }
        let pc = ptrace::pc(tid)?;
        let is_back = libc::WIFSTOPPED(status)
            && self.text.contains(pc.wrapping_sub(bias))
            && ptrace::fetch_refused(tid, pc);
        if !is_back {
            return Err(io::Error::other(format!("it got a signal ({status:#x})")));
        }
        gate.protect(tid, self.text.ranges_at(bias), true)?;
        Ok(true)
    }

    fn peek(&self, address: u64, size: u32) -> io::Result<u64> {
        // A word may reach into a page that the access does not.
        let word = match ptrace::peek(self.tid, address) {
            Err(_) if size < 8 => ptrace::peek(self.tid, address & !7)? >> (8 * (address & 7)),
            other => other.map_err(|e| {
                io::Error::other(format!("reading {size} bytes at {address:#x}: {e}"))
            })?,
        };
        Ok(low(word, size))
    }

    /// Calls that return to here.
    fn returned(&mut self, pc: u64) -> io::Result<()> {
        if self.calls.is_empty() {
            return Ok(());
        }
        let rsp = ptrace::rsp(self.tid)?;
        while let Some(&(to, at, call)) = self.calls.last() {
            if at > rsp || (at == rsp && to != pc) {
                break;
            }
            self.calls.pop();
            // `ret n` removes arguments too.
            if rsp - at <= 64 && to == pc {
                let record = Record {
                    kind: kind::NEXT,
                    pc,
                    first: call,
                    second: 0,
                    unknown: 0,
                };
                self.values.records.push(record);
                break;
            }
        }
        Ok(())
    }

    /// An instruction that is about to run, with all records but those that
    /// need its outcome.
    fn before(&mut self, link: u64, pc: u64) -> io::Result<Instance> {
        let i = self.text.info(link).insn;
        let general = ptrace::regs(self.tid)?;
        let extended = if self.wanted.registers || i.is_vsib() {
            ptrace::extended(self.tid)?
        } else {
            Vec::new()
        };
        let state = Registers { general, extended };
        let accesses = self.accesses(&i, &state);
        let count = match (repeats(&i), uses_32_bits(&i)) {
            (true, true) => general.rcx & 0xffff_ffff,
            (true, false) => general.rcx,
            (false, _) => 1,
        };
        let mut records = Vec::new();
        let mut push = |kind, number: u64, first, second| {
            let kind = kind | number << 8;
            records.push(Record {
                kind,
                pc,
                first,
                second,
                unknown: 0,
            });
        };
        for a in &accesses {
            for address in &a.addresses {
                push(kind::ADDRESS, a.number, *address, count);
            }
            if a.size != 0 {
                push(kind::SIZE, a.number, a.size.into(), 0);
            }
            for address in a.addresses.iter().filter(|_| a.reads && count != 0) {
                push(kind::LOADED, a.number, self.peek(*address, a.size)?, link);
            }
            for _ in a.addresses.iter().filter(|_| a.writes) {
                push(kind::STORED, a.number, 0, link);
            }
            if a.is_definite {
                let both = [(a.reads, false), (a.writes, true)];
                let wanted = both.into_iter().filter(|b| b.0);
                let wanted = wanted.map(|b| (link, a.number, b.1));
                self.values.definite.extend(wanted);
            }
        }
        Ok(Instance {
            link,
            pc,
            instruction: i,
            accesses,
            records,
            state,
        })
    }

    /// Completes the records of an instruction that has run.
    fn after(&mut self, mut instance: Instance, now: u64) -> io::Result<()> {
        let (link, pc) = (instance.link, instance.pc);
        let i = instance.instruction;
        if matches!(i.mnemonic(), Mnemonic::Pushfq) {
            // The pushed flags show the trap flag that stepping set.
            let rsp = ptrace::rsp(self.tid)?;
            let word = ptrace::peek(self.tid, rsp)?;
            ptrace::poke(self.tid, rsp, word & !0x100)?;
        }
        let mut outcome = Vec::new();
        for a in &instance.accesses {
            let mut stored = Vec::new();
            for address in &a.addresses {
                stored.push(self.peek(*address, a.size)?);
            }
            let wanted = kind::STORED | a.number << 8;
            let slots = instance.records.iter_mut().filter(|r| r.kind == wanted);
            for (slot, value) in slots.zip(&stored) {
                slot.first = if repeats(&i) {
                    // Also if nothing is stored because rcx is 0.
                    low(instance.state.general.rax, a.size)
                } else {
                    *value
                };
            }
            let mut push = |kind, first| {
                outcome.push(Record {
                    kind: kind | a.number << 8,
                    pc: now,
                    first,
                    second: link,
                    unknown: 0,
                });
            };
            let loaded = kind::LOADED | a.number << 8;
            if let Some(loaded) = instance.records.iter().find(|r| r.kind == loaded) {
                push(kind::LOADED_AFTER, loaded.first);
            }
            if let Some(value) = stored.first().filter(|_| a.writes) {
                push(kind::STORED_AFTER, *value);
            }
        }
        let general = instance.state.general;
        let next = pc + i.len() as u64;
        let mut push = |kind, first, second| {
            instance.records.push(Record {
                kind,
                pc,
                first,
                second,
                unknown: 0,
            });
        };
        let flow = i.flow_control();
        let is_call = matches!(flow, FlowControl::Call | FlowControl::IndirectCall)
            && i.mnemonic() == Mnemonic::Call;
        let is_conditional = i.condition_code() != iced_x86::ConditionCode::None
            || i.is_loop()
            || i.is_loopcc()
            || i.is_jcx_short();
        match flow {
            FlowControl::ConditionalBranch if is_conditional => {
                let target = i.near_branch_target().wrapping_add(pc.wrapping_sub(link));
                push(kind::TARGET, target, 0);
                let taken = if target == next {
                    will_take(&i, general.eflags, general.rcx)
                } else {
                    now != next
                };
                push(kind::TAKEN, u64::from(taken), 0);
            }
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return => push(kind::TARGET, now, 0),
            _ if is_call => push(kind::TARGET, now, 0),
            _ => {}
        }
        if flow == FlowControl::Return {
            push(kind::RETURNED, general.rax, 0);
        }
        if self.wanted.registers {
            registers(&instance.state, pc, self.known, &mut instance.records);
        }
        self.learn(&i);
        self.values.records.append(&mut instance.records);
        // A call of the next instruction is done there.
        if is_call && now != next {
            self.calls.push((next, general.rsp, link));
            return Ok(());
        }
        self.values.records.append(&mut outcome);
        self.values.records.push(Record {
            kind: kind::NEXT,
            pc: now,
            first: link,
            second: 0,
            unknown: 0,
        });
        Ok(())
    }

    /// Registers that an instruction writes as a whole.
    fn learn(&mut self, i: &Instruction) {
        // `vzeroupper` clears only the bits above the low halves.
        if i.mnemonic() == Mnemonic::Vzeroupper {
            return;
        }
        for used in self.factory.info(i).used_registers() {
            let register = used.register();
            if used.access() != OpAccess::Write {
                continue;
            }
            if register.is_gpr() && register.size() >= 4 {
                self.known |= 1 << register.number();
            } else if register.is_vector_register() {
                self.known |= 1 << (16 + register.number());
            }
        }
    }

    fn accesses(&mut self, i: &Instruction, state: &Registers) -> Vec<Access> {
        let mut all = Vec::new();
        let mask = i.op_mask();
        let masked = mask != Register::None
            || matches!(
                i.mnemonic(),
                Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovps | Mnemonic::Vpmaskmovd
            );
        let info = self.factory.info(i);
        for n in 0..i.op_count() {
            use OpAccess::*;
            let (reads, writes) = match info.op_access(n) {
                Read | CondRead => (true, false),
                Write | CondWrite => (false, true),
                ReadWrite | ReadCondWrite => (true, true),
                None | NoMemAccess => continue,
            };
            if matches!(i.op_kind(n), OpKind::Register | OpKind::NearBranch64)
                || i.op_kind(n) as u32 >= OpKind::Immediate8 as u32
                    && i.op_kind(n) as u32 <= OpKind::Immediate32to64 as u32
            {
                continue;
            }
            let mut addresses = Vec::new();
            let count = if i.is_vsib() { elements(i) } else { 1 };
            for e in (0..count).filter(|e| !i.is_vsib() || selected(i, state, *e)) {
                let address = i.virtual_address(n, e, |r, e, s| state.get(r, e, s));
                let mut address = address.expect("all registers are known");
                if i.mnemonic() == Mnemonic::Pop && i.memory_base() == Register::RSP {
                    address += 8;
                }
                if i.is_ip_rel_memory_operand() && i.op_kind(n) == OpKind::Memory {
                    address = address.wrapping_add(self.values.bias);
                }
                addresses.push(address.wrapping_add_signed(bit_distance(i, state)));
            }
            let memory = i.memory_size();
            let size = if i.is_vsib() {
                memory.element_size()
            } else {
                memory.size()
            };
            all.push(Access {
                number: all.len() as u64,
                addresses,
                size: size as u32,
                reads,
                writes,
                is_definite: !masked && !i.is_vsib() && !repeats(i) && size != 0,
            });
        }
        let rsp = state.general.rsp;
        let narrow = i.op_count() == 1 && i.stack_pointer_increment().abs() == 2;
        let word = if narrow { 2 } else { 8 };
        let stack = match i.mnemonic() {
            Mnemonic::Push | Mnemonic::Pushfq | Mnemonic::Call => Some((rsp - word, false)),
            Mnemonic::Pop | Mnemonic::Popfq | Mnemonic::Ret => Some((rsp, true)),
            Mnemonic::Leave => Some((state.general.rbp, true)),
            Mnemonic::Enter => Some((rsp - 8, false)),
            _ => None,
        };
        if let Some((address, reads)) = stack {
            all.push(Access {
                number: all.len() as u64,
                addresses: vec![address],
                size: word as u32,
                reads,
                writes: !reads,
                is_definite: true,
            });
        }
        all
    }
}

fn repeats(i: &Instruction) -> bool {
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repne_prefix())
}

fn uses_32_bits(i: &Instruction) -> bool {
    use OpKind::{MemoryESEDI, MemorySegEDI, MemorySegESI};
    (0..i.op_count()).any(|n| matches!(i.op_kind(n), MemorySegESI | MemorySegEDI | MemoryESEDI))
}

/// Distance in bytes from the operand's address to the bit that `bt`, `bts`, `btr` or `btc` finds by a
/// register.
fn bit_distance(i: &Instruction, state: &Registers) -> i64 {
    use Mnemonic::{Bt, Btc, Btr, Bts};
    if !matches!(i.mnemonic(), Bt | Btc | Btr | Bts) || i.op1_kind() != OpKind::Register {
        return 0;
    }
    let value = state.general(i.op1_register());
    match i.op1_register().size() {
        2 => i64::from(value as i16).div_euclid(16) * 2,
        4 => i64::from(value as i32).div_euclid(32) * 4,
        _ => (value as i64).div_euclid(64) * 8,
    }
}

/// The data register of a gather or scatter, and the register of its mask.
fn data_and_mask(i: &Instruction) -> (Register, Register) {
    match i.op_mask() {
        Register::None => (i.op0_register(), i.op2_register()),
        mask if i.op0_kind() == OpKind::Register => (i.op0_register(), mask),
        mask => (i.op1_register(), mask),
    }
}

/// Number of elements: limited by the data and by the indices.
fn elements(i: &Instruction) -> usize {
    let data = data_and_mask(i).0.size() / i.memory_size().element_size();
    let wide = i.vsib() == Some(true);
    data.min(i.memory_index().size() / if wide { 8 } else { 4 })
}

fn selected(i: &Instruction, state: &Registers, element: usize) -> bool {
    let mask = data_and_mask(i).1;
    if mask.is_vector_register() {
        let end = (element + 1) * i.memory_size().element_size();
        state.vector(mask.number())[end - 1] & 0x80 != 0
    } else {
        state.mask(mask.number()) >> element & 1 != 0
    }
}

/// Records of the general registers, two at a time, and of vector registers.
fn registers(state: &Registers, pc: u64, known: u64, records: &mut Vec<Record>) {
    let g = &state.general;
    let pairs = [
        (g.rax, g.rcx),
        (g.rdx, g.rbx),
        (g.rsp, g.rbp),
        (g.rsi, g.rdi),
        (g.r8, g.r9),
        (g.r10, g.r11),
        (g.r12, g.r13),
        (g.r14, g.r15),
    ];
    let mut push = |kind, first, second, unknown| {
        records.push(Record {
            kind,
            pc,
            first,
            second,
            unknown,
        });
    };
    for (n, (first, second)) in (0..).zip(pairs) {
        let unknown = !(known >> (2 * n)) as u8 & 3;
        push(kind::REGISTER | n << 8, first, second, unknown);
    }
    for n in 0..32 {
        let bytes = state.vector(n);
        let half = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let unknown = if known >> (16 + n) & 1 != 0 { 0 } else { 3 };
        push(kind::VECTOR | (n as u64) << 8, half(0), half(8), unknown);
    }
}
