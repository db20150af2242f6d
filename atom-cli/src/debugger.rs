//! Debugging an instrument routine: the command starts itself again under gdb,
//! with a breakpoint in the routine.
//!
//! The tool is not loaded yet when gdb starts, so the breakpoint is pending. It
//! names the routine's symbol, which is read from the tool's file.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use atom_core::{Error, Result};
use object::{Object, ObjectSymbol};

use crate::choices::Run;
use crate::request::Request;

const DOING: &str = "debugging the instrument routine of";

/// Replaces this process by gdb. `words` is the command line. Returns only on an error.
pub fn run(args: &Run, words: &[OsString]) -> Result<()> {
    let request = Request::new(args)?;
    // `Request::new` refuses `--gdb` without a tool.
    let tool = request.tool.as_deref().unwrap_or(Path::new(""));
    let symbol = instrument_symbol(tool)?;
    let own = std::env::current_exe().map_err(|e| Error::new("finding the command itself", e))?;
    let mut is_ours = true;
    let rest = words.iter().skip(1).filter(|word| {
        is_ours &= *word != "--";
        !(is_ours && *word == "--gdb")
    });
    let error = Command::new("gdb")
        .args(["-q", "-ex", "set breakpoint pending on"])
        .args(["-ex", &format!("break {symbol}"), "-ex", "run", "--args"])
        .arg(own)
        .args(rest)
        .exec();
    Err(Error::new("starting gdb", error).advice("install gdb, or leave --gdb out"))
}

/// The function of a tool in C that calls the user's routine, and the names that this may have.
const IN_C: &str = "atom_c_instrument";
const ROUTINES: [&str; 2] = ["InstrumentAll", "Instrument"];

/// The symbol of the tool's instrument routine.
fn instrument_symbol(tool: &Path) -> Result<String> {
    let fail = |reason: &str| Error::new(DOING, reason).file(tool);
    let bytes = std::fs::read(tool).map_err(|e| fail(&e.to_string()))?;
    let file = object::File::parse(&*bytes).map_err(|e| fail(&e.to_string()))?;
    let defined = |name: &str| {
        file.symbols()
            .any(|s| s.is_definition() && s.name() == Ok(name))
    };
    if let Some(routine) = ROUTINES.iter().find(|name| defined(IN_C) && defined(name)) {
        return Ok((*routine).to_owned());
    }
    let slot = file
        .dynamic_symbols()
        .find(|s| s.name() == Ok(atom_abi::TOOL_INSTRUMENT_SYMBOL))
        .ok_or_else(|| {
            fail("it does not tell where its instrument routine is")
                .advice("build the tool again with the atom-tool that came with this command")
        })?;
    // The pointer is relocated when the tool is loaded; its addend is the address.
    let address = file
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .find(|(at, _)| *at == slot.address())
        .map(|(_, relocation)| relocation.addend() as u64);
    file.symbols()
        .find(|s| s.is_definition() && Some(s.address()) == address && is_function(s))
        .and_then(|s| Some(s.name().ok()?.to_owned()))
        .ok_or_else(|| {
            fail("its instrument routine has no symbol")
                .advice("build the tool without stripping it (no `strip = true` in its profile)")
        })
}

fn is_function(symbol: &object::Symbol) -> bool {
    symbol.kind() == object::SymbolKind::Text
}
