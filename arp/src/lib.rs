//! Record and playback of the costs of a program's kernels.
//!
//! A program, or a tool that instruments it, marks where *sections* begin and end. For kernel and
//! profiled sections it provides callbacks that measure something. This crate records
//! the measured values: each value with its exact context, or averages or histograms by call path.
//! It writes them to a data file, reads data files, and plays recorded values back.
//!
//! - [`Session`] and [`ThreadRecorder`] record and play back;
//! - [`Reader`] streams through data files, [`Profile`] holds one in memory;
//! - [`convert`] translates between the formats;
//! - [`analyse`] adds up, compares and combines recordings.
//!
//! ```
//! use arp::{Area, DataType, SectionKind, Meter, Mode, Profile, Session, Sid, Tid};
//!
//! struct Clock(u64);
//!
//! impl Meter for Clock {
//!     fn enter(&mut self, _: Sid, data: &mut Area) {
//!         data.set_word(self.0);
//!     }
//!     fn leave(&mut self, _: Sid, data: &mut Area) {
//!         self.0 += 3;
//!         data.set_word(self.0 - data.word());
//!     }
//! }
//!
//! # fn main() -> Result<(), arp::Error> {
//! # let path = std::env::temp_dir().join(format!("arp-doc-{}.arp", std::process::id()));
//! let session = Session::builder(Mode::RecordAll)
//!     .file(&path)
//!     .meter(DataType::ULong, "ticks", |_| Clock(0))
//!     .start()?;
//! let mut thread = session.thread(Tid(1));
//! thread.enter(SectionKind::Plain, Sid(2), 0);
//! for _ in 0..3 {
//!     thread.enter(SectionKind::Kernel, Sid(1), 0);
//!     thread.leave(SectionKind::Kernel, Sid(1));
//! }
//! thread.leave(SectionKind::Plain, Sid(2));
//! thread.end();
//! session.finish()?;
//!
//! let profile = Profile::load(&path)?;
//! assert_eq!(profile.len(), 3);
//! assert_eq!(arp::tuple(&profile.stack(2)), "2@0 1@2");
//! assert_eq!(profile.value(2, 0).map(|v| v.as_f64()), Some(3.0));
//! # std::fs::remove_file(&path).unwrap();
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod analyse;
mod convert;
mod encoder;
mod error;
mod file;
mod histogram;
mod longdouble;
mod problem;
mod profile;
mod record;
mod stats;
mod tree;
mod types;
mod unrecorded;
mod value;

pub use convert::convert;
pub use error::{Error, ErrorKind, FilePosition, Result};
pub use file::reader::Reader;
pub use file::record::{Data, Record};
pub use histogram::{Bucket, Histogram, MAX_ERROR};
pub use longdouble::{LongDouble, ParseLongDoubleError};
pub use problem::{Problem, Severity};
pub use profile::Profile;
pub use record::{
    Caller, ForkGuard, Mark, Meter, Saved, Session, SessionBuilder, Summary, ThreadRecorder,
};
pub use stats::Stats;
pub use types::{DataType, Format, Mode, Section, SectionKind, Sid, Step, Tid, ValueSet, tuple};
pub use unrecorded::Unrecorded;
pub use value::{Area, Value};
