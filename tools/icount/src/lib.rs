//! How many instructions are executed: in all, or by procedure, block or instruction.
//!
//! `--per program|procedure|block|instruction` chooses; the result goes to
//! `icount.out` or the file of `--output`, one line for each, tab-separated:
//! address in hex, count, procedure. A block's count is that of the instructions
//! executed in it. What was never executed is left out; the whole program is
//! always one line: address of its first code, count, its name.
//!
//! A basic block is executed from its first instruction to its last, so one
//! counter for each block tells all. (An instruction that faults or a system
//! call that does not return ends a block early; the rest of it still counts.)

use std::io::{self, Write};

use atom_tool::prelude::*;

/// What a line of the result stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
enum Per {
    Program,
    Procedure,
    Block,
    Instruction,
}

#[analysis]
fn block(counter: Counter) {
    counter.increment();
}

/// What the report knows of a block; all of them are u64.
type BlockFacts = [u64; 4];
/// Its address.
const PC: usize = 0;
/// The address of its procedure.
const PROC: usize = 1;
/// The key of its procedure's name.
const NAME: usize = 2;
/// The number of its instructions.
const INSTS: usize = 3;

/// `lengths` has the length of each instruction, block after block, if `per` asks for them.
#[analysis]
fn report(
    output: Str,
    per: u64,
    program: Str,
    counters: Counters,
    blocks: Array<BlockFacts>,
    lengths: Array<u8>,
    names: Strings,
) {
    let result = output::create(&output).and_then(|mut file| {
        write(&mut file, per, &program, counters, &blocks, &lengths, names)?;
        file.flush()
    });
    if let Err(e) = result {
        eprintln!("icount: cannot write {e}");
    }
}

fn write(
    file: &mut impl Write,
    per: u64,
    program: &str,
    counters: Counters,
    blocks: &[BlockFacts],
    lengths: &[u8],
    names: Strings,
) -> io::Result<()> {
    let mut line = |pc: u64, count: u64, name: &str| writeln!(file, "{pc:#x}\t{count}\t{name}");
    let name = |block: &BlockFacts| names.get(block[NAME] as u32);
    let mut counts = counters.rows().map(|[count]| count);
    if per == Per::Program as u64 {
        let start = blocks.first().map_or(0, |block| block[PC]);
        let total = counts
            .zip(blocks)
            .map(|(count, block)| count * block[INSTS])
            .sum();
        line(start, total, program)?;
    } else if per == Per::Procedure as u64 {
        for proc in blocks.chunk_by(|a, b| a[PROC] == b[PROC]) {
            let count = proc
                .iter()
                .zip(&mut counts)
                .map(|(block, count)| count * block[INSTS])
                .sum();
            if count != 0 {
                line(proc[0][PROC], count, name(&proc[0]))?;
            }
        }
    } else if per == Per::Block as u64 {
        for (count, block) in counts.zip(blocks).filter(|(count, _)| *count != 0) {
            line(block[PC], count * block[INSTS], name(block))?;
        }
    } else {
        let mut lengths = lengths.iter();
        for (count, block) in counts.zip(blocks) {
            let mut pc = block[PC];
            for length in lengths.by_ref().take(block[INSTS] as usize) {
                if count != 0 {
                    line(pc, count, name(block))?;
                }
                pc += u64::from(*length);
            }
        }
    }
    Ok(())
}

fn instrument(program: &Program, args: &Args) -> Result {
    let options = args.options();
    let output = options.value("--output")?.unwrap_or("icount.out");
    let per = options.choice(
        "--per",
        &[
            ("program", Per::Program),
            ("procedure", Per::Procedure),
            ("block", Per::Block),
            ("instruction", Per::Instruction),
        ],
    )?;
    options.finish()?;

    let counters = program.counters(program.block_count());
    let mut names = StringList::new();
    let mut blocks: Vec<BlockFacts> = Vec::new();
    let mut lengths: Vec<u8> = Vec::new();
    for proc in program.procs() {
        let name = names.intern(proc.name());
        for block in proc.blocks() {
            block.add_call(Before, self::block, (counters.at(block.index()),));
            let insts = block.insts();
            blocks.push([block.pc(), proc.pc(), name.into(), insts.len() as u64]);
            if per == Per::Instruction {
                lengths.extend(insts.map(|inst| inst.len() as u8));
            }
        }
    }
    let facts = (
        output,
        per as u64,
        program.name(),
        counters,
        &blocks,
        &lengths,
        &names,
    );
    program.add_call(After, report, facts);
    Ok(())
}

atom_tool::tool!(instrument);
