//! The caller's state as a row gives it, described by the program's state at a point.

use gimli::Operation;

use super::rows::{Cfa, Row, Rule, Rulebook, operations_of};
use crate::check::state::{Base, Slot, State, Value};

/// DWARF's number of the stack pointer.
pub const RSP: u16 = 7;
/// DWARF's number of the return address.
pub const RETURN: u16 = 16;

/// Hardware numbers of general registers, by DWARF number.
pub const HARDWARE: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];

/// A value, in terms of the program's state at the point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// A register, by its DWARF number, plus a constant.
    Register(u16, i64),
    /// The word in memory at a register plus a constant.
    Memory(u16, i64),
    /// A number.
    Constant(i64),
    /// The aligned stack pointer of inserted code plus a constant.
    Aligned(i64),
    /// The return address of a call in inserted code.
    Return(u64),
    /// There is none: the frame is the outermost.
    Nowhere,
    /// The result of an operation.
    Operation(Box<(u8, Term, Term)>),
    /// Not known.
    Unknown,
}

/// Mark of a word in memory in [`Term::Operation`].
const WORD: u8 = 0x06;

impl From<Value> for Term {
    fn from(value: Value) -> Self {
        match value {
            Value::Sum(register, n) => {
                let dwarf = HARDWARE.iter().position(|h| *h == register);
                Self::Register(dwarf.unwrap_or(0) as u16, n)
            }
            Value::Aligned(n) => Self::Aligned(n),
            Value::Return(to) => Self::Return(to),
            Value::Unknown | Value::Ax(_) | Value::Word(..) => Self::Unknown,
        }
    }
}

impl Term {
    fn plus(self, n: i64) -> Self {
        match self {
            Self::Register(register, m) => Self::Register(register, m.wrapping_add(n)),
            Self::Constant(m) => Self::Constant(m.wrapping_add(n)),
            Self::Aligned(m) => Self::Aligned(m.wrapping_add(n)),
            Self::Unknown => Self::Unknown,
            other => Self::Operation(Box::new((0x23, other, Self::Constant(n)))),
        }
    }

    fn operation(code: u8, left: Self, right: Self) -> Self {
        match (code, left, right) {
            (_, Self::Unknown, _) | (_, _, Self::Unknown) => Self::Unknown,
            (0x22, left, Self::Constant(n)) | (0x22, Self::Constant(n), left) => left.plus(n),
            (0x1c, left, Self::Constant(n)) => left.plus(n.wrapping_neg()),
            (0x1a, Self::Constant(a), Self::Constant(b)) => Self::Constant(a & b),
            (0x24, Self::Constant(a), Self::Constant(b)) => Self::Constant(a << (b & 63)),
            (0x2a, Self::Constant(a), Self::Constant(b)) => Self::Constant((a >= b).into()),
            (code, left, right) => Self::Operation(Box::new((code, left, right))),
        }
    }
}

/// Registers from which a frame is unwound, by DWARF number, and the memory.
#[derive(Clone)]
pub struct Registers<'s> {
    registers: [Term; 16],
    /// The state of inserted code, if any.
    state: Option<&'s State>,
}

impl<'s> Registers<'s> {
    /// The registers at the point itself, when nothing was written.
    pub fn at_point() -> Self {
        Self {
            registers: std::array::from_fn(|n| Term::Register(n as u16, 0)),
            state: None,
        }
    }

    /// The registers in inserted code.
    pub fn inside(state: &'s State) -> Self {
        Self {
            registers: HARDWARE.map(|n| state.gprs[usize::from(n)].into()),
            state: Some(state),
        }
    }

    /// A register, by its DWARF number.
    pub fn get(&self, register: u16) -> Term {
        let known = self.registers.get(usize::from(register));
        known.cloned().unwrap_or(Term::Unknown)
    }

    fn read(&self, address: Term) -> Term {
        let load = |base, at| match self.state?.load(base, at)? {
            Slot::Word(value) => Some(value.into()),
            Slot::Vector(_) => Some(Term::Unknown),
        };
        match address {
            Term::Register(RSP, at) => load(Base::Point, at).unwrap_or_else(|| {
                if self.state.is_some_and(|s| s.has_written(at)) {
                    Term::Unknown
                } else {
                    Term::Memory(RSP, at)
                }
            }),
            Term::Register(register, at) => Term::Memory(register, at),
            Term::Aligned(at) => load(Base::Aligned, at).unwrap_or(Term::Unknown),
            Term::Unknown => Term::Unknown,
            other => Term::Operation(Box::new((WORD, other, Term::Constant(0)))),
        }
    }

    /// The value of an expression at an address of code. `frame` is on the stack first.
    fn evaluate(&self, bytes: &[u8], code: u64, frame: Option<Term>) -> Term {
        let mut stack: Vec<Term> = frame.into_iter().collect();
        let mut operations = operations_of(bytes);
        while let Ok(Some(operation)) = operations.next() {
            let binary = match operation {
                Operation::And => Some(0x1a),
                Operation::Minus => Some(0x1c),
                Operation::Mul => Some(0x1e),
                Operation::Or => Some(0x21),
                Operation::Plus => Some(0x22),
                Operation::Shl => Some(0x24),
                Operation::Shr => Some(0x25),
                Operation::Shra => Some(0x26),
                Operation::Xor => Some(0x27),
                Operation::Eq => Some(0x29),
                Operation::Ge => Some(0x2a),
                Operation::Gt => Some(0x2b),
                Operation::Le => Some(0x2c),
                Operation::Lt => Some(0x2d),
                Operation::Ne => Some(0x2e),
                _ => None,
            };
            let mut pop = || stack.pop().unwrap_or(Term::Unknown);
            let value = match operation {
                _ if binary.is_some() => {
                    let right = pop();
                    Term::operation(binary.unwrap_or(0), pop(), right)
                }
                Operation::UnsignedConstant { value } => Term::Constant(value as i64),
                Operation::SignedConstant { value } => Term::Constant(value),
                Operation::PlusConstant { value } => pop().plus(value as i64),
                Operation::RegisterOffset {
                    register, offset, ..
                } => match register.0 {
                    RETURN => Term::Constant(code as i64),
                    n => self.get(n),
                }
                .plus(offset),
                Operation::Deref { size: 8, .. } => self.read(pop()),
                Operation::Nop => continue,
                _ => return Term::Unknown,
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(Term::Unknown)
    }

    /// The registers of the caller, and the return address, as a row for this address of code gives them.
    pub fn caller(&self, row: &Row<'_>, book: &Rulebook<'_>, code: u64) -> Caller<'s> {
        let frame = match row.cfa {
            Cfa::Register(register, n) => self.get(register).plus(n),
            Cfa::Stored(at, n) => self.read(self.get(RSP).plus(at)).plus(n),
            Cfa::Expression(e) => self.evaluate(e, code, None),
        };
        let value = |number: u16, rule: Rule<'_>| match rule {
            Rule::Same => self.get(number),
            Rule::Nowhere => Term::Nowhere,
            Rule::At(n) => self.read(frame.clone().plus(n)),
            Rule::Is(n) => frame.clone().plus(n),
            Rule::Register(other) => self.get(other),
            Rule::AtExpression(e) => self.read(self.evaluate(e, code, Some(frame.clone()))),
            Rule::IsExpression(e) => self.evaluate(e, code, Some(frame.clone())),
            Rule::Odd => Term::Unknown,
        };
        let mut registers = self.clone();
        registers.registers[usize::from(RSP)] = frame.clone();
        for (number, rule) in book.of(row) {
            if let Some(register) = registers.registers.get_mut(usize::from(*number)) {
                *register = value(*number, *rule);
            }
        }
        let return_address = match book.rule(row, RETURN) {
            // What gimli leaves out has no rule.
            Rule::Same => Term::Nowhere,
            rule => value(RETURN, rule),
        };
        Caller {
            return_address,
            registers,
        }
    }
}

/// The registers that an expression names, by DWARF number.
pub fn registers_of(expression: &[u8]) -> impl Iterator<Item = u16> {
    let mut operations = operations_of(expression);
    std::iter::from_fn(move || operations.next().ok().flatten()).filter_map(|operation| {
        match operation {
            Operation::RegisterOffset { register, .. } => Some(register.0),
            _ => None,
        }
    })
}

/// A caller, found by a row.
#[derive(Clone)]
pub struct Caller<'s> {
    /// Its registers. rsp is the frame's address.
    pub registers: Registers<'s>,
    /// The address in it.
    pub return_address: Term,
}
