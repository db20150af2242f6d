//! What ran: program, process, machine, time, objects.

use serde::{Deserialize, Serialize};

/// The code that the tool could see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The whole process: the program, its interpreter and its libraries.
    Process,
    /// One file alone.
    #[default]
    #[serde(other)]
    Program,
}

/// The program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path of its original file.
    #[serde(default)]
    pub path: String,
    /// Its arguments, its own name first.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// The process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    #[serde(default)]
    pub pid: u64,
    /// The number of its parent.
    #[serde(default)]
    pub parent: u64,
    /// True in a forked process whose counts contain its parent's until the fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherits: bool,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the machine.
    #[serde(default)]
    pub name: String,
    /// Version of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// Model of the processor, if it is known.
    #[serde(default)]
    pub processor: Option<String>,
    /// Number of processors that the process may use.
    #[serde(default)]
    pub processors: u64,
}

/// The time of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The start of the process, in UTC as ISO 8601.
    #[serde(default)]
    pub start: String,
    /// Seconds from the start to the report.
    #[serde(default)]
    pub seconds: f64,
}

impl Time {
    /// The start in seconds since 1970, if it is known.
    pub fn since_1970(&self) -> Option<f64> {
        let (day, time) = self.start.strip_suffix('Z')?.split_once('T')?;
        let mut day = day.splitn(3, '-').map(str::parse::<i64>);
        let (year, month) = (day.next()?.ok()?, day.next()?.ok()?);
        let mut time = time.splitn(3, ':').map(str::parse::<f64>);
        let hours = time.next()?.ok()?;
        let seconds = (hours * 60.0 + time.next()?.ok()?) * 60.0 + time.next()?.ok()?;
        // Years begin in March here, so that the day of a leap year is the last.
        let (year, month) = if month > 2 {
            (year, month - 3)
        } else {
            (year - 1, month + 9)
        };
        let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        let days = 365 * year + leap + (153 * month + 2) / 5 + day.next()?.ok()? - 1;
        const DAYS_TO_1970: i64 = 719_468;
        Some((days - DAYS_TO_1970) as f64 * 86_400.0 + seconds)
    }
}

/// A file of code in the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its file name.
    pub name: String,
    /// Path of its original file.
    #[serde(default)]
    pub path: String,
    /// Its build-id in hexadecimal, if it has one.
    #[serde(default)]
    pub build_id: Option<String>,
    /// Its `DT_SONAME`, if it has one.
    #[serde(default)]
    pub soname: Option<String>,
    /// What it is.
    #[serde(default)]
    pub kind: ObjectKind,
    /// True if the tool's calls are in it.
    #[serde(default)]
    pub instrumented: bool,
    /// Number of its procedures that are not understood and were not instrumented.
    #[serde(default)]
    pub opaque_procedures: u64,
}

/// What an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// The program.
    Program,
    /// The program interpreter: the dynamic loader.
    Interpreter,
    /// A library.
    #[default]
    #[serde(other)]
    Library,
}

#[cfg(test)]
mod tests {
    use super::Time;

    #[test]
    fn times_since_1970() {
        let at = |start: &str| {
            let start = start.to_owned();
            Time {
                start,
                ..Time::default()
            }
            .since_1970()
        };
        assert_eq!(at("1970-01-01T00:00:00.000Z"), Some(0.0));
        assert_eq!(at("2000-02-29T00:00:00.500Z"), Some(951_782_400.5));
        assert_eq!(at("2026-11-22T22:41:58.000Z"), Some(1_795_387_318.0));
        assert_eq!(at(""), None);
    }
}
