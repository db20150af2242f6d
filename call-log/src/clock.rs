//! The clocks that a log can be made with.

/// A clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Clock {
    /// The processor's time-stamp counter.
    Tsc = 0,
    /// `CLOCK_MONOTONIC`.
    Monotonic = 1,
    /// `CLOCK_THREAD_CPUTIME_ID`: time for which the thread has run.
    ThreadCpu = 2,
    /// `ITIMER_PROF`: processor time of the process, which counts downwards.
    ItimerProf = 3,
    /// Not told by the log.
    Unknown = 4,
}

impl Clock {
    /// Those that a log can be made with, with the words of options.
    pub const NAMED: [(&str, Clock); 4] = [
        ("tsc", Clock::Tsc),
        ("monotonic", Clock::Monotonic),
        ("cpu", Clock::ThreadCpu),
        ("prof", Clock::ItimerProf),
    ];

    /// The clock of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        [
            Self::Tsc,
            Self::Monotonic,
            Self::ThreadCpu,
            Self::ItimerProf,
            Self::Unknown,
        ]
        .get(usize::from(number))
        .copied()
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsc => "time-stamp counter",
            Self::Monotonic => "monotonic clock",
            Self::ThreadCpu => "thread's processor time",
            Self::ItimerProf => "ITIMER_PROF",
            Self::Unknown => "unknown clock",
        }
    }

    /// Ticks in a second; 0 if only measuring tells.
    pub fn ticks_per_second(self) -> f64 {
        match self {
            Self::Tsc => 0.0,
            Self::Monotonic | Self::ThreadCpu => 1e9,
            Self::ItimerProf | Self::Unknown => 1e6,
        }
    }

    /// True if all threads read the same value at one time.
    pub fn is_shared(self) -> bool {
        self != Self::ThreadCpu
    }
}
