//! A thread's predictors of conditional branches and of jumps through pointers, and what they got wrong.

use std::sync::OnceLock;

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::{AllThreads, PerThread, Uninterrupted};

use crate::direction::{Gshare, TwoBit, key};
use crate::tage::Tage;
use crate::target::Targets;
use crate::{JUMP, NOTE, TAKEN};

/// Size of a thread's buffer of notes in bytes. The space that is kept free for signal handlers comes in addition.
const SIZE: usize = (4 << 10) * NOTE as usize + crate::SPARE as usize;

/// Number of models for conditional branches.
pub const MODELS: usize = 3;
/// Places of the models.
pub const TWO_BIT: usize = 0;
pub const GSHARE: usize = 1;
pub const TAGE: usize = 2;

/// What stays the same during a run.
pub struct Run {
    /// Keys of conditional branches.
    pub branches: Vec<u32>,
    /// Keys of jumps and calls through pointers.
    pub jumps: Vec<u32>,
    /// Bit set of the models that are simulated.
    pub models: u32,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Prepares the simulation at the program's start.
pub fn begin(branches: &[u64], jumps: &[u64], models: u32) {
    let keys = |all: &[u64]| all.iter().map(|pc| key(*pc)).collect();
    // ProgramBefore comes once.
    let _ = RUN.set(Run {
        branches: keys(branches),
        jumps: keys(jumps),
        models,
    });
}

/// Counts of a conditional branch.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct BranchCounts {
    pub executed: u64,
    pub taken: u64,
    /// Wrong predictions of each model.
    pub wrong: [u64; MODELS],
}

/// Counts of a jump or call through a pointer.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct JumpCounts {
    pub executed: u64,
    /// Wrong predictions of the branch target buffer.
    pub buffer: u64,
    /// Wrong predictions of the table by path.
    pub path: u64,
}

/// Counts by number of the branch, and of the jump.
#[derive(Default)]
pub struct Counts {
    pub branches: Vec<BranchCounts>,
    pub jumps: Vec<JumpCounts>,
}

impl Counts {
    fn new(run: &Run) -> Self {
        Self {
            branches: vec![BranchCounts::default(); run.branches.len()],
            jumps: vec![JumpCounts::default(); run.jumps.len()],
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, more) in self.branches.iter_mut().zip(&other.branches) {
            sum.executed += more.executed;
            sum.taken += more.taken;
            for (sum, more) in sum.wrong.iter_mut().zip(more.wrong) {
                *sum += more;
            }
        }
        for (sum, more) in self.jumps.iter_mut().zip(&other.jumps) {
            sum.executed += more.executed;
            sum.buffer += more.buffer;
            sum.path += more.path;
        }
    }
}

/// State of a thread that is kept from one buffer of notes to the next.
struct State {
    run: &'static Run,
    two_bit: TwoBit,
    gshare: Gshare,
    tage: Tage,
    targets: Targets,
    counts: Counts,
    /// The conditional branches of a buffer: number, and in the lowest bit whether it was taken.
    batch: Vec<u32>,
    /// For each of them the bit set of the models that were wrong.
    wrong: Vec<u8>,
}

impl State {
    fn new(run: &'static Run) -> Self {
        Self {
            run,
            two_bit: TwoBit::new(),
            gshare: Gshare::new(),
            tage: Tage::new(),
            targets: Targets::new(),
            counts: Counts::new(run),
            batch: Vec::new(),
            wrong: Vec::new(),
        }
    }

    /// Simulates all models. Each goes over all of the branches by itself, which keeps its state in registers; jumps
    /// through pointers and conditional branches do not depend on each other.
    fn simulate(&mut self, mut noted: Taken<1>) {
        self.batch.clear();
        while let Some([word]) = noted.next() {
            let (kind, number) = (notes::kind(word), notes::number(word) as usize);
            if kind == JUMP {
                self.jump(number, noted.next());
            } else if word != 0 && number < self.run.branches.len() {
                self.batch
                    .push(notes::number(word) << 1 | u32::from(kind == TAKEN));
            }
        }
        self.wrong.clear();
        self.wrong.resize(self.batch.len(), 0);
        let (keys, wrong) = (&self.run.branches[..], &mut self.wrong[..]);
        let branches = || {
            let branches = self.batch.iter();
            branches.map(|word| (keys[(word >> 1) as usize], word & 1 != 0))
        };
        let is_simulated = |model: usize| self.run.models >> model & 1 != 0;
        if is_simulated(TWO_BIT) {
            self.two_bit.run(branches(), wrong, TWO_BIT);
        }
        if is_simulated(GSHARE) {
            self.gshare.run(branches(), wrong, GSHARE);
        }
        if is_simulated(TAGE) {
            self.tage.run(branches(), |number, is_wrong| {
                wrong[number] |= u8::from(is_wrong) << TAGE;
            });
        }
        let all = &mut self.counts.branches[..];
        for (word, wrong) in self.batch.iter().zip(&self.wrong) {
            let counts = &mut all[(word >> 1) as usize];
            counts.executed += 1;
            counts.taken += u64::from(word & 1);
            if *wrong != 0 {
                for (model, count) in counts.wrong.iter_mut().enumerate() {
                    *count += u64::from(wrong >> model & 1);
                }
            }
        }
    }

    /// Simulates a jump or call through a pointer, whose target is the second word of its note.
    #[inline(never)]
    fn jump(&mut self, number: usize, target: Option<[u64; 1]>) {
        let Some([target]) = target.filter(|[word]| *word != 0) else {
            return;
        };
        let (Some(key), Some(counts)) = (
            self.run.jumps.get(number),
            self.counts.jumps.get_mut(number),
        ) else {
            return;
        };
        let wrong = self.targets.are_wrong(*key, target);
        counts.executed += 1;
        counts.buffer += u64::from(wrong.buffer);
        counts.path += u64::from(wrong.path);
    }
}

impl Consume<1> for State {
    fn take(&mut self, notes: Taken<1>) {
        self.simulate(notes);
    }

    fn take_inherited(&mut self, notes: Taken<1>) {
        // The predictors learn what the parent did before the fork; the parent counts it.
        self.take(notes);
        self.counts = Counts::new(self.run);
    }
}

/// Makes room for notes: a thread's buffer is full, or it has none. Signals must be blocked.
pub fn make_room(buffer: PerThread<NoteBuffer>, _signals_wait: &Uninterrupted) -> bool {
    // Code that runs before the program's start is not simulated.
    let Some(run) = RUN.get() else { return false };
    notes::make_room(buffer, SIZE, || State::new(run))
}

/// The counts of all threads, and the bit set of the models.
pub fn end(all: AllThreads<NoteBuffer>) -> Option<(Counts, u32)> {
    let run = RUN.get()?;
    let mut counts = Counts::new(run);
    notes::at_end(all, |state: &mut State| counts.add(&state.counts));
    Some((counts, run.models))
}
