//! Tables of text: numbers are aligned to the right, names to the left.

use std::borrow::Cow;
use std::io::{Result, Write};

use tables::{Kind, Width};

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
        let first_name = self.heads.len().saturating_sub(self.names);
        let columns = self.heads.iter().enumerate().map(|(i, head)| {
            let cells = self.rows.iter().map(|row| Cow::Borrowed(&*row[i]));
            tables::Column {
                head,
                cells: cells.collect(),
                kind: if i >= first_name {
                    Kind::Label
                } else {
                    Kind::Number
                },
            }
        });
        tables::write_columns(out, columns.collect(), 0, Width::Full)
    }
}
