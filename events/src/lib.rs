//! What can be counted around procedures, by which source and under which names.
//!
//! An event comes from one of four [`Source`]s. The processor's counters and those of the
//! kernel are read by `perf_event_open`; whether a machine has them shows only there, so
//! [`Event::probe`] asks. Exact and modelled events are counted by instrumentation and are the
//! same on every machine; for many of the others one of them is the next best ([`Event::offer`]).
//!
//! Names are the kernel's (`instructions`, `L1-dcache-load-misses`, `r1c2`), PAPI's
//! (`PAPI_TOT_INS`), and for what instrumentation counts `exact:loads` and `model:L1-misses`.
//!
//! The crate is used by the command, on the machine that instruments, and by analysis
//! routines, on the machine that runs: it needs nothing but system calls.
#![deny(missing_docs)]

mod catalogue;
mod choice;
mod papi;
pub mod perf;
mod unavailable;

pub use catalogue::{all, find};
pub use choice::{Choice, MOST, Unknown};
pub use unavailable::{Unavailable, paranoid};

/// Who counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// The processor's performance monitoring unit.
    Hardware,
    /// The kernel.
    Software,
    /// Instrumentation, exactly.
    Exact,
    /// Instrumentation, by a model of a part of the processor.
    Model,
}

impl Source {
    /// A word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::Exact => "exact",
            Self::Model => "model",
        }
    }
}

/// What instrumentation can count exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Exact {
    /// Instructions.
    Instructions,
    /// Reads of memory.
    Loads,
    /// Writes of memory.
    Stores,
    /// Bytes read and written.
    Bytes,
    /// Conditional branches.
    Branches,
    /// Those of them that are taken.
    Taken,
    /// Calls.
    Calls,
    /// Operations on floating-point numbers: four for an addition of four numbers at once.
    FloatOps,
    /// Instructions that make some.
    FloatInsts,
    /// Reads and writes of memory.
    References,
    /// Conditional branches that are not taken.
    NotTaken,
}

/// What instrumentation can count by a model.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Model {
    /// Conditional branches that a branch predictor gets wrong.
    Mispredictions,
    /// Misses of a first-level data cache.
    L1Misses,
    /// Those of them that miss in a second-level cache too.
    L2Misses,
}

/// Where `getrusage` tells the same as the kernel's counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Usage {
    /// Faults of both kinds.
    Faults,
    /// Faults without input.
    MinorFaults,
    /// Faults with input.
    MajorFaults,
    /// Switches to other threads, of both kinds.
    Switches,
    /// Processor time in nanoseconds, from the thread's processor clock.
    ProcessorTime,
}

/// How an event is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Code {
    /// By `perf_event_open` with this type and configuration; if that is refused, by the
    /// other means, if there is one.
    Perf {
        /// `type` of `struct perf_event_attr`.
        kind: u32,
        /// `config` of it.
        config: u64,
        /// What tells the same without it.
        usage: Option<Usage>,
    },
    /// By instrumentation, exactly.
    Exact(Exact),
    /// By instrumentation, by a model.
    Model(Model),
    /// The kernel has no name for it that holds on all processors.
    Nameless,
}

/// What an event can be restricted to, as `papi_native_avail` asks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Restrictions {
    /// Ranges of data (`--darr`): the tool `ranges`.
    pub data_ranges: bool,
    /// Ranges of instructions (`--iarr`).
    pub code_ranges: bool,
    /// Instructions by what they do (`--opcm`).
    pub opcodes: bool,
    /// For each event the address of the data is known (`--dear`).
    pub data_address: bool,
    /// For each event the address of the instruction is known (`--iear`).
    pub code_address: bool,
}

/// Something that can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its name.
    pub name: &'static str,
    /// Another one.
    pub alias: Option<&'static str>,
    /// What it counts, for people.
    pub what: &'static str,
    /// Who counts it.
    pub source: Source,
    /// How.
    pub code: Code,
    /// The event that comes next to it where it cannot be counted.
    pub offer: Option<&'static str>,
}

impl Event {
    /// What it can be restricted to.
    pub fn restrictions(&self) -> Restrictions {
        let touches_data = match self.code {
            Code::Perf { .. } | Code::Nameless => return Restrictions::default(),
            Code::Exact(exact) => matches!(
                exact,
                Exact::Loads | Exact::Stores | Exact::Bytes | Exact::References
            ),
            Code::Model(model) => matches!(model, Model::L1Misses | Model::L2Misses),
        };
        Restrictions {
            data_ranges: touches_data,
            code_ranges: true,
            opcodes: matches!(self.code, Code::Exact(_)),
            data_address: touches_data,
            code_address: true,
        }
    }

    /// Whether it can be counted on this machine, by this user, now.
    ///
    /// # Errors
    /// Why not, what helps, and what there is instead.
    pub fn probe(&self) -> Result<(), Unavailable> {
        match self.code {
            Code::Exact(_) | Code::Model(_) => Ok(()),
            Code::Nameless => Err(Unavailable::nameless(self)),
            Code::Perf {
                kind,
                config,
                usage,
            } => match perf::Counter::open(kind, config, None) {
                Ok(_) => Ok(()),
                Err(_) if usage.is_some() => Ok(()),
                Err(errno) => Err(Unavailable::new(self.name, errno, self.offer)),
            },
        }
    }
}
