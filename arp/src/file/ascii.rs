//! The ASCII format, version 1.1.
//!
//! The two lines of the heading are followed by the number of records, then by the records. A record has
//! - the number of open sections;
//! - the number of leading sections, counted from the outermost, that are the same as in the previous record, with the
//!   same counters;
//! - the other sections;
//! - a colon, the measured figures and a semicolon.
//!
//! Written files have one line for each record; any white space is read. The measured figures are
//!
//! - in mode *all*, where sections are `number@counter`, one value for each set of callbacks;
//! - in mode *average*, where sections are numbers, the number of executions, then mean, minimum and maximum of each set;
//! - in mode *histogram* the figures of mode *average*, with each set's figures followed by the number of its buckets that
//!   are not empty and by these buckets as `value@count`, where *value* is the value in the bucket nearest to 0.
//!
//! Lines after the last record that begin with `#` describe sections.
use std::io::{self, BufRead, Write};

use crate::error::{Error, ErrorKind, FilePosition, Result};
use crate::file::record::{Data, Record};
use crate::file::{Heading, MAX_OCTAVES, MAX_STACK};
use crate::histogram::Histogram;
use crate::stats::Stats;
use crate::types::{DataType, Mode, Section, SectionKind, Sid, Step};
use crate::value::Value;

type Input = Box<dyn BufRead + Send>;

/// Length limit in bytes of a number or text that is read.
const MAX_TOKEN: usize = 1 << 16;

/// Reads records.
pub(crate) struct AsciiReader {
    input: Input,
    line: u64,
    mode: Mode,
    types: Vec<DataType>,
    left: u64,
    total: u64,
    token: String,
    stack: Vec<Step>,
    values: Vec<Value>,
    stats: Vec<Stats>,
    histograms: Vec<Histogram>,
}

impl AsciiReader {
    /// Begins after the heading's two lines.
    pub fn new(input: Input, heading: &Heading) -> Result<Self> {
        let mut reader = Self {
            input,
            line: 3,
            mode: heading.mode,
            types: heading.sets.iter().map(|s| s.data_type).collect(),
            left: 0,
            total: 0,
            token: String::new(),
            stack: Vec::new(),
            values: Vec::new(),
            stats: Vec::new(),
            histograms: Vec::new(),
        };
        reader.left = reader.number("the number of records")?;
        reader.total = reader.left;
        Ok(reader)
    }

    /// Moves to the next record. After the last record it reads the descriptions and returns false.
    pub fn advance(&mut self, heading: &mut Heading) -> Result<bool> {
        if self.left == 0 {
            self.descriptions(heading)?;
            return Ok(false);
        }
        self.left -= 1;
        match self.record() {
            Ok(()) => Ok(true),
            Err(error) if error.kind == ErrorKind::Truncated => {
                let whole = self.total - self.left - 1;
                let reason = format!("{}, after {whole} of {} records", error.reason, self.total);
                Err(Error { reason, ..error })
            }
            Err(error) => Err(error),
        }
    }

    pub fn current(&self) -> Record<'_> {
        Record {
            thread: None,
            stack: &self.stack,
            data: match self.mode {
                Mode::RecordAverage => Data::Stats(&self.stats),
                Mode::RecordHistogram => Data::Histograms(&self.histograms),
                _ => Data::Sample(&self.values),
            },
        }
    }

    fn record(&mut self) -> Result<()> {
        let depth = self.number("the number of open sections")?;
        let reuse = self.number("the number of sections that stay")?;
        if depth == 0 || depth > MAX_STACK as u64 {
            return Err(self.bad("a record has no sections, or too many"));
        }
        if reuse > depth || reuse > self.stack.len() as u64 {
            return Err(self.bad("a record takes over more sections than there are"));
        }
        self.stack.truncate(reuse as usize);
        for _ in reuse..depth {
            let sid = self.number("a section")?;
            let sid =
                Sid(u32::try_from(sid).map_err(|_| self.bad("a section number is too large"))?);
            let mut counter = 0;
            if self.mode == Mode::RecordAll {
                self.mark(b'@')?;
                self.next_token()?;
                counter = self
                    .token
                    .parse()
                    .map_err(|_| self.bad("a counter is expected here"))?;
            }
            self.stack.push(Step { sid, counter });
        }
        self.mark(b':')?;
        self.values.clear();
        self.stats.clear();
        self.histograms.clear();
        if self.mode == Mode::RecordAll {
            for set in 0..self.types.len() {
                let value = self.value(self.types[set])?;
                self.values.push(value);
            }
        } else {
            let count = self.number("the number of executions")?;
            let mut octaves = 0;
            for set in 0..self.types.len() {
                let ty = self.types[set];
                let stats = self.sums(ty, count)?;
                if self.mode == Mode::RecordAverage {
                    self.stats.push(stats);
                } else {
                    let mut histogram = Histogram::new(ty);
                    histogram.stats = stats;
                    for _ in 0..self.number("the number of buckets")? {
                        let low = self.float()?;
                        self.mark(b'@')?;
                        let count = self.number("the count of a bucket")?;
                        histogram.add_many(low, count);
                        if octaves + histogram.octaves() > MAX_OCTAVES {
                            return Err(self.bad("a record has too many buckets"));
                        }
                    }
                    octaves += histogram.octaves();
                    self.histograms.push(histogram);
                }
            }
        }
        self.mark(b';')
    }

    fn value(&mut self, ty: DataType) -> Result<Value> {
        self.next_token()?;
        Value::parse(ty, &self.token)
            .ok_or_else(|| self.bad("a value of the set's type is expected here"))
    }

    fn float(&mut self) -> Result<f64> {
        self.next_token()?;
        self.token
            .parse()
            .map_err(|_| self.bad("a number is expected here"))
    }

    fn sums(&mut self, ty: DataType, count: u64) -> Result<Stats> {
        let mean = self.float()?;
        if ty.is_float() {
            let (min, max) = (self.float()?, self.float()?);
            return Ok(Stats::Float {
                count,
                sum: mean * count as f64,
                min,
                max,
            });
        }
        // Where the product is not exact, minimum and maximum bound it.
        let sum = whole_sum(mean, count);
        let mut integer = || {
            self.next_token()?;
            self.token
                .parse::<i128>()
                .map_err(|_| self.bad("an integer is expected here"))
        };
        let (min, max) = (integer()?, integer()?);
        Ok(Stats::Integer {
            count,
            sum,
            min,
            max,
        })
    }

    fn number(&mut self, what: &str) -> Result<u64> {
        self.next_token()?;
        self.token
            .parse()
            .map_err(|_| self.bad(&format!("{what} is expected here")))
    }

    fn bad(&self, reason: &str) -> Error {
        Error::syntax(FilePosition::Line(self.line), reason)
    }

    fn ended(&self, reason: &str) -> Error {
        Error::truncated(FilePosition::Line(self.line), reason)
    }

    /// The next byte that is not white space; does not consume it.
    fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let line = self.line;
            let bytes = self
                .input
                .fill_buf()
                .map_err(|e| Error::reading(FilePosition::Line(line), &e))?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let space = bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.line += bytes[..space].iter().filter(|b| **b == b'\n').count() as u64;
            let found = bytes.get(space).copied();
            self.input.consume(space);
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Consumes the punctuation mark `mark`, which must come next.
    fn mark(&mut self, mark: u8) -> Result<()> {
        match self.peek()? {
            Some(byte) if byte == mark => {
                self.input.consume(1);
                Ok(())
            }
            Some(_) => Err(self.bad(&format!("'{}' is expected here", mark as char))),
            None => Err(self.ended("it ends within a record")),
        }
    }

    /// Reads characters of a number into `token`.
    fn next_token(&mut self) -> Result<()> {
        self.token.clear();
        if self.peek()?.is_none() {
            return Err(self.ended("it ends too early"));
        }
        loop {
            let line = self.line;
            let bytes = self
                .input
                .fill_buf()
                .map_err(|e| Error::reading(FilePosition::Line(line), &e))?;
            let is_part = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'+');
            let part = bytes.iter().take_while(is_part).count();
            let (all, empty) = (part == bytes.len(), bytes.is_empty());
            self.token.extend(bytes[..part].iter().map(|b| *b as char));
            self.input.consume(part);
            if self.token.len() > MAX_TOKEN {
                return Err(self.bad("a number is too long"));
            }
            if empty {
                // A number at the very end may have lost digits.
                return Err(self.ended("it ends within a record"));
            }
            if !all {
                return Ok(());
            }
        }
    }

    /// Reads the descriptions that may follow the records.
    fn descriptions(&mut self, heading: &mut Heading) -> Result<()> {
        while let Some(byte) = self.peek()? {
            if byte != b'#' {
                return Err(self.bad("there are more records than the third line says"));
            }
            let mut line = Vec::new();
            let position = FilePosition::Line(self.line);
            let mut limited = io::Read::take(&mut self.input, MAX_TOKEN as u64);
            let read = limited.read_until(b'\n', &mut line);
            read.map_err(|e| Error::reading(position, &e))?;
            self.line += 1;
            let line = String::from_utf8_lossy(&line);
            let fields: Vec<_> = line
                .trim_end_matches(['\r', '\n'])
                .split('\t')
                .map(unescape)
                .collect();
            let fields: Vec<_> = fields.iter().map(String::as_str).collect();
            match &fields[..] {
                ["# section", sid, kind, first, last, name, file] => {
                    let section = || {
                        Some(Section {
                            sid: Sid(sid.parse().ok()?),
                            kind: SectionKind::from_number(kind.parse().ok()?)?,
                            line: first.parse().ok()?,
                            end_line: last.parse().ok()?,
                            name: (*name).to_owned(),
                            file: (*file).to_owned(),
                        })
                    };
                    let section = section()
                        .ok_or_else(|| self.bad("a section's description makes no sense"))?;
                    heading.add_section(section);
                }
                ["# values", set, name] => {
                    let set = set
                        .parse::<usize>()
                        .ok()
                        .and_then(|set| heading.sets.get_mut(set));
                    set.ok_or_else(|| self.bad("there is no such set of values"))?
                        .name = (*name).to_owned();
                }
                ["# info", key, value] => {
                    heading.info.push(((*key).to_owned(), (*value).to_owned()))
                }
                // Remarks of other programs.
                _ => {}
            }
        }
        Ok(())
    }
}

/// The sum of `count` integers whose mean, rounded as by [`Stats::mean`], is `mean`.
fn whole_sum(mean: f64, count: u64) -> i128 {
    let whole = mean.trunc();
    let rest = ((mean - whole) * count as f64).round();
    (whole as i128)
        .saturating_mul(i128::from(count))
        .saturating_add(rest as i128)
}

/// The text with tabs and line ends escaped.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c => out.push(c),
        }
    }
    out
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    out
}

/// Writes records in the order in which it gets them.
pub(crate) struct AsciiWriter<W: Write> {
    out: W,
    mode: Mode,
    last: Vec<Step>,
}

impl<W: Write> AsciiWriter<W> {
    /// Writes the heading of a file with `records` records.
    pub fn new(mut out: W, heading: &Heading, records: u64) -> io::Result<Self> {
        writeln!(out, "{}{records}", heading.lines(0))?;
        Ok(Self {
            out,
            mode: heading.mode,
            last: Vec::new(),
        })
    }

    pub fn record(&mut self, stack: &[Step], data: Data<'_>) -> io::Result<()> {
        let same = stack
            .iter()
            .zip(&self.last)
            .take_while(|(a, b)| a == b)
            .count();
        let out = &mut self.out;
        write!(out, "{} {same}", stack.len())?;
        for step in &stack[same..] {
            match self.mode {
                Mode::RecordAll => write!(out, " {}@{}", step.sid, step.counter)?,
                _ => write!(out, " {}", step.sid)?,
            }
        }
        out.write_all(b":")?;
        match data {
            Data::Sample(values) => values
                .iter()
                .try_for_each(|value| write!(out, " {value}"))?,
            Data::Stats(all) => {
                write!(out, " {}", all.first().map_or(0, Stats::count))?;
                all.iter().try_for_each(|stats| put_stats(out, stats))?;
            }
            Data::Histograms(all) => {
                write!(out, " {}", all.first().map_or(0, |h| h.stats.count()))?;
                for histogram in all {
                    put_stats(out, &histogram.stats)?;
                    write!(out, " {}", histogram.buckets().count())?;
                    for bucket in histogram.buckets() {
                        write!(out, " {}@{}", Value::Double(bucket.low), bucket.count)?;
                    }
                }
            }
        }
        out.write_all(b";\n")?;
        self.last.truncate(same);
        self.last.extend_from_slice(&stack[same..]);
        Ok(())
    }

    /// The destination.
    pub fn get_ref(&self) -> &W {
        &self.out
    }

    /// Writes the descriptions.
    pub fn finish(mut self, heading: &Heading) -> io::Result<W> {
        let out = &mut self.out;
        for (number, set) in heading
            .sets
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.name.is_empty())
        {
            writeln!(out, "# values\t{number}\t{}", escape(&set.name))?;
        }
        for (key, value) in &heading.info {
            writeln!(out, "# info\t{}\t{}", escape(key), escape(value))?;
        }
        for s in &heading.sections {
            let (kind, name, file) = (s.kind as u8, escape(&s.name), escape(&s.file));
            writeln!(
                out,
                "# section\t{}\t{kind}\t{}\t{}\t{name}\t{file}",
                s.sid, s.line, s.end_line
            )?;
        }
        Ok(self.out)
    }
}

fn put_stats(out: &mut impl Write, stats: &Stats) -> io::Result<()> {
    let mean = Value::Double(stats.mean());
    match stats {
        Stats::Integer { min, max, .. } => write!(out, " {mean} {min} {max}"),
        Stats::Float { min, max, .. } => {
            write!(
                out,
                " {mean} {} {}",
                Value::Double(*min),
                Value::Double(*max)
            )
        }
    }
}
