//! Recording and playing back while a program runs.
mod builder;
pub(crate) mod collected;
mod life;
mod pause;
pub(crate) mod playback;
mod recover;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod thread;

pub use builder::SessionBuilder;
pub use pause::{Mark, Saved};
pub use session::{ForkGuard, Session, Summary};
pub use thread::{Caller, ThreadRecorder};

use crate::types::Sid;
use crate::value::Area;

/// One set of callbacks of one thread.
///
/// Entering a measured section calls `enter` last, and leaving it calls `leave` first, so little but the
/// section itself is between them. They must not enter or leave sections.
pub trait Meter: Send {
    /// A kernel or profiled section has been entered.
    fn enter(&mut self, sid: Sid, data: &mut Area);
    /// The same execution is about to be left. The contents of `data` after this call are recorded.
    fn leave(&mut self, sid: Sid, data: &mut Area);
}
