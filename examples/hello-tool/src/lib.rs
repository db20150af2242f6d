//! Prints how often each procedure was called, when the program ends.
use atom_tool::prelude::*;

#[analysis]
fn call(counter: Counter) {
    counter.increment();
}

#[analysis]
fn report(counters: Counters, names: Strings) {
    for ([calls], name) in counters.rows().zip(names.iter()) {
        eprintln!("{calls:12} {name}");
    }
}

fn instrument(program: &Program, _args: &Args) -> Result {
    let procs: Vec<Proc> = program.procs().filter(|p| p.blocks().len() > 0).collect();
    let counters = program.counters(procs.len());
    let mut names = StringList::new();
    for (proc, counter) in procs.iter().zip(counters.rows()) {
        proc.add_call(Before, call, (counter,));
        names.push(proc.name());
    }
    program.add_call(After, report, (counters, &names));
    Ok(())
}

atom_tool::tool!(instrument);
