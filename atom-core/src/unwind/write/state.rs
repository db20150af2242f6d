//! The state of an unwinder's row: how the CFA and each register are found.
//!
//! Followed while instructions are copied, for two ends. In inserted code the
//! stack pointer is lower than the row says, so the CFA is described anew
//! there. And code that was put behind its procedure, such as what stands on the way
//! to a branch's target, needs the row of the place that it belongs to.

use super::expression::lowered;
use crate::unwind::{CfiKind, CfiReader, Read};

/// DWARF's number of the stack pointer.
const RSP: u64 = 7;

const OFFSET_EXTENDED: u8 = 0x05;
const SAME_VALUE: u8 = 0x08;
const DEF_CFA: u8 = 0x0c;
const DEF_CFA_OFFSET: u8 = 0x0e;
const DEF_CFA_EXPRESSION: u8 = 0x0f;
const EXPRESSION: u8 = 0x10;
const DEF_CFA_SF: u8 = 0x12;
/// `DW_CFA_offset`, with the register in the lower six bits.
const OFFSET: u8 = 0x80;

/// How the CFA is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cfa<'a> {
    /// Nothing was said yet.
    Unknown,
    /// A register plus an offset.
    Register(u64, i64),
    /// An expression's value.
    Expression(&'a [u8]),
}

/// The rule of a register, as the instruction that sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rule<'a> {
    register: u64,
    bytes: &'a [u8],
    /// The expression, if the rule is one.
    expression: Option<&'a [u8]>,
}

/// A row, as far as it differs from what the CIE says of registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State<'a> {
    pub cfa: Cfa<'a>,
    /// Rules of registers, by register.
    rules: Vec<Rule<'a>>,
}

impl<'a> State<'a> {
    /// The state after a CIE's initial instructions.
    pub fn initial(mut reader: CfiReader<'a>) -> Read<Self> {
        let mut state = Self {
            cfa: Cfa::Unknown,
            rules: Vec::new(),
        };
        while let Some(kind) = reader.next()? {
            state.set_cfa(kind);
        }
        Ok(state)
    }

    fn set_cfa(&mut self, kind: CfiKind<'a>) {
        self.cfa = match (kind, self.cfa) {
            (CfiKind::DefCfa(register, offset), _) => Cfa::Register(register, offset),
            (CfiKind::DefCfaRegister(register), Cfa::Register(_, offset)) => {
                Cfa::Register(register, offset)
            }
            (CfiKind::DefCfaOffset(offset), Cfa::Register(register, _)) => {
                Cfa::Register(register, offset)
            }
            (CfiKind::DefCfaExpression(e), _) => Cfa::Expression(e),
            (CfiKind::DefCfaRegister(_) | CfiKind::DefCfaOffset(_), _) => Cfa::Unknown,
            (_, same) => same,
        };
    }

    /// Applies one instruction, whose bytes are `bytes`.
    pub fn apply(&mut self, kind: CfiKind<'a>, bytes: &'a [u8]) {
        let (register, expression, restored) = match kind {
            CfiKind::Rule(register) => (register, None, false),
            CfiKind::RegisterExpression(register, e) => (register, Some(e), false),
            CfiKind::Restore(register) => (register, None, true),
            _ => return self.set_cfa(kind),
        };
        let rule = Rule {
            register,
            bytes,
            expression,
        };
        match self.rules.binary_search_by_key(&register, |r| r.register) {
            Ok(at) if restored => drop(self.rules.remove(at)),
            Ok(at) => self.rules[at] = rule,
            Err(_) if restored => {}
            Err(at) => self.rules.insert(at, rule),
        }
    }

    /// True if the CFA or a register is found by way of the stack pointer.
    pub fn depends_on_rsp(&self) -> bool {
        let uses_rsp = |e: &[u8]| lowered(e, 0).is_none_or(|l| l.1);
        let cfa = match self.cfa {
            Cfa::Register(register, _) => register == RSP,
            Cfa::Expression(e) => uses_rsp(e),
            Cfa::Unknown => false,
        };
        cfa || self.rules.iter().filter_map(|r| r.expression).any(uses_rsp)
    }

    /// Appends instructions that describe the same frame for a place where rsp is `depth` bytes
    /// lower. The instructions before describe this state at another depth.
    pub fn describe(&self, depth: u32, out: &mut Vec<u8>) -> Read<()> {
        const ODD: &str = "its frame is found by an expression that cannot be adapted";
        match self.cfa {
            Cfa::Register(RSP, offset) => {
                let offset = offset.checked_add(depth.into());
                out.push(DEF_CFA_OFFSET);
                leb128::push(out, offset.and_then(|o| u64::try_from(o).ok()).ok_or(ODD)?);
            }
            Cfa::Expression(e) => {
                let (bytes, changed) = lowered(e, depth).ok_or(ODD)?;
                if changed {
                    out.push(DEF_CFA_EXPRESSION);
                    block(out, &bytes);
                }
            }
            _ => {}
        }
        for rule in &self.rules {
            if depth != 0 && self.lies_below_rsp(rule) {
                out.push(SAME_VALUE);
                leb128::push(out, rule.register);
            }
            let Some(e) = rule.expression else { continue };
            let (bytes, changed) = lowered(e, depth).ok_or(ODD)?;
            if changed {
                out.push(rule.bytes[0]);
                debug_assert!(matches!(rule.bytes[0], EXPRESSION | 0x16));
                leb128::push(out, rule.register);
                block(out, &bytes);
            }
        }
        Ok(())
    }

    /// True if a register's rule names a place below the stack pointer. The program has restored the register and
    /// leaves the rule as it is (`leave` in front of `ret`), since nothing has written to the place yet. Inserted code
    /// that lowers the stack pointer does, so the register's own value counts there and afterwards.
    fn lies_below_rsp(&self, rule: &Rule<'_>) -> bool {
        let Cfa::Register(RSP, offset) = self.cfa else {
            return false;
        };
        let [first, factor @ ..] = rule.bytes else {
            return false;
        };
        let mut factor = factor;
        if *first == OFFSET_EXTENDED {
            // The register's number.
            leb128::take::<u64>(&mut factor).unwrap_or_default();
        } else if first >> 6 != OFFSET >> 6 {
            return false;
        }
        // x86-64's data alignment factor is -8.
        let below = leb128::take::<u64>(&mut factor).ok();
        let below = below.and_then(|factor| i64::try_from(factor).ok()?.checked_mul(8));
        below.is_some_and(|below| below > offset)
    }

    /// Appends instructions that lead from this state to another one.
    pub fn change_to(&self, other: &Self, out: &mut Vec<u8>) -> Read<()> {
        if self.cfa != other.cfa {
            match other.cfa {
                Cfa::Unknown => return Err("its frame is not known"),
                Cfa::Register(register, offset) => match u64::try_from(offset) {
                    Ok(offset) => {
                        out.push(DEF_CFA);
                        leb128::push(out, register);
                        leb128::push(out, offset);
                    }
                    Err(_) if offset % 8 == 0 => {
                        out.push(DEF_CFA_SF);
                        leb128::push(out, register);
                        leb128::push_signed(out, offset / -8);
                    }
                    Err(_) => return Err("its frame has an odd offset"),
                },
                Cfa::Expression(e) => {
                    out.push(DEF_CFA_EXPRESSION);
                    block(out, e);
                }
            }
        }
        let has = |rules: &[Rule<'_>], register| {
            rules
                .binary_search_by_key(&register, |r: &Rule<'_>| r.register)
                .is_ok()
        };
        for rule in self.rules.iter().filter(|r| !has(&other.rules, r.register)) {
            match rule.register {
                n @ 0..=0x3f => out.push(0xc0 | n as u8),
                n => {
                    out.push(0x06);
                    leb128::push(out, n);
                }
            }
        }
        for rule in other.rules.iter().filter(|r| !self.rules.contains(r)) {
            out.extend_from_slice(rule.bytes);
        }
        Ok(())
    }
}

fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    leb128::push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
