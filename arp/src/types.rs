//! The vocabulary of the format: ids, kinds, modes and data types.
//!
//! The numbers of [`Mode`], [`Format`] and [`DataType`] are in data files and
//! equal the enumerators of the C header, so they never change.
use std::fmt;

/// The number of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid(pub u32);

/// The number of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tid(pub u32);

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether a section is measured, and what it may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SectionKind {
    /// Not measured; names a position of the program: a call site, an iteration of a loop.
    #[default]
    Plain,
    /// Measured, and contains no other kernel.
    Kernel,
    /// Measured, and may contain anything.
    Profiled,
}

impl SectionKind {
    /// The kind with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Plain,
            1 => Self::Kernel,
            2 => Self::Profiled,
            _ => return None,
        })
    }

    /// Whether callbacks are called for sections of this kind.
    #[inline]
    pub fn is_measured(self) -> bool {
        self != Self::Plain
    }
}

impl fmt::Display for SectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Kernel => "kernel",
            Self::Profiled => "profiled",
        })
    }
}

/// What is done with the measured values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mode {
    /// For each call path the number of executions and the mean, minimum and maximum.
    RecordAverage,
    /// Each value, with the counters of all open sections.
    RecordAll,
    /// For each call path a histogram of the values, with bounded relative error.
    RecordHistogram,
    /// Nothing is recorded; callbacks get the values of an earlier recording.
    Playback,
}

impl Mode {
    /// The mode with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::RecordAverage,
            1 => Self::RecordAll,
            2 => Self::RecordHistogram,
            3 => Self::Playback,
            _ => return None,
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RecordAverage => "record_average",
            Self::RecordAll => "record_all",
            Self::RecordHistogram => "record_histogram",
            Self::Playback => "playback",
        })
    }
}

/// Format in which a data file is written. A reader recognises it by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Format {
    /// Text, for people and for other programs.
    #[default]
    Ascii,
    /// Compressed blocks with checksums.
    Binary,
}

/// Type of the values of one set of callbacks: a C type of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// `char`, which is signed.
    Char,
    /// `unsigned char`
    UChar,
    /// `short`
    Short,
    /// `unsigned short`
    UShort,
    /// `int`
    Int,
    /// `unsigned int`
    UInt,
    /// `long`
    Long,
    /// `unsigned long`
    ULong,
    /// `long long`
    LongLong,
    /// `unsigned long long`
    ULongLong,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `long double`: the 80-bit format of the x87
    LongDouble,
}

impl DataType {
    /// All types in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Char,
        Self::UChar,
        Self::Short,
        Self::UShort,
        Self::Int,
        Self::UInt,
        Self::Long,
        Self::ULong,
        Self::LongLong,
        Self::ULongLong,
        Self::Float,
        Self::Double,
        Self::LongDouble,
    ];

    /// The type with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Size of a value in bytes, without padding.
    #[inline]
    pub fn size(self) -> usize {
        match self {
            Self::Char | Self::UChar => 1,
            Self::Short | Self::UShort => 2,
            Self::Int | Self::UInt | Self::Float => 4,
            Self::LongDouble => 10,
            _ => 8,
        }
    }

    /// Whether it is a signed integer type.
    #[inline]
    pub fn is_signed(self) -> bool {
        matches!(
            self,
            Self::Char | Self::Short | Self::Int | Self::Long | Self::LongLong
        )
    }

    /// Whether it is a floating-point type.
    #[inline]
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float | Self::Double | Self::LongDouble)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Char => "char",
            Self::UChar => "unsigned char",
            Self::Short => "short",
            Self::UShort => "unsigned short",
            Self::Int => "int",
            Self::UInt => "unsigned int",
            Self::Long => "long",
            Self::ULong => "unsigned long",
            Self::LongLong => "long long",
            Self::ULongLong => "unsigned long long",
            Self::Float => "float",
            Self::Double => "double",
            Self::LongDouble => "long double",
        })
    }
}

/// One entry of the stack of open sections: the section and its counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Step {
    /// The section.
    pub sid: Sid,
    /// Counter of its execution; 0 where the mode does not keep counters.
    pub counter: i64,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.sid, self.counter)
    }
}

/// A counter tuple as messages show it: `8@0 7@2 1@3`.
pub fn tuple(stack: &[Step]) -> String {
    let steps: Vec<_> = stack.iter().map(Step::to_string).collect();
    steps.join(" ")
}

/// Description of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Section {
    /// Number that is passed to [`ThreadRecorder::enter`](crate::ThreadRecorder::enter).
    pub sid: Sid,
    /// Its kind.
    pub kind: SectionKind,
    /// A name for people; empty if there is none.
    pub name: String,
    /// Source file; empty if it is not known.
    pub file: String,
    /// First source line, 0 if it is not known.
    pub line: u32,
    /// Last source line, 0 if it is not known.
    pub end_line: u32,
}

/// The values of one set of callbacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSet {
    /// Their type.
    pub data_type: DataType,
    /// Name of the measured quantity, such as `cycles`; empty if it is not known.
    pub name: String,
}
