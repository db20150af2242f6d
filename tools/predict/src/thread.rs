//! A thread's predictors of conditional branches and of jumps through pointers, and what they got wrong.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use atom_tool::notes::{self, Consume, NoteBuffer, Taken};
use atom_tool::{AllThreads, Array, PerThread, Uninterrupted};

use crate::direction::{Gshare, TwoBit, key};
use crate::tage::Tage;
use crate::target::Targets;
use crate::{JUMP, NOTE, TAKEN};

/// Size of a thread's buffer of notes in bytes. The space that is kept free for signal handlers comes in addition.
const SIZE: usize = (4 << 10) * NOTE as usize + notes::SLACK as usize;

/// Number of models for conditional branches.
pub const MODELS: usize = 3;
/// Places of the models.
pub const TWO_BIT: usize = 0;
pub const GSHARE: usize = 1;
pub const TAGE: usize = 2;

/// What stays the same during a run, but for tables that become longer when a library is added.
pub struct Run {
    /// Addresses of conditional branches.
    pub branches: Array<u64>,
    /// Addresses of jumps and calls through pointers.
    pub jumps: Array<u64>,
    /// Bit set of the models that are simulated.
    pub models: u32,
}

// SAFETY: all of it is data that never changes, or that is replaced as a whole.
unsafe impl Send for Run {}
// SAFETY: as above.
unsafe impl Sync for Run {}

static RUN: OnceLock<Run> = OnceLock::new();

/// Prepares the simulation at the program's start.
pub fn begin(branches: Array<u64>, jumps: Array<u64>, models: u32) {
    // ProgramBefore comes once.
    let _ = RUN.set(Run {
        branches,
        jumps,
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
        let mut counts = Self::default();
        counts.grow(run);
        counts
    }

    /// Makes room for the branches and jumps of a library that was added.
    fn grow(&mut self, run: &Run) {
        let (branches, jumps) = (run.branches.len(), run.jumps.len());
        self.branches.resize(branches, BranchCounts::default());
        self.jumps.resize(jumps, JumpCounts::default());
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

/// A conditional branch while its thread runs. All that a branch needs is together. The counts go to [`Counts`] before
/// they can overflow.
#[derive(Clone, Copy)]
struct Branch {
    /// How often it was executed, and from bit [`TAKEN_SHIFT`] on how often it was taken.
    executed: u64,
    /// Wrong predictions of each model.
    wrong: [u32; MODELS],
    key: u32,
}

const TAKEN_SHIFT: u32 = 32;
/// Number of branches after which no count of one has overflowed.
const MOST_COUNTED: usize = 1 << 31;

impl Branch {
    fn new(key: u32) -> Self {
        Self {
            executed: 0,
            wrong: [0; MODELS],
            key,
        }
    }

    /// Adds the counts to sums, and sets them to 0.
    fn take_counts(&mut self, sum: &mut BranchCounts) {
        sum.executed += self.executed & ((1 << TAKEN_SHIFT) - 1);
        sum.taken += self.executed >> TAKEN_SHIFT;
        for (sum, more) in sum.wrong.iter_mut().zip(self.wrong) {
            *sum += u64::from(more);
        }
        (self.executed, self.wrong) = (0, [0; MODELS]);
    }
}

/// State of a thread that is kept from one buffer of notes to the next.
struct State {
    run: &'static Run,
    two_bit: TwoBit,
    gshare: Gshare,
    tage: Tage,
    targets: Targets,
    branches: Vec<Branch>,
    /// Keys of jumps and calls through pointers.
    jumps: Vec<u32>,
    /// How many branches `branches` has counted.
    counted: usize,
    counts: Counts,
    /// The conditional branches of a buffer for TAGE: number, and in the lowest bit whether it was taken.
    batch: Vec<u32>,
}

impl State {
    fn new(run: &'static Run) -> Self {
        let mut state = Self {
            run,
            two_bit: TwoBit::new(),
            gshare: Gshare::new(),
            tage: Tage::new(),
            targets: Targets::new(),
            branches: Vec::new(),
            jumps: Vec::new(),
            counted: 0,
            counts: Counts::default(),
            batch: Vec::new(),
        };
        state.grow();
        state
    }

    /// Takes the branches and jumps that are not known yet: all at first, then those of libraries that were added.
    fn grow(&mut self) {
        let run = self.run;
        let (branches, jumps) = (run.branches.as_slice(), run.jumps.as_slice());
        if (branches.len(), jumps.len()) == (self.branches.len(), self.jumps.len()) {
            return;
        }
        let new = branches.iter().skip(self.branches.len());
        self.branches.extend(new.map(|pc| Branch::new(key(*pc))));
        let new = jumps.iter().skip(self.jumps.len());
        self.jumps.extend(new.map(|pc| key(*pc)));
        self.counts.grow(run);
    }

    /// The counts so far.
    fn counts(&mut self) -> &mut Counts {
        self.counted = 0;
        let sums = self.counts.branches.iter_mut();
        self.branches
            .iter_mut()
            .zip(sums)
            .for_each(|(branch, sum)| branch.take_counts(sum));
        &mut self.counts
    }

    /// Simulates all models. TAGE goes over the branches by itself, which keeps its state in registers; jumps
    /// through pointers and conditional branches do not depend on each other.
    fn simulate(&mut self, noted: Taken<1>) {
        self.grow();
        let len = noted.words().len();
        if self.counted + len > MOST_COUNTED {
            self.counts();
        }
        self.counted += len;
        match self.run.models {
            1 => self.read::<1>(noted),
            2 => self.read::<2>(noted),
            3 => self.read::<3>(noted),
            4 => self.read::<4>(noted),
            5 => self.read::<5>(noted),
            6 => self.read::<6>(noted),
            _ => self.read::<7>(noted),
        }
        if self.run.models >> TAGE & 1 != 0 {
            let branches = &mut self.branches[..];
            self.tage.run(&self.batch, |number, history, tage, taken| {
                let branch = &mut branches[number];
                let is_wrong = tage.is_wrong(history, branch.key, taken);
                branch.wrong[TAGE] += u32::from(is_wrong);
            });
        }
    }

    /// Reads the notes, and simulates what is simple. `MODELS` is the bit set of the models.
    #[inline(never)]
    fn read<const MODELS: u32>(&mut self, noted: Taken<1>) {
        self.batch.clear();
        let mut history = self.gshare.history;
        let mut words = noted.words().iter().map(|word| word.load(Relaxed));
        while let Some(word) = words.next() {
            let (kind, number) = (notes::kind(word), notes::number(word));
            if kind == JUMP {
                self.jump(number as usize, words.next());
                continue;
            }
            let Some(branch) = self.branches.get_mut(number as usize) else {
                continue;
            };
            if word == 0 {
                continue;
            }
            let taken = kind == TAKEN;
            branch.executed += 1 | u64::from(taken) << TAKEN_SHIFT;
            if MODELS >> TWO_BIT & 1 != 0 {
                let is_wrong = self.two_bit.is_wrong(branch.key, taken);
                branch.wrong[TWO_BIT] += u32::from(is_wrong);
            }
            if MODELS >> GSHARE & 1 != 0 {
                let is_wrong = self.gshare.is_wrong(&mut history, branch.key, taken);
                branch.wrong[GSHARE] += u32::from(is_wrong);
            }
            if MODELS >> TAGE & 1 != 0 {
                self.batch.push(number << 1 | u32::from(taken));
            }
        }
        self.gshare.history = history;
        noted.clear();
    }

    /// Simulates a jump or call through a pointer, whose target is the second word of its note.
    #[inline(never)]
    fn jump(&mut self, number: usize, target: Option<u64>) {
        let Some(target) = target.filter(|word| *word != 0) else {
            return;
        };
        let known = self
            .jumps
            .get(number)
            .zip(self.counts.jumps.get_mut(number));
        let Some((key, counts)) = known else {
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
        self.counts();
        self.counts = Counts::new(self.run);
    }
}

/// Makes room for notes: a thread's buffer is full, or it has none. Signals must be blocked.
pub fn make_room(buffer: PerThread<NoteBuffer>, _signals_wait: &Uninterrupted) -> bool {
    // Code that runs before the program's start is not simulated.
    let Some(run) = RUN.get() else { return false };
    notes::make_room(buffer, SIZE, None, || State::new(run))
}

/// The counts of all threads, and the bit set of the models.
pub fn end(all: AllThreads<NoteBuffer>) -> Option<(Counts, u32)> {
    let run = RUN.get()?;
    let mut counts = Counts::new(run);
    notes::at_end(all, |state: &mut State| counts.add(state.counts()));
    Some((counts, run.models))
}
