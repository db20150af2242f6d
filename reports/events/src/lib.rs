//! What can be counted around procedures, by which source and under which names.
//!
//! An event comes from one of four [`Source`]s. `perf_event_open` reads the processor's and the
//! kernel's counters. Only the machine itself knows which of them it has, so
//! [`Event::probe`] asks. Instrumentation counts exact and modelled events, which are the
//! same on every machine. Many other events have one of them as a substitute ([`Event::offer`]).
//!
//! Names are the kernel's (`instructions`, `L1-dcache-load-misses`, `r1c2`), PAPI's
//! (`PAPI_TOT_INS`), and for what instrumentation counts `exact:loads` and `model:L1-misses`.
//!
//! The command uses the crate on the machine that instruments, and analysis
//! routines use it on the machine that runs the program. So it needs nothing but system calls.
#![deny(missing_docs)]

mod catalogue;
mod choice;
mod papi;
pub mod perf;
mod unavailable;

pub use catalogue::{all, find};
pub use choice::{Choice, MOST, Unknown};
pub use unavailable::{Unavailable, paranoid};

/// What counts an event.
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
    /// Name of the source in reports.
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
    /// Conditional branches that are taken.
    Taken,
    /// Calls.
    Calls,
    /// Operations on floating-point numbers: four for an addition of four numbers at once.
    FloatOps,
    /// Instructions that compute with floating-point numbers.
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
    /// Misses of a second-level cache, which the first-level misses refer to.
    L2Misses,
}

/// Figure of `getrusage` (or of a clock) that equals a counter of the kernel.
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
    /// By `perf_event_open` with this type and configuration. If the kernel refuses that, by
    /// `usage`, if there is one.
    Perf {
        /// `type` of `struct perf_event_attr`.
        kind: u32,
        /// `config` of `struct perf_event_attr`.
        config: u64,
        /// The figure that equals the counter.
        usage: Option<Usage>,
    },
    /// By instrumentation, exactly.
    Exact(Exact),
    /// By instrumentation, by a model.
    Model(Model),
    /// Not at all: the kernel has no generic event for it.
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
    /// True if the address of the data is known for each occurrence (`--dear`).
    pub data_address: bool,
    /// True if the address of the instruction is known for each occurrence (`--iear`).
    pub code_address: bool,
}

/// Something that can be counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Name by which users choose it.
    pub name: &'static str,
    /// A second name.
    pub alias: Option<&'static str>,
    /// Description in a few words.
    pub what: &'static str,
    /// What counts it.
    pub source: Source,
    /// How it is counted.
    pub code: Code,
    /// Name of the event that is the best substitute where this one cannot be counted.
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

    /// Asks whether this user can count the event on this machine now.
    ///
    /// # Errors
    /// Says why not, what helps, and which event to count instead.
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
