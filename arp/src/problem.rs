//! Problems that a recorder reports while a program runs: misuse, and lost executions.
use std::fmt;

use crate::types::{SectionKind, Sid, Step, Tid, tuple};

/// Severity of a [`Problem`]. The numbers equal the C enumerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Severity {
    /// Recording is complete, but the program may be instrumented wrongly.
    Warning,
    /// Recording cannot continue.
    Fatal,
    /// An invalid call, which had no effect; recording continues.
    NonFatal,
    /// A data file violates the format.
    Syntax,
    /// A file could not be read or written.
    Io,
}

/// A misuse of the interface by the program, or an event that made executions impossible to record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// A section was left that is not open.
    LeaveWithoutEnter {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
    },
    /// A section was left while sections inside of it were open, by a function that still runs.
    WrongNesting {
        /// The calling thread.
        thread: Tid,
        /// The section that was left.
        sid: Sid,
        /// The sections that were open inside it, outermost first. They are closed and not recorded.
        open: Vec<Sid>,
    },
    /// Sections are open whose functions have ended: by `longjmp`, an exception or a missing call.
    Abandoned {
        /// The calling thread.
        thread: Tid,
        /// The sections, outermost first. They are closed and not recorded.
        open: Vec<Sid>,
    },
    /// A kernel was entered within a kernel. The inner one is not recorded.
    NestedKernel {
        /// The calling thread.
        thread: Tid,
        /// The inner kernel.
        sid: Sid,
        /// The outer kernel.
        outer: Sid,
    },
    /// A measured section was entered while it is open. The inner execution is not recorded.
    Recursion {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
    },
    /// A section was entered or left with a kind that differs from its earlier kind.
    KindDiffers {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
        /// Earlier kind.
        was: SectionKind,
        /// SectionKind of this call.
        now: SectionKind,
    },
    /// A section number above the limit given at the start.
    UnknownSection {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
        /// The limit.
        limit: Sid,
    },
    /// A thread number above the limit given at the start.
    UnknownThread {
        /// The thread.
        thread: Tid,
        /// The limit.
        limit: Tid,
        /// The section that it entered or left; `None` for other calls.
        sid: Option<Sid>,
    },
    /// More sections are open than the recorder's limit. The inner ones are not recorded.
    TooDeep {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
    },
    /// The data file has no value for this execution, so the callback gets zeros.
    NotRecorded {
        /// The calling thread.
        thread: Tid,
        /// The counter tuple that is missing.
        stack: Vec<Step>,
    },
    /// Sections were open when their thread ended or was joined.
    OpenAtEnd {
        /// The thread that ended.
        thread: Tid,
        /// The sections, outermost first. They are not recorded.
        open: Vec<Sid>,
    },
    /// The section in which a thread was spawned was left before the thread was joined.
    NotJoined {
        /// The spawned thread.
        thread: Tid,
        /// The spawning thread.
        parent: Tid,
        /// The section that was left.
        sid: Sid,
    },
    /// Threads were still running when the recording ended.
    StillRunning {
        /// Their numbers.
        threads: Vec<Tid>,
    },
    /// A spawned thread had ended and was not joined.
    NeverJoined {
        /// The thread.
        thread: Tid,
    },
    /// A thread was joined that had not been spawned, or twice.
    JoinWithoutSpawn {
        /// The thread.
        thread: Tid,
    },
    /// A thread number was given to a new thread before the thread that had it was joined.
    SpawnedTwice {
        /// The thread.
        thread: Tid,
    },
    /// One thread number is used by several threads at a time.
    SharedThread {
        /// The thread.
        thread: Tid,
        /// The section.
        sid: Sid,
    },
    /// A thread other than the first uses a number that was not announced.
    NotSpawned {
        /// The thread.
        thread: Tid,
    },
    /// A callback, or a signal handler that interrupted a call of the recorder, entered or left a section.
    Reentered {
        /// The calling thread.
        thread: Tid,
        /// The section.
        sid: Sid,
    },
    /// A call that is not valid at this time, such as one before the start.
    OutOfOrder {
        /// The function that was called.
        function: &'static str,
        /// Why the call is not valid then.
        reason: &'static str,
    },
    /// A file could not be read or written, or violates the format.
    File {
        /// [`Severity::Io`] or [`Severity::Syntax`].
        severity: Severity,
        /// The error's text.
        message: String,
    },
}

impl Problem {
    /// Its severity.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Abandoned { .. }
            | Self::OpenAtEnd { .. }
            | Self::NotJoined { .. }
            | Self::StillRunning { .. }
            | Self::NeverJoined { .. }
            | Self::NotSpawned { .. } => Severity::Warning,
            Self::OutOfOrder { .. } => Severity::Fatal,
            Self::File { severity, .. } => *severity,
            _ => Severity::NonFatal,
        }
    }

    /// The thread that it concerns; `None` if it concerns none.
    pub fn thread(&self) -> Option<Tid> {
        match self {
            Self::LeaveWithoutEnter { thread, .. }
            | Self::WrongNesting { thread, .. }
            | Self::Abandoned { thread, .. }
            | Self::NestedKernel { thread, .. }
            | Self::Recursion { thread, .. }
            | Self::KindDiffers { thread, .. }
            | Self::UnknownSection { thread, .. }
            | Self::UnknownThread { thread, .. }
            | Self::TooDeep { thread, .. }
            | Self::NotRecorded { thread, .. }
            | Self::OpenAtEnd { thread, .. }
            | Self::NotJoined { thread, .. }
            | Self::JoinWithoutSpawn { thread }
            | Self::SpawnedTwice { thread }
            | Self::SharedThread { thread, .. }
            | Self::NotSpawned { thread }
            | Self::NeverJoined { thread }
            | Self::Reentered { thread, .. } => Some(*thread),
            Self::StillRunning { .. } | Self::OutOfOrder { .. } | Self::File { .. } => None,
        }
    }

    /// Number of its sort, by which a handler can limit repeated problems.
    pub fn sort(&self) -> usize {
        match self {
            Self::LeaveWithoutEnter { .. } => 0,
            Self::WrongNesting { .. } => 1,
            Self::Abandoned { .. } => 2,
            Self::NestedKernel { .. } => 3,
            Self::Recursion { .. } => 4,
            Self::KindDiffers { .. } => 5,
            Self::UnknownSection { .. } => 6,
            Self::UnknownThread { .. } => 7,
            Self::TooDeep { .. } => 8,
            Self::NotRecorded { .. } => 9,
            Self::OpenAtEnd { .. } => 10,
            Self::NotJoined { .. } => 11,
            Self::StillRunning { .. } => 12,
            Self::JoinWithoutSpawn { .. } => 13,
            Self::SpawnedTwice { .. } => 14,
            Self::SharedThread { .. } => 15,
            Self::NotSpawned { .. } => 16,
            Self::Reentered { .. } => 17,
            Self::OutOfOrder { .. } => 18,
            Self::File { .. } => 19,
            Self::NeverJoined { .. } => 20,
        }
    }

    /// Number of sorts: one more than the largest [`sort`](Self::sort).
    pub(crate) const SORTS: usize = 21;
}

struct List<'a, T>(&'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, item) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{item}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(thread) = self.thread() {
            write!(f, "thread {thread}: ")?;
        }
        match self {
            Self::LeaveWithoutEnter { sid, .. } => {
                write!(f, "section {sid} is left, but it is not open")
            }
            Self::WrongNesting { sid, open, .. } => write!(
                f,
                "section {sid} is left while {} inside of it are open; those are not recorded",
                List(open)
            ),
            Self::Abandoned { open, .. } => write!(
                f,
                "sections {} were never left (a longjmp, or a missing call); they are closed and not recorded",
                List(open)
            ),
            Self::NestedKernel { sid, outer, .. } => write!(
                f,
                "kernel {sid} is entered within kernel {outer}; the inner one is not recorded"
            ),
            Self::Recursion { sid, .. } => write!(
                f,
                "section {sid} is entered while it is open; the inner execution is not recorded"
            ),
            Self::KindDiffers { sid, was, now, .. } => {
                write!(
                    f,
                    "section {sid} was {was} before and is {now} now; not recorded"
                )
            }
            Self::UnknownSection { sid, limit, .. } => {
                write!(
                    f,
                    "section {sid} is above the highest section number, {limit}"
                )
            }
            Self::UnknownThread { limit, sid, .. } => {
                write!(f, "its number is above the highest thread number, {limit}")?;
                match sid {
                    Some(sid) => write!(f, "; section {sid} is not recorded"),
                    None => Ok(()),
                }
            }
            Self::TooDeep { sid, .. } => {
                write!(
                    f,
                    "too many open sections at section {sid}; it is not recorded"
                )
            }
            Self::NotRecorded { stack, .. } => {
                write!(f, "the data file has no value for {}", tuple(stack))
            }
            Self::OpenAtEnd { open, .. } => {
                write!(
                    f,
                    "ended with sections {} open; they are not recorded",
                    List(open)
                )
            }
            Self::NotJoined { parent, sid, .. } => write!(
                f,
                "not joined when thread {parent} left section {sid}, in which it was spawned"
            ),
            Self::StillRunning { threads } => write!(
                f,
                "there still are {} other thread(s): {}; what they do from now on is not recorded",
                threads.len(),
                List(threads)
            ),
            Self::NeverJoined { .. } => f.write_str("was not joined before the end"),
            Self::JoinWithoutSpawn { .. } => f.write_str("joined, but it was not spawned"),
            Self::SpawnedTwice { .. } => {
                f.write_str("spawned again before the last thread with this number was joined")
            }
            Self::SharedThread { sid, .. } => write!(
                f,
                "section {sid} is entered or left by a thread that does not own this number; not recorded"
            ),
            Self::NotSpawned { .. } => {
                f.write_str("uses a number that was not announced as spawned")
            }
            Self::Reentered { sid, .. } => write!(
                f,
                "section {sid} is entered or left from within a callback or a signal handler; not recorded"
            ),
            Self::OutOfOrder { function, reason } => write!(f, "{function}: {reason}"),
            Self::File { message, .. } => f.write_str(message),
        }
    }
}
