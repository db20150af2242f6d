//! The phases of a thread's run that the options ask for: in and between windows.

use atom_tool::{Options, Result, plain_data};

/// Number of instructions of a phase that never ends.
const ALWAYS: i64 = i64::MAX / 2;

plain_data! {
    /// The options, as numbers of instructions.
    #[derive(Default)]
    pub struct Windows {
        /// Before the first window.
        pub skip: u64,
        /// Length of a window; 0 if it never ends.
        pub window: u64,
        /// From the beginning of one window to the next; 0 if there is only one.
        pub every: u64,
    }
}

/// The thread has not begun.
const NEW: u32 = 0;
/// Before the first window.
const SKIPPED: u32 = 1;
/// In a window.
pub const NOTED: u32 = 2;
/// Between windows.
const BETWEEN: u32 = 3;

impl Windows {
    /// The options of a run; `None` if everything is noted.
    pub fn from_options(options: &Options<'_>) -> Result<Option<Self>> {
        let windows = Self {
            skip: options.given_size("--skip")?.unwrap_or(0),
            window: options.given_size("--window")?.unwrap_or(0),
            every: options.given_size("--every")?.unwrap_or(0),
        };
        if windows.every != 0 && (windows.window == 0 || windows.every < windows.window) {
            let text =
                "--every needs a --window that is not longer than the distance between windows";
            return Err(text.into());
        }
        let most = [windows.skip, windows.window, windows.every]
            .into_iter()
            .max();
        if most > Some(ALWAYS as u64) {
            return Err("a number of instructions is too large".into());
        }
        let is_all = windows.skip == 0 && windows.window == 0;
        Ok((!is_all).then_some(windows))
    }

    /// The phase after another one, and its number of instructions.
    pub fn next(&self, phase: u32) -> (u32, i64) {
        match phase {
            NEW if self.skip > 0 => (SKIPPED, self.skip as i64),
            NOTED if self.every == 0 => (BETWEEN, ALWAYS),
            NOTED => (BETWEEN, (self.every - self.window) as i64),
            _ if self.window == 0 => (NOTED, ALWAYS),
            _ => (NOTED, self.window as i64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(windows: &Windows) -> Vec<(u32, i64)> {
        let mut phase = NEW;
        let next = |_| {
            let next = windows.next(phase);
            phase = next.0;
            next
        };
        (0..4).map(next).collect()
    }

    #[test]
    fn phases_follow_each_other() {
        let [skip, window, every] = [10, 20, 50];
        let all = Windows {
            skip,
            window,
            every,
        };
        let expected = [(SKIPPED, 10), (NOTED, 20), (BETWEEN, 30), (NOTED, 20)];
        assert_eq!(phases(&all), expected);
        let skipping = Windows {
            skip,
            window: 0,
            every: 0,
        };
        assert_eq!(phases(&skipping)[..2], [(SKIPPED, 10), (NOTED, ALWAYS)]);
        let one = Windows {
            skip: 0,
            window,
            every: 0,
        };
        assert_eq!(phases(&one)[..2], [(NOTED, 20), (BETWEEN, ALWAYS)]);
    }
}
