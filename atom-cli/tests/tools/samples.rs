//! A profile by samples of which none is missed: the procedure that runs at each 1,000th instruction of each thread.
use std::io::Write;

use atom_tool::prelude::*;

const EVERY: i64 = 1000;

/// `left` is the number of instructions until the next sample.
#[analysis]
fn block(left: PerThread<ThreadCell<i64>>, insts: u64, samples: Counter) {
    // SAFETY: no other thread writes to this thread's cell. The comparison then needs no register.
    if unsafe { left.get_in_place() } > insts as i64 {
        left.set(left.get() - insts as i64);
    } else {
        sample(left, insts, samples);
    }
}

#[cold]
#[inline(never)]
fn sample(left: PerThread<ThreadCell<i64>>, insts: u64, samples: Counter) {
    let over = insts as i64 - left.get();
    samples.add(1 + (over / EVERY) as u64);
    left.set(EVERY - over % EVERY);
}

#[analysis]
fn report(file: Str, names: Strings, samples: Counters, left: AllThreads<ThreadCell<i64>>) {
    let Ok(mut file) = output::create(&file) else {
        return;
    };
    for ([count], name) in samples.rows().zip(names.iter()).filter(|([n], _)| *n != 0) {
        let _ = writeln!(file, "{count}\t{name}");
    }
    let rest: i64 = left.iter().map(|left| EVERY - left.get()).sum();
    let _ = writeln!(file, "{rest} instructions after the last samples");
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("samples.out");
    options.finish()?;

    let left = program.thread_data(ThreadCell::new(EVERY));
    let samples = program.counters(program.procs().count());
    let mut names = StringList::new();
    for (number, proc) in program.procs().enumerate() {
        names.push(proc.name());
        for block in proc.blocks() {
            let insts = block.insts().len() as u64;
            block.add_call(Before, self::block, (left, insts, samples.at(number)));
        }
    }
    program.add_call(After, report, (file, &names, samples, left));
    Ok(())
}

atom_tool::tool!(instrument);
