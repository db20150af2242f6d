//! Columns, as C sees them.

use std::ffi::{c_char, c_int};
use std::ptr::null;

use atom_tool::report::{self, Sum};

use super::kept;
use crate::primitives::handles::fail;

/// C's `Column`. Texts that are not needed are NULL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CColumn {
    name: *const c_char,
    unit: *const c_char,
    part: *const c_char,
    whole: *const c_char,
    kind: c_int,
    scope: c_int,
    role: c_int,
    sum: c_int,
}

/// The type of the cells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Count,
    Bytes,
    Seconds,
    Ratio,
    Address,
    Place,
    Text,
    Percent,
    Quotient,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Count,
        Self::Bytes,
        Self::Seconds,
        Self::Ratio,
        Self::Address,
        Self::Place,
        Self::Text,
        Self::Percent,
        Self::Quotient,
    ];

    /// True if the cells are computed.
    pub fn is_computed(self) -> bool {
        matches!(self, Self::Percent | Self::Quotient)
    }
}

/// By what the part of a computed column is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The part's sum over all rows.
    Rows,
    /// A column; of a fact: another fact.
    Column,
    Fact,
}

const ROWS: c_int = 0;
const COLUMN: c_int = 1;
const FACT: c_int = 2;

/// Roles: the column's own, key, label.
const KEY: c_int = 1;
const LABEL: c_int = 2;
/// The way of adding up that belongs to the column.
const OWN_SUM: c_int = -1;
/// The rows of a table are counted again: those in which the column `part` of the table `whole` is not 0.
const SUM_OF_ROWS: c_int = 4;

impl CColumn {
    fn new(name: *const c_char, kind: Kind) -> Self {
        Self {
            name,
            unit: null(),
            part: null(),
            whole: null(),
            kind: kind as c_int,
            scope: ROWS,
            role: 0,
            sum: OWN_SUM,
        }
    }

    /// True for a column of addresses.
    pub fn is_address(&self) -> bool {
        self.kind == Kind::Address as c_int
    }
}

macro_rules! columns {
    ($($name:ident => $kind:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(name: *const c_char) -> CColumn {
            CColumn::new(name, Kind::$kind)
        }
    )*};
}
columns! {
    BytesColumn => Bytes;
    SecondsColumn => Seconds;
    RatioColumn => Ratio;
    AddressColumn => Address;
    PlaceColumn => Place;
    TextColumn => Text;
}

#[unsafe(no_mangle)]
extern "C" fn CountColumn(name: *const c_char, unit: *const c_char) -> CColumn {
    let column = CColumn::new(name, Kind::Count);
    CColumn { unit, ..column }
}

#[unsafe(no_mangle)]
extern "C" fn ShareColumn(name: *const c_char, part: *const c_char) -> CColumn {
    let column = CColumn::new(name, Kind::Percent);
    CColumn { part, ..column }
}

macro_rules! computed {
    ($($name:ident => $kind:ident, $scope:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(
            name: *const c_char,
            part: *const c_char,
            whole: *const c_char,
        ) -> CColumn {
            let column = CColumn::new(name, Kind::$kind);
            CColumn { part, whole, scope: $scope, ..column }
        }
    )*};
}
computed! {
    PercentColumn => Percent, COLUMN;
    FactPercentColumn => Percent, FACT;
    QuotientColumn => Quotient, COLUMN;
}

#[unsafe(no_mangle)]
extern "C" fn UnitColumn(column: CColumn, unit: *const c_char) -> CColumn {
    CColumn { unit, ..column }
}

#[unsafe(no_mangle)]
extern "C" fn KeyColumn(column: CColumn) -> CColumn {
    let role = KEY;
    CColumn { role, ..column }
}

#[unsafe(no_mangle)]
extern "C" fn LabelColumn(column: CColumn) -> CColumn {
    let role = LABEL;
    CColumn { role, ..column }
}

#[unsafe(no_mangle)]
extern "C" fn SumColumn(column: CColumn, sum: c_int) -> CColumn {
    CColumn { sum, ..column }
}

#[unsafe(no_mangle)]
extern "C" fn RowsColumn(column: CColumn, whole: *const c_char, part: *const c_char) -> CColumn {
    let sum = SUM_OF_ROWS;
    CColumn {
        whole,
        part,
        sum,
        ..column
    }
}

/// A column with its texts copied.
#[derive(Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub part: &'static str,
    pub whole: &'static str,
    pub scope: Scope,
    /// As a report takes it.
    pub made: report::Column,
}

impl Column {
    /// Reads a column of C.
    ///
    /// # Safety
    /// Its texts are NULL or strings of C.
    pub unsafe fn read(column: &CColumn, function: &str) -> Self {
        // SAFETY: the caller's promise.
        let [name, unit, part, whole] =
            [column.name, column.unit, column.part, column.whole].map(|text| unsafe { kept(text) });
        if name.is_empty() {
            fail(function, "the column has no name");
        }
        let kind = usize::try_from(column.kind).ok();
        let Some(&kind) = kind.and_then(|kind| Kind::ALL.get(kind)) else {
            fail(function, format!("the column `{name}` has no type"));
        };
        let scope = match column.scope {
            ROWS => Scope::Rows,
            FACT => Scope::Fact,
            _ => Scope::Column,
        };
        let mut made = match (kind, scope) {
            (Kind::Count, _) => report::Column::count(name, unit),
            (Kind::Bytes, _) => report::Column::bytes(name),
            (Kind::Seconds, _) => report::Column::seconds(name),
            (Kind::Ratio, _) => report::Column::ratio(name),
            (Kind::Address, _) => report::Column::address(name),
            (Kind::Place, _) => report::Column::place(name),
            (Kind::Text, _) => report::Column::text(name),
            (Kind::Percent, Scope::Rows) => report::Column::share(name, part),
            (Kind::Percent, Scope::Fact) => report::Column::percent_of_fact(name, part, whole),
            (Kind::Percent, Scope::Column) => report::Column::percent_of(name, part, whole),
            (Kind::Quotient, _) => report::Column::ratio_of(name, part, whole),
        };
        if !unit.is_empty() {
            made = made.unit(unit);
        }
        made = match column.role {
            KEY => made.key(),
            LABEL => made.label(),
            _ => made,
        };
        made = match column.sum {
            0 => made.sum(Sum::Add),
            1 => made.sum(Sum::Max),
            2 => made.sum(Sum::Min),
            3 => made.sum(Sum::None),
            SUM_OF_ROWS => made.rows_of(whole, part),
            OWN_SUM => made,
            sum => fail(function, format!("there is no way {sum} to add up")),
        };
        Self {
            name,
            kind,
            part,
            whole,
            scope,
            made,
        }
    }
}
