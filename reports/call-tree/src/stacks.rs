//! Folded stacks and speedscope's format.
//!
//! Folded stacks: a line for each stack, its frames with semicolons between them, a blank and the value. speedscope:
//! `https://www.speedscope.app/file-format-schema.json`, a profile of type `sampled` for each measure.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::CallTree;

impl CallTree {
    /// Writes folded stacks with the values of a measure.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_folded(&self, measure: usize, to: &mut dyn Write) -> io::Result<()> {
        // Semicolons divide frames, and the last blank is before the value.
        let names: Vec<String> = (self.frames.iter())
            .map(|frame| frame.name.replace(';', ":").replace('\n', " "))
            .collect();
        for (node, value) in self.valued(measure) {
            let stack: Vec<&str> = self.stack(node).iter().map(|i| &*names[*i]).collect();
            writeln!(to, "{} {value}", stack.join(";"))?;
        }
        Ok(())
    }

    /// Writes speedscope's format.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_speedscope(&self, to: &mut dyn Write) -> io::Result<()> {
        let frame = |frame: &crate::Frame| {
            let mut made = json!({ "name": frame.name });
            if !frame.file.is_empty() {
                made["file"] = json!(frame.file);
            }
            if frame.line != 0 {
                made["line"] = json!(frame.line);
            }
            made
        };
        let frames: Vec<Value> = self.frames.iter().map(frame).collect();
        write!(
            to,
            "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"atom\",\
             \"name\":{},\"activeProfileIndex\":0,\"shared\":{},\"profiles\":[",
            json!(self.title),
            json!({ "frames": frames })
        )?;
        for (i, measure) in self.measures.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            let unit = if measure.is_bytes { "bytes" } else { "none" };
            let whole: u64 = self.valued(i).map(|(_, value)| value).sum();
            write!(
                to,
                "{comma}\n{{\"type\":\"sampled\",\"name\":{},\"unit\":\"{unit}\",\"startValue\":0,\"endValue\":{whole},\"samples\":[",
                json!(measure.name)
            )?;
            let mut weights = String::new();
            let mut comma = "";
            for (node, value) in self.valued(i) {
                write!(to, "{comma}{}", json!(self.stack(node)))?;
                weights.push_str(comma);
                weights.push_str(&value.to_string());
                comma = ",";
            }
            write!(to, "],\"weights\":[{weights}]}}")?;
        }
        writeln!(to, "\n]}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn stacks_are_folded() {
        let mut out = Vec::new();
        example().write_folded(0, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "main 5\nmain;f:g;leaf 7\nmain;leaf 1\n");
    }

    #[test]
    fn samples_have_their_weights() {
        let mut out = Vec::new();
        example().write_speedscope(&mut out).unwrap();
        let read: Value = serde_json::from_slice(&out).unwrap();
        let profile = &read["profiles"][0];
        assert_eq!(profile["samples"], json!([[0], [0, 1, 2], [0, 2]]));
        assert_eq!(profile["weights"], json!([5, 7, 1]));
        assert_eq!(profile["endValue"], json!(13));
        assert_eq!(read["shared"]["frames"][0]["line"], json!(3));
    }
}
