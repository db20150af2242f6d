//! Following a routine's code with what is known of its arguments.
//!
//! Instructions with known operands are computed; the others become the body. The routine's own stack
//! frame vanishes, as the words stored there are remembered as values. A branch that cannot be decided
//! splits the body in two, and the code after it is followed twice. A side that cannot be followed (it
//! calls, uses vector registers, is too long) becomes a call of the whole routine from its start. That
//! is correct as long as nothing has been stored before the branch, or one addition or subtraction, which
//! the side takes back.

use crate::x86::{Instruction, Mnemonic, OpKind, Register};

mod step;

use super::ops::{Base, End, Known, Machine, Mem, Node, Op, Rm, Slot, Start, Symbol, V};
use super::state::{self, Flag, State, Stored, Val};
use super::{MOST_OPS, Shape};
use crate::analysis::code::{Callee, Exit, Function};
use crate::analysis::image::{AnalysisImage, Value};
use crate::x86::abi::ARGUMENT_REGISTERS;
use crate::x86::{Cond, Gpr, flags, opcode};

/// Reason why a routine, or a side of a branch, cannot be followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fail {
    /// The value of the argument with this number is needed.
    Wants(u8),
    /// There is no way.
    No,
}

type Result<T> = std::result::Result<T, Fail>;

/// Largest number of instructions that are followed.
const MOST_STEPS: u32 = 400;
/// Largest number of values of a path.
const MOST_VALUES: u8 = 120;

/// Location of a memory operand.
#[derive(Clone, Copy)]
enum Location {
    /// In the routine's own frame, at this distance in bytes from rsp at the entry.
    Frame(i64),
    /// Elsewhere in memory.
    Memory(Mem),
}

/// An operand that is read.
#[derive(Clone, Copy)]
enum Operand {
    Val(Val),
    Memory(Mem),
}

/// Follows one routine.
pub struct Evaluator<'a> {
    image: &'a AnalysisImage,
    decode: &'a dyn Fn(u64) -> std::sync::Arc<Function>,
    steps: u32,
    /// Number of operations so far, on all paths.
    count: usize,
    next: u8,
    /// Set of values whose upper 32 bits are 0.
    narrow: u128,
    ops: Vec<Op>,
    /// Number of branches on the present path that could not be decided.
    branches: u32,
    /// True if rare cases are followed too.
    whole: bool,
}

/// Index of rsp among the registers of a state.
const RSP: usize = Gpr::RSP.index();

fn number(register: Register) -> usize {
    register.full_register().number()
}

fn is_high_byte(register: Register) -> bool {
    matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    )
}

fn fits(value: u64, width: u8) -> Option<i32> {
    let wide = state::sign_extend(value & state::mask(width), width) as i64;
    i32::try_from(wide).ok()
}

impl<'a> Evaluator<'a> {
    /// Follows the routine at `entry`; returns its code and the inputs that it may use.
    pub fn run(
        image: &'a AnalysisImage,
        decode: &'a dyn Fn(u64) -> std::sync::Arc<Function>,
        entry: u64,
        shapes: &[Shape],
        whole: bool,
    ) -> Result<(Node, Vec<(u8, V)>)> {
        let mut me = Self {
            image,
            decode,
            steps: 0,
            count: 0,
            next: 0,
            narrow: 0,
            ops: Vec::new(),
            branches: 0,
            whole,
        };
        let mut state = State {
            regs: [Val::Nothing; Gpr::COUNT],
            flags: [Flag::Undefined; flags::COUNT],
            stack: Default::default(),
            stored: Stored::Nothing,
        };
        state.regs[RSP] = Val::Stack(0);
        let mut inputs = Vec::new();
        for (i, shape) in shapes.iter().enumerate() {
            let argument = u8::try_from(i).map_err(|_| Fail::No)?;
            let val = match *shape {
                Shape::Number(n) => Val::Number(n),
                Shape::Known | Shape::Address => Val::Symbol(Symbol {
                    base: Base::Argument(argument),
                    offset: 0,
                }),
                Shape::Input => {
                    let v = me.value()?;
                    inputs.push((argument, v));
                    Val::Value(v)
                }
            };
            match ARGUMENT_REGISTERS.get(i) {
                Some(register) => state.regs[register.index()] = val,
                None => {
                    state
                        .stack
                        .insert(8 + 8 * (i - ARGUMENT_REGISTERS.len()) as i64, val);
                }
            }
        }
        let function = (me.decode)(entry);
        let node = me.follow(&function, entry, state)?;
        Ok((node, inputs))
    }

    fn value(&mut self) -> Result<V> {
        if self.next >= MOST_VALUES {
            return Err(Fail::No);
        }
        self.next += 1;
        let v = V(self.next - 1);
        self.narrow &= !v.bit();
        Ok(v)
    }

    fn emit(&mut self, op: Op) -> Result<()> {
        self.count += 1;
        if self.count > MOST_OPS {
            return Err(Fail::No);
        }
        self.ops.push(op);
        Ok(())
    }

    /// Follows straight code from an address to its end.
    fn follow(&mut self, function: &Function, from: u64, mut state: State) -> Result<Node> {
        let mut at = from;
        let outer = std::mem::take(&mut self.ops);
        let end = loop {
            self.steps += 1;
            let inst = function.insts.get(&at).ok_or(Fail::No)?;
            if self.steps > MOST_STEPS {
                return Err(Fail::No);
            }
            let raw = &inst.raw;
            if raw.is_jcc_short_or_near()
                && let Some(condition) = Cond::of(raw.condition_code())
            {
                match state.condition(condition) {
                    Err(()) => return Err(Fail::No),
                    Ok(Some(taken)) => {
                        at = if taken {
                            raw.near_branch_target()
                        } else {
                            raw.next_ip()
                        };
                        continue;
                    }
                    Ok(None) => {
                        let ops = std::mem::take(&mut self.ops);
                        let end = self.split(function, raw, condition, &state)?;
                        self.ops = ops;
                        break end;
                    }
                }
            }
            match &inst.exit {
                Exit::Flow if raw.mnemonic() == Mnemonic::Jmp => at = raw.near_branch_target(),
                Exit::Flow => {
                    self.step(&mut state, raw)?;
                    at = raw.next_ip();
                }
                // A tail call after a branch is the rare case.
                Exit::Tail(_)
                    if self.branches > 0 && !self.whole && state.stored.undo().is_some() =>
                {
                    return Err(Fail::No);
                }
                Exit::Tail(Callee::Known(callee)) => {
                    let function = (self.decode)(*callee);
                    let node = self.follow(&function, *callee, state)?;
                    let mut ops = std::mem::replace(&mut self.ops, outer);
                    ops.extend(node.ops);
                    return Ok(Node::new(ops, node.end));
                }
                Exit::Return if raw.op_count() == 0 && state.regs[RSP] == Val::Stack(0) => {
                    break End::Return;
                }
                _ => return Err(Fail::No),
            }
        };
        let ops = std::mem::replace(&mut self.ops, outer);
        Ok(Node::new(ops, end))
    }

    /// Follows both sides of a branch.
    fn split(
        &mut self,
        function: &Function,
        raw: &Instruction,
        condition: Cond,
        state: &State,
    ) -> Result<End> {
        let (next, narrow) = (self.next, self.narrow);
        let mut sides = [None, None];
        let branches = self.branches;
        let undo = state.stored.undo();
        // Compilers put rare code out of line, after a taken branch.
        for (side, at) in [(1, raw.next_ip()), (0, raw.near_branch_target())] {
            let count = self.count;
            (self.next, self.narrow) = (next, narrow);
            self.branches = branches + 1;
            sides[side] = match self.follow(function, at, state.clone()) {
                Ok(node) => Some(node),
                Err(Fail::No) if undo.is_some() => {
                    self.ops.clear();
                    self.count = count + undo.iter().flatten().count();
                    None
                }
                Err(fail) => return Err(fail),
            };
        }
        self.branches = branches;
        if sides.iter().all(Option::is_none) {
            return Err(Fail::No);
        }
        let call = || Node::new(undo.clone().unwrap_or_default(), End::Call);
        let sides = sides.map(|side| side.unwrap_or_else(call));
        Ok(End::Branch(condition, Box::new(sides)))
    }

    /// Contents of a register, in the width of the register's name.
    fn register(&self, state: &State, register: Register) -> Result<Val> {
        if !register.is_gpr() || is_high_byte(register) {
            return Err(Fail::No);
        }
        self.part(state.regs[number(register)], register.size() as u8)
    }

    /// The low `width` bytes of a value.
    fn part(&self, val: Val, width: u8) -> Result<Val> {
        match val {
            Val::Number(n) => Ok(Val::Number(n & state::mask(width))),
            Val::Symbol(Symbol {
                base: Base::Argument(i),
                ..
            }) if width < 8 => Err(Fail::Wants(i)),
            Val::Symbol(_) | Val::Stack(_) if width < 8 => Err(Fail::No),
            val => Ok(val),
        }
    }

    /// The contents as a value of the body; a known number or symbol is loaded.
    fn load_value(&mut self, val: Val) -> Result<V> {
        let known = match val {
            Val::Value(v) => return Ok(v),
            Val::Number(n) => Known::Number(n),
            Val::Symbol(s) => Known::Symbol(s),
            Val::Nothing | Val::Stack(_) => return Err(Fail::No),
        };
        let v = self.value()?;
        if matches!(known, Known::Number(n) if n <= u64::from(u32::MAX)) {
            self.narrow |= v.bit();
        }
        self.emit(Op::Constant(v, known))?;
        Ok(v)
    }

    /// Operands of an operation that changes a register and may keep a part of it: the values before and
    /// after.
    fn modify(&mut self, val: Val, width: u8) -> Result<Slot> {
        let val = if val == Val::Nothing && width < 4 {
            Val::Number(0)
        } else {
            val
        };
        let old = self.load_value(val)?;
        let new = self.value()?;
        let narrow = width == 4 || (width < 4 && self.narrow & old.bit() != 0);
        if narrow {
            self.narrow |= new.bit();
        }
        Ok(Slot::Modify { old, new })
    }

    fn define(&mut self, width: u8) -> Result<(Slot, V)> {
        let v = self.value()?;
        if width == 4 {
            self.narrow |= v.bit();
        }
        Ok((Slot::Define(v), v))
    }

    /// Sets a register to a value that is already as wide as the operation.
    fn set(&mut self, state: &mut State, register: Register, val: Val) -> Result<()> {
        let width = register.size() as u8;
        let target = &mut state.regs[number(register)];
        *target = match (width, val, *target) {
            (8, val, _) => val,
            (4, Val::Number(n), _) => Val::Number(n & state::mask(4)),
            (4, Val::Value(v), _) if self.narrow & v.bit() != 0 => val,
            (4, Val::Value(v), _) => {
                let (slot, to) = self.define(4)?;
                self.emit(machine(opcode::MOV_R_RM, 4, slot, Rm::Reg(Slot::Use(v))))?;
                Val::Value(to)
            }
            (1 | 2, Val::Number(n), Val::Number(old)) => {
                Val::Number(old & !state::mask(width) | n & state::mask(width))
            }
            (1 | 2, Val::Number(n), Val::Nothing) => Val::Number(n & state::mask(width)),
            (1 | 2, val, old) => {
                let v = self.load_value(val)?;
                let slot = self.modify(old, width)?;
                let mut op = Machine::plain(opcode::sized(opcode::MOV_R_RM, width), width);
                (op.reg, op.rm) = (slot, Rm::Reg(Slot::Use(v)));
                (op.byte_reg, op.byte_rm) = (width == 1, width == 1);
                self.emit(Op::Machine(op))?;
                written(slot)
            }
            _ => return Err(Fail::No),
        };
        Ok(())
    }

    /// Location of the memory operand.
    fn place(&mut self, state: &State, raw: &Instruction) -> Result<Location> {
        if raw.has_segment_prefix() || raw.is_vsib() {
            return Err(Fail::No);
        }
        let mut start = Val::Nothing;
        let mut index = None;
        let mut disp = raw.memory_displacement64() as i64;
        if raw.is_ip_rel_memory_operand() {
            start = Val::Symbol(Symbol {
                base: Base::Image,
                offset: raw.ip_rel_memory_address() as i64,
            });
            disp = 0;
        }
        let parts = [
            (raw.memory_base(), 1),
            (raw.memory_index(), raw.memory_index_scale() as u8),
        ];
        for (register, scale) in parts {
            if register == Register::None || register.is_ip() {
                continue;
            }
            if register.size() != 8 {
                return Err(Fail::No);
            }
            match state.regs[number(register)] {
                Val::Number(n) => disp = disp.wrapping_add((n as i64).wrapping_mul(scale.into())),
                val @ (Val::Symbol(_) | Val::Stack(_)) if scale == 1 => {
                    // The value that stood there becomes the index.
                    match std::mem::replace(&mut start, val) {
                        Val::Nothing => {}
                        Val::Value(v) if index.is_none() => index = Some((v, 1)),
                        _ => return Err(Fail::No),
                    }
                }
                Val::Value(v) if start == Val::Nothing && scale == 1 => start = Val::Value(v),
                Val::Value(v) if index.is_none() => index = Some((v, scale)),
                _ => return Err(Fail::No),
            }
        }
        let start = match start {
            Val::Stack(offset) if index.is_none() => return Ok(Location::Frame(offset + disp)),
            Val::Symbol(mut symbol) => {
                symbol.offset = symbol.offset.wrapping_add(disp);
                disp = 0;
                Start::Symbol(symbol)
            }
            Val::Value(v) => Start::Value(v),
            Val::Nothing => Start::Nothing,
            _ => return Err(Fail::No),
        };
        let disp = i32::try_from(disp).map_err(|_| Fail::No)?;
        Ok(Location::Memory(Mem { start, index, disp }))
    }

    /// Contents of a word of the routine's frame, of which `width` bytes count.
    fn frame(&self, state: &State, offset: i64, width: u8) -> Result<Val> {
        match state.stack.get(&offset) {
            Some(val) => self.part(*val, width),
            None => Err(Fail::No),
        }
    }

    /// Contents of memory that are the same whenever the routine runs, if they are known.
    fn constant(&self, mem: &Mem, width: u8) -> Option<Val> {
        let Mem {
            start:
                Start::Symbol(Symbol {
                    base: Base::Image,
                    offset,
                }),
            index: None,
            ..
        } = *mem
        else {
            return None;
        };
        let address = offset as u64;
        if width == 8
            && let Some(value) = self.image.constant_slot(address)
        {
            return Some(match value {
                Value::Constant(n) => Val::Number(n),
                Value::Relative(a) => Val::Symbol(Symbol {
                    base: Base::Image,
                    offset: a as i64,
                }),
            });
        }
        if address >= self.image.text.len() as u64 {
            return None;
        }
        let bytes = self.image.bytes_at(address, width.into())?;
        let number = bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        Some(Val::Number(number))
    }

    /// An operand that is read.
    fn operand(&mut self, state: &State, raw: &Instruction, n: u32, width: u8) -> Result<Operand> {
        Ok(match raw.op_kind(n) {
            OpKind::Register => Operand::Val(self.register(state, raw.op_register(n))?),
            OpKind::Memory => match self.place(state, raw)? {
                Location::Frame(offset) => Operand::Val(self.frame(state, offset, width)?),
                Location::Memory(mem) => match self.constant(&mem, width) {
                    Some(val) => Operand::Val(val),
                    None => Operand::Memory(mem),
                },
            },
            OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64 => {
                Operand::Val(Val::Number(raw.immediate(n) & state::mask(width)))
            }
            _ => return Err(Fail::No),
        })
    }

    /// The operand as the second operand of an instruction: a register or memory.
    fn source(&mut self, operand: Operand) -> Result<Rm> {
        Ok(match operand {
            Operand::Memory(mem) => Rm::Mem(mem),
            Operand::Val(val) => Rm::Reg(Slot::Use(self.load_value(val)?)),
        })
    }
}

fn written(slot: Slot) -> Val {
    slot.written().map_or(Val::Nothing, Val::Value)
}

fn machine(opcode: u16, width: u8, reg: Slot, rm: Rm) -> Op {
    Op::Machine(Machine {
        reg,
        rm,
        ..Machine::plain(opcode, width)
    })
}
