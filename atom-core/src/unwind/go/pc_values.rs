//! Values by program counter, as Go stores them.
//!
//! A table covers a function from its first address on. It is a sequence of steps: a signed change of the value
//! (zigzag, LEB128), and the number of bytes for which the new value holds (LEB128). The value before the
//! first step is -1. A change of 0 ends the table, except in the first step.

/// The value before the first step.
pub const NOTHING: i32 = -1;

/// A range of a function in which a value holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Distance in bytes from the function's start to the range's end.
    pub end: u32,
    /// The value.
    pub value: i32,
}

/// Reads the table at the start of `bytes`. Yields `None` if the table runs past the end.
pub fn read(mut bytes: &[u8]) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let (mut end, mut value) = (0u32, NOTHING);
    loop {
        // Go's runtime reads 32 bits.
        let change = leb128::next(&mut bytes)? as u32;
        if change == 0 && !runs.is_empty() {
            return Some(runs);
        }
        value = value.wrapping_add(leb128::unzigzag(u64::from(change)) as i32);
        let length = leb128::next(&mut bytes)?;
        end = end.checked_add(u32::try_from(length).ok()?)?;
        runs.push(Run { end, value });
    }
}

/// The run at a distance from the function's start; `None` after the table's end.
pub fn run_at(runs: &[Run], offset: u32) -> Option<Run> {
    let i = runs.partition_point(|r| r.end <= offset);
    runs.get(i).copied()
}

/// The value at a distance from the function's start; [`NOTHING`] after the table's end.
pub fn at(runs: &[Run], offset: u32) -> i32 {
    run_at(runs, offset).map_or(NOTHING, |r| r.value)
}

/// Writes a table, run by run. Neighbours with the same value become one.
#[derive(Default)]
pub struct Writer {
    /// The run that is not written yet.
    open: Option<Run>,
    start: u32,
    value: Option<i32>,
}

impl Writer {
    /// Adds the run that ends at `end`, which is after the last one's end.
    pub fn push(&mut self, end: u32, value: i32, out: &mut Vec<u8>) {
        match &mut self.open {
            Some(open) if open.value == value => open.end = end,
            _ => {
                self.flush(out);
                self.open = Some(Run { end, value });
            }
        }
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        let Some(run) = self.open.take() else {
            return;
        };
        let before = self.value.unwrap_or(NOTHING);
        let change = run.value.wrapping_sub(before);
        leb128::push(out, leb128::zigzag(i64::from(change)));
        leb128::push(out, u64::from(run.end - self.start));
        (self.start, self.value) = (run.end, Some(run.value));
    }

    /// Ends the table.
    pub fn end(mut self, out: &mut Vec<u8>) {
        self.flush(out);
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_tables_are_read_again() {
        let runs = [(3, -1), (4, 0), (200, 8), (100_000, -2), (100_001, 70_000)];
        let runs = runs.map(|(end, value)| Run { end, value });
        let (mut bytes, mut writer) = (Vec::new(), Writer::default());
        for run in runs {
            writer.push(run.end - 1, run.value, &mut bytes);
            writer.push(run.end, run.value, &mut bytes);
        }
        writer.end(&mut bytes);
        // The first change is 0, which does not end the table.
        assert_eq!(bytes[0], 0);
        assert_eq!(read(&bytes).unwrap(), runs);
        assert_eq!(at(&runs, 0), -1);
        assert_eq!(at(&runs, 3), 0);
        assert_eq!(at(&runs, 199), 8);
        assert_eq!(at(&runs, 100_001), NOTHING);
        assert_eq!(read(&bytes[..bytes.len() - 1]), None);
    }
}
