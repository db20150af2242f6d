//! Counts the different cache lines that each procedure touches.
use std::collections::HashSet;
use std::io::Write;
use std::sync::Mutex;

use atom_tool::prelude::*;

static LINES: Mutex<Vec<HashSet<u64>>> = Mutex::new(Vec::new());

#[analysis]
fn access(proc: u32, address: Value) {
    let Ok(mut lines) = LINES.lock() else { return };
    let proc = proc as usize;
    if lines.len() <= proc {
        lines.resize_with(proc + 1, HashSet::new);
    }
    lines[proc].insert(address.0 / 64);
}

#[analysis]
fn report(file: Str, names: Strings) {
    let Ok(lines) = LINES.lock() else { return };
    let mut file = match output::create(&file) {
        Ok(file) => file,
        Err(e) => return eprintln!("lines: cannot write {e}"),
    };
    for (lines, name) in lines.iter().zip(names.iter()) {
        let _ = writeln!(file, "{}\t{name}", lines.len());
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("lines.out");
    options.finish()?;

    let mut names = StringList::new();
    for proc in program.procs() {
        names.push(proc.name());
        for inst in proc.blocks().flat_map(|block| block.insts()) {
            if inst.is_type(InstType::Load) || inst.is_type(InstType::Store) {
                inst.add_call(Before, access, (proc.index() as u32, EffAddrValue));
            }
        }
    }
    program.add_call(After, report, (file, &names));
    Ok(())
}

atom_tool::tool!(instrument);
