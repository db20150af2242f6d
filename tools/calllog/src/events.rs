//! A thread's events on their way to the log.

use atom_tool::clocks::ProfTimer;
use call_log::compact::Encoder;
use call_log::tally::Tally;
use call_log::{Event, exercise};

use crate::settings::Run;

/// Events on their way to the log.
#[derive(Default)]
pub struct Events {
    /// The thread's number in the log; `None` before its first event.
    pub number: Option<u32>,
    /// Events in the compact format.
    pub encoder: Encoder,
    /// Events as records of the exercise.
    pub records: Vec<u8>,
    /// Numbers of procedures that are new in this thread's events.
    pub new_procs: Vec<u32>,
    /// Bit set of the procedures in this thread's events.
    named: Vec<u64>,
    /// Sums for the profile.
    pub tally: Tally,
}

impl Events {
    #[inline]
    pub fn push(&mut self, run: &Run, event: Event) {
        let (word, bit) = (event.proc as usize / 64, 1 << (event.proc % 64));
        if self.named.get(word).is_none_or(|w| w & bit == 0) {
            self.name(word, bit, event.proc);
        }
        if run.has_profile {
            self.tally.add(event);
        }
        if run.settings.is_exercise {
            let since = event.clock.saturating_sub(run.origin());
            let event = Event {
                clock: since,
                ..event
            };
            let from = ProfTimer::SECONDS;
            let record = exercise::counted_down(event, run.rate_of_records(), from);
            self.records.extend(record);
        } else {
            self.encoder.push(event);
        }
    }

    #[cold]
    fn name(&mut self, word: usize, bit: u64, proc: u32) {
        if self.named.len() <= word {
            self.named.resize(word + 1, 0);
        }
        self.named[word] |= bit;
        self.new_procs.push(proc);
    }
}
