//! Options of runs that are sampled: the tool's calls are made in bursts at random places.

use atom_core::plan::Bursts;
use clap::Args;

/// Number of tests in a burst, if the user names none: about a million instructions.
const BURST: u32 = 20_000;

/// The options.
#[derive(Args, Clone, Default)]
pub struct Sampling {
    /// Make the tool's calls in this share of the run only, such as `1%`: in bursts at random places. Figures of the report
    /// are estimates for the whole run
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with_all = ["from", "to", "switchable"])]
    pub sample: Option<Share>,
    /// Length of a burst, in tests that the program passes: one every 20 to 100 instructions, 20k by default
    #[arg(long, value_name = "TESTS", value_parser = count, requires = "sample")]
    pub burst: Option<u32>,
    /// Number of tests before each burst in which the tool's calls are made, but counted for nothing, to warm up what the tool
    /// simulates; otherwise the tool chooses it
    #[arg(long, value_name = "TESTS", value_parser = count, requires = "sample")]
    pub warm_up: Option<u32>,
    /// Sample the places that follow from this number, the same ones in each run; random ones otherwise
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..), requires = "sample")]
    pub seed: Option<u64>,
}

/// A share of a run: more than 0, less than 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Share(f64);

impl Sampling {
    /// How long bursts are, and how far from each other; `None` if the run is not sampled.
    pub fn bursts(&self) -> Option<Bursts> {
        let Share(share) = self.sample?;
        let length = self.burst.unwrap_or(BURST);
        let gap = f64::from(length) * (1.0 - share) / share;
        Some(Bursts {
            length,
            gap: gap.round().clamp(1.0, f64::from(i32::MAX)) as u32,
            warm_up: self.warm_up,
            seed: self.seed.unwrap_or(0),
        })
    }

    /// The words with which a program is instrumented: one program serves runs of any share, length and seed, which the
    /// run's page says.
    pub fn words(&self) -> Vec<String> {
        let share = self.sample.map(|_| ["--sample", "1%"].map(str::to_owned));
        share.into_iter().flatten().collect()
    }
}

/// Reads a share such as `1%` or `0.01`.
fn share(text: &str) -> Result<Share, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 0.01),
        None => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| "it is no share, such as `1%`")?;
    let share = number * unit;
    if share > 0.0 && share < 1.0 {
        Ok(Share(share))
    } else {
        Err("a share is more than 0 and less than 100%".into())
    }
}

/// Reads a number such as `20k`.
fn count(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number: Option<u32> = number.parse().ok();
    let count = number.and_then(|n| n.checked_mul(unit));
    count
        .filter(|n| (1..=i32::MAX as u32).contains(n))
        .ok_or_else(|| "it is no number of tests from 1 to 2,147,483,647, such as `20k`".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_lengths_are_read() {
        assert_eq!(share("1%"), Ok(Share(0.01)));
        assert_eq!(share("0.25"), Ok(Share(0.25)));
        for wrong in ["", "%", "0", "100%", "1.5", "-1%", "x"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(count("20k"), Ok(20_000));
        assert_eq!(count("3M"), Ok(3_000_000));
        for wrong in ["", "0", "k", "3G", "5000m"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        let sampling = Sampling {
            sample: Some(Share(0.01)),
            burst: None,
            warm_up: None,
            seed: Some(7),
        };
        let bursts = Bursts {
            length: 20_000,
            gap: 1_980_000,
            warm_up: None,
            seed: 7,
        };
        assert_eq!(sampling.bursts(), Some(bursts));
    }
}
