//! Chrome's trace event format, for Perfetto and `chrome://tracing`.
//!
//! Format: an object whose array `traceEvents` has the names of process and threads, then a complete event (`X`) for each
//! call, with its start and duration in microseconds. Calls of a thread are in the order of their starts, outer ones first,
//! since viewers nest calls of equal start in the order in which they come.

use std::fmt;
use std::io::{self, Write};

use serde_json::{Value, json};

/// A time in microseconds, exact to a nanosecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Micros {
    whole: u64,
    nanos: u64,
}

impl From<u64> for Micros {
    fn from(whole: u64) -> Self {
        Self { whole, nanos: 0 }
    }
}

impl From<f64> for Micros {
    fn from(micros: f64) -> Self {
        let nanos = (micros * 1000.0).round() as u64;
        Self {
            whole: nanos / 1000,
            nanos: nanos % 1000,
        }
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.whole, self.nanos) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) => write!(f, "{}", format!("{whole}.{part:03}").trim_end_matches('0')),
        }
    }
}

/// A call.
pub struct Call<'a> {
    /// The number of its thread.
    pub tid: u32,
    /// When it begins.
    pub start: Micros,
    /// How long it takes.
    pub length: Micros,
    /// The name that the time line shows.
    pub name: &'a str,
    /// The group of procedures by which viewers filter; empty for none.
    pub category: &'a str,
    /// What viewers show of the call besides.
    pub facts: Option<Value>,
}

/// A trace of a process that is being written.
pub struct Trace<'a> {
    to: &'a mut dyn Write,
    pid: u64,
}

impl<'a> Trace<'a> {
    /// Begins a trace. `facts` are about the trace as a whole.
    ///
    /// # Errors
    /// The writer's, as for all that follows.
    pub fn begin(
        pid: u64,
        process: &str,
        facts: &Value,
        to: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let name = json!({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": process}});
        write!(
            to,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{facts},\"traceEvents\":[\n{name}"
        )?;
        Ok(Self { to, pid })
    }

    /// Names a thread. Viewers show threads in the order of `rank`.
    ///
    /// # Errors
    /// The writer's.
    pub fn thread(&mut self, tid: u32, name: &str, rank: u32) -> io::Result<()> {
        let pid = self.pid;
        let name = json!({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}});
        let order = json!({"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid,
            "args": {"sort_index": rank}});
        write!(self.to, ",\n{name},\n{order}")
    }

    /// Adds a call.
    ///
    /// # Errors
    /// The writer's.
    pub fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        let (pid, tid, ts, dur) = (self.pid, call.tid, call.start, call.length);
        write!(
            self.to,
            ",\n{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur},\"name\":"
        )?;
        serde_json::to_writer(&mut *self.to, call.name)?;
        if !call.category.is_empty() {
            write!(self.to, ",\"cat\":{}", json!(call.category))?;
        }
        if let Some(facts) = &call.facts {
            write!(self.to, ",\"args\":{facts}")?;
        }
        write!(self.to, "}}")
    }

    /// Ends the trace.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(self) -> io::Result<()> {
        writeln!(self.to, "\n]}}")
    }
}

#[cfg(test)]
mod tests {
    use super::Micros;

    #[test]
    fn times_are_short_and_exact_to_a_nanosecond() {
        let texts = [0.0, 0.001, 1.5, 12.3456, 1e6].map(|us| Micros::from(us).to_string());
        assert_eq!(texts, ["0", "0.001", "1.5", "12.346", "1000000"]);
        assert_eq!(Micros::from(u64::MAX).to_string(), u64::MAX.to_string());
    }
}
