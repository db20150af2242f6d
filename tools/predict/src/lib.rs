//! How often models of branch predictors are wrong: for each conditional branch, jump through a pointer, and return.
//!
//! Routines of a few instructions note outcomes and targets in the thread's buffer; when it is full, all models are
//! simulated for what it has (`thread`). Only the return-address stack is simulated in line (`returns`).
//! `docs/tools/predict.md` describes models, options and output.

mod direction;
mod report;
mod returns;
mod tage;
mod target;
mod thread;

use atom_tool::notes::{self, NoteBuffer};
use atom_tool::prelude::*;
use atom_tool::simulate::batches::enters_kernel;
use atom_tool::simulate::room::{self, Room};
use atom_tool::{CounterTable, Object, ThreadData, Uninterrupted, Way};

use report::Parts;
use returns::Returns;
use thread::{GSHARE, TAGE, TWO_BIT};

/// Kinds of notes: a conditional branch that was not taken, or taken; a jump or call through a pointer, whose target is
/// the next note.
const NOT_TAKEN: u32 = 0;
const TAKEN: u32 = 1;
const JUMP: u32 = 2;

/// Size of a note in bytes.
const NOTE: u64 = size_of::<u64>() as u64;

/// Notes an outcome. `word` has the branch's number and the kind.
#[inline(always)]
fn note_outcome(buffer: PerThread<NoteBuffer>, word: u32) {
    // Nothing is stored before this decision, so that the routine can be inlined.
    if buffer.has_slack() {
        note_again(buffer, word);
    } else {
        note_slowly(buffer, word, None);
    }
}

/// Notes an outcome where there certainly is room.
#[inline(always)]
fn note_again(buffer: PerThread<NoteBuffer>, word: u32) {
    let end = buffer.claim::<NOTE>() as *mut u64;
    // SAFETY: the reserved space belongs to this note only and is before the limit.
    unsafe { end.sub(1).write(notes::word(word)) };
}

/// As [`outcome`], where there certainly is room.
#[analysis]
fn outcome_again(buffer: PerThread<NoteBuffer>, word: u32) {
    note_again(buffer, word);
}

/// As [`branch`], where there certainly is room.
#[analysis]
fn branch_again(buffer: PerThread<NoteBuffer>, word: u32, taken: Value) {
    note_again(buffer, word | u32::from(taken.is_true()));
}

/// A conditional branch that goes one way.
#[analysis]
fn outcome(buffer: PerThread<NoteBuffer>, word: u32) {
    note_outcome(buffer, word);
}

/// A conditional branch; `word` is the one for a branch that is not taken.
#[analysis]
fn branch(buffer: PerThread<NoteBuffer>, word: u32, taken: Value) {
    note_outcome(buffer, word | u32::from(taken.is_true()));
}

/// A jump or call through a pointer.
#[analysis]
fn jump(buffer: PerThread<NoteBuffer>, word: u32, target: u64) {
    if buffer.has_slack() {
        let end = buffer.claim::<{ 2 * NOTE }>() as *mut u64;
        // SAFETY: as in `note_again`.
        unsafe {
            end.sub(2).write(notes::word(word));
            end.sub(1).write(target);
        }
    } else {
        note_slowly(buffer, word, Some(target));
    }
}

/// Makes a note where the buffer is full, or where there is none.
#[cold]
#[inline(never)]
fn note_slowly(buffer: PerThread<NoteBuffer>, word: u32, target: Option<u64>) {
    Uninterrupted::run(|signals_wait| {
        if !thread::make_room(buffer, signals_wait) {
            return buffer.park();
        }
        let words = [notes::word(word), target.unwrap_or(0)];
        for word in words.into_iter().take(1 + usize::from(target.is_some())) {
            let at = buffer.reserve(NOTE) as *mut u64;
            // SAFETY: as in `note_outcome`: there is room, and signals are blocked.
            unsafe { at.write(word) };
        }
    })
}

/// Size of a return address in bytes.
const ADDRESS: u64 = size_of::<u64>() as u64;

#[analysis]
fn call(stack: PerThread<Returns>, address: u64) {
    stack.push(address);
}

#[analysis]
fn call_by_pointer(stack: PerThread<Returns>, address: u64, target: u64) {
    stack.push_if_seen(address, target);
}

#[analysis]
fn give_back(stack: PerThread<Returns>, count: Counter<2>, target: u64) {
    stack.pop(target, count);
}

/// A call in a whole process.
#[analysis]
fn call_from(stack: PerThread<Returns>, sp: RegV) {
    stack.push(sp.0);
}

#[analysis]
fn call_from_by_pointer(stack: PerThread<Returns>, sp: RegV, target: u64) {
    stack.push_if_seen(sp.0, target);
}

#[analysis]
fn give_back_from(stack: PerThread<Returns>, count: Counter<2>, sp: RegV) {
    stack.pop_place(sp.0 + ADDRESS, count);
}

#[analysis]
fn executed(counter: Counter) {
    counter.increment();
}

#[analysis(uninterrupted)]
fn begin(branches: Array<u64>, jumps: Array<u64>, models: u32, start: u64, end: u64) {
    returns::begin((end != 0).then_some((start, end)));
    thread::begin(branches, jumps, models);
}

#[analysis(uninterrupted)]
fn report(
    files: Files,
    program: Str,
    all: AllThreads<NoteBuffer>,
    sites: Sites,
    returns: Counters,
    wrong: Counters<2>,
) {
    let Some((counts, models)) = thread::end(all) else {
        return;
    };
    let parts = Parts {
        counts,
        models,
        sites,
        returns,
        wrong,
    };
    report::write(files, &program, &parts);
}

/// The instructions of the program that are predicted.
#[derive(Default)]
struct Found<'a> {
    branches: Vec<Inst<'a>>,
    jumps: Vec<Inst<'a>>,
    returns: Vec<Inst<'a>>,
    calls: Vec<Inst<'a>>,
}

impl<'a> Found<'a> {
    fn new(program: &'a Program<'a>) -> Self {
        let mut found = Self::default();
        let blocks = program.procs().flat_map(|proc| proc.blocks());
        for inst in blocks.map(|block| block.last_inst()) {
            let is_computed = inst.is_type(InstType::Jump) && inst.offers(Before, BranchTarget);
            if inst.is_type(InstType::CondBr) {
                found.branches.push(inst);
            } else if inst.is_type(InstType::Ret) {
                found.returns.extend(is_computed.then_some(inst));
            } else if is_computed {
                found.jumps.push(inst);
            }
            if inst.is_type(InstType::Call) {
                found.calls.push(inst);
            }
        }
        found
    }

    /// Adds the notes of outcomes, which are at the ends of blocks.
    fn add_branches(&self, program: &Program<'_>, buffer: ThreadData<NoteBuffer>) {
        let mut branches = self.branches.iter().enumerate().peekable();
        let mut jumps = self.jumps.iter().peekable();
        for proc in program.procs() {
            let mut room = Room::new(proc);
            for block in proc.blocks() {
                let mut taken = room.at_start(&block);
                if block.insts().any(|inst| enters_kernel(&inst)) {
                    taken = None;
                }
                let last = block.last_inst();
                if let Some((number, _)) = branches.next_if(|(_, inst)| **inst == last) {
                    let asks = room::take(&mut taken, NOTE);
                    add_branch(last, number, asks, buffer);
                }
                if jumps.next_if(|inst| **inst == last).is_some() {
                    // The note of a jump asks.
                    taken = Some(0);
                }
                let goes_on = !last.is_type(InstType::Call) && !enters_kernel(&last);
                room.set_end(&block, taken.filter(|_| goes_on));
            }
        }
    }

    /// Adds the calls for the return-address stack. `is_whole` if libraries are instrumented, too.
    fn add_calls(&self, stack: ThreadData<Returns>, is_whole: bool) {
        for inst in &self.calls {
            let back = ImageAddress(inst.pc() + inst.size() as u64);
            let is_pointer = inst.is_type(InstType::Jump);
            let leaves = |to: Proc<'_>| {
                if to.is_stub() {
                    !is_whole
                } else {
                    to.is_opaque()
                }
            };
            match (is_pointer, is_whole) {
                (true, true) => {
                    let args = (stack, Reg::Rsp, BranchTarget);
                    inst.add_call(Before, call_from_by_pointer, args);
                }
                (true, false) => {
                    inst.add_call(Before, call_by_pointer, (stack, back, BranchTarget))
                }
                (false, _) if inst.called_proc().is_some_and(leaves) => {}
                (false, true) => inst.add_call(Before, call_from, (stack, Reg::Rsp)),
                (false, false) => inst.add_call(Before, call, (stack, back)),
            }
        }
    }

    fn add_returns(
        &self,
        program: &Program<'_>,
        stack: ThreadData<Returns>,
        is_whole: bool,
    ) -> Returned {
        let counts = program.counters(self.returns.len());
        let wrong = program.counters(self.returns.len());
        for (number, inst) in self.returns.iter().enumerate() {
            inst.add_call(Before, executed, (counts.at(number),));
            let count = wrong.at(number);
            if is_whole {
                inst.add_call(Before, give_back_from, (stack, count, Reg::Rsp))
            } else {
                inst.add_call(Before, give_back, (stack, count, BranchTarget))
            }
        }
        Returned { counts, wrong }
    }
}

/// Adds the note of a branch's outcome. `asks` says whether it must ask for room.
fn add_branch(inst: Inst<'_>, number: usize, asks: bool, buffer: ThreadData<NoteBuffer>) {
    let word = |kind| notes::kind_and_number(kind, number as u32);
    let block = inst.block();
    let stays = inst.target().is_some_and(|to| to.proc() == inst.proc());
    // A condition costs more than a constant: flags are often free after the branch.
    if stays && block.has_way(Way::Taken) && block.has_way(Way::Falling) {
        for (way, kind) in [(Way::Taken, TAKEN), (Way::Falling, NOT_TAKEN)] {
            if asks {
                block.add_call_on(way, outcome, (buffer, word(kind)))
            } else {
                block.add_call_on(way, outcome_again, (buffer, word(kind)))
            }
        }
        return;
    }
    let args = (buffer, word(NOT_TAKEN), BrCondValue);
    if asks {
        inst.add_call(Before, branch, args)
    } else {
        inst.add_call(Before, branch_again, args)
    }
}

/// Counters of returns.
struct Returned {
    counts: CounterTable<1>,
    wrong: CounterTable<2>,
}

/// The bit set of the models that `--model` asks for.
fn models(options: &atom_tool::Options<'_>) -> Result<u32> {
    let Some(text) = options.value("--model")? else {
        return Ok(1 << TWO_BIT | 1 << GSHARE | 1 << TAGE);
    };
    let mut models = 0;
    for name in text.split(',') {
        models |= match name {
            "2bit" => 1 << TWO_BIT,
            "gshare" => 1 << GSHARE,
            "tage" => 1 << TAGE,
            _ => {
                return Err(WrongOption::new(format!(
                    "--model takes 2bit, gshare and tage, not \"{name}\""
                ))
                .into());
            }
        };
    }
    Ok(models)
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let models = models(&options)?;
    options.finish()?;

    let found = Found::new(program);
    let buffer = program.thread_data(NoteBuffer::new());
    found.add_branches(program, buffer);
    for (number, inst) in found.jumps.iter().enumerate() {
        let word = notes::kind_and_number(JUMP, number as u32);
        inst.add_call(Before, jump, (buffer, word, BranchTarget));
    }
    let stack = program.thread_data(Returns::zero());
    let objects: Vec<Object<'_>> = program.objects().collect();
    let is_whole = objects.len() > 1;
    found.add_calls(stack, is_whole);
    let returned = found.add_returns(program, stack, is_whole);

    let mut sites = SiteList::new();
    for inst in found
        .branches
        .iter()
        .chain(&found.jumps)
        .chain(&found.returns)
    {
        sites.push(*inst);
    }
    let pcs = |insts: &[Inst<'_>]| -> Vec<u64> { insts.iter().map(Inst::pc).collect() };
    let (branches, jumps) = (pcs(&found.branches), pcs(&found.jumps));
    // Branches and jumps are looked up as they come.
    program.tables_may_grow();
    match objects[..] {
        [alone] => {
            let range = alone.range();
            let bounds = (ImageAddress(range.start), ImageAddress(range.end));
            let args = (&branches, &jumps, models, bounds.0, bounds.1);
            program.add_call(Before, begin, args);
        }
        _ => program.add_call(Before, begin, (&branches, &jumps, models, 0, 0)),
    }
    let name = program.name();
    let args = (
        &files,
        name,
        buffer,
        &sites,
        returned.counts,
        returned.wrong,
    );
    program.add_call(After, report, args);
    Ok(())
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "predict.out" }
