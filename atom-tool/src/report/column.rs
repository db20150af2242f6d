//! What the columns of tables stand for: type, unit, role, and how values of several runs are added up.
//!
//! People read that from titles. Programs that add profiles up or compare them cannot, so a tool says it with a
//! [`Column`]. Where a tool gives a name only, type and role follow from the cells.

use super::Cell;
use super::estimate::Estimate;
pub use tables::schema::{By, Sum};
pub(super) use tables::schema::{Follows, Role, Type};

/// By what a derived column's part is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whole {
    /// The sum of the part over all rows.
    All,
    /// A column; of a fact: another fact.
    Column(&'static str),
    /// A fact.
    Fact(&'static str),
}

/// A column of a table, or the value of a fact: its name, and what it stands for.
///
/// ```
/// use atom_tool::report::{By, Column};
/// # use atom_tool::prelude::*;
///
/// fn fill(report: &mut Report) {
///     report.typed_fact(Column::count("calls", "calls"), 12);
///     report
///         .typed_table(By::Procedure, "procedures", [
///             Column::count("calls", "calls"),
///             Column::share("%", "calls"),
///             Column::address("pc"),
///             Column::text("procedure"),
///         ])
///         .row([12.into(), Cell::percent(12, 12), Cell::Address(0x1000), "main".into()])
///         .sort(0);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Option<Type>,
    pub(super) unit: &'static str,
    pub(super) role: Option<Role>,
    pub(super) sum: Option<Sum>,
    /// Of a derived column: the part, and by what it is divided.
    pub(super) quotient: Option<(&'static str, Whole)>,
    /// What it is computed from in a sum of profiles.
    pub(super) from: Option<Source>,
}

/// The table that a number follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Source {
    pub table: &'static str,
    pub column: Option<&'static str>,
    pub by: Follows,
}

impl From<&'static str> for Column {
    fn from(name: &'static str) -> Self {
        Self::new(name)
    }
}

impl Column {
    /// A column whose type and role follow from its cells: numbers are measured counts that are added up, ratios
    /// are measured and cannot be added up, addresses identify rows, and so do texts in tables without addresses.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            kind: None,
            unit: "",
            role: None,
            sum: None,
            quotient: None,
            from: None,
        }
    }

    const fn typed(name: &'static str, kind: Type, role: Role) -> Self {
        let mut column = Self::new(name);
        column.kind = Some(kind);
        column.role = Some(role);
        column
    }

    const fn quotient(name: &'static str, kind: Type, part: &'static str, whole: Whole) -> Self {
        let mut column = Self::typed(name, kind, Role::Derived);
        column.quotient = Some((part, whole));
        column
    }

    /// Counted things; `unit` is their name in the plural. Counts of several runs are added up.
    pub const fn count(name: &'static str, unit: &'static str) -> Self {
        let mut column = Self::typed(name, Type::Count, Role::Measure);
        column.unit = unit;
        column.sum = Some(Sum::Add);
        column
    }

    /// Numbers of bytes, which are added up.
    pub const fn bytes(name: &'static str) -> Self {
        Self::typed(name, Type::Bytes, Role::Measure).sum(Sum::Add)
    }

    /// Durations in seconds, which are added up.
    pub const fn seconds(name: &'static str) -> Self {
        Self::typed(name, Type::Seconds, Role::Measure).sum(Sum::Add)
    }

    /// Numbers with a fraction, which cannot be added up.
    pub const fn ratio(name: &'static str) -> Self {
        Self::typed(name, Type::Ratio, Role::Measure).sum(Sum::None)
    }

    /// The column `part` in per cent of its sum over all rows. Programs compute it themselves.
    pub const fn share(name: &'static str, part: &'static str) -> Self {
        Self::quotient(name, Type::Percent, part, Whole::All)
    }

    /// The column `part` in per cent of the column `whole`; of a fact: a fact in per cent of another one.
    pub const fn percent_of(name: &'static str, part: &'static str, whole: &'static str) -> Self {
        Self::quotient(name, Type::Percent, part, Whole::Column(whole))
    }

    /// The column `part` in per cent of a fact.
    pub const fn percent_of_fact(
        name: &'static str,
        part: &'static str,
        fact: &'static str,
    ) -> Self {
        Self::quotient(name, Type::Percent, part, Whole::Fact(fact))
    }

    /// The column `part` divided by the column `whole`; of a fact: a fact divided by another one.
    pub const fn ratio_of(name: &'static str, part: &'static str, whole: &'static str) -> Self {
        Self::quotient(name, Type::Ratio, part, Whole::Column(whole))
    }

    /// Addresses of the original program, which identify rows.
    pub const fn address(name: &'static str) -> Self {
        Self::typed(name, Type::Address, Role::Key)
    }

    /// Source lines, which describe rows.
    pub const fn place(name: &'static str) -> Self {
        Self::typed(name, Type::Place, Role::Label)
    }

    /// Texts, which describe rows.
    pub const fn text(name: &'static str) -> Self {
        Self::typed(name, Type::Text, Role::Label)
    }

    /// True if a run that is sampled tells only a part of its values, from which those of the whole run are estimated.
    pub(super) fn is_estimated(&self) -> bool {
        self.kind == Some(Type::Count) && self.sum == Some(Sum::Add)
    }

    /// Makes what was counted in the bursts of a run an estimate for all of it.
    pub(super) fn estimate(&self, cell: &mut Cell, estimate: &Estimate) {
        if let (true, Cell::Number(n)) = (self.is_estimated(), cell) {
            *n = estimate.count(*n);
        }
    }

    /// Half the widths of the intervals of its values.
    pub(super) fn spread(&self) -> Self {
        let mut column = Self::new(format!("{} ±", self.name).leak());
        column.kind = self.kind.map(|kind| match kind {
            Type::Percent => Type::Ratio,
            kind => kind,
        });
        column.unit = self.unit;
        column.role = Some(Role::Measure);
        column.sum(Sum::None)
    }

    /// The same column with a unit.
    pub const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    /// The same column, as one that identifies rows: rows of several runs are the same row if all such columns
    /// agree.
    pub const fn key(mut self) -> Self {
        self.role = Some(Role::Key);
        self
    }

    /// The same column, as one that describes rows.
    pub const fn label(mut self) -> Self {
        self.role = Some(Role::Label);
        self
    }

    /// The same column, whose values of several runs are added up in this way.
    pub const fn sum(mut self, sum: Sum) -> Self {
        self.sum = Some(sum);
        self
    }

    const fn follows(
        mut self,
        table: &'static str,
        column: Option<&'static str>,
        by: Follows,
    ) -> Self {
        self.from = Some(Source { table, column, by });
        self.sum(Sum::None)
    }

    /// The same column, whose value is the number of rows of a table whose `column` is not 0: the size of a set, which
    /// is counted again in the sum of several runs. Of a row it is the number of rows that belong to it: by the
    /// address from which on they do, or by the source file.
    pub const fn rows_of(self, table: &'static str, column: &'static str) -> Self {
        self.follows(table, Some(column), Follows::Rows)
    }

    /// The same column, whose value is the number of all rows of a table.
    pub const fn all_rows_of(self, table: &'static str) -> Self {
        self.follows(table, None, Follows::Rows)
    }

    /// The same column, whose value is the sum of a column of a table.
    pub const fn total_of(self, table: &'static str, column: &'static str) -> Self {
        self.follows(table, Some(column), Follows::Total)
    }
}
