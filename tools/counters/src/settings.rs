//! The user's settings, and their way from the command line into the program.

use std::path::Path;
use std::sync::OnceLock;

use atom_tool::{Options, Program, Result, Sites, StringList, Strings, clocks, plain_data};
use events::{Choice, Code, Exact, Model, Unavailable};

use crate::energy::{self, Energy};

/// An event of the set.
#[derive(Clone, Debug)]
pub struct Slot {
    pub choice: Choice,
    /// Its cell, if instrumentation counts it.
    pub cell: Option<usize>,
}

impl Slot {
    /// The exact event, if it is one.
    pub fn exact(&self) -> Option<Exact> {
        match self.choice.event.code {
            Code::Exact(exact) => Some(exact),
            _ => None,
        }
    }

    /// The modelled event, if it is one.
    pub fn model(&self) -> Option<Model> {
        match self.choice.event.code {
            Code::Model(model) => Some(model),
            _ => None,
        }
    }
}

plain_data! {
    /// The settings as they cross to the analysis: keys of texts.
    pub struct SettingsKeys {
        /// The set of events, in the words of the option `--events`.
        events: u32,
        csv: u32,
        energy: u32,
        program: u32,
    }
}

/// The settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub slots: Vec<Slot>,
    /// The folder for rows; may be empty.
    pub csv: String,
    /// The text of the file of coefficients; may be empty.
    energy: String,
    pub program: String,
}

impl Settings {
    pub fn from_options(options: &Options<'_>, program: &Program<'_>) -> Result<Self> {
        let set = Choice::parse_set(options.value("--events")?.unwrap_or(""))?;
        let energy = match options.value("--energy")? {
            None => String::new(),
            Some(file) => {
                let text = std::fs::read_to_string(Path::new(file))
                    .map_err(|e| format!("cannot read the coefficients {file}: {e}"))?;
                let names: Vec<&str> = set.iter().map(|c| c.name.as_str()).collect();
                Energy::parse(&text, &names).map_err(|e| format!("{file}: {e}"))?;
                text
            }
        };
        let slot = |choice| Slot { choice, cell: None };
        Ok(Self {
            slots: set.into_iter().map(slot).collect(),
            csv: options.value("--csv")?.unwrap_or("").to_owned(),
            energy,
            program: program.name().to_owned(),
        })
    }

    /// Gives each event of instrumentation a cell; how many there are. The two caches are
    /// neighbours in one row, for they are counted by one routine.
    pub fn place_cells(&mut self) -> usize {
        let mut next = 0;
        let is_cache =
            |slot: &Slot| matches!(slot.model(), Some(Model::L1Misses | Model::L2Misses));
        if self.slots.iter().any(is_cache) {
            next = 2;
        }
        for slot in &mut self.slots {
            slot.cell = match slot.model() {
                _ if !slot.choice.is_own() => None,
                Some(Model::L1Misses) => Some(0),
                Some(Model::L2Misses) => Some(1),
                _ => {
                    next += 1;
                    Some(next - 1)
                }
            };
        }
        next
    }

    /// True if an event is the kernel's or the processor's.
    pub fn has_meters(&self) -> bool {
        self.slots.iter().any(|slot| !slot.choice.is_own())
    }

    /// Warnings about events that this machine cannot count. The machine that runs the program may.
    pub fn warnings(&self) -> Vec<String> {
        self.slots
            .iter()
            .filter_map(|slot| probe(&slot.choice).err())
            .map(|error| format!("here, {}", with_option(&error)))
            .collect()
    }

    /// The settings as arguments; texts go to the list.
    pub fn to_keys(&self, texts: &mut StringList) -> SettingsKeys {
        SettingsKeys {
            events: texts.push(&self.names().join(",")),
            csv: texts.push(&self.csv),
            energy: texts.push(&self.energy),
            program: texts.push(&self.program),
        }
    }

    fn from_keys(keys: &SettingsKeys, texts: Strings) -> Self {
        let set = Choice::parse_set(texts.get(keys.events)).unwrap_or_default();
        let slot = |choice| Slot { choice, cell: None };
        let mut settings = Self {
            slots: set.into_iter().map(slot).collect(),
            csv: texts.get(keys.csv).to_owned(),
            energy: texts.get(keys.energy).to_owned(),
            program: texts.get(keys.program).to_owned(),
        };
        settings.place_cells();
        settings
    }

    /// The events as the user named them.
    fn names(&self) -> Vec<&str> {
        self.slots.iter().map(|s| s.choice.name.as_str()).collect()
    }

    /// The linear model, if the user gave one.
    pub fn energy(&self) -> Option<Energy> {
        if self.energy.is_empty() {
            return None;
        }
        energy::Energy::parse(&self.energy, &self.names()).ok()
    }
}

/// Tries whether this machine can count an event; an error has the name that the user gave.
pub fn probe(choice: &Choice) -> std::result::Result<(), Unavailable> {
    choice.event.probe().map_err(|error| Unavailable {
        event: choice.name.clone(),
        ..error
    })
}

/// The message, with the option that would help.
pub fn with_option(error: &Unavailable) -> String {
    match error.offer {
        Some(offer) => format!("{error}: --events {offer}"),
        None => error.to_string(),
    }
}

/// Facts that hold for the whole run.
pub struct Run {
    pub settings: Settings,
    pub procs: Sites,
    /// Names of the procedures' files.
    pub files: Strings,
    /// Cells that instrumentation counts in.
    pub cells: usize,
    /// The events that cannot be counted: number in the set, and reason.
    pub missing: Vec<(usize, String)>,
    /// Time stamp and monotonic clock in nanoseconds at one moment at the start.
    start: (u64, u64),
    /// The process.
    pub pid: u32,
}

static RUN: OnceLock<Run> = OnceLock::new();

/// Begins. `files` are the names of the procedures' files; `cells` is how many instrumentation
/// counts in.
pub fn begin(keys: &SettingsKeys, texts: Strings, procs: Sites, files: Strings, cells: usize) {
    let settings = Settings::from_keys(keys, texts);
    let wanted = settings.slots.iter().enumerate();
    let missing: Vec<(usize, String)> = wanted
        .filter_map(|(i, slot)| Some((i, with_option(&probe(&slot.choice).err()?))))
        .collect();
    for (_, message) in &missing {
        eprintln!("counters: {message}");
    }
    let run = Run {
        settings,
        procs,
        files,
        cells,
        missing,
        start: (clocks::time_stamp(), clocks::monotonic()),
        pid: std::process::id(),
    };
    let _ = RUN.set(run);
}

/// None in code that runs before the program's start.
pub fn run() -> Option<&'static Run> {
    RUN.get()
}

impl Run {
    /// Nanoseconds per tick, exact to a few millionths; in a short run it waits for that.
    pub fn nanos_per_tick(&self) -> f64 {
        const ENOUGH: u64 = 20_000_000;
        static RATE: OnceLock<f64> = OnceLock::new();
        *RATE.get_or_init(|| {
            while clocks::monotonic() < self.start.1 + ENOUGH {
                std::hint::spin_loop();
            }
            let (ticks, nanos) = (clocks::time_stamp(), clocks::monotonic());
            let passed = ticks.saturating_sub(self.start.0).max(1);
            nanos.saturating_sub(self.start.1) as f64 / passed as f64
        })
    }

    /// Nanoseconds since the program's start.
    pub fn since_start(&self, ticks: u64) -> u64 {
        (ticks.saturating_sub(self.start.0) as f64 * self.nanos_per_tick()) as u64
    }
}
