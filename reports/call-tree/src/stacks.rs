//! Folded stacks and speedscope's format, with a profile for each measure.

use std::io::{self, Write};

use exports::folded;
use exports::speedscope::{File, Frame};

use crate::CallTree;

impl CallTree {
    /// Writes folded stacks with the values of a measure.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_folded(&self, measure: usize, to: &mut dyn Write) -> io::Result<()> {
        for (node, value) in self.valued(measure) {
            let stack = self.stack(node);
            let names = stack.iter().map(|frame| &*self.frames[*frame].name);
            folded::write(names, value, to)?;
        }
        Ok(())
    }

    /// Writes speedscope's format.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_speedscope(&self, to: &mut dyn Write) -> io::Result<()> {
        let frames = self.frames.iter().map(|frame| Frame {
            name: &frame.name,
            file: &frame.file,
            line: frame.line,
        });
        let mut file = File::begin(&self.title, frames, to)?;
        for (i, measure) in self.measures.iter().enumerate() {
            let unit = if measure.is_bytes { "bytes" } else { "none" };
            let stacks = self.valued(i);
            let stacks = stacks.map(|(node, value)| (self.stack(node), value));
            file.sampled(&measure.name, unit, stacks)?;
        }
        file.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
