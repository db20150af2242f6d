//! `atom arp merge` and `atom arp convert`: new data files from old ones.

use std::path::{Path, PathBuf};

use ::arp::analyse::{Combine, combine};
use ::arp::{Format, Mode, Reader};
use atom_core::{Error, Result};
use clap::{Args, ValueEnum};

use super::{Damage, failed};

/// Arguments of `atom arp merge`.
#[derive(Args)]
pub struct Merge {
    /// The data files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The new file
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Give the threads of each file numbers of their own; else threads with the same number become one
    #[arg(long)]
    renumber: bool,
    #[command(flatten)]
    how: How,
}

/// Arguments of `atom arp convert`.
#[derive(Args)]
pub struct Convert {
    /// The data file
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The new file
    #[arg(value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    how: How,
}

/// Format and contents of the new file.
#[derive(Args)]
struct How {
    /// The new file's format [default: by its name, .txt or .bin with or without .gz; else that of the (first) file]
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<To>,
    /// Turn single values into averages or histograms, or histograms into averages
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Keep>,
    /// Take what is whole of damaged files
    #[arg(long)]
    partial: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum To {
    /// Text
    Ascii,
    /// Compressed blocks
    Binary,
    /// Text, compressed with gzip
    AsciiGz,
    /// Blocks, compressed with gzip
    BinaryGz,
}

/// What is kept of values.
#[derive(Clone, Copy, ValueEnum)]
enum Keep {
    /// Each single value
    All,
    /// Number, mean, least and greatest value
    Average,
    /// As average, and how often each value occurred
    Histogram,
}

/// Runs `atom arp merge`.
pub fn merge(args: &Merge) -> Result<()> {
    run(&args.files, &args.output, &args.how, args.renumber)
}

/// Runs `atom arp convert`.
pub fn convert(args: &Convert) -> Result<()> {
    run(
        std::slice::from_ref(&args.input),
        &args.output,
        &args.how,
        false,
    )
}

fn run(inputs: &[PathBuf], output: &Path, how: &How, renumber: bool) -> Result<()> {
    let (format, gzip) = match how.to {
        Some(To::Ascii) => (Format::Ascii, false),
        Some(To::Binary) => (Format::Binary, false),
        Some(To::AsciiGz) => (Format::Ascii, true),
        Some(To::BinaryGz) => (Format::Binary, true),
        None => by_name(output, &inputs[0])?,
    };
    let options = Combine {
        format,
        gzip,
        mode: how.mode.map(|mode| match mode {
            Keep::All => Mode::RecordAll,
            Keep::Average => Mode::RecordAverage,
            Keep::Histogram => Mode::RecordHistogram,
        }),
        renumber,
        partial: how.partial,
    };
    let damage = combine(inputs, output, &options).map_err(|error| {
        let cut = error.kind == ::arp::ErrorKind::Truncated && !how.partial;
        let error = failed(error);
        if cut {
            Error {
                advice: Some("--partial takes what is whole".into()),
                ..error
            }
        } else {
            error
        }
    })?;
    Damage(damage).tell()
}

/// Format and compression by the new file's name; a name that tells no format means the old file's format.
fn by_name(output: &Path, input: &Path) -> Result<(Format, bool)> {
    let gzip = output.extension().is_some_and(|e| e == "gz");
    let plain = if gzip {
        output.with_extension("")
    } else {
        output.to_path_buf()
    };
    let extension = plain.extension().and_then(|e| e.to_str());
    let format = match extension {
        Some("txt" | "ascii") => Format::Ascii,
        Some("bin") => Format::Binary,
        _ => Reader::open(input).map_err(failed)?.format(),
    };
    Ok((format, gzip))
}
