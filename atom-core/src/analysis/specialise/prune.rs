//! Simplifying a body: removing dead operations, and folding loads into the operations that use them.

use super::ops::{End, Machine, Node, Op, Rm, Slot, V};
use crate::x86::opcode::{self, Alu};

/// Values and flags that are read later on some path.
#[derive(Clone, Copy, Default)]
struct Needed {
    values: u128,
    flags: u8,
}

/// Simplifies a body.
pub fn simplify(node: &mut Node) {
    prune(node);
    node.find_live();
    join(node);
    node.find_live();
}

/// Removes operations whose results are not read.
fn prune(node: &mut Node) -> Needed {
    let mut needed = match &mut node.end {
        End::Return | End::Call => Needed::default(),
        End::Branch(condition, sides) => {
            let [a, b] = sides.each_mut().map(prune);
            Needed {
                values: a.values | b.values,
                flags: a.flags | b.flags | condition.flags(),
            }
        }
    };
    let mut kept = Vec::with_capacity(node.ops.len());
    while let Some(op) = node.ops.pop() {
        let wanted = op.stores()
            || op.writes() & needed.values != 0
            || op.flags_changed() & needed.flags != 0;
        if !wanted {
            continue;
        }
        needed.values = needed.values & !op.writes() | op.reads();
        needed.flags = needed.flags & !op.flags_changed() | op.flags_read();
        kept.push(op);
    }
    kept.reverse();
    node.ops = kept;
    needed
}

fn loaded(op: &Op) -> Option<(V, &Machine)> {
    match op {
        Op::Machine(m) if m.opcode == opcode::MOV_R_RM && m.width >= 4 => match (m.reg, m.rm) {
            (Slot::Define(v), Rm::Mem(_)) => Some((v, m)),
            _ => None,
        },
        _ => None,
    }
}

/// True if the operation reads the value as its second operand, and in this width.
fn takes(m: &Machine, v: V, width: u8) -> bool {
    let alu = Alu::of_rm_r(m.opcode).is_some() || Alu::of_r_rm(m.opcode).is_some();
    let by_constant = matches!(m.opcode, opcode::ALU_RM_IMM32 | opcode::ALU_RM_IMM8);
    let compare = by_constant && m.reg == Slot::Extension(Alu::Cmp.extension());
    let test = m.opcode == opcode::TEST_RM_R
        || m.opcode == opcode::GROUP_3 && m.reg == Slot::Extension(opcode::EXTENSION_TEST);
    let multiply = matches!(m.opcode, opcode::IMUL_R_RM | opcode::IMUL_R_RM_IMM);
    m.rm == Rm::Reg(Slot::Use(v))
        && m.width == width
        && m.reg.read() != Some(v)
        && (alu || compare || test || multiply)
}

/// The operation with its operands exchanged, if that is possible: an operation that changes a loaded
/// value by a second value can instead change the second value by the memory operand, if the operation
/// commutes and nothing else needs the second value.
fn turned(m: &Machine, v: V, mem: Rm, width: u8, needed: u128) -> Option<Machine> {
    let (Rm::Reg(Slot::Modify { old, new }), Slot::Use(other)) = (m.rm, m.reg) else {
        return None;
    };
    let alu = Alu::of_rm_r(m.opcode).filter(|op| op.commutes())?;
    let fits = old == v && other != v && m.width == width && needed & other.bit() == 0;
    fits.then_some(Machine {
        opcode: alu.r_rm(),
        reg: Slot::Modify { old: other, new },
        rm: mem,
        ..*m
    })
}

/// Folds each load that only one operation reads into that operation.
fn join(node: &mut Node) {
    let mut i = 0;
    while i < node.ops.len() {
        let Some((v, load)) = loaded(&node.ops[i]) else {
            i += 1;
            continue;
        };
        let (mem, width) = (load.rm, load.width);
        let later = &node.ops[i + 1..];
        let reader = later.iter().position(|op| op.reads() & v.bit() != 0);
        let joined = reader.and_then(|r| {
            let after = later[r + 1..].iter().fold(0, |set, op| set | op.reads());
            let beyond = match &node.end {
                End::Branch(_, sides) => sides[0].live[0] | sides[1].live[0],
                _ => 0,
            };
            let needed = after | beyond;
            let Op::Machine(m) = &later[r] else {
                return None;
            };
            if needed & v.bit() != 0 || later[..r].iter().any(Op::stores) {
                return None;
            }
            let whole = takes(m, v, width).then_some(Machine { rm: mem, ..*m });
            let constant = |w: V| {
                later[..r]
                    .iter()
                    .chain(&node.ops[..i])
                    .any(|op| matches!(op, Op::Constant(c, _) if *c == w))
            };
            let joined = whole.or_else(|| turned(m, v, mem, width, needed));
            Some((
                r,
                joined.filter(|m| !matches!(m.reg, Slot::Modify { old, .. } if constant(old)))?,
            ))
        });
        match joined {
            Some((r, m)) => {
                node.ops[i + 1 + r] = Op::Machine(m);
                node.ops.remove(i);
            }
            None => i += 1,
        }
    }
    if let End::Branch(_, sides) = &mut node.end {
        sides.iter_mut().for_each(join);
    }
}
