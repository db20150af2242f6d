//! Instruction mix: what kinds of instructions are executed, what memory they access, how many floating-point
//! operations they do, and how often loops run.
//!
//! The program only counts blocks, and the ways back of loops; all the rest is known of each block beforehand and is
//! multiplied at the end. What a block does not tell is counted at single instructions: numbers that a mask chooses,
//! and repetitions. `docs/tools/mix.md` describes options and output.

mod loops;
mod packed;
mod report;
mod shape;
mod trips;

use atom_tool::prelude::*;
use atom_tool::{CounterAt, InstInfo, Repeat};

use loops::{Back, Counted, LoopFacts, LoopList};
use report::{Input, Special};
use shape::{Shape, Shapes};

#[analysis]
fn count(counter: Counter) {
    counter.increment();
}

/// The way that a conditional branch goes: not taken, taken.
#[analysis]
fn count_ways(counter: Counter<2>, taken: Value) {
    counter.add_to(usize::from(taken.is_true()), 1);
}

/// A masked instruction: `numbers` has a bit for each number of its vectors.
#[analysis]
fn masked(counter: Counter, mask: RegV, numbers: u64) {
    counter.add(u64::from((mask.0 & numbers).count_ones()));
}

/// An instruction that is repeated this many times.
#[analysis]
fn repeated(counter: Counter, times: Value) {
    counter.add(times.0);
}

/// A repeated comparison, which may end early: the rest that rcx has after it is taken back.
#[analysis]
fn begin_comparing(counter: Counter, rcx: RegV) {
    counter.add(rcx.0);
}

#[analysis]
fn end_comparing(counter: Counter, rcx: RegV) {
    counter.add(rcx.0.wrapping_neg());
}

#[analysis]
fn report(
    files: Files,
    program: Str,
    blocks: Array<u8>,
    counters: Counters,
    names: Strings,
    shapes: Array<Shape>,
    sites: Sites,
    special: Array<Special>,
    numbers: Counters,
    loops: Array<LoopFacts>,
    backs: Array<Back>,
    ways: Counters<2>,
) {
    let count = |counted: Counted, number: u32| {
        let number = number as usize;
        match counted {
            Counted::Block => counters.at(number).get()[0],
            Counted::NotTaken => ways.at(number).get()[0],
            Counted::Taken => ways.at(number).get()[1],
            Counted::Return => numbers.at(special.len() + number).get()[0],
        }
    };
    let found = loops::trips(&loops, &backs, count);
    let input = Input {
        blocks: &blocks,
        counters,
        names,
        shapes: &shapes,
        sites,
        special: &special,
        numbers,
        histograms: &trips::settled(),
    };
    report::write(files, &program, &input, found);
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let files = ReportFiles::from_options(&options)?;
    let has_trips = options.flag("--trips");
    options.finish()?;

    let (mut names, mut shapes, mut sites) =
        (StringList::new(), Shapes::default(), SiteList::new());
    let (mut packed, mut special) = (Vec::new(), Vec::new());
    let mut special_insts = Vec::new();
    let mut loops = LoopList {
        has_trips,
        ..LoopList::default()
    };
    for proc in program.procs().filter(|proc| proc.first_block().is_some()) {
        let site = sites.push_proc(proc);
        let mut blocks: Vec<Vec<u32>> = Vec::new();
        for inst in proc.blocks().flat_map(|block| block.insts()) {
            let number = shapes.number(inst, &mut names);
            if inst.prev().is_none() {
                blocks.push(Vec::new());
            }
            blocks.last_mut().expect("a block begins").push(number);
            let shape = shapes.all[number as usize];
            if shape.is_masked || shape.is_repeated {
                special.push(Special {
                    shape: number,
                    site: site as u32,
                });
                special_insts.push((inst, shape));
            }
        }
        packed::push(&mut packed, site, &blocks);
        loops.push(proc, &mut sites);
    }
    let counters = program.counters(program.block_count());
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        block.add_call(Before, count, (counters.at(block.index()),));
    }
    let numbers = program.counters(special.len() + loops.calls.len());
    for (i, (inst, shape)) in special_insts.into_iter().enumerate() {
        add_special(inst, shape, numbers.at(i));
    }
    for (i, call) in loops.calls.iter().enumerate() {
        call.add_call(After, count, (numbers.at(special.len() + i),));
    }
    let ways = program.counters(loops.branches.len());
    for (branch, counter) in loops.branches.iter().zip(ways.rows()) {
        branch.add_call(Before, count_ways, (counter, BrCondValue));
    }
    if has_trips {
        trips::add(program, &loops.trips);
    }
    let (loops, backs) = (&loops.loops, &loops.backs);
    let name = program.name();
    let args = (
        &files,
        name,
        &packed,
        counters,
        &names,
        &shapes.all,
        &sites,
        &special,
        numbers,
        loops,
        backs,
        ways,
    );
    program.add_call(After, report, args);
    Ok(())
}

/// Counts what a block does not tell of an instruction.
fn add_special(inst: Inst<'_>, shape: Shape, counter: CounterAt) {
    if shape.is_masked {
        let mask = inst.info(InstInfo::MaskRegister).unwrap_or(0) as u32;
        let mask = Reg::from_number(Reg::K0.number() + mask).unwrap_or(Reg::K1);
        let numbers = (1 << shape.numbers) - 1;
        inst.add_call(Before, masked, (counter, mask, numbers));
        return;
    }
    match inst.repeat() {
        Some(Repeat::WhileEqual | Repeat::UntilEqual) => {
            inst.add_call(Before, begin_comparing, (counter, Reg::Rcx));
            inst.add_call(After, end_comparing, (counter, Reg::Rcx));
        }
        _ => inst.add_call(Before, repeated, (counter, RepCount)),
    }
}

atom_tool::tool! { instrument, help = include_str!("help.txt"), report = "mix.out" }
