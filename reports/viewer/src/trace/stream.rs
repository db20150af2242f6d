//! A thread's executed instructions, each with its references and with what came next.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use atom_core::{Error, Result};
use iced_x86::{FlowControl, Instruction};
use mem_trace::{EXECUTED, Reference};

use super::code::Code;
use super::{Failure, Input};

/// Number of references of a repeated instruction that are given at once: whole repetitions, which have one or two.
const AT_ONCE: usize = 1 << 20;

/// An executed instruction.
pub struct Step<'s, C> {
    /// Its address, with the number of its object in the upper half.
    pub pc: u64,
    /// What `make` made of the instruction.
    pub code: &'s C,
    /// Whether a conditional branch was taken.
    pub is_taken: bool,
    /// Address of the next instruction; 0 at the end.
    pub next: u64,
    /// Its references in order. A repeated instruction has those of all repetitions; with many of them it is given
    /// several times, each time with whole repetitions.
    pub references: &'s [Reference],
    /// Number of its references that were given before.
    pub given: usize,
}

/// Calls `each` for each instruction of a thread. `make` says once for an instruction what is needed of it: its size, the
/// instruction and its bytes are given.
pub fn each<C>(
    reader: &mut Input,
    thread: u64,
    make: impl Fn(&Instruction, &[u8]) -> C,
    mut each: impl FnMut(Step<'_, C>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut code = Code::default();
    let mut known: HashMap<u64, (Instruction, C)> = HashMap::new();
    let mut last: Option<u64> = None;
    let mut references: Vec<Reference> = Vec::new();
    let mut given = 0;
    let mut step = |pc, next, (references, given): (&[_], _), known: &HashMap<u64, _>| {
        let (instruction, code): &(Instruction, C) = &known[&pc];
        let is_conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
        each(Step {
            pc,
            code,
            is_taken: is_conditional && next == instruction.near_branch_target(),
            next,
            references,
            given,
        })
    };
    while let Some(found) = reader.next_chunk()? {
        code.know(reader.objects());
        for r in found.into_iter().filter(|r| r.thread == thread) {
            if r.access != EXECUTED {
                // References of an instruction that was executed before the window are left out.
                if last == Some(r.pc) {
                    references.push(r);
                    if references.len() == AT_ONCE {
                        step(r.pc, 0, (&references, given), &known)?;
                        given += references.len();
                        references.clear();
                    }
                } else if last.is_none() && known.is_empty() {
                    return Err(no_instructions().into());
                }
                continue;
            }
            if let Some(last) = last {
                step(last, r.pc, (&references, given), &known)?;
            }
            references.clear();
            given = 0;
            last = Some(r.pc);
            if let Entry::Vacant(new) = known.entry(r.pc) {
                let (instruction, bytes) = code.at(r.pc, r.size)?;
                let made = make(&instruction, &bytes);
                new.insert((instruction, made));
            }
        }
    }
    match last {
        Some(last) => step(last, 0, (&references, given), &known),
        None => {
            let reason = format!("it has no instructions of thread {thread}");
            Err(Error::new("converting a trace", reason).into())
        }
    }
}

fn no_instructions() -> Error {
    Error::new(
        "converting a trace",
        "it has references only, and the format needs instructions",
    )
    .advice("record it with `memtrace --instructions`")
}

/// The number of references that a string instruction makes in each repetition; 0 for other instructions.
pub fn repeated(instruction: &Instruction) -> usize {
    let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if !is_repeated || !instruction.is_string_instruction() {
        return 0;
    }
    (0..instruction.op_count())
        .filter(|n| instruction.op_register(*n) == iced_x86::Register::None)
        .count()
        .max(1)
}
