//! Tables of text: numbers are aligned to the right, names to the left.

use std::io::{Result, Write};

/// Rows of cells.
pub struct Table {
    heads: Vec<String>,
    /// Number of columns at the end that hold names.
    names: usize,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose last `names` columns have names.
    pub fn new(heads: impl IntoIterator<Item = impl Into<String>>, names: usize) -> Self {
        Self {
            heads: heads.into_iter().map(Into::into).collect(),
            names,
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Writes the table. Columns without any contents are left out.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        let columns = self.heads.len();
        let mut widths = vec![0; columns];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let used: Vec<_> = (0..columns).filter(|c| widths[*c] > 0).collect();
        for (width, head) in widths.iter_mut().zip(&self.heads) {
            *width = head.chars().count().max(*width);
        }
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let mut line = String::new();
            for &column in &used {
                let (cell, width) = (&row[column], widths[column]);
                let gap = if line.is_empty() { "" } else { "  " };
                line.push_str(gap);
                match column + self.names >= columns {
                    true => line.push_str(&format!("{cell:<width$}")),
                    false => line.push_str(&format!("{cell:>width$}")),
                }
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
