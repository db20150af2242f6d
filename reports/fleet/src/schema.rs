//! The columns of the table, which are the same for all tools.
//!
//! No name is a reserved word of SQL, so queries need no quotes.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::schema::types::{Type, TypePtr};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// An integer of 64 bits.
    Integer,
    /// A floating-point number.
    Float,
    /// A time in microseconds since 1970, UTC.
    Time,
}

/// A source of a column's values: the number of a column in the memory of [`Rows`](crate::rows::Rows).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A text that is the same in all rows of a segment.
    SegmentText(usize),
    /// A number that is the same in all rows of a segment.
    SegmentInteger(usize),
    /// Seconds that are the same in all rows of a segment.
    SegmentFloat,
    /// A text of a row.
    Text(usize),
    /// An integer of a row.
    Integer(usize),
    /// A floating-point number of a row.
    Float,
}

/// Texts of a segment, in the order in which [`Rows`](crate::rows::Rows) gets them.
pub(crate) const SEGMENT_TEXTS: usize = 15;
/// Integers of a segment: processors, process, start.
pub(crate) const SEGMENT_INTEGERS: usize = 3;
/// Texts of a row: object, build-id, procedure, source file, called object, called procedure, details.
pub(crate) const TEXTS: usize = 7;
/// Integers of a row: address, line, called address, value.
pub(crate) const INTEGERS: usize = 4;

use Source::{Float, Integer, SegmentFloat, SegmentInteger, SegmentText, Text};

/// All columns in their order: name, type, source.
#[rustfmt::skip]
pub(crate) const COLUMNS: &[(&str, Kind, Source)] = &[
    ("run",             Kind::Text,    SegmentText(0)),
    ("program",         Kind::Text,    SegmentText(1)),
    ("program_path",    Kind::Text,    SegmentText(2)),
    ("build_id",        Kind::Text,    SegmentText(3)),
    ("arguments",       Kind::Text,    SegmentText(4)),
    ("options",         Kind::Text,    SegmentText(5)),
    ("scope",           Kind::Text,    SegmentText(6)),
    ("atom",            Kind::Text,    SegmentText(7)),
    ("host",            Kind::Text,    SegmentText(8)),
    ("kernel",          Kind::Text,    SegmentText(9)),
    ("processor",       Kind::Text,    SegmentText(10)),
    ("processors",      Kind::Integer, SegmentInteger(0)),
    ("pid",             Kind::Integer, SegmentInteger(1)),
    ("started",         Kind::Time,    SegmentInteger(2)),
    ("seconds",         Kind::Float,   SegmentFloat),
    ("table_name",      Kind::Text,    SegmentText(11)),
    ("per",             Kind::Text,    SegmentText(12)),
    ("measure",         Kind::Text,    SegmentText(13)),
    ("unit",            Kind::Text,    SegmentText(14)),
    ("object",          Kind::Text,    Text(0)),
    ("object_build_id", Kind::Text,    Text(1)),
    ("address",         Kind::Integer, Integer(0)),
    ("procedure",       Kind::Text,    Text(2)),
    ("file",            Kind::Text,    Text(3)),
    ("line",            Kind::Integer, Integer(1)),
    ("callee_object",   Kind::Text,    Text(4)),
    ("callee_address",  Kind::Integer, Integer(2)),
    ("callee",          Kind::Text,    Text(5)),
    ("detail",          Kind::Text,    Text(6)),
    ("value",           Kind::Integer, Integer(3)),
    ("real_value",      Kind::Float,   Float),
];

/// Names and types of the columns, in their order. `tool` and `date` are in the names of the folders.
pub fn columns() -> impl Iterator<Item = (&'static str, Kind)> {
    COLUMNS.iter().map(|(name, kind, _)| (*name, *kind))
}

/// The schema of a file. Each cell may be missing.
pub(crate) fn schema() -> parquet::errors::Result<TypePtr> {
    let field = |(name, kind, _): &(&str, Kind, Source)| {
        let (physical, logical) = match kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Integer => (Physical::INT64, None),
            Kind::Float => (Physical::DOUBLE, None),
            Kind::Time => {
                let time = LogicalType::timestamp(true, TimeUnit::MICROS);
                (Physical::INT64, Some(time))
            }
        };
        Type::primitive_type_builder(name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()
            .map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field);
    let fields = fields.collect::<parquet::errors::Result<Vec<_>>>()?;
    let schema = Type::group_type_builder("profiles").with_fields(fields);
    schema.build().map(Arc::new)
}
