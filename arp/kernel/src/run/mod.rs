//! The analysis half, which runs in the program.
//!
//! Only a thread's first call takes a lock, and calls at which threads are made. A signal handler
//! that interrupts one of these routines and enters sections of its own finds the thread busy. Then
//! both the begins and the ends of its sections are left out.

// Each uses those before it: `meters`, `open`, `settings` and `scratch`, `calibrate` and `clock`, `session`, `sums`.
mod calibrate;
pub mod clock;
pub mod meters;
mod open;
mod scratch;
mod session;
pub mod settings;
mod sums;

use std::io::{self, Write};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};
use std::sync::{Mutex, OnceLock};

use arp::{DataType, Format, Mode, Section, SectionKind, Sid, Step};
use atom_tool::prelude::*;
use atom_tool::{ThreadCell, thread_state};

use meters::{Events, Measure};
use open::{Facts, Open, Row, Table};
use session::{Spawned, ThreadEntry, Whole, lock, whole};
use settings::{Calibrate, Settings};

thread_state! {
    /// The state of a thread.
    pub struct Thread {
        /// Number of instructions executed.
        pub instructions: ThreadCell<u64>,
        /// Address of its [`Open`]; 0 before it first enters a section.
        pub open: ThreadCell<usize>,
        /// 1 while one of the routines runs.
        pub busy: ThreadCell<u64>,
        /// Number of begins and ends that were left out because a routine was running.
        pub missed: ThreadCell<u64>,
    }
}

impl Default for Thread {
    fn default() -> Self {
        Self {
            instructions: ThreadCell::new(0),
            open: ThreadCell::new(0),
            busy: ThreadCell::new(0),
            missed: ThreadCell::new(0),
        }
    }
}

/// The section is begun by a marker, so the end of a scope may close it.
pub const MARKER: u8 = 1;
/// The section is a jump to another procedure. Its end is not seen; the next begin or end closes
/// it.
pub const TAIL: u8 = 2;

plain_data! {
    /// A section as it crosses to the analysis. Fields for texts hold their keys.
    pub struct SectionFacts {
        /// Its number in data files.
        pub id: u32,
        /// [`SectionKind`] as a number.
        pub kind: u32,
        /// [`MARKER`], [`TAIL`] or 0.
        pub flags: u32,
        /// First source line, or 0.
        pub first_line: u32,
        /// Last source line, or 0.
        pub last_line: u32,
        /// Key of its name.
        pub name: u32,
        /// Key of its source file; the text may be empty.
        pub file: u32,
        /// Key of file and lines for people; the text may be empty.
        pub place: u32,
    }

    /// The user's choices, as they cross to the analysis. Fields for texts hold their keys.
    pub struct Choices {
        /// [`Mode`] as a number.
        pub mode: u32,
        /// [`DataType`] of the values of callbacks, as a number.
        pub data_type: u32,
        /// Whether callbacks are tried at the start.
        pub calibrate: Calibrate,
        /// Key of the data file's name.
        pub file: u32,
        /// Key of the program's name.
        pub program: u32,
        /// The data file is binary; else it is text.
        pub is_binary: bool,
        #[doc(hidden)]
        pub _unused: [u8; 3],
    }
}

/// The kinds of section, by their numbers.
pub const KINDS: [&str; 3] = ["plain", "kernel", "profile"];

/// Addresses of code and data that the user linked into the tool; 0 for none.
#[derive(Clone, Copy, Default)]
struct UserCode {
    /// Callbacks for begins and ends of sections, and what both get as context.
    callbacks: [usize; 3],
    /// Callbacks for threads.
    thread_callbacks: [usize; 2],
}

static USER_CODE: OnceLock<UserCode> = OnceLock::new();

/// Before [`begin`]: addresses of what the user linked into the tool, 0 for none. `context` is the
/// address of a pointer to the context if `is_pointer` says so.
#[analysis]
pub fn callbacks(
    enter: usize,
    leave: usize,
    context: usize,
    is_pointer: bool,
    spawn: usize,
    join: usize,
) {
    let context = match (context, is_pointer) {
        (0, _) | (_, false) => context,
        // SAFETY: the address of a pointer that the tool exports.
        (at, true) => unsafe { *(at as *const usize) },
    };
    let _ = USER_CODE.set(UserCode {
        callbacks: [enter, leave, context],
        thread_callbacks: [spawn, join],
    });
}

/// Before the program: starts recording.
#[analysis]
pub fn begin(
    choices: Record<Choices>,
    measures: Array<Measure>,
    facts: Array<SectionFacts>,
    texts: Strings,
) {
    let mut table = Table {
        rows: Vec::with_capacity(facts.len()),
        sections: Vec::with_capacity(facts.len()),
    };
    for facts in facts.iter() {
        let kind = SectionKind::from_number(facts.kind.into()).unwrap_or_default();
        table.rows.push(Row {
            sid: Sid(facts.id),
            kind,
            flags: facts.flags as u8,
        });
        table.sections.push(Section {
            sid: Sid(facts.id),
            kind,
            name: texts.get(facts.name).to_owned(),
            file: texts.get(facts.file).to_owned(),
            line: facts.first_line,
            end_line: facts.last_line,
        });
    }
    let user = USER_CODE.get().copied().unwrap_or_default();
    let settings = Settings {
        mode: Mode::from_number(choices.mode.into()).unwrap_or(Mode::RecordAverage),
        format: if choices.is_binary {
            Format::Binary
        } else {
            Format::Ascii
        },
        data_type: DataType::from_number(choices.data_type.into()).unwrap_or(DataType::UInt),
        file: texts.get(choices.file),
        program: texts.get(choices.program),
        measures: measures.to_vec(),
        callbacks: user.callbacks,
        thread_callbacks: user.thread_callbacks,
        calibrate: choices.calibrate,
    };
    if let Err(reason) = Whole::begin(table, settings) {
        eprintln!("kernel: nothing is recorded: {reason}");
    }
}

/// Does something with the thread's open sections.
#[inline(always)]
fn with(thread: PerThread<Thread>, act: impl FnOnce(&mut Open)) {
    if thread.busy.get() != 0 {
        thread.missed.add(1);
        return;
    }
    thread.busy.set(1);
    // The thread that ends the process either makes this thread see `ended`, or sees that this one
    // is busy.
    compiler_fence(SeqCst);
    if let Some(whole) = whole() {
        let known = thread.open.get() as *mut Open;
        if whole.is_forked() {
            whole.forked(known);
        }
        let here = whole.here();
        if here.ended.load(Relaxed) {
            // A thread that ends the process comes here again only if its `exec` failed.
            if here.ender.load(Relaxed) != block_of(thread) {
                thread.busy.set(0);
                return;
            }
            here.goes_on();
        }
        // SAFETY: set by `first` to a value that is never dropped, and used by
        // this thread only, once at a time because of `busy`.
        match unsafe { known.as_mut() } {
            Some(open) if open.owner == thread.thread_number() => act(open),
            old => {
                if let Some(open) = first(thread, whole, old) {
                    act(open);
                }
            }
        }
    }
    compiler_fence(SeqCst);
    thread.busy.set(0);
}

/// A value that identifies the thread: the address of its block.
fn block_of(thread: PerThread<Thread>) -> usize {
    &raw const thread.busy as usize
}

/// A thread's first section.
#[cold]
#[inline(never)]
fn first(
    thread: PerThread<Thread>,
    whole: &'static Whole,
    old: Option<&'static mut Open>,
) -> Option<&'static mut Open> {
    let here = whole.here();
    whole.join_ended();
    let context = inherited(&here.spawned);
    let depth = context.len();
    let owner = thread.thread_number();
    let instructions = (&raw const thread.instructions).cast::<AtomicU64>();
    if let Some(open) = old {
        let place = Open::place_of(open.events(), instructions);
        let recorder = whole.recorder(place, &context)?;
        open.take_over(owner, depth, recorder);
        return Some(open);
    }
    let events = Box::new(Events::new());
    let recorder = whole.recorder(Open::place_of(&events, instructions), &context)?;
    let open = Box::leak(Box::new(Open::new(
        &whole.table,
        owner,
        depth,
        events,
        recorder,
    )));
    thread.open.set(&raw mut *open as usize);
    lock(&here.threads).push(ThreadEntry { open });
    Some(open)
}

/// The thread pointer, which C libraries use as the value of `pthread_t`.
fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: by the ABI of thread-local storage the word at fs:0 is its own address;
    // a program without threads of that kind makes none of them here.
    unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly)) };
    pointer
}

/// The sections that were open in the thread that made this one.
fn inherited(spawned: &Mutex<Vec<Spawned>>) -> Vec<Step> {
    let mut spawned = lock(spawned);
    if spawned.is_empty() {
        return Vec::new();
    }
    let me = thread_pointer();
    let is_me = |s: &Spawned| {
        // SAFETY: the maker is still in the call to which it passed this address.
        s.number == me
            || s.number == 0 && s.place != 0 && unsafe { *(s.place as *const usize) } == me
    };
    match spawned.iter().rposition(is_me) {
        Some(i) => spawned.remove(i).context,
        None => Vec::new(),
    }
}

/// A thread is about to be made; the call will store its number at `place`.
#[analysis]
pub fn spawning(thread: PerThread<Thread>, place: RegV) {
    with(thread, |open| {
        let Some(here) = session::here() else { return };
        lock(&here.spawned).push(Spawned {
            place: place.0 as usize,
            number: 0,
            maker: open.owner,
            context: open.context(),
        });
    });
}

/// A thread was made, or could not be.
#[analysis]
pub fn spawned(thread: PerThread<Thread>, failed: RegV) {
    made(thread, failed.0 as u32 != 0);
}

/// A thread was made.
#[analysis]
pub fn spawned_surely(thread: PerThread<Thread>) {
    made(thread, false);
}

fn made(thread: PerThread<Thread>, failed: bool) {
    with(thread, |open| {
        let Some(here) = session::here() else { return };
        let mut all = lock(&here.spawned);
        let mine = |s: &Spawned| s.number == 0 && s.maker == open.owner;
        let Some(i) = all.iter().rposition(mine) else {
            return;
        };
        if failed || all[i].place == 0 {
            all.remove(i);
            return;
        }
        // SAFETY: the call has just stored it there.
        all[i].number = unsafe { *(all[i].place as *const usize) };
    });
}

/// Adds to the instructions that a thread has executed.
#[analysis]
pub fn count(thread: PerThread<Thread>, n: u64) {
    thread.instructions.add(n);
}

/// A section begins.
#[analysis]
pub fn enter(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, |open| open.enter(section, rsp.0, 0));
}

/// A section begins, and `start` is the index of its execution.
#[analysis]
pub fn enter_from(thread: PerThread<Thread>, section: u32, rsp: RegV, start: RegV) {
    with(thread, |open| open.enter(section, rsp.0, start.0 as i64));
}

/// A section ends.
#[analysis]
pub fn leave(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, |open| open.leave(section, rsp.0));
}

/// A section begins, unless it is open.
#[analysis]
pub fn enter_if_closed(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, |open| open.enter_if_closed(section, rsp.0));
}

/// A section ends, if it is open.
#[analysis]
pub fn leave_if_open(thread: PerThread<Thread>, section: u32, rsp: RegV) {
    with(thread, |open| open.leave_if_open(section, rsp.0));
}

/// The scope ends that was begun last.
#[analysis]
pub fn leave_scope(thread: PerThread<Thread>, _section: u32, rsp: RegV) {
    with(thread, |open| open.leave_scope(rsp.0));
}

/// A jump through a table crosses a section's border if it goes to one of these targets. They are
/// given by their distance in bytes from the jump.
#[analysis]
pub fn table(
    thread: PerThread<Thread>,
    section: u32,
    enters: bool,
    rsp: RegV,
    target: u64,
    pc: RegV,
    places: Array<i64>,
) {
    let distance = target.wrapping_sub(pc.0) as i64;
    if places.contains(&distance) {
        with(thread, |open| {
            if enters {
                open.enter(section, rsp.0, 0)
            } else {
                open.leave(section, rsp.0)
            }
        });
    }
}

/// After the program: completes the data file, and writes the summary if one is
/// wanted. Messages for the user are printed.
#[analysis]
pub fn end(
    mine: PerThread<Thread>,
    all: AllThreads<Thread>,
    summary: Str,
    facts: Array<SectionFacts>,
    texts: Strings,
    files: Files,
) {
    let Some(whole) = whole() else { return };
    if whole.is_forked() {
        whole.forked(mine.open.get() as *mut Open);
    }
    let here = whole.here();
    // The process has ended before: its `exec` failed.
    if here.ended.swap(true, SeqCst) {
        here.goes_on();
        here.ended.store(true, SeqCst);
    }
    here.ender.store(block_of(mine), Relaxed);
    // After the barrier each other thread sees `ended`, or this thread sees that it is busy.
    // SAFETY: a system call without effect on memory.
    unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
    let threads = lock(&here.threads);
    let (still_busy, missed) = wait(all, &threads);
    let still = |entry: &&ThreadEntry| !still_busy.contains(&(entry.open as usize));
    // SAFETY: their threads do not work on them, unless the process continues after this.
    let opens = threads
        .iter()
        .filter(still)
        .map(|e| unsafe { &mut *e.open });
    let mut opens: Vec<&mut Open> = opens.collect();
    let sum = sum(&opens, facts.len());
    whole.join_ended();
    let mut messages = here.finish(&mut opens);
    if !still_busy.is_empty() {
        messages.push(format!(
            "{} threads were interrupted while they recorded: their last records are missing",
            still_busy.len()
        ));
    }
    for message in messages {
        eprintln!("kernel: {message}");
    }
    if files.has_profile() && whole.settings.mode != Mode::Playback {
        sums::write(whole, &facts, texts, &sum, files);
    }
    if summary.is_empty() {
        return;
    }
    let written = write_summary(&summary, &facts, texts, &sum, |out| {
        writeln!(out, "# threads: {}", threads.len())?;
        writeln!(out, "# open at the end: {}", sum.left_open)?;
        let closed = sum.closed;
        writeln!(out, "# closed because their procedures were gone: {closed}")?;
        writeln!(out, "# ends without a begin: {}", sum.unmatched)?;
        writeln!(out, "# left out in signal handlers: {missed}")
    });
    if let Err(e) = written {
        output::cannot_write("kernel", e);
    }
}

/// Waits a while until the threads' routines have ended. Returns the sections of those threads
/// that still run one, and the number of begins and ends that all threads left out.
fn wait(all: AllThreads<Thread>, threads: &[ThreadEntry]) -> (Vec<usize>, u64) {
    let mut missed = 0;
    let mut still_busy = Vec::new();
    for thread in all.iter() {
        // A forked child has copies of the state of its parent's other threads.
        let open = thread.open.get();
        if open != 0 && !threads.iter().any(|t| t.open as usize == open) {
            continue;
        }
        let mut waited = 0;
        while thread.busy.get() != 0 && waited < 200 {
            std::thread::sleep(std::time::Duration::from_micros(100));
            waited += 1;
        }
        if thread.busy.get() != 0 {
            still_busy.push(open);
        }
        missed += thread.missed.get();
    }
    (still_busy, missed)
}

/// The sums of all threads; `sections` is the number of sections.
fn sum(opens: &[&mut Open], sections: usize) -> Facts {
    let mut sum = Facts {
        counts: vec![0; sections],
        ..Facts::default()
    };
    for open in opens {
        for (sum, count) in sum.counts.iter_mut().zip(&open.facts.counts) {
            *sum += count;
        }
        sum.closed += open.facts.closed;
        sum.unmatched += open.facts.unmatched;
        sum.left_open += open.facts.left_open + open.depth() as u64;
    }
    sum
}

/// Writes the summary: a line for each section, then what `then` writes.
fn write_summary(
    name: &str,
    facts: &[SectionFacts],
    texts: Strings,
    sum: &Facts,
    then: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let played = session::here()
        .map(|here| here.played())
        .unwrap_or_default();
    let mut out = output::create(name)?;
    writeln!(out, "count\tkind\tid\tname\tplace\tplayed\tsum")?;
    for (facts, count) in facts.iter().zip(&sum.counts) {
        let kind = KINDS[facts.kind as usize % KINDS.len()];
        let (id, name, place) = (facts.id, texts.get(facts.name), texts.get(facts.place));
        let (times, total) = played.get(&Sid(id)).copied().unwrap_or_default();
        writeln!(
            out,
            "{count}\t{kind}\t{id}\t{name}\t{place}\t{times}\t{total}"
        )?;
    }
    then(&mut out)?;
    out.flush()
}
