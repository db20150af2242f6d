//! The clocks that a log may use.

/// A clock of a log. The discriminant is its number in the compact format.
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
    /// The log does not say which.
    Unknown = 4,
}

impl Clock {
    /// The clocks that the tool can use, each with its name as an option.
    pub const NAMED: [(&str, Clock); 4] = [
        ("tsc", Clock::Tsc),
        ("monotonic", Clock::Monotonic),
        ("cpu", Clock::ThreadCpu),
        ("prof", Clock::ItimerProf),
    ];

    /// The clock with a number.
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

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tsc => "time-stamp counter",
            Self::Monotonic => "monotonic clock",
            Self::ThreadCpu => "thread's processor time",
            Self::ItimerProf => "ITIMER_PROF",
            Self::Unknown => "unknown clock",
        }
    }

    /// Ticks per second; 0 if it must be measured.
    pub fn ticks_per_second(self) -> f64 {
        match self {
            Self::Tsc => 0.0,
            Self::Monotonic | Self::ThreadCpu => 1e9,
            Self::ItimerProf | Self::Unknown => 1e6,
        }
    }

    /// True if all threads read the same value at the same time.
    pub fn is_shared(self) -> bool {
        self != Self::ThreadCpu
    }
}
