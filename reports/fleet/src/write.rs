//! Rows as a Parquet file.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, GzipLevel};
use parquet::data_type::{ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;

use crate::cells::{NO_INTEGER, NO_TEXT};
use crate::rows::Rows;
use crate::schema::{COLUMNS, Kind, Source, schema};

/// Number of rows that are handed over at once.
const BATCH: usize = 1 << 16;

/// Largest size in bytes of the list of different texts of a column in a row group. Longer lists make the rest of the column
/// plain.
const DICTIONARY: usize = 32 << 20;

/// Begins a file.
pub fn begin(file: File) -> Result<SerializedFileWriter<File>> {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("atom version ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_page_size_limit(DICTIONARY);
    // Differences of neighbours are small: addresses are sorted.
    for (name, kind, source) in COLUMNS {
        if *kind == Kind::Integer && matches!(source, Source::Integer(_)) {
            let path = ColumnPath::from(*name);
            properties = properties
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    SerializedFileWriter::new(file, schema()?, Arc::new(properties.build()))
}

/// Writes all rows as one row group.
pub fn group<W: Write + Send>(writer: &mut SerializedFileWriter<W>, rows: &Rows) -> Result<()> {
    let mut group = writer.next_row_group()?;
    for (_, _, source) in COLUMNS {
        let Some(mut column) = group.next_column()? else {
            break;
        };
        let to = &mut column;
        let text = |number: &u32| {
            let is_there = *number != NO_TEXT;
            is_there.then(|| rows.names.all[*number as usize].clone())
        };
        let integer = |n: &i64| (*n != NO_INTEGER).then_some(*n);
        let float = |x: &f64| (!x.is_nan()).then_some(*x);
        let segments = || rows.segments.iter();
        match *source {
            Source::SegmentText(i) => {
                let values = segments().map(|s| (text(&s.texts[i]), s.rows));
                repeated::<ByteArrayType>(to, values)?;
            }
            Source::SegmentInteger(i) => {
                let values = segments().map(|s| (integer(&s.integers[i]), s.rows));
                repeated::<Int64Type>(to, values)?;
            }
            Source::SegmentFloat => {
                let values = segments().map(|s| (float(&s.seconds), s.rows));
                repeated::<DoubleType>(to, values)?;
            }
            Source::Text(i) => each::<ByteArrayType, _>(to, &rows.texts[i], text)?,
            Source::Integer(i) => each::<Int64Type, _>(to, &rows.integers[i], integer)?,
            Source::Float => each::<DoubleType, _>(to, &rows.floats, float)?,
        }
        column.close()?;
    }
    group.close()?;
    Ok(())
}

/// Writes a column with a value for each row.
fn each<T: DataType, V>(
    to: &mut SerializedColumnWriter,
    values: &[V],
    value: impl Fn(&V) -> Option<T::T>,
) -> Result<()> {
    let mut column = Column::<T>::new(to);
    for batch in values.chunks(BATCH) {
        for cell in batch {
            column.push(value(cell));
        }
        column.flush()?;
    }
    Ok(())
}

/// Writes a column with values that stand for several rows each.
fn repeated<T: DataType>(
    to: &mut SerializedColumnWriter,
    values: impl Iterator<Item = (Option<T::T>, usize)>,
) -> Result<()> {
    let mut column = Column::<T>::new(to);
    for (value, mut rows) in values {
        while rows > 0 {
            let part = rows.min(BATCH - column.levels.len());
            column
                .levels
                .resize(column.levels.len() + part, value.is_some().into());
            if let Some(value) = &value {
                let number = column.values.len() + part;
                column.values.resize(number, value.clone());
            }
            rows -= part;
            if column.levels.len() == BATCH {
                column.flush()?;
            }
        }
    }
    column.flush()
}

/// A column and the rows of it that are not handed over yet.
struct Column<'c, 'w, T: DataType> {
    to: &'c mut SerializedColumnWriter<'w>,
    values: Vec<T::T>,
    /// For each row 1 if it has a value, else 0.
    levels: Vec<i16>,
}

impl<'c, 'w, T: DataType> Column<'c, 'w, T> {
    fn new(to: &'c mut SerializedColumnWriter<'w>) -> Self {
        Self {
            to,
            values: Vec::with_capacity(BATCH),
            levels: Vec::with_capacity(BATCH),
        }
    }

    fn push(&mut self, value: Option<T::T>) {
        self.levels.push(value.is_some().into());
        self.values.extend(value);
    }

    fn flush(&mut self) -> Result<()> {
        let writer = self.to.typed::<T>();
        writer.write_batch(&self.values, Some(&self.levels), None)?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

/// A note in the file for programs that append.
pub fn note(key: &str, value: String) -> KeyValue {
    KeyValue::new(key.to_owned(), value)
}
