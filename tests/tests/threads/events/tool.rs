//! Writes a line for each thread that begins or ends, and at the end one for each that is there: its number, and how often it called `work`.
use atom_tool::prelude::*;
use atom_tool::threads;

thread_state! {
    struct Works {
        thread: ThreadCell<u32>,
        count: ThreadCell<u64>,
    }
}

fn tell(what: &str, works: &Works) {
    let line = format!("{what} {} {}\n", works.thread.get(), works.count.get());
    // In one piece: other processes write, too.
    eprint!("{line}");
}

#[analysis]
fn start(works: PerThread<Works>) {
    let begin = |works: PerThread<Works>| {
        works.thread.set(works.thread_number());
        works.count.set(0);
        tell("begin", &works);
    };
    let end = |works: PerThread<Works>| {
        tell("end", &works);
        works.thread.set(0);
    };
    threads::watch(works, begin, end);
}

#[analysis]
fn work(works: PerThread<Works>, thread: u64) {
    works.count.add(1);
    if u64::from(works.thread.get()) != thread {
        tell("another thread", &works);
    }
}

#[analysis]
fn report(all: AllThreads<Works>) {
    for works in all.iter().filter(|works| works.thread.get() != 0) {
        tell("left", works);
    }
}

fn instrument(program: &Program, _: &Args) -> Result {
    let works = program.thread_data(Works::zero());
    program.add_call(Before, start, (works,));
    for proc in program.procs_named("work") {
        proc.add_call(Before, work, (works, Reg::Rdi));
    }
    program.add_call(After, report, (works,));
    Ok(())
}

atom_tool::tool!(instrument);
