//! A call's body in line: register allocation for its values, and its instructions.
//!
//! Registers are taken in this order: registers that are dead at the point; registers that are saved there
//! anyway; then another register is saved. An input that the program has in a register is read there, and
//! changed there only if nothing else needs it. On a path that ends with a call, the routine is called, and
//! the registers that the program still needs are saved on that path only.

use super::state::Ends;
use super::{Site, SiteCall};
use crate::analysis::specialise::Body;
use crate::analysis::specialise::ops::{
    Base, End, Imm, Known, Machine, Mem as OpMem, Node, Op, Rm, Slot, Start, Symbol, V,
};
use crate::live::RegSet;
use crate::plan::code::{Encoding, Operand, Target};
use crate::tool::value::{Address, Segment, Taken, Value};
use crate::x86::asm::{Gpr, Mem};
use crate::x86::flags;
use crate::x86::opcode::{self, Alu};

mod addresses;
mod cold;

use addresses::flags_are_dead;
use cold::cold_side;

/// The failure of a body that cannot be at a point: the routine must be called.
struct Refused;

type Result<T> = std::result::Result<T, Refused>;

/// Location of a value.
#[derive(Clone, Copy)]
enum Where {
    Nowhere,
    Register(u8),
    /// A known value that is not in a register yet.
    Known(Known),
    /// An address, computed where it is used.
    Address(Address),
}

/// A symbol as it is at this point.
enum Resolved {
    Number(u64),
    /// An address; if `gs` is set, each operand on it has a gs prefix.
    Link {
        target: Target,
        offset: i32,
        gs: bool,
    },
}

/// A memory operand of an instruction.
struct MemoryOperand {
    operand: Operand,
    gs: bool,
    /// Mask of a register that it needs besides those of values.
    held: u16,
}

/// Registers on a path through the body.
#[derive(Clone)]
struct Path {
    values: Vec<Where>,
    /// Mask of the registers that hold values or must not be used.
    held: u16,
    /// Mask of those among them that may be changed.
    owned: u16,
}

impl Path {
    fn put(&mut self, v: V, at: Where) {
        let i = usize::from(v.0);
        if self.values.len() <= i {
            self.values.resize(i + 1, Where::Nowhere);
        }
        self.values[i] = at;
    }

    fn at(&self, v: V) -> Where {
        self.values
            .get(usize::from(v.0))
            .copied()
            .unwrap_or(Where::Nowhere)
    }

    fn own(&mut self, v: V, reg: u8) {
        self.put(v, Where::Register(reg));
        self.held |= 1 << reg;
        self.owned |= 1 << reg;
    }

    /// Frees the registers of values that are not read any more.
    fn release(&mut self, live: u128, kept: u16) {
        let mut held = kept;
        for (i, at) in self.values.iter_mut().enumerate() {
            match at {
                _ if live >> i & 1 == 0 => *at = Where::Nowhere,
                Where::Register(reg) => held |= 1 << *reg,
                Where::Address(a) => held |= a.sources(),
                _ => {}
            }
        }
        self.held = held;
        self.owned &= held;
    }
}

/// Facts about the call whose body is emitted.
struct Context<'a> {
    call: &'a SiteCall,
    /// Mask of the registers whose contents the program or a later argument needs.
    keep: u16,
    /// Mask of the registers that are not for values.
    reserved: u16,
    sources_later: u16,
    flags_later: bool,
    /// Set of flags that must be kept.
    flags: u8,
}

/// The register whose contents the value is, if it is that.
fn plain_register(value: &Value) -> Option<Gpr> {
    match *value {
        Value::Reg(reg) => Some(reg),
        Value::Address(Address {
            base: Some(base),
            index: None,
            index_is_byte: false,
            element: None,
            bits: None,
            image: None,
            disp: 0,
            narrow: false,
            segment: Segment::Flat,
        }) if base != Gpr::RSP => Some(base),
        _ => None,
    }
}

/// True if an input can be computed in one register without a scratch register.
fn is_simple(value: &Value) -> bool {
    match value {
        Value::Reg(_) | Value::Stack(_) | Value::Taken(Taken::Flags(_)) => true,
        Value::Data(_) | Value::Original(_) | Value::Thread { .. } => true,
        Value::Load(a, 8) => is_on_stack(a) || is_in_image(a) || is_sum(a) && !a.narrow,
        Value::Address(a) => is_sum(a),
        _ => false,
    }
}

/// True for an address that is the sum of registers and a displacement.
fn is_sum(a: &Address) -> bool {
    let more = a.element.is_some() || a.bits.is_some() || a.image.is_some();
    a.segment == Segment::Flat && !a.index_is_byte && !more
}

/// True for a known address of the image.
pub(super) fn is_in_image(a: &Address) -> bool {
    let has_no_register = a.base.is_none() && a.index.is_none() && a.element.is_none();
    let is_plain = a.bits.is_none() && !a.narrow && a.segment == Segment::Flat;
    a.image.is_some() && a.disp == 0 && has_no_register && is_plain
}

/// True for a word at a known distance from rsp.
fn is_on_stack(a: &Address) -> bool {
    let disp = a.disp;
    *a == Address::at(Gpr::RSP, disp) && i32::try_from(disp).is_ok()
}

/// The calls with reads of the register `old` replaced by reads of `new`.
pub(super) fn read_from(calls: &[SiteCall], old: Gpr, new: Gpr) -> Vec<SiteCall> {
    let moved = |reg: Gpr| if reg == old { new } else { reg };
    let mut calls = calls.to_vec();
    for value in calls.iter_mut().flat_map(|c| &mut c.values) {
        match value {
            Value::Reg(reg) => *reg = moved(*reg),
            Value::Address(a) | Value::Load(a, _) => {
                a.base = a.base.map(moved);
                a.index = a.index.map(|(reg, scale)| (moved(reg), scale));
            }
            _ => {}
        }
    }
    calls
}

impl Site<'_> {
    /// A register to keep rax in, if flags are to be in ax and rax is not free.
    pub(super) fn find_spill(&self, calls: &[SiteCall]) -> Option<Gpr> {
        if !self.needs.flags || self.needs.calls || self.needs.gprs & Gpr::RAX.bit() != 0 {
            return None;
        }
        let values = || calls.iter().flat_map(|c| &c.values);
        // Reads of rax in other values are not replaced.
        let simple = values().all(|v| is_simple(v) || v.sources() & Gpr::RAX.bit() == 0);
        let used = values().fold(self.point.live.gpr_mask(), |set, v| set | v.sources());
        if used & Gpr::RAX.bit() == 0 || !simple {
            return None;
        }
        // rcx is needed for counts of shifts.
        let free = !used & !self.needs.gprs & !(Gpr::RSP.bit() | Gpr::RBP.bit() | Gpr::RCX.bit());
        (0..16).find(|n| free >> n & 1 != 0).map(Gpr)
    }

    /// Puts the call's body in line, if it has one; false if the routine must be called.
    pub(super) fn inline(
        &mut self,
        number: usize,
        call: &SiteCall,
        sources_later: u16,
        flags_later: bool,
    ) -> bool {
        let Some(body) = &call.body else { return false };
        if number >= 64 || self.needs.refused >> number & 1 != 0 {
            return false;
        }
        let inputs = || {
            body.inputs
                .iter()
                .map(|(i, _)| &call.values[usize::from(*i)])
        };
        let flags_gone = body.may_call && call.values.iter().any(Value::needs_flags);
        if flags_gone
            || !inputs().all(is_simple)
            || self
                .emit_body(call, body, sources_later, flags_later)
                .is_err()
        {
            self.found.refused |= 1 << number;
            self.found.calls = true;
        }
        true
    }

    fn emit_body(
        &mut self,
        call: &SiteCall,
        body: &Body,
        sources_later: u16,
        flags_later: bool,
    ) -> Result<()> {
        let own = call
            .values
            .iter()
            .fold(0, |set, value| set | value.sources());
        let reserved = self.state.reserved;
        self.spoilt = false;
        let context = Context {
            call,
            keep: self.point.live.gpr_mask() | sources_later | if body.may_call { own } else { 0 },
            reserved,
            sources_later,
            flags_later,
            flags: if flags_later {
                flags::ALL
            } else {
                (self.point.live.0 >> 32) as u8
            },
        };
        let mut ends = Ends::new(false);
        let mut path = Path {
            values: Vec::new(),
            held: reserved,
            owned: 0,
        };
        self.inputs(&context, body, &mut path)?;
        self.node(&context, &mut ends, &body.root, path, true)?;
        self.land_near(ends.near);
        self.land_far(ends.far);
        if self.spoilt {
            return Err(Refused);
        }
        self.state.intact = ends.intact;
        self.state.flags_intact = ends.flags_intact;
        Ok(())
    }

    /// Puts the inputs into registers, or finds them there.
    fn inputs(&mut self, context: &Context, body: &Body, path: &mut Path) -> Result<()> {
        let value = |i: u8| &context.call.values[usize::from(i)];
        if body.inputs.iter().any(|(i, _)| value(*i).needs_flags()) {
            self.restore_flags();
        }
        for (k, (i, v)) in body.inputs.iter().enumerate() {
            let rest = &body.inputs[k + 1..];
            let waiting = rest.iter().fold(0, |set, (i, _)| set | value(*i).sources());
            let value = value(*i);
            if let Some(reg) = plain_register(value)
                && self.is_intact(reg)
            {
                let shared = (path.held | waiting | self.kept(context)) & reg.bit() != 0;
                path.own(*v, reg.0);
                if shared {
                    path.owned &= !reg.bit();
                }
                continue;
            }
            if let Value::Address(a) = value
                && self.can_wait(a)
            {
                path.put(*v, Where::Address(*a));
                path.held |= a.sources();
                continue;
            }
            let own = value.sources() & self.state.intact;
            let to = self.simple_value(context, value, path.held | waiting, own)?;
            path.own(*v, to);
        }
        Ok(())
    }

    /// Computes a simple value into a register outside of `held`, preferably one of `liked`, and changes no
    /// other register that is held.
    fn simple_value(
        &mut self,
        context: &Context,
        value: &Value,
        held: u16,
        liked: u16,
    ) -> Result<u8> {
        // The parts of an address that are saved have to be loaded: one into the result's register, which
        // must be none of the parts, the other into the spare one.
        let parts = match value {
            Value::Address(a) | Value::Load(a, _) => [a.base, a.index.map(|i| i.0)],
            _ => [None; 2],
        };
        let is_loaded = |r: &&Gpr| self.is_loaded(**r);
        let loaded = parts.iter().flatten().filter(is_loaded).count();
        let held = if loaded == 0 {
            held
        } else {
            held | value.sources()
        };
        let to = self.pick(context, held, liked)?;
        if loaded == 2 {
            let spare = self.pick(context, held | 1 << to, 0)?;
            self.spare = Some(Gpr(spare));
        }
        self.compute(Gpr(to), value, 0, false);
        self.spare = None;
        Ok(to)
    }

    /// Mask of the registers that must not be changed in this attempt. rbp is always one: even where the
    /// program does not read it again, such as before `pop rbp`, the unwind tables may find the frame by it.
    fn kept(&self, context: &Context) -> u16 {
        let cold = self.state.cold_intact.map_or(0, |_| self.needs.cold_gprs);
        context.keep & self.state.intact & !self.state.saved & !cold | Gpr::RBP.bit()
    }

    /// Chooses a register to write to, outside of `held`, and preferably one of `liked`.
    fn pick(&mut self, context: &Context, held: u16, liked: u16) -> Result<u8> {
        use Gpr as G;
        const ORDER: [Gpr; 15] = [
            G::RAX,
            G::RCX,
            G::RDX,
            G::RSI,
            G::RDI,
            G::RBX,
            G::RBP,
            G::R8,
            G::R9,
            G::R10,
            G::R11,
            G::R12,
            G::R13,
            G::R14,
            G::R15,
        ];
        let kept = self.kept(context);
        let free = |set: u16| {
            let free = |r: &u8| set >> r & 1 == 0;
            ORDER.iter().map(|r| r.0).find(free)
        };
        if let Some(reg) = free(held | kept | !liked).or_else(|| free(held | kept)) {
            return Ok(reg);
        }
        let own = context
            .call
            .values
            .iter()
            .fold(0, |set, v| set | v.sources());
        // Callee-saved registers stay where the unwind tables look for them.
        let held = held | RegSet::CALLEE_SAVED.gpr_mask();
        let victim = free(held | own).or_else(|| free(held)).ok_or(Refused)?;
        self.want(1 << victim);
        Ok(victim)
    }

    fn node(
        &mut self,
        context: &Context,
        ends: &mut Ends,
        node: &Node,
        mut path: Path,
        last: bool,
    ) -> Result<()> {
        debug_assert_eq!(self.asm.depth(), self.state.depth as u32);
        path.release(node.live[0], context.reserved);
        for (i, op) in node.ops.iter().enumerate() {
            match op {
                Op::Constant(v, known) => path.put(*v, Where::Known(*known)),
                Op::Machine(m) => {
                    let live = node.live[i + 1];
                    let flags_dead = flags_are_dead(&node.ops[i + 1..], &node.end);
                    if !self.with_address(context, m, live, flags_dead, &mut path)? {
                        self.operation(context, m, live, &mut path)?;
                    }
                }
            }
        }
        match &node.end {
            End::Return => {
                self.jump_to_end(ends, last);
            }
            End::Call => {
                self.call_out(context)?;
                self.jump_to_end(ends, last);
            }
            End::Branch(condition, sides) => {
                if let Some(cold) = cold_side(sides)
                    && !self.in_cold_part
                {
                    let cond = if cold == 0 {
                        *condition
                    } else {
                        condition.inverted()
                    };
                    let before = self.state;
                    self.far(context, ends, cond, (&sides[cold], path.clone()))?;
                    self.state = before;
                    return self.node(context, ends, &sides[1 - cold], path, last);
                }
                // A cold path runs straight on where it does not call.
                let calls = usize::from(self.in_cold_part);
                let taken_first = sides[calls].end == End::Call || sides[1].is_empty();
                let (first, second, jump) = if taken_first {
                    (&sides[0], &sides[1], condition.inverted())
                } else {
                    (&sides[1], &sides[0], *condition)
                };
                let jump = self.asm.branch(Some(jump), self.needs.long);
                if second.is_empty() {
                    ends.near.push(jump);
                    ends.meet(self.state.intact, self.state.flags_intact);
                    return self.cold_path(context, ends, first, path, last);
                }
                let before = self.state;
                self.node(context, ends, first, path.clone(), false)?;
                if !self.asm.land_if_near(jump) {
                    self.found.long = true;
                }
                self.state = before;
                self.node(context, ends, second, path, last)?;
            }
        }
        Ok(())
    }

    fn resolve(&self, context: &Context, symbol: Symbol) -> Result<Resolved> {
        let offset = symbol.offset;
        let link = |target, gs| {
            let offset = i32::try_from(offset).map_err(|_| Refused)?;
            Ok(Resolved::Link { target, offset, gs })
        };
        match symbol.base {
            Base::Image => Ok(Resolved::Link {
                target: Target::analysis(offset as u64),
                offset: 0,
                gs: false,
            }),
            Base::Argument(i) => match context.call.values.get(usize::from(i)) {
                Some(Value::Const(n)) => Ok(Resolved::Number(n.wrapping_add(offset as u64))),
                Some(Value::Data(at)) => link(Target::Data(*at), false),
                Some(Value::Thread { at, .. }) => link(Target::Data(*at), true),
                Some(Value::Original(at)) => link(Target::original(*at), false),
                _ => Err(Refused),
            },
        }
    }

    fn resolve_known(&self, context: &Context, known: Known) -> Result<Resolved> {
        match known {
            Known::Number(n) => Ok(Resolved::Number(n)),
            Known::Symbol(symbol) => self.resolve(context, symbol),
        }
    }

    fn write(&mut self, to: u8) -> Gpr {
        self.overwrite(Gpr(to));
        Gpr(to)
    }

    /// Loads a known value into a register.
    fn constant(&mut self, context: &Context, to: u8, known: Known) -> Result<()> {
        let resolved = self.resolve_known(context, known)?;
        let to = self.write(to);
        if let Known::Symbol(symbol) = known
            && let Base::Argument(i) = symbol.base
            && let value @ Value::Thread { .. } = context.call.values[usize::from(i)]
        {
            // The address itself depends on the running thread.
            self.compute(to, &value, 0, false);
            let offset = i32::try_from(symbol.offset).map_err(|_| Refused)?;
            if offset != 0 {
                self.asm.lea(to, Mem::at(to, offset));
            }
            return Ok(());
        }
        match resolved {
            Resolved::Number(n) => self.asm.mov_imm(to, n),
            Resolved::Link { target, offset, .. } => self.asm.lea_link(to, target, offset),
        }
        Ok(())
    }

    /// The register that a value is read from; a value that has none gets one now.
    fn use_of(&mut self, context: &Context, v: V, path: &mut Path) -> Result<u8> {
        match path.at(v) {
            Where::Register(reg) => Ok(reg),
            Where::Known(known) => {
                let to = self.pick(context, path.held, 0)?;
                self.constant(context, to, known)?;
                path.own(v, to);
                Ok(to)
            }
            Where::Address(address) => {
                let to = self.pick(context, path.held, 0)?;
                self.place_address(to, &address, false);
                path.own(v, to);
                Ok(to)
            }
            Where::Nowhere => Err(Refused),
        }
    }

    /// The memory operand.
    fn memory(&mut self, context: &Context, mem: &OpMem, path: &mut Path) -> Result<MemoryOperand> {
        let index = match mem.index {
            Some((v, scale)) => Some((Gpr(self.use_of(context, v, path)?), scale)),
            None => None,
        };
        let at = |base, disp| MemoryOperand {
            operand: Operand::Mem(Mem { base, index, disp }),
            gs: false,
            held: 0,
        };
        let symbol = match mem.start {
            Start::Nothing => return Ok(at(None, mem.disp)),
            Start::Value(v) => {
                let base = Gpr(self.use_of(context, v, path)?);
                return Ok(at(Some(base), mem.disp));
            }
            Start::Symbol(symbol) => symbol,
        };
        let resolved = self.resolve(context, symbol)?;
        let gs = matches!(resolved, Resolved::Link { gs: true, .. });
        if let (&Resolved::Link { target, offset, .. }, Some(index)) = (&resolved, index)
            && self.point.absolute
        {
            return Ok(MemoryOperand {
                operand: Operand::Table(target, offset, index),
                gs,
                held: 0,
            });
        }
        match resolved {
            Resolved::Number(n) if i32::try_from(n as i64).is_ok() => Ok(at(None, n as i32)),
            Resolved::Link { target, offset, .. } if index.is_none() => Ok(MemoryOperand {
                operand: Operand::Link(target, offset),
                gs,
                held: 0,
            }),
            _ => {
                let base = self.pick(context, path.held, 0)?;
                let to = self.write(base);
                match resolved {
                    Resolved::Number(n) => self.asm.mov_imm(to, n),
                    Resolved::Link { target, offset, .. } => {
                        self.asm.lea_link(to, target, offset);
                    }
                }
                path.held |= to.bit();
                Ok(MemoryOperand {
                    gs,
                    held: to.bit(),
                    ..at(Some(to), 0)
                })
            }
        }
    }

    /// The operation with its known operand as an immediate, if there is such a form.
    fn with_immediate(&self, context: &Context, m: &Machine, path: &Path) -> Result<Machine> {
        let mut m = *m;
        let (Slot::Use(v), Imm::None) = (m.reg, m.imm) else {
            return Ok(m);
        };
        let Where::Known(known) = path.at(v) else {
            return Ok(m);
        };
        let Resolved::Number(n) = self.resolve_known(context, known)? else {
            return Ok(m);
        };
        let Ok(n) = i32::try_from(n as i64) else {
            return Ok(m);
        };
        if m.width < 4 {
            return Ok(m);
        }
        if let Some(op) = Alu::of_rm_r(m.opcode) {
            m.reg = Slot::Extension(op.extension());
            (m.opcode, m.imm) = match i8::try_from(n) {
                Ok(n) => (opcode::ALU_RM_IMM8, Imm::Byte(n)),
                Err(_) => (opcode::ALU_RM_IMM32, Imm::Wide(n)),
            };
        } else if m.opcode == opcode::MOV_RM_R {
            (m.opcode, m.imm) = (opcode::MOV_RM_IMM, Imm::Wide(n));
            m.reg = Slot::Extension(opcode::EXTENSION_MOV);
        }
        Ok(m)
    }

    /// Emits one operation; `live` is the set of values that are read afterwards.
    fn operation(
        &mut self,
        context: &Context,
        m: &Machine,
        live: u128,
        path: &mut Path,
    ) -> Result<()> {
        let m = self.with_immediate(context, m, path)?;
        if let Some(count) = m.count {
            self.place_count(context, count, path)?;
        }
        let place = match &m.rm {
            Rm::Mem(mem) => Some(self.memory(context, mem, path)?),
            _ => None,
        };
        let mut slots = [m.reg, Slot::Extension(0)];
        if let Rm::Reg(slot) = m.rm {
            slots[1] = slot;
        }
        let mut registers = [0; 2];
        // Reads come first, so that a written value may take the register of a value that is read for the
        // last time.
        for (slot, register) in slots.iter().zip(&mut registers) {
            match *slot {
                Slot::Use(v) => *register = self.use_of(context, v, path)?,
                Slot::Extension(n) => *register = n,
                _ => {}
            }
        }
        for (slot, register) in slots.iter().zip(&mut registers) {
            if let Slot::Modify { old, new } = *slot {
                *register = self.modify(context, old, &m, live, path)?;
                path.own(new, *register);
            }
        }
        let written = slots
            .iter()
            .filter_map(|s| s.written())
            .fold(0, |set, v| set | v.bit());
        path.release(live | written, context.reserved);
        for (slot, register) in slots.iter().zip(&mut registers) {
            if let Slot::Define(v) = *slot {
                let liked = place.as_ref().map_or(0, |p| p.held);
                *register = self.pick(context, path.held, liked)?;
                self.write(*register);
                path.own(v, *register);
            }
        }
        path.release(live, context.reserved);
        if m.changes & context.flags != 0 {
            self.change_flags();
        }
        self.note_access(&m, context.call);
        self.asm.machine(&Encoding {
            opcode: m.opcode,
            width: m.width,
            reg: registers[0],
            byte_reg: m.byte_reg,
            byte_rm: m.byte_rm,
            lock: m.lock,
            rep: m.rep,
            gs: place.as_ref().is_some_and(|p| p.gs),
            rm: place.map_or(Operand::Reg(Gpr(registers[1])), |p| p.operand),
            imm: m.imm,
        });
        Ok(())
    }

    /// Notes that the operation changes flags that the program or a later argument needs.
    fn change_flags(&mut self) {
        if !self.needs.flags && !self.state.flags_pushed {
            self.found.flags = true;
        }
        self.state.flags_intact = false;
    }

    /// The register in which a value is changed: its own if nothing else needs the contents, else a copy.
    fn modify(
        &mut self,
        context: &Context,
        old: V,
        m: &Machine,
        live: u128,
        path: &mut Path,
    ) -> Result<u8> {
        if let Where::Address(address) = path.at(old) {
            let to = self.pick(context, path.held, 0)?;
            self.place_address(to, &address, m.width == 4);
            return Ok(to);
        }
        let from = self.use_of(context, old, path)?;
        let others = path.values.iter().enumerate().any(|(i, at)| {
            i != usize::from(old.0) && matches!(at, Where::Register(r) if *r == from)
        });
        let dies = live & old.bit() == 0;
        if dies && !others && path.owned >> from & 1 != 0 {
            self.write(from);
            return Ok(from);
        }
        let to = self.pick(context, path.held, 0)?;
        let to = self.write(to);
        if m.width == 4 {
            self.asm.mov32(to, Gpr(from));
        } else {
            self.asm.mov(to, Gpr(from));
        }
        Ok(to.0)
    }

    /// Puts the count of a shift into rcx.
    fn place_count(&mut self, context: &Context, count: V, path: &mut Path) -> Result<()> {
        let rcx = Gpr::RCX.0;
        if matches!(path.at(count), Where::Address(_)) {
            self.use_of(context, count, path)?;
        }
        if matches!(path.at(count), Where::Register(r) if r == rcx) {
            return Ok(());
        }
        let others = path
            .values
            .iter()
            .position(|at| matches!(at, Where::Register(r) if *r == rcx));
        if let Some(other) = others {
            let to = self.pick(context, path.held, 0)?;
            let to = self.write(to);
            self.asm.mov(to, Gpr::RCX);
            for at in &mut path.values {
                if matches!(at, Where::Register(r) if *r == rcx) {
                    *at = Where::Register(to.0);
                }
            }
            path.own(V(other as u8), to.0);
        }
        // An address that is computed from rcx must be computed before rcx changes.
        for i in 0..path.values.len() {
            if matches!(path.values[i], Where::Address(a) if a.sources() & Gpr::RCX.bit() != 0) {
                self.use_of(context, V(i as u8), path)?;
            }
        }
        if self.kept(context) & Gpr::RCX.bit() != 0 {
            self.want(Gpr::RCX.bit());
        }
        match path.at(count) {
            Where::Register(from) => {
                self.write(rcx);
                self.asm.mov(Gpr::RCX, Gpr(from));
            }
            Where::Known(known) => self.constant(context, rcx, known)?,
            Where::Nowhere | Where::Address(_) => return Err(Refused),
        }
        path.own(count, rcx);
        Ok(())
    }
}
