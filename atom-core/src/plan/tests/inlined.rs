//! Random routines as part of random points: the same memory and the same
//! program as with real calls.

use std::sync::Arc;

use crate::x86::assembler::code_asm::*;
use atom_abi::THREAD_THIS;

use super::machine::{Machine, State};
use super::random::{self, Random};
use super::routine::Writer;
use crate::analysis::image::AnalysisImage;
use crate::analysis::specialise::Specialiser;
use crate::live::RegSet;
use crate::plan::Clobbers;
use crate::plan::code::{Asm, Home, Target};
use crate::plan::private_stack::PrivateStack;
use crate::plan::site::{self, Point, SiteCall};
use crate::plan::wrapper::Wrappers;
use crate::plan::{inline, shared};
use crate::tool::value::{Address, Value};
use crate::x86::asm::Gpr;

const HELPER: u64 = 0x1000;
const ROUTINES: u64 = 0x1400;
const EACH: u64 = 0x900;
const STATICS: u64 = 0x3800;
const IMAGE: u64 = 0x4800;
const FAR: u64 = 60_000;
/// Where in the machine's data the image lies.
const IMAGE_AT: u64 = 0x8000;
/// Where in it a thread's block starts, which knows its own address.
const BLOCK: u32 = 0x2e00;
/// Size in bytes of the block with a private stack at its end, which lies between that memory and the image.
const BLOCK_SIZE: u32 = 0x4000;
/// The memory that routines are given.
const MEMORY: usize = 0x3000;

/// A function that a side path calls: counts, and changes all that it may.
fn helper() -> Vec<u8> {
    let mut asm = CodeAssembler::new(64).unwrap();
    asm.mov(rax, 7u64).unwrap();
    for reg in [rcx, rdx, rsi, rdi, r8, r9, r10, r11] {
        asm.add(reg, rax).unwrap();
    }
    let operand = crate::x86::assembler::MemoryOperand::with_base_displ(
        crate::x86::Register::RIP,
        (STATICS + 0x800) as i64,
    );
    let inc = crate::x86::Instruction::with1(crate::x86::Code::Inc_rm64, operand).unwrap();
    asm.add_instruction(inc).unwrap();
    asm.pcmpeqd(xmm0, xmm0).unwrap();
    asm.pcmpeqd(xmm9, xmm9).unwrap();
    asm.ret().unwrap();
    asm.assemble(HELPER).unwrap()
}

fn image(codes: &[(u64, Vec<u8>)]) -> AnalysisImage {
    let mut text = vec![0; STATICS as usize];
    let mut functions = Vec::new();
    for (at, code) in codes {
        let start = *at as usize;
        text[start..start + code.len()].copy_from_slice(code);
        functions.push(*at..*at + code.len() as u64);
    }
    AnalysisImage::for_test(text, functions, STATICS, (IMAGE - STATICS) as usize)
}

/// What a run left behind.
struct Outcome {
    memory: Vec<u8>,
    statics: Vec<u8>,
    state: State,
    stack: Vec<u8>,
}

struct Case {
    text: Vec<u8>,
    memory: Vec<u8>,
    statics: Vec<u8>,
    stack: Vec<u8>,
    state: State,
    /// The point's own code may write to the stack below this address.
    low: u64,
}

fn run(
    machine: &mut Machine,
    case: &Case,
    asm: &Asm,
    mut wrappers: Wrappers,
    bodies: Option<&Specialiser<'_>>,
) -> Outcome {
    let place = |n: usize| machine.code_at() + 0x1000 * n as u64;
    let wrapper_at = |i: u32| place(3) + 0x400 * u64::from(i);
    let data = machine.data_at();
    let image = data + IMAGE_AT;
    let target = |t: Target| match t {
        Target::Analysis(a) => image + a.get(),
        Target::Shared(i) => wrapper_at(i),
        Target::Data(offset) => data + u64::from(offset),
        Target::Original(address) => machine.code_at() + address.get(),
        Target::OriginalReturn | Target::ReturnMap | Target::Main | Target::ColdPart => {
            unreachable!("no value of a return is asked for")
        }
        Target::Slot(_) => unreachable!("there is no area"),
        Target::Twin => unreachable!("there is one version"),
    };
    let mut writes = vec![
        (place(0), random::resolve(asm, place(0), target)),
        (image, case.text.clone()),
        (image + STATICS, case.statics.clone()),
        (data, case.memory.clone()),
    ];
    let mut i = 0;
    while let Some(wrapper) = wrappers.list.get(i).copied() {
        let asm = shared::emit(&wrapper, bodies, Home::Own, false, &mut wrappers);
        let at = wrapper_at(i as u32);
        writes.push((at, random::resolve(&asm, at, target)));
        i += 1;
    }
    let window = machine.stack_at() - 256;
    writes.push((window, case.stack.clone()));
    let start = place(0);
    for (at, bytes) in writes {
        machine.write(at, &bytes);
    }
    let state = machine.run(start, &case.state);
    let low = case.low;
    Outcome {
        memory: machine.read(data, MEMORY),
        statics: machine.read(image + STATICS, (IMAGE - STATICS) as usize),
        state,
        stack: machine.read(low, (window + 512 - low) as usize),
    }
}

fn random_argument(r: &mut Random, pointer: bool) -> Value {
    if pointer {
        let at = 8 * r.below(0x300) as u32;
        // The base of gs is 0 here, so this is the same address.
        return match r.below(4) {
            0 => Value::Thread { block: BLOCK, at },
            _ => Value::Data(at),
        };
    }
    loop {
        // Returns are looked up by a routine of their own, which is not laid out here.
        let value = loop {
            match random::random_value(r) {
                Value::Return => continue,
                value => break value,
            }
        };
        // These have no number that is the same in both runs, or are tested elsewhere.
        if !matches!(
            value,
            Value::Cycles
                | Value::Flags
                | Value::Data(_)
                | Value::Thread { .. }
                | Value::ThreadLookup { .. }
                | Value::Pointed { .. }
        ) {
            return value;
        }
    }
}

/// An argument as most tools pass it: a constant, a register or an address, of few registers, so that the
/// arguments compete for them.
fn usual_argument(r: &mut Random) -> Value {
    let few =
        |r: &mut Random| [Gpr::RAX, Gpr::RCX, Gpr::RDX, Gpr::RSI, Gpr::RBX][r.below(5) as usize];
    match r.below(5) {
        0 => Value::Const(r.below(300)),
        1 => Value::Reg(few(r)),
        _ => {
            let mut address = Address::at(few(r), r.below(256) as i64 - 128);
            address.index = (!r.chance(3)).then(|| (few(r), 1 << r.below(4)));
            address.narrow = r.chance(8);
            Value::Address(address)
        }
    }
}

/// A live set as it is in the middle of a procedure: few registers are dead, and flags are live.
fn usual_live(r: &mut Random) -> RegSet {
    let mut live = RegSet::ALL;
    for _ in 0..r.below(4) {
        live = live.without(RegSet::gpr(r.below(12) as usize));
    }
    live | RegSet::CALLEE_SAVED
}

fn argument(r: &mut Random, pointer: bool, is_usual: bool) -> Value {
    if is_usual && !pointer {
        usual_argument(r)
    } else {
        random_argument(r, pointer)
    }
}

fn live(r: &mut Random, is_usual: bool) -> RegSet {
    if is_usual {
        usual_live(r)
    } else {
        random::random_live(r)
    }
}

/// The private stack of a point that has one.
fn private_stack(r: &mut Random, point: &Point) -> Option<PrivateStack> {
    let stack = PrivateStack::in_block(BLOCK, BLOCK_SIZE, r.chance(2));
    point.is_private.then_some(stack)
}

/// The first address of the stack that the point's own code must leave alone.
fn low(machine: &Machine, point: &Point, state: &State) -> u64 {
    match (point.is_private, point.free_below) {
        (true, _) => machine.stack_at() - 256,
        (_, true) => state.gprs[4],
        _ => state.gprs[4] - 128,
    }
}

/// The instructions of some code, for messages.
fn listing(code: &[u8]) -> String {
    use crate::x86::Formatter;
    let mut text = String::new();
    let mut formatter = crate::x86::NasmFormatter::new();
    for instruction in &mut crate::x86::Decoder::new(64, code, 0) {
        text += &format!("\n{:4x} ", instruction.ip());
        formatter.format(&instruction, &mut text);
    }
    text
}

/// One random point; yields how many calls were made part of it.
fn try_case(machine: &mut Machine, seed: u64) -> Result<(usize, usize), String> {
    let r = &mut Random::new(seed);
    let count = if r.below(3) == 0 { 2 } else { 1 };
    let is_usual = r.chance(2);
    let mut codes = vec![(HELPER, helper())];
    let mut calls = Vec::new();
    for k in 0..count {
        let pointers: Vec<bool> = (0..r.below(6)).map(|_| r.below(2) == 0).collect();
        let at = ROUTINES + EACH * k;
        let mut asm = CodeAssembler::new(64).unwrap();
        Writer::new(&mut asm, r, STATICS + 0x100 * k, HELPER).write(&pointers);
        codes.push((at, asm.assemble(at).map_err(|e| e.to_string())?));
        calls.push(SiteCall {
            routine: at,
            clobbers: Clobbers {
                mxcsr: false,
                ..Clobbers::EVERYTHING
            },
            values: pointers.iter().map(|p| argument(r, *p, is_usual)).collect(),
            body: None,
            common: r.next(),
        });
    }
    let image = image(&codes);
    let point = Point {
        may_set_df: r.below(5) == 0,
        is_private: r.chance(4),
        // The other arguments may be loaded from below rsp.
        ..Point::of_hook(live(r, is_usual), is_usual && r.chance(3))
    };
    let mut state = random::random_state(r, machine, point.may_set_df);
    state.mxcsr = 0x1f80;
    let bytes = |r: &mut Random, n: usize| -> Vec<u8> { (0..n).map(|_| r.next() as u8).collect() };
    let mut memory = bytes(r, MEMORY);
    let this = machine.data_at() + u64::from(BLOCK);
    memory[BLOCK as usize + THREAD_THIS..][..8].copy_from_slice(&this.to_le_bytes());
    let case = Case {
        text: image.text.clone(),
        memory,
        statics: bytes(r, (IMAGE - STATICS) as usize),
        stack: bytes(r, 512),
        state,
        low: low(machine, &point, &state),
    };
    let private = private_stack(r, &point);
    let emit = |calls: &[SiteCall]| {
        let (mut asm, mut wrappers) = (Asm::default(), Wrappers::default());
        private.iter().for_each(|p| p.enter(&mut asm));
        let emitted = site::emit(&mut asm, 0, calls, point, &mut wrappers);
        private.iter().for_each(|p| p.leave(&mut asm));
        asm.code.extend(Machine::way_back());
        let inlined = emitted.inlined;
        emitted.join(&mut asm, 0);
        (asm, wrappers, inlined)
    };
    let (asm, wrappers, _) = emit(&calls);
    let wanted = run(machine, &case, &asm, wrappers, None);
    let bodies = Specialiser::new(&image);
    for call in &mut calls {
        let bounds: Vec<_> = call.values.iter().map(inline::bound).collect();
        call.body = bodies.body(call.routine, &bounds);
    }
    let (asm, wrappers, inlined) = emit(&calls);
    let seen = run(machine, &case, &asm, wrappers, Some(&bodies));
    let fail = |what: &str| {
        let routines: String = codes.iter().skip(1).map(|c| listing(&c.1) + "\n").collect();
        let arguments: Vec<_> = calls.iter().map(|c| &c.values).collect();
        let code = listing(&asm.code);
        Err(format!("{what}\n{point:?}\n{arguments:?}{routines}{code}"))
    };

    if seen.memory != wanted.memory || seen.statics != wanted.statics {
        return fail("other memory than with calls");
    }
    if seen.stack != case.stack[512 - seen.stack.len()..] {
        return fail("red zone or stack changed");
    }
    let before = &case.state;
    for gpr in (0..16).filter(|g| point.live.contains(RegSet::gpr(*g))) {
        if before.gprs[gpr] != seen.state.gprs[gpr] {
            return fail(&format!("gpr {gpr} changed"));
        }
    }
    for xmm in (0..16).filter(|x| point.live.contains(RegSet::xmm(*x))) {
        if before.xmms[xmm] != seen.state.xmms[xmm] {
            return fail(&format!("xmm{xmm} changed"));
        }
    }
    let changed = before.flags ^ seen.state.flags;
    for (live, flag) in [(0, 0), (1, 2), (2, 4), (3, 6), (4, 7), (5, 11), (6, 10)] {
        let is_live = live == 6 || point.live.contains(RegSet(1 << (32 + live)));
        if is_live && changed >> flag & 1 != 0 {
            return fail(&format!("flag {flag} changed"));
        }
    }
    Ok((inlined, calls.len()))
}

#[test]
fn random_routines_in_line_do_what_their_calls_do() {
    let mut machine = Machine::new();
    let (mut inlined, mut all) = (0, 0);
    for seed in 1..FAR {
        match try_case(&mut machine, seed) {
            Err(what) => panic!("case {seed}: {what}"),
            Ok((some, of)) => {
                inlined += some;
                all += of;
            }
        }
    }
    assert!(inlined * 2 > all, "only {inlined} of {all} calls in line");
}

/// A body that never calls leaves `Arc`s alone: it is shared between points.
#[test]
fn points_with_the_same_shape_share_a_body() {
    let r = &mut Random::new(3);
    let mut asm = CodeAssembler::new(64).unwrap();
    Writer::new(&mut asm, r, STATICS, HELPER).write(&[true]);
    let image = image(&[(ROUTINES, asm.assemble(ROUTINES).unwrap())]);
    let bodies = Specialiser::new(&image);
    let body = |at| bodies.body(ROUTINES, &[inline::bound(&Value::Data(at))]);
    let (a, b) = (body(8), body(16));
    assert!(a.is_none() && b.is_none() || Arc::ptr_eq(&a.unwrap(), &b.unwrap()));
}
