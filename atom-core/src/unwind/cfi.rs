//! Call frame instructions: the length of each, and its effect on the CFA.
//!
//! A CFI program is a byte string in which locations advance and rules change.
//! To move a program to other addresses only the advances matter, but to find
//! them the operands of everything else must be stepped over exactly.

use super::cursor::{Cursor, Read};

/// How the canonical frame address is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CfaRule {
    /// The value of a register plus an offset. Registers have DWARF numbers: 6 is rbp, 7 is rsp.
    Register {
        /// DWARF number of the register.
        register: u16,
        /// Offset in bytes that is added to the register.
        offset: i64,
    },
    /// The value of a DWARF expression.
    Expression,
    /// The program states no rule, or none that was understood.
    Unknown,
}

/// The frame of a procedure that has just been called: rsp + 8.
pub const CFA_AT_ENTRY: CfaRule = CfaRule::Register {
    register: 7,
    offset: 8,
};

/// One call frame instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CfiKind<'a> {
    /// Padding.
    Nop,
    /// The location grows by a number of bytes.
    Advance(u64),
    /// The location becomes this address.
    SetLocation(u64),
    /// The CFA becomes register + offset.
    DefCfa(u64, i64),
    /// The CFA's register changes.
    DefCfaRegister(u64),
    /// The CFA's offset changes.
    DefCfaOffset(i64),
    /// The CFA becomes an expression.
    DefCfaExpression(&'a [u8]),
    /// A register's rule becomes an expression.
    RegisterExpression(u64, &'a [u8]),
    /// A register gets its rule.
    Rule(u64),
    /// A register gets the rule that the CIE gave it.
    Restore(u64),
    /// Pushes all rules.
    RememberState,
    /// Pops all rules.
    RestoreState,
    /// Anything else: position-independent, to be copied as it is.
    Other,
}

/// Steps through a CFI program.
pub(crate) struct CfiReader<'a> {
    cursor: Cursor<'a>,
    code_align: u64,
    data_align: i64,
    pointer_encoding: u8,
}

impl<'a> CfiReader<'a> {
    /// `cursor` must end where the program ends.
    pub fn new(cursor: Cursor<'a>, code_align: u64, data_align: i64, pointer_encoding: u8) -> Self {
        Self {
            cursor,
            code_align,
            data_align,
            pointer_encoding,
        }
    }

    /// Offset of the next instruction in the cursor's bytes.
    pub fn pos(&self) -> usize {
        self.cursor.pos()
    }

    /// The next instruction, or `None` at the end.
    pub fn next(&mut self) -> Read<Option<CfiKind<'a>>> {
        if self.cursor.at_end() {
            return Ok(None);
        }
        let c = &mut self.cursor;
        let opcode = c.u8()?;
        let kind = match opcode {
            0x40..=0x7f => self.advance(u64::from(opcode & 0x3f))?,
            0x80..=0xbf => {
                c.uleb()?;
                CfiKind::Rule(u64::from(opcode & 0x3f))
            }
            0xc0..=0xff => CfiKind::Restore(u64::from(opcode & 0x3f)),
            0x00 => CfiKind::Nop,
            0x01 => {
                let target = c.encoded(self.pointer_encoding)?;
                if target.indirect {
                    return Err("a location is given indirectly");
                }
                CfiKind::SetLocation(target.value)
            }
            0x02 => {
                let delta = c.u8()?.into();
                self.advance(delta)?
            }
            0x03 => {
                let delta = c.u16()?.into();
                self.advance(delta)?
            }
            0x04 => {
                let delta = c.u32()?.into();
                self.advance(delta)?
            }
            0x05 | 0x09 | 0x14 | 0x2f => {
                let register = c.uleb()?;
                c.uleb()?;
                CfiKind::Rule(register)
            }
            0x06 => CfiKind::Restore(c.uleb()?),
            0x07 | 0x08 => CfiKind::Rule(c.uleb()?),
            0x2e => {
                c.uleb()?;
                CfiKind::Other
            }
            0x0a => CfiKind::RememberState,
            0x0b => CfiKind::RestoreState,
            0x0c => CfiKind::DefCfa(c.uleb()?, c.uleb()? as i64),
            0x0d => CfiKind::DefCfaRegister(c.uleb()?),
            0x0e => CfiKind::DefCfaOffset(c.uleb()? as i64),
            0x0f => CfiKind::DefCfaExpression(block(c)?),
            0x10 | 0x16 => {
                let register = c.uleb()?;
                CfiKind::RegisterExpression(register, block(c)?)
            }
            0x11 | 0x15 => {
                let register = c.uleb()?;
                c.sleb()?;
                CfiKind::Rule(register)
            }
            0x12 => CfiKind::DefCfa(c.uleb()?, c.sleb()?.wrapping_mul(self.data_align)),
            0x13 => CfiKind::DefCfaOffset(c.sleb()?.wrapping_mul(self.data_align)),
            _ => return Err("an unknown call frame instruction"),
        };
        Ok(Some(kind))
    }

    fn advance(&self, delta: u64) -> Read<CfiKind<'a>> {
        let bytes = delta
            .checked_mul(self.code_align)
            .ok_or("an advance overflows")?;
        Ok(CfiKind::Advance(bytes))
    }
}

fn block<'a>(cursor: &mut Cursor<'a>) -> Read<&'a [u8]> {
    let len = cursor.uleb()?;
    cursor.take(usize::try_from(len).map_err(|_| "a length overflows")?)
}

/// The CFA's rule when a program's first location is reached.
///
/// Reads up to the first instruction that moves the location.
pub(crate) fn cfa_at_start(mut reader: CfiReader<'_>, initial: CfaRule) -> CfaRule {
    let mut rule = initial;
    let mut saved: Option<CfaRule> = None;
    loop {
        match reader.next() {
            Ok(None | Some(CfiKind::Advance(1..) | CfiKind::SetLocation(_))) => return rule,
            Ok(Some(kind)) => match kind {
                CfiKind::RememberState => saved = Some(rule),
                CfiKind::RestoreState => rule = saved.take().unwrap_or(CfaRule::Unknown),
                _ => rule = apply(rule, kind),
            },
            Err(_) => return CfaRule::Unknown,
        }
    }
}

fn apply(rule: CfaRule, kind: CfiKind<'_>) -> CfaRule {
    let number = |register: u64| u16::try_from(register).ok();
    let next = match (kind, rule) {
        (CfiKind::DefCfa(register, offset), _) => {
            number(register).map(|register| CfaRule::Register { register, offset })
        }
        (CfiKind::DefCfaRegister(register), CfaRule::Register { offset, .. }) => {
            number(register).map(|register| CfaRule::Register { register, offset })
        }
        (CfiKind::DefCfaOffset(offset), CfaRule::Register { register, .. }) => {
            Some(CfaRule::Register { register, offset })
        }
        (CfiKind::DefCfaExpression(_), _) => Some(CfaRule::Expression),
        (CfiKind::DefCfaRegister(_) | CfiKind::DefCfaOffset(_), _) => None,
        _ => Some(rule),
    };
    next.unwrap_or(CfaRule::Unknown)
}
