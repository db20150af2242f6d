//! Logs each call of a procedure with its argument and its result.
use std::io::Write;

use atom_tool::output::Log;
use atom_tool::prelude::*;

static LOG: Log = Log::new();

#[analysis]
fn open(file: Str) {
    LOG.open(&file);
}

#[analysis]
fn enter(name: Str, first: RegV) {
    writeln!(LOG, "{name}({})", first.0);
}

#[analysis]
fn leave(name: Str, result: Value) {
    writeln!(LOG, "{name} returns {}", result.0);
}

#[analysis]
fn end() {
    let _ = writeln!(output::stdout(), "logged");
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("logger.out");
    let patterns = options.values("--proc")?;
    options.finish()?;

    program.add_call(Before, open, (file,));
    for pattern in patterns {
        for proc in program.procs_matching(pattern)? {
            if proc.is_opaque() {
                return Err(format!("{} is not understood", proc.name()).into());
            }
            proc.add_call(Before, enter, (proc.name(), Reg::Rdi));
            if proc.offers(After, ReturnValue) {
                proc.add_call(After, leave, (proc.name(), ReturnValue));
            }
        }
    }
    output::keep_stdout(program);
    program.add_call(After, end, ());
    Ok(())
}

atom_tool::tool!(instrument);
