//! Whether executions were counted or only noticed.

use atom_tool::report::{Column, Sum};

/// What the rows of a table count: executions, or whether there were any.
#[derive(Clone, Copy)]
pub struct Kind {
    pub is_counted: bool,
}

impl Kind {
    /// The name of the column that is not 0 for what was executed.
    pub const fn executions(self) -> &'static str {
        if self.is_counted {
            "executions"
        } else {
            "executed"
        }
    }

    /// A column with the name for counts, or the one for marks. Marks of several runs are not added: the largest is 1
    /// if it was executed in one of them.
    pub const fn column(
        self,
        counts: &'static str,
        marks: &'static str,
        unit: &'static str,
    ) -> Column {
        if self.is_counted {
            Column::count(counts, unit)
        } else {
            Column::count(marks, unit).sum(Sum::Max)
        }
    }

    /// The sum of two values of one source line, or of one function.
    pub fn sum(self, a: u64, b: u64) -> u64 {
        if self.is_counted { a + b } else { a.max(b) }
    }
}
