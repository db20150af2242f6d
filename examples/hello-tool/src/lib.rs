//! Writes how often each procedure was called, when the program ends.
use std::io::Write;

use atom_tool::prelude::*;

#[analysis]
fn call(counter: Counter) {
    counter.increment();
}

#[analysis]
fn report(counters: Counters, names: Strings) {
    let Ok(mut file) = output::create("hello.out") else {
        return eprintln!("hello: hello.out cannot be written");
    };
    for ([calls], name) in counters.rows().zip(names.iter()) {
        let _ = writeln!(file, "{calls:12} {name}");
    }
}

fn instrument(program: &Program, _args: &Args) -> Result {
    let procs: Vec<Proc> = program.procs().filter(|p| !p.is_opaque()).collect();
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
