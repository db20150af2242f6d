//! Specialising an analysis routine to the arguments of a call.
//!
//! This is partial evaluation: the routine's machine code is followed with what is known of the
//! arguments. An argument is a constant, an address that is known when the output is written, or an
//! input that is known only when the point is reached. The residual code is a small [`Body`] that can
//! are at the point in place of the call. Bodies are kept by routine and by *shape* of the
//! arguments. A constant's value is part of the shape only if the routine computes with it, so a
//! million calls with a counter each share one body.

mod eval;
pub mod ops;
mod prune;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use eval::{Evaluator, Fail};
use ops::{End, Imm, Known, Node, Op, Rm, Slot, Start, Symbol, V};

use super::code::Function;
use super::image::AnalysisImage;
use crate::x86::opcode::{self, Alu, Unary};

/// Largest number of operations of a body, on all its paths.
const MOST_OPS: usize = 64;
/// Number of bodies that are kept for one routine; further ones are made again each time.
const MOST_KEPT: usize = 2048;

/// What is known of an argument at one call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// The number is known.
    Const(u64),
    /// It is an address that is known when the output is written.
    Address,
    /// Nothing is known.
    Input,
}

/// What a body assumes of one argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Shape {
    /// The number is known.
    Number(u64),
    /// It is a number whose value does not matter.
    Known,
    /// It is an address.
    Address,
    /// Nothing is known.
    Input,
}

/// A routine specialised to the shape of its arguments.
#[derive(Debug)]
pub struct Body {
    /// The residual code.
    pub root: Node,
    /// Numbers of the arguments that the code reads, with the values that hold them.
    pub inputs: Vec<(u8, V)>,
    /// True if some path calls the routine after all.
    pub may_call: bool,
}

/// An addition to a 64-bit cell of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Count {
    /// Address of the cell.
    pub cell: Symbol,
    /// Number that is added.
    pub amount: Known,
    /// True if the addition has a `lock` prefix.
    pub locked: bool,
}

impl Body {
    /// Makes a body of this code. `inputs` are the values that hold arguments at its start.
    pub fn new(mut root: Node, mut inputs: Vec<(u8, V)>) -> Self {
        let read = root.find_live();
        inputs.retain(|(_, v)| read & v.bit() != 0);
        let may_call = root.may_call();
        Self {
            root,
            inputs,
            may_call,
        }
    }

    /// The additions, if the body does nothing but add constants to cells of memory. Their order does
    /// not matter then.
    pub fn counts(&self) -> Option<Vec<Count>> {
        if self.root.end != End::Return {
            return None;
        }
        let mut constants: HashMap<V, Known> = HashMap::new();
        let mut counts = Vec::new();
        for op in &self.root.ops {
            let m = match op {
                Op::Constant(v, known) => {
                    constants.insert(*v, *known);
                    continue;
                }
                Op::Machine(m) => m,
            };
            let Rm::Mem(mem) = m.rm else { return None };
            let (Start::Symbol(cell), None, 8) = (mem.start, mem.index, m.width) else {
                return None;
            };
            let number = |n: i64| Some(Known::Number(n as u64));
            let constant = match m.imm {
                Imm::Byte(n) => i64::from(n),
                Imm::Wide(n) => n.into(),
                Imm::None => 0,
            };
            const INC: u8 = Unary::Inc as u8;
            const DEC: u8 = Unary::Dec as u8;
            const ADD: u8 = Alu::Add.extension();
            const SUB: u8 = Alu::Sub.extension();
            const ADD_RM_R: u16 = Alu::Add.rm_r();
            let amount = match (m.opcode, m.reg) {
                (opcode::GROUP_5, Slot::Extension(INC)) => number(1),
                (opcode::GROUP_5, Slot::Extension(DEC)) => number(-1),
                (opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8, Slot::Extension(ADD)) => {
                    number(constant)
                }
                (opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8, Slot::Extension(SUB)) => {
                    number(-constant)
                }
                (ADD_RM_R, Slot::Use(v)) => constants.get(&v).copied(),
                _ => None,
            }?;
            counts.push(Count {
                cell,
                amount,
                locked: m.lock,
            });
        }
        (!counts.is_empty()).then_some(counts)
    }
}

/// Bodies of one routine.
#[derive(Default)]
struct Routine {
    /// For each combination of kinds of arguments: a mask of the arguments whose numbers the code
    /// computes with. An address with which the code computes is an input.
    wanted: HashMap<Vec<u8>, u64>,
    bodies: HashMap<Vec<Shape>, Option<Arc<Body>>>,
}

/// Makes bodies and keeps them.
pub struct Specialiser<'a> {
    image: &'a AnalysisImage,
    functions: RwLock<HashMap<u64, Arc<Function>>>,
    routines: RwLock<HashMap<(u64, bool), Routine>>,
}

impl<'a> Specialiser<'a> {
    /// Makes a specialiser for the routines of this image.
    pub fn new(image: &'a AnalysisImage) -> Self {
        Self {
            image,
            functions: RwLock::default(),
            routines: RwLock::default(),
        }
    }

    /// The body of the routine for such arguments; `None` if the routine must be called. Where a branch
    /// leads to a function of its own, which is the rare case, the body calls the routine.
    pub fn body(&self, routine: u64, bounds: &[Bound]) -> Option<Arc<Body>> {
        self.find(routine, bounds, false)
    }

    /// The body of the routine for such arguments with the rare cases in it.
    pub fn whole_body(&self, routine: u64, bounds: &[Bound]) -> Option<Arc<Body>> {
        self.find(routine, bounds, true)
    }

    fn find(&self, routine: u64, bounds: &[Bound], whole: bool) -> Option<Arc<Body>> {
        if bounds.len() > 64 {
            return None;
        }
        let kinds: Vec<u8> = bounds
            .iter()
            .map(|b| match b {
                Bound::Const(_) => 0,
                Bound::Address => 1,
                Bound::Input => 2,
            })
            .collect();
        let shapes = |wanted: u64| -> Vec<Shape> {
            let shape = |(i, bound): (usize, &Bound)| match *bound {
                Bound::Const(n) if wanted >> i & 1 != 0 => Shape::Number(n),
                Bound::Const(_) => Shape::Known,
                Bound::Address if wanted >> i & 1 != 0 => Shape::Input,
                Bound::Address => Shape::Address,
                Bound::Input => Shape::Input,
            };
            bounds.iter().enumerate().map(shape).collect()
        };
        let mut wanted = 0;
        {
            let routines = self.routines.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = routines.get(&(routine, whole)) {
                wanted = known.wanted.get(&kinds).copied().unwrap_or(0);
                if let Some(body) = known.bodies.get(&shapes(wanted)) {
                    return body.clone();
                }
            }
        }
        let (body, wanted) = loop {
            match self.make(routine, &shapes(wanted), whole) {
                Ok(body) => break (Some(Arc::new(body)), wanted),
                Err(Fail::Wants(i)) if wanted >> i & 1 == 0 => {
                    wanted |= 1 << i;
                }
                Err(_) => break (None, wanted),
            }
        };
        let mut routines = self
            .routines
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let known = routines.entry((routine, whole)).or_default();
        // Arguments that another thread found to be wanted stay wanted.
        *known.wanted.entry(kinds).or_default() |= wanted;
        if known.bodies.len() < MOST_KEPT {
            known.bodies.insert(shapes(wanted), body.clone());
        }
        body
    }

    fn function(&self, entry: u64) -> Arc<Function> {
        let known = self
            .functions
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = known.get(&entry) {
            return function.clone();
        }
        drop(known);
        let function = Arc::new(Function::decode(self.image, entry));
        let mut known = self
            .functions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        known.entry(entry).or_insert(function).clone()
    }

    fn make(&self, routine: u64, shapes: &[Shape], whole: bool) -> Result<Body, Fail> {
        let decode = |entry| self.function(entry);
        let (mut root, inputs) = Evaluator::run(self.image, &decode, routine, shapes, whole)?;
        prune::simplify(&mut root);
        Ok(Body::new(root, inputs))
    }
}
