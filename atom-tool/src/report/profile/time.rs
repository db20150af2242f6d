//! When the process started, and how long it ran.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::json::Json;
use crate::report::ticks::age;

/// The start of the process, by both clocks.
static START: OnceLock<(SystemTime, Instant)> = OnceLock::new();

/// Called before any code of the application.
pub(crate) fn begin() {
    // A second start does not happen, and would change nothing.
    let _ = START.set((SystemTime::now(), Instant::now()));
}

/// Start of the process and its time since then. A forked child did not start with its parent.
fn span() -> Option<(SystemTime, Duration)> {
    let (start, instant) = START.get()?;
    let elapsed = instant.elapsed();
    let is_child = analysis_rt::pid() != analysis_rt::start_pid() && !analysis_rt::is_snapshot();
    let age = is_child.then(|| age(analysis_rt::pid())).flatten();
    let since_fork = age
        .map(Duration::from_secs_f64)
        .filter(|age| *age < elapsed);
    match since_fork {
        Some(age) => Some((*start + (elapsed - age), age)),
        None => Some((*start, elapsed)),
    }
}

/// Writes the key `time`.
pub fn write(json: &mut Json) {
    let Some((start, elapsed)) = span() else {
        return;
    };
    json.key("time").open('{');
    let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
    json.key("start").text(&utc(since));
    let micros = elapsed.as_micros();
    json.key("seconds").float(micros as f64 / 1e6);
    json.close('}');
}

/// A time since 1970 in the form of ISO 8601, with milliseconds.
fn utc(since: Duration) -> String {
    const DAY: u64 = 86_400;
    let (days, of_day) = (since.as_secs() / DAY, since.as_secs() % DAY);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let (year, month, day) = date(days);
    let milli = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a number of days since 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |y: u64| y.is_multiple_of(4) && !y.is_multiple_of(100) || y.is_multiple_of(400);
    let mut rest = days;
    let mut year = 1970;
    loop {
        let length = 365 + u64::from(is_leap(year));
        if rest < length {
            break;
        }
        rest -= length;
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_utc() {
        let at = |secs: u64, millis: u64| utc(Duration::from_millis(secs * 1000 + millis));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_795_387_318, 123), "2026-11-22T22:41:58.123Z");
        assert_eq!(at(4_107_542_399, 999), "2100-02-28T23:59:59.999Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }
}
