//! Reads what the arguments of `look` say: an address and a number of bytes.
use atom_tool::prelude::*;
use atom_tool::read_memory;

#[analysis]
fn look(address: u64, size: u64) {
    let mut bytes = [0; 100];
    let read = read_memory(address, &mut bytes[..size as usize]);
    let sum: u64 = bytes[..read].iter().map(|byte| u64::from(*byte)).sum();
    eprintln!("{read} {sum}");
}

fn instrument(program: &Program, _: &Args) -> Result {
    for proc in program.procs_named("look") {
        proc.add_call(Before, look, (Reg::Rdi, Reg::Rsi));
    }
    Ok(())
}

atom_tool::tool!(instrument);
