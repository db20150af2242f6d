//! Finds out whether the time-stamp counter is a clock.
//!
//! On older processors the counter stops in deep sleep, or runs at the processor's frequency, and
//! differs between cores. Processors on which it is constant say so (CPUID leaf 0x8000_0007). A
//! virtual machine may hide this, but the kernel may know it and then keeps time by the counter. If
//! neither vouches for the counter, it is compared with the kernel's clock.

use std::time::Instant;

use super::meters::Measure;

/// Facts about the counter.
#[derive(Clone, Debug, Default)]
pub struct Tsc {
    /// The processor says that it runs at a constant rate and never stops.
    pub invariant: bool,
    /// Name of the kernel's clock source, if the processor does not vouch for the counter.
    pub kernel_clock: Option<String>,
    /// Counts per second, measured in several short intervals.
    pub rates: Vec<f64>,
}

/// Rates that differ by more than this part of the highest are not constant.
const TOLERANCE: f64 = 0.01;
/// How many rates are measured, and the time for each in microseconds.
const RATES: usize = 5;
const RATE_MICROSECONDS: u128 = 2000;

impl Tsc {
    /// Asks the processor and the kernel. If neither vouches for the counter, measures its rates.
    pub fn here() -> Self {
        let mut found = Self {
            invariant: is_invariant(),
            ..Self::default()
        };
        if !found.invariant {
            let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            let clock = std::fs::read_to_string(file).ok();
            found.kernel_clock = clock.map(|text| text.trim().to_owned());
        }
        if !found.is_vouched_for() {
            found.rates = (0..RATES).map(|_| rate(RATE_MICROSECONDS)).collect();
        }
        found
    }

    fn is_vouched_for(&self) -> bool {
        self.invariant || self.kernel_clock.as_deref() == Some("tsc")
    }

    /// The reason why the counter is no clock, if it is none.
    pub fn doubt(&self) -> Option<String> {
        if self.is_vouched_for() {
            return None;
        }
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        if least > 0.0 && least.is_finite() && most - least <= TOLERANCE * most {
            return None;
        }
        Some(format!(
            "the time-stamp counter is no clock here: the processor does not say that it is constant, and it counted \
             {:.0} to {:.0} million times a second",
            if least.is_finite() { least / 1e6 } else { 0.0 },
            most / 1e6
        ))
    }
}

fn is_invariant() -> bool {
    const LEAF: u32 = 0x8000_0007;
    const CONSTANT_AND_NONSTOP: u32 = 1 << 8;
    let highest = core::arch::x86_64::__cpuid(0x8000_0000).eax;
    highest >= LEAF && core::arch::x86_64::__cpuid(LEAF).edx & CONSTANT_AND_NONSTOP != 0
}

/// Prepares the measures at the start of a program. If the kernel does not let the process read
/// the time-stamp counter, another measure replaces it. Notes for the data file say so and tell
/// the counter's rate.
pub fn prepare(measures: &mut [Measure], notes: &mut Vec<(String, String)>) {
    let Some(cycles) = measures.iter_mut().find(|m| **m == Measure::Cycles) else {
        return;
    };
    if is_forbidden() {
        *cycles = Measure::CpuTime;
        let text = "cpu ns instead: this process may not read the time-stamp counter";
        notes.push(("cycles".to_owned(), text.to_owned()));
        return;
    }
    if let Some(doubt) = Tsc::here().doubt() {
        notes.push(("cycles".to_owned(), doubt));
    }
    notes.push(("cycles per second".to_owned(), format!("{:.0}", rate(1000))));
}

/// True if reading the counter raises a signal.
fn is_forbidden() -> bool {
    const PR_GET_TSC: libc::c_long = 25;
    const PR_TSC_SIGSEGV: i32 = 2;
    let mut state = 0i32;
    // SAFETY: the pointer leads to a variable for the answer.
    let r = unsafe { libc::syscall(libc::SYS_prctl, PR_GET_TSC, &raw mut state) };
    r == 0 && state == PR_TSC_SIGSEGV
}

/// Counts per second, measured for this time.
fn rate(microseconds: u128) -> f64 {
    let (start, from) = (Instant::now(), tsc());
    while start.elapsed().as_micros() < microseconds {}
    let (time, ticks) = (start.elapsed(), tsc().wrapping_sub(from));
    ticks as f64 / time.as_secs_f64()
}

fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_a_clock_if_somebody_says_so_or_it_behaves() {
        let vague = |rates: &[f64]| Tsc {
            rates: rates.to_vec(),
            kernel_clock: Some("hpet".to_owned()),
            ..Tsc::default()
        };
        let steady = [2.1e9, 2.1001e9, 2.0999e9];
        assert_eq!(vague(&steady).doubt(), None);
        let jumpy = vague(&[2.1e9, 0.8e9]);
        assert!(jumpy.doubt().unwrap().contains("800 to 2100 million"));
        for none in [&[][..], &[0.0, 0.0], &[2.1e9, 0.0]] {
            assert!(vague(none).doubt().is_some(), "{none:?}");
        }
        let trusted = Tsc {
            invariant: true,
            ..jumpy.clone()
        };
        assert_eq!(trusted.doubt(), None);
        let kept = Tsc {
            kernel_clock: Some("tsc".to_owned()),
            ..jumpy
        };
        assert_eq!(kept.doubt(), None);
    }

    #[test]
    fn the_rate_is_that_of_a_processor() {
        let rate = rate(1000);
        assert!((1e8..1e11).contains(&rate), "{rate}");
    }
}
