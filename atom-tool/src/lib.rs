//! The library with which tools for `atom` are written.
//!
//! A tool is one `cdylib` crate with two halves. Its *instrument routine* runs
//! once, inside `atom`: it walks over the [`Program`] and adds calls. Its
//! *analysis routines*, marked with [`#[analysis]`](analysis), run inside the
//! instrumented program, on a copy of the tool that shares nothing with the
//! program or with the instrument half: what the instrument routine leaves in a
//! `static` is not there when an analysis routine runs. Whatever the analysis half must know, it
//! gets as arguments.
//!
//! ```
//! use atom_tool::prelude::*;
//!
//! #[analysis]
//! fn call(counter: Counter) {
//!     counter.increment();
//! }
//!
//! #[analysis]
//! fn report(counters: Counters, names: Strings) {
//!     for ([calls], name) in counters.rows().zip(names.iter()) {
//!         println!("{calls:12} {name}");
//!     }
//! }
//!
//! fn instrument(program: &Program, _args: &Args) -> Result {
//!     let counters = program.counters(program.procs().len());
//!     let mut names = StringList::new();
//!     for (proc, counter) in program.procs().zip(counters.rows()) {
//!         if !proc.is_opaque() {
//!             proc.add_call(Before, call, (counter,));
//!         }
//!         names.push(proc.name());
//!     }
//!     program.add_call(After, report, (counters, &names));
//!     Ok(())
//! }
//!
//! atom_tool::tool!(instrument);
//! # fn main() {}
//! ```
//!
//! A call whose number or types of arguments do not fit the routine does not compile:
//!
//! ```compile_fail,E0277
//! use atom_tool::prelude::*;
//! #[analysis]
//! fn branch(n: u64, taken: Value) { let _ = (n, taken); }
//! fn instrument(inst: Inst) {
//!     inst.add_call(Before, branch, (1, EffAddrValue, 2));
//! }
//! ```
//! ```compile_fail,E0277
//! use atom_tool::prelude::*;
//! #[analysis]
//! fn branch(n: u64, taken: Value) { let _ = (n, taken); }
//! fn instrument(inst: Inst) {
//!     inst.add_call(Before, branch, ("one", BrCondValue));
//! }
//! ```
//! ```compile_fail,E0593
//! use atom_tool::prelude::*;
//! fn not_marked(n: u64) { let _ = n; }
//! fn instrument(inst: Inst) {
//!     inst.add_call(Before, not_marked, (1,));
//! }
//! ```
//! Nor does a parameter that no call can pass:
//!
//! ```compile_fail,E0277
//! use atom_tool::prelude::*;
//! #[analysis]
//! fn routine(text: String) { drop(text); }
//! ```
#![deny(missing_docs)]

extern crate self as atom_tool;

mod calls;
mod data;
mod entry;
mod measure;
mod navigation;
mod options;
pub mod report;

pub use analysis_rt::{
    Death, SpinLock, Uninterrupted, between_routines, death, lookups_may_fault, read_memory,
};
pub use atom_abi::host::{Class, InstType, Place, ProgramInfo, Reg};
pub use atom_abi::names;
pub use atom_abi::query::{EdgeKind, InstInfo, Repeat};
pub use atom_tool_macros::analysis;
pub use calls::params::{Array, Element, Outcome, Param, Params, RegV, Str, Value};
pub use calls::proto::{NamedArg, Placed};
pub use calls::typed::{
    AccessSize, AccessSizeOf, Arg, ArgList, ArgumentOf, AsRoutine, BrCondValue, BranchTarget,
    Computed, Direction, EffAddrOf, EffAddrValue, Exported, HighHalf, ImageAddress, LoadedValue,
    LoadedValueOf, OutcomeFor, OutcomeValue, RegSum, RepCount, ReturnAddress, ReturnValue, Routine,
    StoredValue, StoredValueOf, SystemCallArgument, SystemCallNumber, SystemCallResult,
};
pub use data::counters::{
    Atomic, AtomicCounter, AtomicCounters, Counter, CounterAt, CounterTable, Counters, Own, Plain,
    PlainCounter, PlainCounters, Sharing,
};
pub use data::forks;
pub use data::marks::{Mark, MarkAt, MarkTable, Marks};
pub use data::packed;
pub use data::plain::Record;
pub use data::shared::Shared;
pub use data::sites::{LineProcs, PathNames, Site, SiteList, Sites};
pub use data::strings::{StringList, Strings};
pub use data::targets::{AllTargets, TargetAt, TargetTable, Targets, Transfer, WAYS};
pub use data::thread_data::{
    AllThreads, PerThread, ThreadBytes, ThreadCell, ThreadData, ThreadState,
};
pub use data::thread_rows::{AllThreadRows, ThreadRow, ThreadRowAt, ThreadRows};
pub use data::threads;
pub use measure::allocations::Allocator;
pub use measure::landings::Landing;
pub use measure::stack::stack_around;
pub use measure::{allocations, clocks, intervals, notes, paths, simulate, stacks};
pub use navigation::address::{Address, ObjectEvent, on_object_event};
pub use navigation::edges::Way;
pub use navigation::float::FloatOps;
pub use navigation::flow::{Edge, Frame, Loop, Loops};
pub use navigation::handle::{Block, Handles, Inst, Proc, Status};
pub use navigation::image::{DataSymbol, Variable, VariablePlace};
pub use navigation::labels::Label;
pub use navigation::object::{Object, Section};
pub use navigation::operands::{MemoryAccess, Operand, SourceFrame};
pub use navigation::program::Program;
pub use navigation::references::{References, Times, lines_of, repeated};
pub use navigation::registers::{Access, RegAccess, RegSet, RegUsage, flags};
pub use options::{Args, Options, WrongOption};
pub use report::{Cell, Files, Report, ReportFiles};
pub use report::{estimate as sampling, output};

/// The error of an instrument routine: any error, or a message made by `.into()`.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Result of an instrument routine.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// Everything that a tool commonly needs.
pub mod prelude {
    pub use crate::Place::{After, Before};
    pub use crate::{
        AccessSize, AccessSizeOf, Address, ArgumentOf, BranchTarget, Direction, EffAddrOf,
        HighHalf, ImageAddress, LoadedValue, LoadedValueOf, Outcome, OutcomeFor, OutcomeValue,
        RepCount, ReturnAddress, ReturnValue, StoredValue, StoredValueOf, SystemCallArgument,
        SystemCallNumber, SystemCallResult, Way,
    };
    pub use crate::{
        AllTargets, AllThreads, Args, Array, AtomicCounter, AtomicCounters, Block, BrCondValue,
        Cell, Class, Counter, CounterTable, Counters, Edge, EdgeKind, EffAddrValue, Files, Inst,
        InstType, Mark, MarkTable, Marks, Object, PerThread, PlainCounter, PlainCounters, Proc,
        Program, Record, Reg, RegV, Report, ReportFiles, Result, Routine, Site, SiteList, Sites,
        Status, Str, StringList, Strings, TargetTable, Targets, ThreadCell, ThreadState, Value,
        WrongOption, analysis, output, plain_data, thread_state,
    };
}

/// Items that the macros expand to; not for use by hand.
#[doc(hidden)]
pub mod private {
    pub use crate::calls::params::ParamList;
    pub use crate::calls::proto::{MARK_ROUTINE, Type};
    pub use crate::calls::typed::routine;
    pub use crate::data::thread_data::{first_copy, next_copy, thread_of_copy};
    pub use crate::entry::{Instrument, bytes, flush, header, header_with, run, start};
    pub use crate::navigation::program::{Source, set_source};
    pub use analysis_rt::Uninterrupted;
    pub use analysis_rt::{EXPORT_COUNT, EXPORTS, set_begin_hook, set_flush_hook};
    pub use atom_abi::{Export, StartInfo, StrRef, ToolHeader, host::Host};
}

/// Makes a crate a tool with this instrument routine:
/// `fn(&Program, &Args) -> Result`.
///
/// `help = TEXT` is what `atom run TOOL --help` prints: on the first line what the tool does, which `atom tools`
/// lists, then its options. [`Options`] take their defaults from it, and manual pages and completions are made of it; its form
/// is that of [`atom_abi::help`]. It is a constant, such as `include_str!("help.txt")`. `report = FILE` adds the options of
/// [`ReportFiles`](report::ReportFiles) with this default of `--output`; the help is then a literal or `include_str!`.
/// A tool with an empty text is not listed.
#[macro_export]
macro_rules! tool {
    ($instrument:path, help = $help:expr, report = $output:literal) => {
        $crate::tool!($instrument, help = concat!($help, $crate::report_options!($output)));

        /// The symbol that says that reports read options of the run.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static atom_tool_report: u8 = 1;
    };
    ($instrument:path, help = $help:expr) => {
        $crate::tool!(@header $instrument, $help);

        /// The text that `atom` shows without loading the tool.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static atom_tool_help: [u8; {
            let help: &str = $help;
            help.len()
        }] = $crate::private::bytes($help);
    };
    ($instrument:path) => {
        $crate::tool!(@header $instrument, "");
    };
    (@header $instrument:path, $help:expr) => {
        /// The symbol by which `atom` recognises a tool.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static atom_tool_header: $crate::private::ToolHeader = {
            extern "C" fn run(
                host: *const $crate::private::Host,
                count: usize,
                args: *const $crate::private::StrRef,
            ) -> i32 {
                // SAFETY: `atom` calls this with its table and its arguments.
                unsafe { $crate::private::run(atom_tool_instrument, $help, host, count, args) }
            }
            $crate::private::header(run)
        };

        /// The symbol by which a debugger finds the instrument routine.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static atom_tool_instrument: $crate::private::Instrument = $instrument;
    };
}

/// The declarations of the options of [`ReportFiles`](report::ReportFiles).
#[doc(hidden)]
#[macro_export]
macro_rules! report_options {
    ($output:literal) => {
        concat!(
            "  --output FILE    the tables for people (default: ",
            $output,
            ")\n",
            "  --json FILE      the same as JSON; alone, it replaces the tables\n",
            "  --profile FILE   where the profile is written, for `atom report`\n",
            "  --no-profile     write no profile\n",
            "  --top N          rows of each table, 0 for all (default: 100)\n",
            "  --width N        columns that a row takes at most; a file has no limit\n",
            "  --full-names     do not shorten names\n",
        )
    };
}
