//! `.eh_frame` of a file, evaluated by gimli.

use std::path::Path;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EvaluationResult, Expression, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection, Value,
};
use libc::user_regs_struct;
use object::{Object, ObjectSection, SectionKind};

use crate::error::{Error, Result};

/// DWARF numbers of the callee-saved registers: rbx, rbp, r12 to r15.
pub const KEPT: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// The part of a file in which an instruction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextKind {
    /// In the original text.
    Original,
    /// In the new text.
    New,
    /// In the tool's code.
    Tool,
}

/// The caller according to the tables.
#[derive(Clone, Copy, Debug)]
pub struct Unwound {
    /// The canonical frame address.
    pub cfa: u64,
    /// Address of the return address.
    pub return_slot: u64,
    /// The caller's registers, as [`KEPT`] names them.
    pub kept: [Option<u64>; 6],
}

/// The tables of a file.
pub struct Tables {
    /// The entry point.
    pub entry: u64,
    eh_frame: Vec<u8>,
    bases: BaseAddresses,
    /// Start, end, and offset of the FDE.
    fdes: Vec<(u64, u64, usize)>,
    /// Start, end and kind of each section with code.
    kinds: Vec<(u64, u64, TextKind)>,
}

/// A register by its DWARF number.
pub fn register(regs: &user_regs_struct, number: u16) -> u64 {
    match number {
        0 => regs.rax,
        1 => regs.rdx,
        2 => regs.rcx,
        3 => regs.rbx,
        4 => regs.rsi,
        5 => regs.rdi,
        6 => regs.rbp,
        7 => regs.rsp,
        8 => regs.r8,
        9 => regs.r9,
        10 => regs.r10,
        11 => regs.r11,
        12 => regs.r12,
        13 => regs.r13,
        14 => regs.r14,
        15 => regs.r15,
        _ => regs.rip,
    }
}

type Reader<'a> = gimli::EndianSlice<'a, LittleEndian>;

impl Tables {
    /// Reads the tables of a file.
    pub fn read(program: &Path) -> Result<Self> {
        let fail = |e: String| Error::new("reading unwind tables", e).file(program);
        let bytes = std::fs::read(program).map_err(|e| fail(e.to_string()))?;
        let file = object::File::parse(&*bytes).map_err(|e| fail(e.to_string()))?;
        let section = file.section_by_name(".eh_frame");
        let section = section.ok_or_else(|| fail("it has no .eh_frame".into()))?;
        let eh_frame = section.data().map_err(|e| fail(e.to_string()))?.to_vec();
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let mut fdes = Vec::new();
        let table = EhFrame::new(&eh_frame, LittleEndian);
        let mut entries = table.entries(&bases);
        while let Some(entry) = entries.next().map_err(|e| fail(e.to_string()))? {
            if let gimli::CieOrFde::Fde(partial) = entry {
                let fde = partial.parse(|t, b, o| t.cie_from_offset(b, o));
                let fde = fde.map_err(|e| fail(e.to_string()))?;
                let start = fde.initial_address();
                fdes.push((start, start.wrapping_add(fde.len()), fde.offset()));
            }
        }
        fdes.sort_unstable();
        let kinds = file
            .sections()
            .filter(|s| s.kind() == SectionKind::Text)
            .map(|s| {
                let kind = match s.name() {
                    Ok(".text.atom") => TextKind::New,
                    Ok(name) if name.ends_with(".atom") || name.contains("analysis") => {
                        TextKind::Tool
                    }
                    _ => TextKind::Original,
                };
                (s.address(), s.address() + s.size(), kind)
            })
            .collect();
        Ok(Self {
            entry: file.entry(),
            eh_frame,
            bases,
            fdes,
            kinds,
        })
    }

    /// The kind of code at an address of the file, if there is any.
    pub fn kind(&self, address: u64) -> Option<TextKind> {
        let found = self.kinds.iter().find(|p| p.0 <= address && address < p.1);
        found.map(|p| p.2)
    }

    /// Unwinds one frame from `address`.
    pub fn unwind(
        &self,
        address: u64,
        regs: &user_regs_struct,
        peek: &dyn Fn(u64) -> Option<u64>,
    ) -> std::result::Result<Unwound, String> {
        let at = self.fdes.partition_point(|f| f.0 <= address);
        let fde = at.checked_sub(1).map(|i| self.fdes[i]);
        let (_, _, offset) = fde
            .filter(|f| address < f.1)
            .ok_or("no frame description covers it")?;
        let table = EhFrame::new(&self.eh_frame, LittleEndian);
        let text = |e: gimli::Error| e.to_string();
        let fde = table
            .fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset)
            .map_err(text)?;
        let mut context = UnwindContext::new();
        let row = fde
            .unwind_info_for_address(&table, &self.bases, &mut context, address)
            .map_err(text)?;
        let value = |e: &Expression<Reader<'_>>, initial: Option<u64>| {
            evaluate(*e, fde.cie().encoding(), initial, regs, peek)
        };
        let expression = |e: &gimli::UnwindExpression<usize>, initial| {
            value(&e.get(&table).map_err(text)?, initial)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset {
                register: r,
                offset,
            } => register(regs, r.0).wrapping_add_signed(*offset),
            CfaRule::Expression(e) => expression(e, None)?,
        };
        let return_slot = match row
            .register(Register(16))
            .unwrap_or(RegisterRule::Undefined)
        {
            RegisterRule::Offset(n) => cfa.wrapping_add_signed(n),
            RegisterRule::Expression(e) => expression(&e, Some(cfa))?,
            other => return Err(format!("the return address has the rule {other:?}")),
        };
        let mut kept = [None; 6];
        for (slot, number) in kept.iter_mut().zip(KEPT) {
            *slot = match row
                .register(Register(number))
                .unwrap_or(RegisterRule::Undefined)
            {
                RegisterRule::Undefined | RegisterRule::SameValue => Some(register(regs, number)),
                RegisterRule::Offset(n) => peek(cfa.wrapping_add_signed(n)),
                RegisterRule::ValOffset(n) => Some(cfa.wrapping_add_signed(n)),
                RegisterRule::Register(other) => Some(register(regs, other.0)),
                RegisterRule::Expression(e) => peek(expression(&e, Some(cfa))?),
                RegisterRule::ValExpression(e) => Some(expression(&e, Some(cfa))?),
                _ => None,
            };
        }
        Ok(Unwound {
            cfa,
            return_slot,
            kept,
        })
    }
}

fn evaluate(
    expression: Expression<Reader<'_>>,
    encoding: gimli::Encoding,
    initial: Option<u64>,
    regs: &user_regs_struct,
    peek: &dyn Fn(u64) -> Option<u64>,
) -> std::result::Result<u64, String> {
    let text = |e: gimli::Error| e.to_string();
    let mut evaluation = expression.evaluation(encoding);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut state = evaluation.evaluate().map_err(text)?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register: r, .. } => {
                evaluation.resume_with_register(Value::Generic(register(regs, r.0)))
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                let word = peek(address).ok_or("an expression reads outside of memory")?;
                evaluation.resume_with_memory(Value::Generic(word))
            }
            other => return Err(format!("an expression wants {other:?}")),
        }
        .map_err(text)?;
    }
    match evaluation.result().first().map(|p| p.location) {
        Some(gimli::Location::Address { address }) => Ok(address),
        other => Err(format!("an expression gives {other:?}")),
    }
}
