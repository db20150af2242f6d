//! The identity of a run: what makes two profiles reports of the same run.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use profile::Profile;
use sha2::{Digest, Sha256};

/// The folder of runs without a date, which engines read as a missing value.
const NO_DATE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Number of bytes of a digest that make a run's name.
const NAME: usize = 16;

/// A run of a tool.
pub struct Run {
    /// Digest of tool, options, program, process, host and start, in hexadecimal.
    pub id: String,
    /// Tells the reports of one run apart: the time from the start to the report in seconds, as text.
    pub report: String,
    tool: String,
    /// The day of the start in UTC, as YYYY-MM-DD.
    date: Option<String>,
    /// The start in microseconds since 1970.
    pub start: Option<i64>,
}

impl Run {
    /// The run that a profile is about.
    pub fn of(profile: &Profile) -> Self {
        let start = micros(&profile.time.start);
        let mut digest = Sha256::new();
        // Lengths in front of the texts keep different lists of texts apart.
        let mut text = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        text(&profile.tool);
        profile.options.iter().for_each(|option| text(option));
        text(&profile.program.path);
        profile.program.arguments.iter().for_each(|word| text(word));
        text(&profile.host.name);
        text(&profile.time.start);
        text(&profile.process.pid.to_string());
        let digest = digest.finalize();
        Self {
            id: digest[..NAME].iter().map(|b| format!("{b:02x}")).collect(),
            report: profile.time.seconds.to_string(),
            tool: profile.tool.clone(),
            date: start.map(|_| profile.time.start.chars().take(10).collect()),
            start,
        }
    }

    /// The folder of the run's tool and day, below the folder of the fleet.
    pub fn partition(&self) -> PathBuf {
        let date = self.date.as_deref().unwrap_or(NO_DATE);
        PathBuf::from(format!("tool={}", escaped(&self.tool))).join(format!("date={date}"))
    }
}

/// The time of an ISO 8601 text in microseconds since 1970. `None` if it is none, or before 1970.
fn micros(text: &str) -> Option<i64> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}

/// A text as a part of a folder's name: other characters than letters, digits, `_`, `-` and `.` become `%XX`, as engines read
/// them.
fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    let bytes = text.bytes().map(|b| {
        if plain(b) {
            char::from(b).to_string()
        } else {
            format!("%{b:02X}")
        }
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(more: &str) -> Profile {
        let text = format!(
            r#"{{"format":"atom-profile","version":1,"tool":"a/b","program":{{"path":"/bin/x"}}{more}}}"#
        );
        Profile::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_run_has_a_folder_by_tool_and_day() {
        let run = Run::of(&profile(
            r#","time":{"start":"2026-11-22T22:41:58.123Z","seconds":1.5}"#,
        ));
        assert_eq!(run.partition(), PathBuf::from("tool=a%2Fb/date=2026-11-22"));
        assert_eq!(run.start, Some(1_795_387_318_123_000));
        let undated = Run::of(&profile(""));
        assert!(undated.partition().ends_with(format!("date={NO_DATE}")));
    }

    #[test]
    fn a_run_is_known_by_what_ran_where_and_when() {
        let id = |more: &str| Run::of(&profile(more)).id;
        assert_eq!(
            id(r#","time":{"seconds":1.5}"#),
            id(r#","time":{"seconds":2.5}"#)
        );
        let different = [
            "",
            r#","options":["x"]"#,
            r#","host":{"name":"x"}"#,
            r#","process":{"pid":3}"#,
            r#","time":{"start":"2026-11-22T22:41:58.123Z","seconds":1.5}"#,
        ];
        let mut ids: Vec<String> = different.map(id).into();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), different.len());
    }
}
