//! Writes the system calls of a program to a file: thread, name, arguments, result.
use atom_tool::output::Log;
use atom_tool::prelude::*;

static LOG: Log = Log::new();

/// Some names; other system calls are shown by their numbers.
const NAMES: [(u64, &str); 12] = [
    (0, "read"),
    (1, "write"),
    (3, "close"),
    (9, "mmap"),
    (11, "munmap"),
    (39, "getpid"),
    (60, "exit"),
    (110, "getppid"),
    (202, "futex"),
    (231, "exit_group"),
    (257, "openat"),
    (262, "newfstatat"),
];

thread_state! {
    /// The system call that a thread is in.
    struct Asked {
        is_known: ThreadCell<u64>,
        number: ThreadCell<u64>,
        arguments: [ThreadCell<u64>; 6],
    }
}

/// The text of a system call without its result.
fn text(asked: PerThread<Asked>) -> String {
    let number = asked.number.get();
    let name = NAMES.iter().find(|name| name.0 == number);
    let name = name.map_or_else(|| format!("call_{number}"), |name| name.1.to_owned());
    let arguments = asked.arguments.each_ref().map(|a| format!("{:#x}", a.get()));
    format!("{} {name}({})", asked.thread_number(), arguments.join(", "))
}

#[analysis]
fn begin(file: Str) {
    LOG.open(&file);
}

#[analysis]
fn before(asked: PerThread<Asked>, number: u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) {
    const WITHOUT_RESULT: [u64; 2] = [60, 231];
    asked.is_known.set(1);
    asked.number.set(number);
    for (cell, argument) in asked.arguments.iter().zip([a, b, c, d, e, f]) {
        cell.set(argument);
    }
    if WITHOUT_RESULT.contains(&number) {
        writeln!(LOG, "{}", text(asked));
    }
}

#[analysis]
fn after(asked: PerThread<Asked>, result: u64) {
    if asked.is_known.get() != 0 {
        writeln!(LOG, "{} = {}", text(asked), result as i64);
    } else {
        // A new thread comes back from the call that made it.
        writeln!(LOG, "{} begins", asked.thread_number());
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("strace.out");
    options.finish()?;

    let asked = program.thread_data(Asked::zero());
    program.add_call(Before, begin, (file,));
    let insts = program.procs().flat_map(|proc| proc.blocks()).map(|block| block.last_inst());
    for inst in insts.filter(|inst| inst.offers(Before, SystemCallNumber)) {
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(SystemCallArgument);
        inst.add_call(Before, before, (asked, SystemCallNumber, a, b, c, d, e, f));
        inst.add_call(After, after, (asked, SystemCallResult));
    }
    Ok(())
}

atom_tool::tool!(instrument);
