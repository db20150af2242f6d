//! Where the fork server begins.
//!
//! Without an option that is the entry of `main`. A program without symbols passes the address of `main` to its C
//! library in the code at its entry point, in rdi. Where that is not found either, the server begins at the entry
//! point.

use atom_tool::MarkTable;
use atom_tool::prelude::*;

use super::{Begin, Settings, begin};

/// A place at which the server begins.
pub enum Start<'a> {
    /// The entry of a procedure.
    Proc(Proc<'a>),
    /// An instruction.
    Inst(Inst<'a>),
}

impl Start<'_> {
    /// Adds the call that begins to serve.
    pub fn add_call(&self, args: (MarkTable, MarkTable, &Begin)) {
        match self {
            Self::Proc(proc) => proc.add_call(Before, begin, args),
            Self::Inst(inst) => inst.add_call(Before, begin, args),
        }
    }
}

/// The places that the option `start` names: an address, or a pattern of procedures. Without it, where `main` begins.
pub fn find<'a>(program: &Program<'a>, settings: &Settings) -> Result<Vec<Start<'a>>> {
    let name = format!("{}start", settings.prefix);
    let Some(option) = &settings.start else {
        return default(program, &name).map(|start| vec![start]);
    };
    let hex = option.strip_prefix("0x");
    if let Some(address) = hex.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        let inst = program.inst_at(address);
        let inst = inst.ok_or_else(|| format!("{name}: no instruction starts at {option}"))?;
        return Ok(vec![Start::Inst(inst)]);
    }
    let procs = program.procs_matching(option)?;
    let procs = procs.into_iter().filter(|proc| !proc.is_opaque());
    let starts: Vec<_> = procs.map(Start::Proc).collect();
    if starts.is_empty() {
        Err(format!("{name}: {option} is not instrumented").into())
    } else {
        Ok(starts)
    }
}

fn default<'a>(program: &Program<'a>, name: &str) -> Result<Start<'a>> {
    let is_usable = |proc: &Proc<'_>| !proc.is_opaque();
    let own = |proc: &Proc<'_>| proc.object().is_program() && !proc.is_stub();
    let named = program.procs_named("main").into_iter();
    if let Some(main) = named.filter(is_usable).find(own) {
        return Ok(Start::Proc(main));
    }
    let entry = entry_point(program)?;
    let first = program.inst_at(entry).ok_or_else(|| {
        format!("the program's entry point is not instrumented: say with {name} where to begin")
    })?;
    let mut insts = first.proc().blocks().flat_map(|block| block.insts());
    let main = insts.find_map(|inst| program.proc_at(word_to_rdi(&inst)?));
    Ok(match main.filter(is_usable).filter(own) {
        Some(main) => Start::Proc(main),
        None => Start::Inst(first),
    })
}

/// The constant or address that an instruction puts into rdi.
fn word_to_rdi(inst: &Inst<'_>) -> Option<u64> {
    let number = |bytes: &[u8]| Some(i32::from_le_bytes(bytes.try_into().ok()?) as i64 as u64);
    let bytes = inst.bytes();
    let next = inst.pc() + bytes.len() as u64;
    match bytes {
        // lea rdi, [rip + n]
        [0x48, 0x8d, 0x3d, rest @ ..] => number(rest).map(|n| next.wrapping_add(n)),
        // mov rdi, n
        [0x48, 0xc7, 0xc7, rest @ ..] => number(rest),
        // mov edi, n
        [0xbf, rest @ ..] => number(rest),
        _ => None,
    }
}

/// The entry point in the header of the program's file.
fn entry_point(program: &Program<'_>) -> Result<u64> {
    const AT: usize = 24;
    let path = program.path();
    let file = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let field = file.get(AT..AT + 8).and_then(|bytes| bytes.try_into().ok());
    let field = field.ok_or_else(|| format!("{path}: no program"))?;
    Ok(u64::from_le_bytes(field))
}
