//! What a caller learns of instrumenting while it runs.

use std::convert::Infallible;

use crate::analysis::AnalysisImage;
use crate::cfg::Object;
use crate::check::Checked;
use crate::emit::Output;
use crate::emit::debug::DebugSection;
use crate::error::{Error, Result};
use crate::layout::Placed;
use crate::live::Live;
use crate::plan::Plan;
use crate::rewrite::Code;
use crate::tool::{Calls, Tool};
use crate::unwind::UnwindTable;

/// A step of instrumenting. The order is that in which they run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Reading the exception tables.
    Unwind,
    /// Loading the tool.
    Load,
    /// Finding procedures, blocks and instructions.
    Cfg,
    /// Running the instrument routine.
    Tool,
    /// Reading the tool's code, which began with [`Stage::Load`].
    Analysis,
    /// Computing liveness, which began with [`Stage::Tool`].
    Live,
    /// Turning calls into code.
    Plan,
    /// Choosing addresses.
    Layout,
    /// Preparing the new text, and the pads.
    Rewrite,
    /// Converting debug information.
    Debug,
    /// Putting the outputs together.
    Emit,
    /// Comparing the outputs with the originals.
    Check,
}

/// The value that a stage has made: for each object where there are several.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    /// See [`Stage::Unwind`].
    Unwind(&'a [UnwindTable<'a>]),
    /// See [`Stage::Load`].
    Load(&'a Tool),
    /// See [`Stage::Cfg`].
    Cfg(&'a [Object<'a>]),
    /// See [`Stage::Tool`].
    Tool(&'a Calls),
    /// See [`Stage::Analysis`].
    Analysis(&'a AnalysisImage),
    /// See [`Stage::Live`].
    Live(&'a [Live<'a>]),
    /// See [`Stage::Plan`].
    Plan(&'a [Plan]),
    /// See [`Stage::Layout`].
    Layout(&'a [Placed<'a>]),
    /// See [`Stage::Rewrite`].
    Rewrite(&'a [Code<'a>]),
    /// See [`Stage::Debug`].
    Debug(&'a [Vec<DebugSection>]),
    /// See [`Stage::Emit`].
    Emit(&'a [Output<'a>]),
    /// See [`Stage::Check`].
    Check(Checked),
}

/// A caller that wants to know. `()` does not.
pub trait Progress {
    /// A stage begins.
    fn begin(&mut self, _: Stage) {}

    /// The stage that began last is done. A stage that fails has no end.
    fn end(&mut self, _: Found<'_>) {}

    /// Something worth knowing that is no error.
    fn note(&mut self, _: &str) {}

    /// The tool's instrument routine has panicked. The process must end, as the tool has a standard library of its own,
    /// through which no unwinding goes.
    fn tool_panicked(&self, _: &Error) -> Infallible {
        std::process::abort()
    }
}

impl Progress for () {}

/// Runs a stage.
pub(super) fn run<T>(
    progress: &mut (impl Progress + ?Sized),
    stage: Stage,
    work: impl FnOnce() -> Result<T>,
    found: impl FnOnce(&T) -> Found<'_>,
) -> Result<T> {
    progress.begin(stage);
    let value = work()?;
    progress.end(found(&value));
    Ok(value)
}
