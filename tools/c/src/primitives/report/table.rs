//! A table that C fills, cell by cell.

use atom_tool::Cell;
use atom_tool::report::{By, Readers};

use super::column::{Column, Kind, Scope};
use super::quotient;
use crate::primitives::handles::fail;

/// What a row stands for, by a number of `TableType`.
pub fn by(number: i32) -> Option<By> {
    const ALL: [By; 11] = [
        By::Object,
        By::Procedure,
        By::File,
        By::Line,
        By::Block,
        By::Instruction,
        By::Branch,
        By::Arc,
        By::Data,
        By::Thread,
        By::Other,
    ];
    ALL.get(usize::try_from(number).ok()?).copied()
}

/// A number with a fraction; no value if it is none (0.0 / 0).
pub fn ratio(value: f64) -> Cell {
    if value.is_finite() {
        Cell::Ratio(value)
    } else {
        Cell::Empty
    }
}

/// A table that is not complete.
pub struct Table {
    title: &'static str,
    by: By,
    columns: Vec<Column>,
    /// Cells of the columns that are not computed.
    rows: Vec<Vec<Cell>>,
    /// Names of the columns by which rows are sorted, one after the other.
    sorts: Vec<&'static str>,
    pub readers: Readers,
    pub left_out: usize,
}

impl Table {
    pub fn new(title: &'static str, by: By) -> Self {
        Self {
            title,
            by,
            columns: Vec::new(),
            rows: Vec::new(),
            sorts: Vec::new(),
            readers: Readers::All,
            left_out: 0,
        }
    }

    /// Ends the process with a mistake that names the table.
    fn fail(&self, function: &str, reason: impl std::fmt::Display) -> ! {
        fail(function, format!("the table `{}`: {reason}", self.title))
    }

    pub fn add_column(&mut self, column: Column) {
        const NAME: &str = "AddColumn";
        if !self.rows.is_empty() {
            self.fail(NAME, "it has rows already");
        }
        if self.columns.iter().any(|of| of.name == column.name) {
            self.fail(NAME, format!("it has a column `{}` already", column.name));
        }
        self.columns.push(column);
    }

    /// The columns whose cells the tool gives.
    fn given(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|of| !of.kind.is_computed())
    }

    /// Checks that the last row is complete.
    fn check(&self, function: &str) {
        let cells = self.given().count();
        if let Some(row) = self.rows.last()
            && row.len() != cells
        {
            let number = self.rows.len() - 1;
            let found = row.len();
            self.fail(
                function,
                format!("row {number} has {found} cells, but the table takes {cells}"),
            );
        }
    }

    pub fn add_row(&mut self) {
        self.check("AddRow");
        self.rows.push(Vec::with_capacity(self.columns.len()));
    }

    /// Adds a cell for a column of one of some types; of any type if there are none.
    pub fn add_cell(&mut self, cell: Cell, fits: &[Kind], function: &str) {
        let Some(row) = self.rows.last() else {
            self.fail(function, "it has no row yet; call AddRow first");
        };
        let Some(column) = self.given().nth(row.len()) else {
            self.fail(
                function,
                format!(
                    "row {} has more than {} cells",
                    self.rows.len() - 1,
                    row.len()
                ),
            );
        };
        if !fits.is_empty() && !fits.contains(&column.kind) {
            let (name, kind) = (column.name, column.kind);
            self.fail(
                function,
                format!("the column `{name}` has the type {kind:?}, which takes another cell"),
            );
        }
        if let Some(row) = self.rows.last_mut() {
            row.push(cell);
        }
    }

    pub fn sort_by(&mut self, column: &'static str) {
        self.column_named(column, "SortTable");
        self.sorts.push(column);
    }

    /// The number of a column.
    fn column_named(&self, name: &str, function: &str) -> usize {
        let found = self.columns.iter().position(|of| of.name == name);
        found.unwrap_or_else(|| self.fail(function, format!("it has no column `{name}`")))
    }

    /// The rows with all cells.
    fn full_rows(&self, facts: &[(&'static str, Cell)]) -> Vec<Vec<Cell>> {
        const NAME: &str = "WriteReport";
        let mut rows: Vec<Vec<Cell>> = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let mut cells = row.iter().cloned();
            let full = self.columns.iter().map(|of| {
                if of.kind.is_computed() {
                    Cell::Empty
                } else {
                    cells.next().unwrap_or(Cell::Empty)
                }
            });
            rows.push(full.collect());
        }
        for (i, column) in self.columns.iter().enumerate() {
            if !column.kind.is_computed() {
                continue;
            }
            let part = self.column_named(column.part, NAME);
            let fixed = match column.scope {
                Scope::Rows => Some(sum(rows.iter().map(|row| &row[part]))),
                Scope::Fact => match facts.iter().find(|(of, _)| *of == column.whole) {
                    Some((_, value)) => Some(value.clone()),
                    None => self.fail(NAME, format!("there is no fact `{}`", column.whole)),
                },
                Scope::Column => None,
            };
            let whole = match fixed {
                Some(_) => part,
                None => self.column_named(column.whole, NAME),
            };
            for row in &mut rows {
                let whole = fixed.as_ref().unwrap_or(&row[whole]);
                row[i] = quotient(column.kind, &row[part], whole);
            }
        }
        rows
    }

    /// Gives the table to a report.
    pub fn complete(self, facts: &[(&'static str, Cell)], report: &mut atom_tool::Report) {
        self.check("WriteReport");
        let rows = self.full_rows(facts);
        let columns = self.columns.iter().map(|of| of.made);
        let table = report.typed_table(self.by, self.title, columns);
        for row in rows {
            table.row_of(row);
        }
        for name in &self.sorts {
            if let Some(column) = self.columns.iter().position(|of| of.name == *name) {
                table.sort(column);
            }
        }
        table.readers(self.readers).leave_out(self.left_out);
    }
}

/// The sum of a column's cells.
fn sum<'a>(cells: impl Iterator<Item = &'a Cell>) -> Cell {
    let (mut number, mut rest, mut is_ratio) = (0, 0.0, false);
    for cell in cells {
        match cell {
            Cell::Number(n) => number += n,
            Cell::Ratio(r) => (rest, is_ratio) = (rest + r, true),
            _ => {}
        }
    }
    if is_ratio {
        Cell::Ratio(rest + number as f64)
    } else {
        Cell::Number(number)
    }
}
