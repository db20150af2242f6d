//! pprof's format: a message of protocol buffers, compressed by gzip.
//!
//! A sample of the message is a stack of locations, the innermost first, with one value for each sample type. Measures
//! by instruction or line become stacks of one location. An arc of the call graph becomes a stack of two: the callee's
//! entry and its caller, so that the values of a procedure as callee are its entries.
//!
//! Addresses are those of the objects' files. Files that are position-independent would overlap, so each object but the
//! program has a range of its own: [`RANGE`] times its number is added. The mappings say so.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use profile::{By, Profile, Role, Table, Type, Value};
use prost::Message;

use super::super::spots::{self, Unit};
use super::Made;

/// Bytes of addresses for each object.
const RANGE: u64 = 1 << 40;

/// Size of a page in bytes, to which the bounds of an unknown object are rounded.
const PAGE: u64 = 4096;

/// Nanoseconds in a second.
const NANOS: f64 = 1e9;

/// The messages of `profile.proto`. Numbers without a name here are indices into the table of strings.
mod message {
    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub kind: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub file_offset: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
        #[prost(bool, tag = "8")]
        pub has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub has_line_numbers: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

/// A place of the code.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place<'a> {
    object: usize,
    at: u64,
    procedure: &'a str,
    file: &'a str,
    line: u64,
}

/// A message in the making.
#[derive(Default)]
struct Writer<'a> {
    message: message::Profile,
    strings: HashMap<String, i64>,
    functions: HashMap<(usize, &'a str, &'a str), u64>,
    locations: HashMap<Place<'a>, u64>,
    /// Number of the sample of a stack.
    samples: HashMap<Vec<u64>, usize>,
}

impl<'a> Writer<'a> {
    fn new() -> Self {
        let mut writer = Self::default();
        // The first string must be empty.
        writer.string("");
        writer
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.message.string_table.len() as i64;
        self.message.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn sample_type(&mut self, name: &str, unit: &str) {
        let (kind, unit) = (self.string(name), self.string(unit));
        let sample_type = message::ValueType { kind, unit };
        self.message.sample_type.push(sample_type);
    }

    fn function(&mut self, place: &Place<'a>) -> u64 {
        let key = (place.object, place.procedure, place.file);
        let next = self.message.function.len() as u64 + 1;
        let id = *self.functions.entry(key).or_insert(next);
        if id == next {
            let (name, filename) = (self.string(place.procedure), self.string(place.file));
            self.message.function.push(message::Function {
                id,
                name,
                system_name: name,
                filename,
            });
        }
        id
    }

    fn location(&mut self, place: Place<'a>) -> u64 {
        if let Some(id) = self.locations.get(&place) {
            return *id;
        }
        let id = self.message.location.len() as u64 + 1;
        self.locations.insert(place, id);
        let line = match place.procedure {
            "" => Vec::new(),
            _ => vec![message::Line {
                function_id: self.function(&place),
                line: place.line as i64,
            }],
        };
        self.message.location.push(message::Location {
            id,
            mapping_id: place.object as u64 + 1,
            address: place.object as u64 * RANGE + place.at,
            line,
        });
        id
    }

    /// Adds the values of a stack, the innermost location first.
    fn sample(&mut self, stack: Vec<u64>, value: Vec<i64>) {
        let next = self.message.sample.len();
        let at = *self.samples.entry(stack.clone()).or_insert(next);
        if at == next {
            self.message.sample.push(message::Sample {
                location_id: stack,
                value,
            });
            return;
        }
        for (sum, value) in self.message.sample[at].value.iter_mut().zip(value) {
            *sum = sum.saturating_add(value);
        }
    }

    /// Adds one mapping for each object: a location names its mapping by the number of its object.
    fn mappings(&mut self, profile: &Profile) {
        for (number, object) in profile.objects.iter().enumerate() {
            let id = number as u64 + 1;
            let low = number as u64 * RANGE;
            let all = || self.message.location.iter().filter(|l| l.mapping_id == id);
            let ends = all()
                .map(|l| l.address)
                .min()
                .zip(all().map(|l| l.address).max());
            let (mut start, mut limit, mut file_offset) = match ends {
                Some((first, last)) => (first & !(PAGE - 1), (last | (PAGE - 1)) + 1, 0),
                None => (low, low + PAGE, 0),
            };
            if let Ok(image) = spots::open(object) {
                let code = || image.segments.iter().filter(|s| s.is_executable());
                if let (Some(first), Some(last)) = (code().next(), code().next_back()) {
                    start = low + first.address;
                    limit = low + last.address + last.mem_size;
                    file_offset = first.offset;
                }
            }
            let lines = all().flat_map(|l| &l.line);
            let has_lines = lines.clone().any(|l| l.line != 0);
            let has_functions = lines.count() != 0;
            let filename = self.string(&object.path);
            let build_id = self.string(object.build_id.as_deref().unwrap_or(""));
            self.message.mapping.push(message::Mapping {
                id,
                memory_start: start,
                memory_limit: limit,
                file_offset,
                filename,
                build_id,
                has_functions,
                has_filenames: has_lines,
                has_line_numbers: has_lines,
            });
        }
    }

    fn bytes(self) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        let written = packed.write_all(&self.message.encode_to_vec());
        let done = written.and_then(|()| packed.finish());
        done.expect("writing to memory does not fail")
    }
}

/// A value as the format's integers: seconds become nanoseconds.
fn integer(value: Value, kind: Type) -> i64 {
    match (value, kind) {
        (Value::Integer(n), _) => i64::try_from(n).unwrap_or(i64::MAX),
        (Value::Float(x), Type::Seconds) => (x * NANOS).round() as i64,
        (Value::Float(x), _) => x.round() as i64,
        (Value::Unknown, _) => 0,
    }
}

/// The word for a unit.
fn unit(kind: Type, unit: Option<&str>) -> &str {
    match kind {
        Type::Seconds => "nanoseconds",
        Type::Bytes => "bytes",
        _ => unit.unwrap_or("count"),
    }
}

/// pprof's format.
pub fn pprof(profile: &Profile) -> Made {
    let mut notes = Vec::new();
    let arcs = profile.tables.iter().find(|t| t.by == By::Arc);
    let found = match spots::spots(profile, Unit::Line, None) {
        Ok(spots) => Ok(spots),
        Err(_) => spots::spots(profile, Unit::Procedure, None),
    };
    let is_of_calls = arcs.is_some() && spots::spots(profile, Unit::Instruction, None).is_err();
    let spots = match found {
        Ok(spots) if !is_of_calls => Some(spots),
        Err(error) if arcs.is_none() => return Err(error),
        _ => None,
    };
    let mut writer = Writer::new();
    if let Some(spots) = &spots {
        notes.clone_from(&spots.notes);
        for head in &spots.heads {
            writer.sample_type(&head.name, unit(head.kind, head.unit.as_deref()));
        }
        for spot in &spots.all {
            let place = Place {
                object: spot.object,
                at: spot.at,
                procedure: &spot.procedure,
                file: &spot.file,
                line: spot.line,
            };
            let values = spot.values.iter().zip(&spots.heads);
            let values: Vec<i64> = values.map(|(v, h)| integer(*v, h.kind)).collect();
            if values.iter().any(|v| *v != 0) {
                let location = writer.location(place);
                writer.sample(vec![location], values);
            }
        }
    } else if let Some(table) = arcs {
        add_arcs(&mut writer, profile, table);
    }
    writer.mappings(profile);
    writer.message.duration_nanos = (profile.time.seconds * NANOS).round() as i64;
    let what = format!(
        "atom {} of {}",
        profile.tool,
        profile.program.arguments.join(" ")
    );
    let comment = writer.string(&what);
    writer.message.comment.push(comment);
    Ok((writer.bytes(), notes))
}

/// Adds each arc as a stack of the callee's entry and its caller.
fn add_arcs<'a>(writer: &mut Writer<'a>, profile: &'a Profile, table: &'a Table) {
    let is_measure = |c: &&profile::Column| c.role == Role::Measure;
    let measures: Vec<_> = table.columns.iter().filter(is_measure).collect();
    for column in &measures {
        writer.sample_type(&column.name, unit(column.kind, column.unit.as_deref()));
    }
    let place = |name: &str, row: usize| {
        let pcs = table.column(&format!("{name} pc"))?;
        let at = pcs.values.get(row)?.integer()?;
        let names = table.column(name)?;
        Some(Place {
            object: pcs.object(row),
            at,
            procedure: profile.text(*names.values.get(row)?)?,
            file: "",
            line: 0,
        })
    };
    for row in 0..table.rows {
        let Some(callee) = place("callee", row) else {
            continue;
        };
        let mut stack = vec![writer.location(callee)];
        if let Some(caller) = place("caller", row) {
            stack.push(writer.location(caller));
        }
        let values = measures.iter().map(|c| {
            let value = c.values.get(row).copied().unwrap_or_default();
            integer(value, c.kind)
        });
        writer.sample(stack, values.collect());
    }
}
