//! The settings that the instrument routine made, and the measures that they ask for.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arp::{DataType, Format, Mode};
use atom_tool::plain_data;

use super::meters::{AnyMeter, Callbacks, Cost, Measure, Reading, ThreadNumbers};

plain_data! {
    /// Whether the user's callbacks are tried at the start.
    #[derive(PartialEq, Eq, Debug)]
    pub enum Calibrate {
        /// Yes; their cost is subtracted if they change nothing but their data.
        Auto,
        /// Yes; their cost is subtracted.
        On,
        /// No.
        Off,
    }
}

/// The settings that the instrument routine made.
pub struct Settings {
    /// What is recorded.
    pub mode: Mode,
    /// The format of the data file.
    pub format: Format,
    /// The data file's name.
    pub file: &'static str,
    /// The program's name.
    pub program: &'static str,
    /// What is measured.
    pub measures: Vec<Measure>,
    /// Type of the values of callbacks.
    pub data_type: DataType,
    /// Callbacks for begins and ends of sections, and what both get as context; 0 for none.
    pub callbacks: [usize; 3],
    /// Callbacks for threads: at a thread's first section, and after its end.
    pub thread_callbacks: [usize; 2],
    /// Whether callbacks are tried at the start.
    pub calibrate: Calibrate,
}

impl Settings {
    /// The type of a measure's values.
    pub fn data_type_of(&self, measure: Measure) -> DataType {
        match measure {
            Measure::Callbacks => self.data_type,
            _ => DataType::ULong,
        }
    }

    /// A measure of one thread.
    pub fn meter(&self, measure: Measure, cost: Cost, place: ThreadNumbers) -> AnyMeter {
        match measure {
            Measure::Callbacks => AnyMeter(Box::new(self.callbacks(cost, place))),
            _ => AnyMeter(Box::new(Reading {
                measure,
                cost,
                place,
            })),
        }
    }

    /// The user's callbacks as the measure of one thread.
    pub fn callbacks(&self, cost: Cost, place: ThreadNumbers) -> Callbacks {
        let [enter, leave, context] = self.callbacks;
        Callbacks {
            enter,
            leave,
            context: Arc::new(AtomicUsize::new(context)),
            data_type: self.data_type,
            cost,
            place,
        }
    }
}
