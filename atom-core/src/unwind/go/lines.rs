//! Source lines from Go's tables, for programs without debug information.

use super::pc_values::{self, NOTHING, Run};
use super::{Function, GoTable, field, text_at, word_at};
use crate::image::{LineSource, SourceRow};

impl GoTable<'_> {
    /// Name of the source file with a number in the function's unit.
    fn file(&self, function: &Function, number: i32) -> Option<&str> {
        let unit = self.record(function).word(field::UNIT) as usize;
        let at = 4 * (unit + usize::try_from(number).ok()?);
        text_at(self.files, word_at(self.units, at)?)
    }

    /// The lines of a function.
    fn lines_of<'s>(&'s self, function: &Function, rows: &mut Vec<SourceRow<'s>>) {
        let record = self.record(function);
        let [_, files, lines] = field::TABLES.map(|at| self.values(record.word(at)));
        let size = (function.end - function.start) as u32;
        let run_at = |runs: &[Run], offset: u32| {
            let (end, value) = (size, NOTHING);
            pc_values::run_at(runs, offset).unwrap_or(Run { end, value })
        };
        let mut offset = 0;
        while offset < size {
            let (file, line) = (run_at(&files, offset), run_at(&lines, offset));
            let name = self.file(function, file.value);
            rows.push(SourceRow {
                start: function.start + u64::from(offset),
                file: name.unwrap_or_default(),
                line: name.map_or(0, |_| u32::try_from(line.value).unwrap_or(0)),
            });
            offset = file.end.min(line.end).max(offset + 1);
        }
    }
}

impl LineSource for GoTable<'_> {
    fn rows(&self) -> (Vec<SourceRow<'_>>, u64) {
        let mut rows = Vec::new();
        for function in &self.functions {
            self.lines_of(function, &mut rows);
        }
        (rows, self.functions.last().map_or(0, |f| f.end))
    }
}
