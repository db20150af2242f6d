//! Runs a program several times from one start, in forked children, and counts the entries of procedures of all runs together.
use std::ffi::{c_int, c_long};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

use atom_tool::forks;
use atom_tool::prelude::*;

unsafe extern "C" {
    /// C's `syscall`, here of the private runtime: -1 for an error.
    fn syscall(number: c_long, ...) -> c_long;
}
const SYS_MMAP: c_long = 9;
const SYS_CLONE: c_long = 56;
const SYS_WAIT4: c_long = 61;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const SIGCHLD: c_long = 17;

/// A counter for each procedure, in memory that all processes share; null before it is mapped.
static COUNTS: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// The counter of a procedure.
fn counter(proc: usize) -> Option<&'static AtomicU64> {
    let first = COUNTS.load(Relaxed);
    // SAFETY: null, or memory with a counter for each procedure that is never unmapped.
    (!first.is_null()).then(|| unsafe { &*first.add(proc) })
}

#[analysis]
fn entered(proc: u32) {
    if let Some(counter) = counter(proc as usize) {
        counter.fetch_add(1, Relaxed);
    }
}

/// Maps a file of `size` bytes into this process and its children.
fn map(path: &str, size: usize) -> Option<*mut AtomicU64> {
    let mut how = OpenOptions::new();
    let file = how
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .ok()?;
    file.set_len(size as u64).ok()?;
    let (any, fd, start) = (null_mut::<u8>(), file.as_raw_fd(), 0 as c_long);
    // SAFETY: new memory, which overlaps nothing.
    let at = unsafe { syscall(SYS_MMAP, any, size, PROT_READ_WRITE, MAP_SHARED, fd, start) };
    (at > 0).then_some(at as *mut AtomicU64)
}

#[analysis(uninterrupted)]
fn begin(procs: u64) {
    // The environment with which the program was started.
    let Ok(path) = std::env::var("COUNTS") else {
        return;
    };
    let runs = std::env::var("RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    let Some(memory) = map(&path, procs as usize * size_of::<AtomicU64>()) else {
        return eprintln!("processes: cannot map {path}");
    };
    COUNTS.store(memory, Relaxed);
    let (none, no_memory) = (0 as c_long, null_mut::<u8>());
    for _ in 1..runs.unwrap_or(1u32) {
        // SAFETY: without a new stack and without shared memory, as `fork` does it.
        match unsafe { syscall(SYS_CLONE, SIGCHLD, none, no_memory, no_memory, none) } {
            // The child runs the program. It makes no calls at ProgramAfter.
            0 => return forks::end_without_report(),
            -1 => return eprintln!("processes: cannot fork"),
            // SAFETY: the kernel writes nothing to null.
            child => _ = unsafe { syscall(SYS_WAIT4, child, no_memory, none, no_memory) },
        }
    }
    // The last run is this process.
}

#[analysis]
fn report(file: Str, names: Strings) {
    let Ok(mut file) = output::create(&file) else {
        return;
    };
    for (proc, name) in names.iter().enumerate() {
        let count = counter(proc).map_or(0, |counter| counter.load(Relaxed));
        if count != 0 {
            let _ = writeln!(file, "{count}\t{name}");
        }
    }
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let file = options.value("--output")?.unwrap_or("processes.out");
    options.finish()?;

    let mut names = StringList::new();
    for (number, proc) in program.procs().enumerate() {
        names.push(proc.name());
        if proc.first_block().is_some() {
            proc.add_call(Before, entered, (number as u32,));
        }
    }
    program.add_call(Before, begin, (program.procs().count() as u64,));
    program.add_call(After, report, (file, &names));
    Ok(())
}

atom_tool::tool!(instrument);
