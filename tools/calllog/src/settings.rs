//! The user's choices, from the command line into the program.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use atom_tool::clocks::{self, ProfTimer};
use atom_tool::{Options, Program, Result, Sites, StringList, Strings, WrongOption, plain_data};
use call_log::clock::Clock;

plain_data! {
    /// The settings as they cross to the analysis half. Texts are keys of a list of strings.
    pub struct SettingsData {
        /// See [`Settings`].
        memory: u64,
        /// Key of a text.
        file: u32,
        /// Key of a text.
        indat: u32,
        /// Key of a text.
        program: u32,
        /// A [`Clock`] as a number.
        clock: u32,
        is_exercise: bool,
        _unused: [u8; 7],
    }
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub file: String,
    /// File for a description for `atom analyze`; empty for none.
    pub indat: String,
    pub clock: Clock,
    pub is_exercise: bool,
    /// Number of bytes of the log that are kept in memory before they are written to the file.
    pub memory: u64,
    pub program: String,
}

impl Settings {
    pub fn from_options(options: &Options<'_>, program: &Program<'_>) -> Result<Self> {
        let is_exercise = options.choice("--format", &[("compact", false), ("exercise", true)])?;
        let clock = options.value("--clock")?;
        let clock = match (clock, is_exercise) {
            (None, false) => Clock::Tsc,
            (None, true) => Clock::ItimerProf,
            (Some(word), _) => {
                Clock::NAMED
                    .iter()
                    .find(|(name, _)| *name == word)
                    .ok_or_else(|| {
                        let words: Vec<_> = Clock::NAMED.iter().map(|(name, _)| *name).collect();
                        let words = words.join("|");
                        WrongOption::new(format!("the option --clock takes {words}, not `{word}`"))
                    })?
                    .1
            }
        };
        let file = options.value("--output")?;
        let default = if is_exercise {
            "timing.dat"
        } else {
            "calllog.out"
        };
        let stream = options.flag("--stream");
        let memory = options.size("--memory")?;
        Ok(Self {
            file: file.unwrap_or(default).to_owned(),
            indat: options.value("--indat")?.unwrap_or("").to_owned(),
            clock,
            is_exercise,
            memory: if stream { 0 } else { memory },
            program: program.name().to_owned(),
        })
    }

    /// The settings as an argument. Their texts are added to the list.
    pub fn to_data(&self, texts: &mut StringList) -> SettingsData {
        SettingsData {
            memory: self.memory,
            file: texts.push(&self.file),
            indat: texts.push(&self.indat),
            program: texts.push(&self.program),
            clock: self.clock as u32,
            is_exercise: self.is_exercise,
            _unused: [0; 7],
        }
    }

    fn from_data(data: &SettingsData, texts: Strings) -> Self {
        let clock = u8::try_from(data.clock).ok().and_then(Clock::from_number);
        Self {
            file: texts.get(data.file).to_owned(),
            indat: texts.get(data.indat).to_owned(),
            clock: clock.unwrap_or(Clock::Unknown),
            is_exercise: data.is_exercise,
            memory: data.memory,
            program: texts.get(data.program).to_owned(),
        }
    }
}

/// Values that do not change during the run.
pub struct Run {
    pub settings: Settings,
    pub procs: Sites,
    /// The log's clock, and the monotonic clock in nanoseconds, both at the program's start.
    pub start: (u64, u64),
    /// Id of the first process.
    pub pid: u32,
    /// A profile is written.
    pub has_profile: bool,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Microseconds from which the timer of `Clock::ItimerProf` counts downwards.
static TIMER: AtomicU64 = AtomicU64::new(0);

pub fn begin(data: &SettingsData, texts: Strings, procs: Sites, has_profile: bool) {
    let settings = Settings::from_data(data, texts);
    if settings.clock == Clock::ItimerProf {
        start_timer();
    }
    let start = now(settings.clock);
    let pid = std::process::id();
    let _ = RUN.set(Run {
        settings,
        procs,
        start,
        pid,
        has_profile,
    });
}

/// The values of the run; `None` in code that runs before the program's start.
pub fn run() -> Option<&'static Run> {
    RUN.get()
}

/// The log's clock, and the monotonic clock in nanoseconds, both now.
pub fn now(clock: Clock) -> (u64, u64) {
    (read(clock as u32), clocks::monotonic())
}

fn start_timer() {
    if !ProfTimer::start() && ProfTimer::left() == 0 {
        eprintln!("calllog: the kernel refuses the timer ITIMER_PROF: all clock values will be 0");
    }
    // The largest possible value, in case the program sets the timer.
    TIMER.store(ProfTimer::SECONDS as u64 * 1_000_000, Ordering::Relaxed);
}

/// The value of a clock, given as a number. All clocks count upwards here.
pub fn read(clock: u32) -> u64 {
    match clock {
        c if c == Clock::Tsc as u32 => clocks::time_stamp(),
        c if c == Clock::Monotonic as u32 => clocks::monotonic(),
        c if c == Clock::ThreadCpu as u32 => clocks::thread_cpu(),
        _ => TIMER
            .load(Ordering::Relaxed)
            .saturating_sub(ProfTimer::left()),
    }
}

/// Prepares the clock in a forked child, before its first event.
pub fn in_child(run: &Run) {
    // A child does not inherit the timer.
    if run.settings.clock == Clock::ItimerProf {
        start_timer();
    }
}

impl Run {
    /// The clock's value from which records count.
    pub fn origin(&self) -> u64 {
        match self.settings.clock {
            Clock::Tsc | Clock::Monotonic => self.start.0,
            _ => 0,
        }
    }

    /// Ticks of the clock in a second. The first call decides the value, so all records use the same.
    pub fn rate_of_records(&self) -> f64 {
        static RATE: OnceLock<f64> = OnceLock::new();
        *RATE.get_or_init(|| self.exact_ticks_per_second())
    }

    /// Ticks of the clock in a second, as accurate as the time since the program's start allows.
    pub fn ticks_per_second(&self) -> f64 {
        let known = self.settings.clock.ticks_per_second();
        if known != 0.0 {
            return known;
        }
        let (clock, nanos) = now(self.settings.clock);
        let passed = nanos.saturating_sub(self.start.1).max(1);
        clock.saturating_sub(self.start.0) as f64 * 1e9 / passed as f64
    }

    /// Ticks of the clock in a second, exact to a few millionths. It waits if the run has been too short for that.
    fn exact_ticks_per_second(&self) -> f64 {
        const ENOUGH: u64 = 20_000_000;
        if self.settings.clock.ticks_per_second() == 0.0 {
            while clocks::monotonic() < self.start.1 + ENOUGH {
                std::hint::spin_loop();
            }
        }
        self.ticks_per_second()
    }
}
