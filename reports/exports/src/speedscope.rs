//! speedscope's format: `https://www.speedscope.app/file-format-schema.json`.
//!
//! Frames are listed once for all profiles. A profile of type `sampled` has stacks with their weights, one of type
//! `evented` the times at which frames are entered and left.

use std::io::{self, Write};

use serde_json::{Value, json};

/// A procedure, or a place in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its source file; empty if it is not known.
    pub file: &'a str,
    /// The line in the file; 0 if it is not known.
    pub line: u32,
}

impl Frame<'_> {
    fn json(&self) -> Value {
        let mut made = json!({ "name": self.name });
        if !self.file.is_empty() {
            made["file"] = json!(self.file);
        }
        if self.line != 0 {
            made["line"] = json!(self.line);
        }
        made
    }
}

/// A file that is being written.
pub struct File<'a> {
    to: &'a mut dyn Write,
    /// What comes before the next profile, and before the next event of a profile.
    commas: [&'static str; 2],
}

impl<'a> File<'a> {
    /// Begins a file.
    ///
    /// # Errors
    /// The writer's, as for all that follows.
    pub fn begin<'f>(
        title: &str,
        frames: impl Iterator<Item = Frame<'f>>,
        to: &'a mut dyn Write,
    ) -> io::Result<Self> {
        let frames: Vec<Value> = frames.map(|frame| frame.json()).collect();
        write!(
            to,
            "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"atom\",\
             \"name\":{},\"activeProfileIndex\":0,\"shared\":{},\"profiles\":[",
            json!(title),
            json!({ "frames": frames })
        )?;
        let commas = ["", ""];
        Ok(Self { to, commas })
    }

    fn profile(&mut self, kind: &str, name: &str, unit: &str, end: &Value) -> io::Result<()> {
        let comma = std::mem::replace(&mut self.commas[0], ",");
        write!(
            self.to,
            "{comma}\n{{\"type\":\"{kind}\",\"name\":{},\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{end},",
            json!(name)
        )
    }

    /// Writes a profile of stacks, each with the numbers of its frames, the outermost first, and its weight.
    ///
    /// # Errors
    /// The writer's.
    pub fn sampled(
        &mut self,
        name: &str,
        unit: &str,
        stacks: impl Iterator<Item = (Vec<usize>, u64)> + Clone,
    ) -> io::Result<()> {
        let whole: u64 = stacks.clone().map(|(_, weight)| weight).sum();
        self.profile("sampled", name, unit, &json!(whole))?;
        let mut weights = String::new();
        let mut comma = "";
        write!(self.to, "\"samples\":[")?;
        for (stack, weight) in stacks {
            write!(self.to, "{comma}{}", json!(stack))?;
            weights.push_str(comma);
            weights.push_str(&weight.to_string());
            comma = ",";
        }
        write!(self.to, "],\"weights\":[{weights}]}}")
    }

    /// Begins a profile of events from time 0 to `end`, in microseconds.
    ///
    /// # Errors
    /// The writer's.
    pub fn begin_events(&mut self, name: &str, end: f64) -> io::Result<()> {
        self.commas[1] = "";
        self.profile("evented", name, "microseconds", &json!(end))?;
        write!(self.to, "\"events\":[")
    }

    /// Adds an event: a frame is entered or left.
    ///
    /// # Errors
    /// The writer's.
    pub fn event(&mut self, is_entry: bool, frame: usize, at: f64) -> io::Result<()> {
        let comma = std::mem::replace(&mut self.commas[1], ",");
        let kind = if is_entry { "O" } else { "C" };
        let event = json!({ "type": kind, "frame": frame, "at": at });
        write!(self.to, "{comma}\n{event}")
    }

    /// Ends a profile of events.
    ///
    /// # Errors
    /// The writer's.
    pub fn end_events(&mut self) -> io::Result<()> {
        write!(self.to, "]}}")
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The writer's.
    pub fn end(self) -> io::Result<()> {
        writeln!(self.to, "\n]}}")
    }
}
