//! The state of an unwinder's row: how the CFA and each register are found.
//!
//! Followed while instructions are copied, for two ends. In inserted code the
//! stack pointer is lower than the row says, so the CFA is described anew
//! there. And code that was put after its procedure, such as what is on the way
//! to a branch's target, needs the row of the place that it belongs to.

use super::expression::{adjusted, rsp_plus};
use crate::unwind::{CfiKind, CfiReader, Cursor, Read};
use crate::x86::asm::Frame;

/// DWARF's number of the stack pointer.
const RSP: u64 = 7;

const OFFSET_EXTENDED: u8 = 0x05;
const OFFSET_EXTENDED_SF: u8 = 0x11;
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

/// `DW_CFA_same_value` for each general register.
static SAME_VALUE: [[u8; 2]; 16] = {
    let mut all = [[0x08, 0]; 16];
    let mut register = 0;
    while register < 16 {
        all[register][1] = register as u8;
        register += 1;
    }
    all
};

/// A row, as far as it differs from what the CIE says of registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State<'a> {
    pub cfa: Cfa<'a>,
    /// Rules of registers, by register.
    rules: Vec<Rule<'a>>,
    /// Registers whose rule is not in force, since inserted code has written to the place that it names. The
    /// register's own value counts instead. In ascending order.
    lost: Vec<u64>,
}

impl<'a> State<'a> {
    /// The state after a CIE's initial instructions.
    pub fn initial(mut reader: CfiReader<'a>) -> Read<Self> {
        let mut state = Self {
            cfa: Cfa::Unknown,
            rules: Vec::new(),
            lost: Vec::new(),
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

    /// Applies one instruction, whose bytes are `bytes`. A rule that it sets is in force.
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
        self.lost.retain(|r| *r != register);
        match self.rules.binary_search_by_key(&register, |r| r.register) {
            Ok(at) if restored => drop(self.rules.remove(at)),
            Ok(at) => self.rules[at] = rule,
            Err(_) if restored => {}
            Err(at) => self.rules.insert(at, rule),
        }
    }

    /// True if the CFA or a register is found by way of the stack pointer.
    pub fn depends_on_rsp(&self) -> bool {
        let uses_rsp = |e: &[u8]| adjusted(e, Frame::Below(0)).is_none_or(|l| l.1);
        let cfa = match self.cfa {
            Cfa::Register(register, _) => register == RSP,
            Cfa::Expression(e) => uses_rsp(e),
            Cfa::Unknown => false,
        };
        cfa || self.rules.iter().filter_map(|r| r.expression).any(uses_rsp)
    }

    /// Appends instructions that describe the same frame for a place where inserted code has moved rsp to `to`. The
    /// instructions before describe this state where rsp is at `from`.
    pub fn describe(&self, from: Frame, to: Frame, out: &mut Vec<u8>) -> Read<()> {
        const ODD: &str = "its frame is found by an expression that cannot be adapted";
        match (self.cfa, to) {
            (Cfa::Register(RSP, offset), Frame::Stored(_)) => {
                let mut bytes = Vec::new();
                rsp_plus(offset, to, &mut bytes).ok_or(ODD)?;
                out.push(DEF_CFA_EXPRESSION);
                block(out, &bytes);
            }
            (Cfa::Register(RSP, offset), _) => {
                let depth = match to {
                    Frame::Below(depth) => depth.into(),
                    _ => 0,
                };
                match from {
                    Frame::Stored(_) => out.extend([DEF_CFA, RSP as u8]),
                    _ => out.push(DEF_CFA_OFFSET),
                }
                let offset = offset.checked_add(depth);
                leb128::push(out, offset.and_then(|o| u64::try_from(o).ok()).ok_or(ODD)?);
            }
            (Cfa::Expression(e), _) => {
                let (bytes, changed) = adjusted(e, to).ok_or(ODD)?;
                if changed {
                    out.push(DEF_CFA_EXPRESSION);
                    block(out, &bytes);
                }
            }
            _ => {}
        }
        for rule in &self.rules {
            let Some(e) = rule.expression else { continue };
            let (bytes, changed) = adjusted(e, to).ok_or(ODD)?;
            if changed {
                out.push(rule.bytes[0]);
                debug_assert!(matches!(rule.bytes[0], EXPRESSION | 0x16));
                leb128::push(out, rule.register);
                block(out, &bytes);
            }
        }
        Ok(())
    }

    /// Notes that inserted code has written more than `kept` bytes below the stack pointer. A rule that names a place
    /// there is no longer in force: the program has restored the register and leaves the rule as it is (an epilogue),
    /// since nothing of its own has written to the place yet.
    pub fn lose(&mut self, kept: i64) {
        let below = self.rules.iter().filter(|r| self.lies_below_rsp(r, kept));
        let below = below.filter(|r| r.register < SAME_VALUE.len() as u64);
        self.lost = below.map(|r| r.register).collect();
    }

    /// Puts rules in force again whose places are no longer below the stack pointer: after an epilogue, where the
    /// frame is as it was in front of it.
    pub fn regain(&mut self) {
        let mut lost = std::mem::take(&mut self.lost);
        lost.retain(|lost| {
            let rule = self.rules.iter().find(|r| r.register == *lost);
            rule.is_some_and(|r| self.lies_below_rsp(r, 0))
        });
        self.lost = lost;
    }

    /// True if a rule names a place more than `kept` bytes below the stack pointer.
    pub fn reaches_below_rsp(&self, kept: i64) -> bool {
        self.rules.iter().any(|r| self.lies_below_rsp(r, kept))
    }

    /// True if a rule is not in force.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// True if a register's rule names a place more than `kept` bytes below the stack pointer.
    fn lies_below_rsp(&self, rule: &Rule<'_>, kept: i64) -> bool {
        let Cfa::Register(RSP, offset) = self.cfa else {
            return false;
        };
        let mut bytes = Cursor::new(rule.bytes, 0, 0);
        let factor = bytes.u8().and_then(|first| match first {
            OFFSET_EXTENDED | OFFSET_EXTENDED_SF => {
                bytes.uleb()?;
                match first {
                    OFFSET_EXTENDED => Ok(bytes.uleb()? as i64),
                    _ => bytes.sleb(),
                }
            }
            _ if first >> 6 == OFFSET >> 6 => Ok(bytes.uleb()? as i64),
            _ => Err("not a place in the frame"),
        });
        // x86-64's data alignment factor is -8.
        let below = factor.ok().and_then(|factor| factor.checked_mul(8));
        below.is_some_and(|below| below.saturating_sub(offset) > kept)
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
        self.change_rules_to(other, out);
        Ok(())
    }

    /// Appends instructions that lead from this state's rules of registers to those of another one.
    pub fn change_rules_to(&self, other: &Self, out: &mut Vec<u8>) {
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
        let shown = |state: &Self, rule: &Rule<'a>| -> &'a [u8] {
            if state.lost.contains(&rule.register) {
                &SAME_VALUE[rule.register as usize]
            } else {
                rule.bytes
            }
        };
        for rule in &other.rules {
            let before = self.rules.iter().find(|r| r.register == rule.register);
            let now = shown(other, rule);
            if before.is_none_or(|before| shown(self, before) != now) {
                out.extend_from_slice(now);
            }
        }
    }
}

fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    leb128::push(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
