//! Random points: live sets, clobbers and arguments against a model.

use super::machine::{Machine, State};
use super::values;
use crate::live::RegSet;
use crate::plan::Clobbers;
use crate::plan::code::{Asm, Target};
use crate::plan::return_address;
use crate::plan::site::{self, Point, SiteCall};
use crate::plan::wrapper::Wrappers;
use crate::tool::value::{Address, Segment, Taken, Value};
use crate::x86::asm::{Cond, Gpr};

/// A small generator, so that a failure can be repeated from its number.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }

    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

const ARITHMETIC: u64 = 0x8d5;
const DIRECTION: u64 = 0x400;
/// A main block in the data, and how far from it the running thread's is.
const BLOCK: u32 = 0x8000;
const TO_THREAD: u32 = 0x1000;
/// The routine that is asked for the running thread's block.
const LOOKUP: u64 = 5;
/// Distance between the records of two routines in the data.
const RECORD: u64 = 512;
const STACK_SLOTS: usize = 8;

pub fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: by the thread-local storage ABI fs:[0] holds the base of fs.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) base) };
    base
}

pub fn random_address(r: &mut Random) -> Address {
    let base = (!r.chance(6)).then(|| Gpr(r.below(16) as u8));
    let mut index = r
        .chance(2)
        .then(|| (Gpr(r.below(16) as u8), 1 << r.below(4)));
    if index.is_some_and(|i| i.0 == Gpr::RSP) || (base.is_none() && r.chance(2)) {
        index = None;
    }
    let index_is_byte = r.chance(10) && base.is_some_and(|b| b != Gpr::RSP);
    if index_is_byte {
        index = Some((Gpr::RAX, 1));
    }
    let disp = match r.below(4) {
        0 => 0,
        1 => r.below(256) as i64 - 128,
        2 => i64::from(r.next() as i32),
        _ => i64::from(i32::MAX) - r.below(200) as i64,
    };
    let narrow = r.chance(5) && (base.is_some() || index.is_some());
    let segment = if r.chance(8) {
        Segment::Fs
    } else {
        Segment::Flat
    };
    Address {
        base,
        index,
        index_is_byte,
        disp,
        narrow,
        segment,
        ..Address::at(Gpr::RAX, 0)
    }
}

pub fn random_value(r: &mut Random) -> Value {
    let any_but_rsp = |r: &mut Random| match Gpr(r.below(16) as u8) {
        Gpr::RSP => Gpr::RDI,
        reg => reg,
    };
    match r.below(21) {
        17.. => values::random(r),
        14 => Value::Thread {
            block: BLOCK,
            at: BLOCK + r.below(1 << 20) as u32,
        },
        15 => Value::ThreadLookup {
            routine: LOOKUP,
            block: BLOCK,
            offset: r.below(1 << 20) as u32,
        },
        16 => Value::Pointed {
            slot: BLOCK,
            offset: r.below(1 << 20) as u32,
        },
        0 => Value::Const(0),
        1 => Value::Const(r.below(1 << 20)),
        2 => Value::Const(r.next()),
        3 => Value::Const(-(r.below(1 << 30) as i64) as u64),
        4 => Value::Data(r.below(1000) as u32),
        5 => Value::Original(r.below(1 << 20)),
        6 | 7 => Value::Reg(any_but_rsp(r)),
        8 => Value::Stack(r.below(64) as i32 - 32),
        9 => Value::Flags,
        10 if r.chance(2) => Value::Cycles,
        10 => match r.below(2) {
            0 => Value::Taken(Taken::CountZero {
                narrow: r.chance(2),
            }),
            _ => Value::Taken(Taken::Loop {
                narrow: r.chance(2),
                zero: [None, Some(true), Some(false)][r.below(3) as usize],
            }),
        },
        11 => Value::Taken(Taken::Flags(Cond(r.below(16) as u8))),
        _ => Value::Address(random_address(r)),
    }
}

fn holds(cond: Cond, flags: u64) -> bool {
    let (cf, pf, zf) = (flags & 1 != 0, flags & 4 != 0, flags & 0x40 != 0);
    let (sf, of) = (flags & 0x80 != 0, flags & 0x800 != 0);
    let value = match cond.0 >> 1 {
        0 => of,
        1 => cf,
        2 => zf,
        3 => cf || zf,
        4 => sf,
        5 => pf,
        6 => sf != of,
        _ => zf || sf != of,
    };
    value != (cond.0 & 1 != 0)
}

pub fn is_taken(taken: Taken, state: &State) -> bool {
    let count = |narrow: bool| {
        if narrow {
            state.gprs[1] & 0xffff_ffff
        } else {
            state.gprs[1]
        }
    };
    match taken {
        Taken::Flags(cond) => holds(cond, state.flags),
        Taken::CountZero { narrow } => count(narrow) == 0,
        Taken::Loop { narrow, zero } => {
            count(narrow) != 1 && zero.is_none_or(|z| z == (state.flags & 0x40 != 0))
        }
    }
}

/// What an argument must be; `None` if it cannot be told.
fn expected(value: &Value, state: &State, machine: &Machine) -> Option<u64> {
    let g = &state.gprs;
    Some(match *value {
        Value::Const(constant) => constant,
        Value::Data(offset) => machine.data_at() + u64::from(offset),
        Value::Original(address) => machine.code_at() + address,
        Value::Thread { block, at } => {
            machine.read_u64(machine.data_at() + u64::from(block + TO_THREAD))
                + u64::from(at - block)
        }
        Value::ThreadLookup { block, offset, .. } => {
            let answer = machine.read_u64(machine.data_at() + u64::from(block + 8));
            let main = machine.data_at() + u64::from(block);
            let block = if answer == 0 { main } else { answer };
            block + u64::from(offset)
        }
        Value::Pointed { slot, offset } => {
            machine.read_u64(machine.data_at() + u64::from(slot)) + u64::from(offset)
        }
        Value::Reg(reg) => g[usize::from(reg.0)],
        Value::Stack(change) => g[4].wrapping_add_signed(i64::from(change)),
        Value::Flags => state.flags & ARITHMETIC,
        Value::Cycles => return None,
        Value::Taken(taken) => u64::from(is_taken(taken, state)),
        Value::Address(a) => values::address(&a, state, machine),
        _ => return values::expected(value, state, machine),
    })
}

/// Base, index and displacement.
pub fn sum(a: &Address, state: &State) -> u64 {
    let g = &state.gprs;
    let base = a.base.map_or(0, |b| g[usize::from(b.0)]);
    let index = a.index.map_or(0, |(i, scale)| {
        let value = g[usize::from(i.0)];
        let value = if a.index_is_byte { value & 0xff } else { value };
        value.wrapping_mul(u64::from(scale))
    });
    base.wrapping_add(index).wrapping_add_signed(a.disp)
}

/// A routine that stores what it sees and then clobbers all that it may.
struct Routine {
    code: Vec<u8>,
    at: u64,
}

impl Routine {
    /// `op` with a ModRM of `reg` and a rip-relative address.
    fn at_rip(&mut self, op: &[u8], reg: u8, address: u64) {
        self.code.extend_from_slice(op);
        self.code.push((reg & 7) << 3 | 5);
        let next = self.at + self.code.len() as u64 + 4;
        self.code
            .extend_from_slice(&(address.wrapping_sub(next) as u32).to_le_bytes());
    }

    fn build(at: u64, record: u64, clobbers: &Clobbers, r: &mut Random) -> Vec<u8> {
        let mut routine = Self {
            code: Vec::new(),
            at,
        };
        for (i, reg) in crate::x86::abi::ARGUMENT_REGISTERS.iter().enumerate() {
            let rex = 0x48 | (reg.0 >> 3) << 2;
            routine.at_rip(&[rex, 0x89], reg.0, record + 8 * i as u64);
        }
        routine.at_rip(&[0x48, 0x89], 4, record + 48);
        routine.code.push(0x9c);
        routine.at_rip(&[0x8f], 0, record + 56);
        routine.at_rip(&[0x0f, 0xae], 3, record + 64);
        for i in 0..STACK_SLOTS {
            // push [rsp + 8 + 8 i]; pop [record]
            routine
                .code
                .extend_from_slice(&[0xff, 0x74, 0x24, 8 + 8 * i as u8]);
            routine.at_rip(&[0x8f], 0, record + 72 + 8 * i as u64);
        }
        if clobbers.mxcsr {
            routine.at_rip(&[0x0f, 0xae], 2, record + 72 + 8 * STACK_SLOTS as u64);
        }
        for xmm in (0..16).filter(|x| clobbers.xmms >> x & 1 != 0) {
            // pcmpeqb xmm, xmm
            let rex = 0x40 | (xmm >> 3) << 2 | xmm >> 3;
            routine.code.extend_from_slice(&[
                0x66,
                rex,
                0x0f,
                0x74,
                0xc0 | (xmm & 7) << 3 | xmm & 7,
            ]);
        }
        let mut asm = Asm::default();
        if clobbers.flags {
            asm.push_imm((r.next() & ARITHMETIC) as i32 | 2);
            asm.pop_flags();
        }
        for reg in (0..16).filter(|g| clobbers.gprs >> g & 1 != 0) {
            asm.mov_imm(Gpr(reg), r.next());
        }
        asm.ret();
        routine.code.extend(asm.code);
        routine.code
    }
}

fn random_clobbers(r: &mut Random) -> Clobbers {
    let needs_alignment = r.chance(3);
    let gprs = match r.below(3) {
        0 => 0xffff,
        1 => r.next() as u16 & r.next() as u16,
        _ => r.next() as u16,
    };
    Clobbers {
        gprs: gprs & RegSet::CALLER_SAVED.gpr_mask(),
        xmms: if r.chance(3) { r.next() as u16 } else { 0 },
        flags: r.chance(2),
        mxcsr: r.chance(4),
        is_leaf: !needs_alignment,
        needs_alignment,
        is_apart: false,
    }
}

pub fn random_state(r: &mut Random, machine: &Machine, df: bool) -> State {
    let mut state = State {
        mxcsr: 0x1f80 | (r.below(4) as u32) << 13,
        ..State::default()
    };
    for gpr in &mut state.gprs {
        *gpr = r.next();
    }
    state.gprs[1] = [0, 1, 1 << 32, 1 << 32 | 1, r.next()][r.below(5) as usize];
    let misaligned = if r.chance(4) {
        r.below(16)
    } else {
        8 * r.below(2)
    };
    state.gprs[4] = machine.stack_at() - misaligned;
    state.flags = 0x202 | r.next() & ARITHMETIC | if df { r.next() & DIRECTION } else { 0 };
    for xmm in &mut state.xmms {
        *xmm = [r.next(), r.next()];
    }
    state
}

pub fn resolve(asm: &Asm, at: u64, target: impl Fn(Target) -> u64) -> Vec<u8> {
    let mut code = asm.code.clone();
    for fixup in &asm.fixups {
        let field = fixup.at as usize;
        let from = if fixup.absolute {
            0
        } else {
            at + field as u64 + 4
        };
        let value = target(fixup.target).wrapping_sub(from);
        let value = value.wrapping_add_signed(i64::from(fixup.addend));
        code[field..field + 4].copy_from_slice(&(value as u32).to_le_bytes());
    }
    code
}

pub fn random_live(r: &mut Random) -> RegSet {
    let mut live = RegSet(r.next() & RegSet::ALL.0);
    match r.below(4) {
        0 => live = live & RegSet(r.next()),
        1 => live = RegSet::ALL,
        _ => {}
    }
    if r.chance(2) {
        live = live.without(RegSet::FLAGS);
    }
    live | RegSet::CALLEE_SAVED
}

/// A random point.
struct Case {
    calls: Vec<SiteCall>,
    point: Point,
    /// The calls are made only if this branch is taken.
    guard: Option<Taken>,
}

/// Addresses of the pieces of a case: the point, wrappers, routines, each in a place of its own.
#[derive(Clone, Copy)]
struct Places {
    code: u64,
    data: u64,
}

impl Places {
    fn of(machine: &Machine) -> Self {
        Self {
            code: machine.code_at(),
            data: machine.data_at(),
        }
    }

    fn place(self, n: usize) -> u64 {
        self.code + 0x1000 * n as u64
    }

    fn wrapper(self, i: u32) -> u64 {
        self.place(1) + 0x400 * u64::from(i)
    }

    fn original_return(self) -> u64 {
        self.place(5)
    }

    fn routine(self, k: u64) -> u64 {
        self.place(6) + 0x800 * k
    }

    /// What routine `k` saw at its entry.
    fn record(self, k: u64) -> u64 {
        self.data + 0x2000 + RECORD * k
    }

    fn target(self, target: Target) -> u64 {
        match target {
            Target::Analysis(k) => self.routine(k.get()),
            Target::Shared(i) => self.wrapper(i),
            Target::Data(offset) => self.data + u64::from(offset),
            Target::Original(address) => self.code + address.get(),
            Target::Main | Target::ColdPart => unreachable!("there are no bodies"),
            Target::Slot(_) => unreachable!("there is no area"),
            Target::OriginalReturn => self.original_return(),
            Target::ReturnMap => self.data + values::RETURN_MAP,
            Target::Twin => unreachable!("there is one version"),
        }
    }

    /// A piece of code at its address, with its targets resolved.
    fn resolved(self, asm: &Asm, at: u64) -> (u64, Vec<u8>) {
        (at, resolve(asm, at, |target| self.target(target)))
    }
}

/// The stack of a case: where it is in memory, and its bytes.
struct Stack {
    window: u64,
    bytes: Vec<u8>,
}

impl Case {
    fn random(r: &mut Random) -> Self {
        let count = if r.chance(3) {
            1 + r.below(3) as usize
        } else {
            1
        };
        let calls: Vec<SiteCall> = (0..count)
            .map(|k| SiteCall {
                body: None,
                common: 0,
                routine: k as u64,
                clobbers: random_clobbers(r),
                values: (0..r.below(9)).map(|_| random_value(r)).collect(),
            })
            .collect();
        let point = Point {
            live: random_live(r),
            may_set_df: r.chance(5),
            absolute: false,
            is_piece: false,
            free_below: false,
            is_private: false,
            pushed: 0,
        };
        let guard = r.chance(4).then(|| match random_value(r) {
            Value::Taken(taken) => taken,
            _ => Taken::Flags(Cond(r.below(16) as u8)),
        });
        Self {
            calls,
            point,
            guard,
        }
    }

    /// The code of the point and of its wrappers.
    fn code(&self, places: Places) -> Vec<(u64, Vec<u8>)> {
        let mut wrappers = Wrappers::default();
        let mut asm = Asm::default();
        let patches = self.guard.map(|g| site::only_if_taken(&mut asm, g));
        site::emit(&mut asm, 0, &self.calls, self.point, &mut wrappers);
        for patch in patches.into_iter().flatten() {
            asm.land(patch);
        }
        asm.code.extend(Machine::way_back());
        let mut memory = vec![places.resolved(&asm, places.place(0))];
        for (i, wrapper) in wrappers.list.iter().enumerate() {
            let mut asm = Asm::default();
            wrapper.emit(&mut asm);
            memory.push(places.resolved(&asm, places.wrapper(i as u32)));
        }
        memory
    }

    /// The routines, their blank records, and the data of threads.
    fn routines(&self, places: Places, r: &mut Random) -> Vec<(u64, Vec<u8>)> {
        let mut memory = Vec::new();
        for call in &self.calls {
            let (k, clobbers) = (call.routine, &call.clobbers);
            let (at, record) = (places.routine(k), places.record(k));
            memory.push((at, Routine::build(at, record, clobbers, r)));
            let mut blank = vec![0; RECORD as usize];
            let mxcsr = 72 + 8 * STACK_SLOTS;
            blank[mxcsr..mxcsr + 4].copy_from_slice(&0x7fbf_u32.to_le_bytes());
            memory.push((record, blank));
        }
        let answer = if r.chance(4) { 0 } else { r.next() >> 20 };
        let (at, record) = (places.routine(LOOKUP), places.record(LOOKUP));
        let mut lookup = Routine::build(at, record, &Clobbers::EVERYTHING, r);
        lookup.pop();
        let mut asm = Asm::default();
        asm.mov_imm(Gpr::RAX, answer);
        asm.ret();
        lookup.extend(asm.code);
        memory.push((at, lookup));
        let block = places.data + u64::from(BLOCK);
        memory.push((block, (r.next() >> 20).to_le_bytes().into()));
        memory.push((block + 8, answer.to_le_bytes().into()));
        let this = (r.next() >> 20).to_le_bytes();
        memory.push((block + u64::from(TO_THREAD), this.into()));
        memory
    }

    /// The program's state must be the same after the point, as far as it is live.
    fn judge_program(&self, state: &State, after: &State) -> Result<(), String> {
        for gpr in 0..16 {
            if self.point.live.contains(RegSet::gpr(gpr)) && state.gprs[gpr] != after.gprs[gpr] {
                return Err(format!(
                    "gpr {gpr}: {:x} became {:x}",
                    state.gprs[gpr], after.gprs[gpr]
                ));
            }
        }
        for xmm in 0..16 {
            if self.point.live.contains(RegSet::xmm(xmm)) && state.xmms[xmm] != after.xmms[xmm] {
                return Err(format!("xmm{xmm} changed"));
            }
        }
        let changed = state.flags ^ after.flags;
        let bits = [(0, 0), (1, 2), (2, 4), (3, 6), (4, 7), (5, 11)];
        for (live, flag) in bits {
            if self.point.live.contains(RegSet(1 << (32 + live))) && changed >> flag & 1 != 0 {
                return Err(format!("flag {flag} changed"));
            }
        }
        if changed & DIRECTION != 0 || state.mxcsr != after.mxcsr {
            return Err("direction flag or MXCSR changed".into());
        }
        Ok(())
    }

    /// The routine of a call must have seen what the ABI promises, and the arguments.
    fn judge_call(&self, call: &SiteCall, state: &State, machine: &Machine) -> Result<(), String> {
        let record = Places::of(machine).record(call.routine);
        let called = self.guard.is_none_or(|g| is_taken(g, state));
        let entry_rsp = machine.read_u64(record + 48);
        if (entry_rsp != 0) != called {
            return Err(format!("called: {}, expected: {called}", entry_rsp != 0));
        }
        if !called {
            return Ok(());
        }
        if call.clobbers.needs_alignment && entry_rsp % 16 != 8 {
            return Err(format!("rsp {entry_rsp:x} at the routine's entry"));
        }
        if machine.read_u64(record + 56) & DIRECTION != 0 {
            return Err("direction flag set in the routine".into());
        }
        if call.clobbers.mxcsr && machine.read_u64(record + 64) as u32 != 0x1f80 {
            return Err("MXCSR not the default in the routine".into());
        }
        for (i, value) in call.values.iter().enumerate() {
            let slot = if i < 6 {
                record + 8 * i as u64
            } else {
                record + 72 + 8 * (i as u64 - 6)
            };
            let mut seen = machine.read_u64(slot);
            if *value == Value::Flags {
                seen &= ARITHMETIC;
            }
            match expected(value, state, machine) {
                Some(wanted) if wanted != seen => {
                    return Err(format!(
                        "argument {i} {value:?}: {seen:x}, expected {wanted:x}"
                    ));
                }
                None if seen == 0 || seen == u64::MAX => {
                    return Err(format!("argument {i}: no cycle count"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Runs one random point; `Err` has the first fault.
fn try_case(machine: &mut Machine, seed: u64) -> Result<(), String> {
    let r = &mut Random::new(seed);
    let case = Case::random(r);
    let places = Places::of(machine);
    let mut memory = case.code(places);
    memory.extend(case.routines(places, r));
    let state = random_state(r, machine, case.point.may_set_df);
    let rsp = state.gprs[4];
    let mut stack = Stack {
        window: machine.stack_at() - 256,
        bytes: (0..512).map(|_| r.next() as u8).collect(),
    };
    let mut asm = Asm::default();
    return_address::emit(&mut asm, values::BASE);
    memory.push(places.resolved(&asm, places.original_return()));
    memory.push(values::return_map(machine));
    memory.push(values::contents(machine, r));
    let word = (rsp - stack.window) as usize;
    values::return_address(machine, r, &mut stack.bytes[word..word + 8]);
    memory.push((stack.window, stack.bytes.clone()));
    for (at, bytes) in memory {
        machine.write(at, &bytes);
    }
    let after = machine.run(places.place(0), &state);

    let low = (rsp - 128 - stack.window) as usize;
    if machine.read(stack.window + low as u64, 512 - low) != stack.bytes[low..] {
        return Err("red zone or stack changed".into());
    }
    case.judge_program(&state, &after)?;
    case.calls
        .iter()
        .try_for_each(|call| case.judge_call(call, &state, machine))
}

#[test]
fn random_points_keep_the_program_and_pass_the_arguments() {
    let mut machine = Machine::new();
    const ARCH_SET_GS: u64 = 0x1001;
    // SAFETY: nothing else in this process uses gs.
    let set = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, u64::from(TO_THREAD)) };
    assert_eq!(set, 0);
    for seed in 1..300_000 {
        if let Err(what) = try_case(&mut machine, seed) {
            panic!("case {seed}: {what}");
        }
    }
}
