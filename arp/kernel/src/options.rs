//! The options of the tool.

use arp::{DataType, Mode};
use atom_tool::report::ReportFiles;
use atom_tool::{Args, Result, WrongOption};

use crate::find::{MeasuredKind, Pattern};
use crate::run::clock::Tsc;
use crate::run::meters::Measure;
use crate::run::settings::Calibrate;

/// How much of the context of a section is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Context {
    /// Calls and iterations that lead to it.
    Full,
    /// Marked sections only.
    None,
}

/// The user's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Print what was found.
    pub list: bool,
    /// Sections named on the command line.
    pub patterns: Vec<(MeasuredKind, Pattern)>,
    /// Look for labels and markers.
    pub marks: bool,
    /// How much of the context is recorded.
    pub context: Context,
    /// The quantities that are measured.
    pub measures: Vec<Measure>,
    /// Names of the user's callbacks for begins and ends, and of the data that they get as context.
    pub callbacks: [Option<String>; 3],
    /// Names of the callbacks for threads: at a thread's first section, and after its end.
    pub thread_callbacks: [Option<String>; 2],
    /// Type of the values of the user's callbacks.
    pub data_type: DataType,
    /// Whether these are tried at the start.
    pub calibrate: Calibrate,
    /// Record, or play back.
    pub mode: Mode,
    /// Binary, or text.
    pub binary: bool,
    /// The data file.
    pub file: String,
    /// Where a summary goes, or empty.
    pub summary: String,
    /// Where the profile goes.
    pub files: ReportFiles,
}

impl Options {
    /// Reads the command line.
    pub fn read(args: &Args<'_>) -> Result<Self> {
        let options = args.options();
        let list = options.flag("--list");
        let mut patterns = Vec::new();
        for (name, kind) in [
            ("--kernel", MeasuredKind::Kernel),
            ("--profile", MeasuredKind::Profiled),
        ] {
            for text in options.values(name)? {
                patterns.push((kind, Pattern::parse(text)?));
            }
        }
        let marks = !options.flag("--no-marks");
        let context = options.choice(
            "--context",
            &[("full", Context::Full), ("none", Context::None)],
        )?;
        let text =
            |name: &str| -> Result<Option<String>> { Ok(options.value(name)?.map(str::to_owned)) };
        let callbacks = [
            text("--arp-enter-callback")?,
            text("--arp-leave-callback")?,
            text("--arp-data-context")?,
        ];
        let thread_callbacks = [text("--arp-spawn-callback")?, text("--arp-join-callback")?];
        let data_type = data_type(options.value("--arp-data-type")?.unwrap_or_default())?;
        let mode = options.choice(
            "--arp-mode",
            &[
                ("record_average", Mode::RecordAverage),
                ("record_all", Mode::RecordAll),
                ("record_histogram", Mode::RecordHistogram),
                ("playback", Mode::Playback),
            ],
        )?;
        let calibrate = options.choice(
            "--arp-calibrate",
            &[
                ("auto", Calibrate::Auto),
                ("on", Calibrate::On),
                ("off", Calibrate::Off),
            ],
        )?;
        let binary = options.choice("--arp-format", &[("binary", true), ("ascii", false)])?;
        let file = text("--arp-data-filename")?.unwrap_or_default();
        let files = ReportFiles::beside(&options, &file, "--profile-file")?;
        let summary = text("--summary")?.unwrap_or_default();
        let has_callbacks = callbacks[0].is_some() || callbacks[1].is_some();
        let measures = match options.value("--measure")? {
            Some(words) => measures(words)?,
            None if has_callbacks => Vec::new(),
            None => vec![usual(Tsc::here().doubt())],
        };
        options.finish()?;
        let mut options = Self {
            list,
            patterns,
            marks,
            context,
            measures,
            callbacks,
            thread_callbacks,
            data_type,
            calibrate,
            mode,
            binary,
            file,
            summary,
            files,
        };
        if has_callbacks {
            options.measures.push(Measure::Callbacks);
        }
        Ok(options)
    }
}

/// What is measured if the user does not say it.
fn usual(doubt: Option<String>) -> Measure {
    match doubt {
        None => Measure::Cycles,
        Some(doubt) => {
            eprintln!("kernel: instructions are counted instead of cycles: {doubt}");
            Measure::Instructions
        }
    }
}

fn measures(words: &str) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for word in words.split(',') {
        let measure = match word {
            "cycles" => Measure::Cycles,
            "cputime" => Measure::CpuTime,
            "instructions" => Measure::Instructions,
            _ => {
                return Err(WrongOption::new(format!(
                    "the option --measure takes cycles, cputime and instructions, not `{word}`"
                ))
                .into());
            }
        };
        if measures.contains(&measure) {
            return Err(WrongOption::new(format!("`{word}` is to be measured twice")).into());
        }
        measures.push(measure);
    }
    Ok(measures)
}

/// A C type by its name, as in C or as the enumerators of the ARP library spell it.
fn data_type(name: &str) -> Result<DataType> {
    let plain = name.strip_prefix("arp_").unwrap_or(name);
    let short = |ty: &DataType| {
        let long = ty.to_string();
        long.replace("unsigned ", "u")
            .replace("long long", "llong")
            .replace("long double", "ldouble")
    };
    let found = DataType::ALL.iter().find(|ty| {
        ty.to_string() == plain
            || short(ty) == plain
            || plain == "unsigned" && **ty == DataType::UInt
    });
    found.copied().ok_or_else(|| {
        let takes = "takes a C type such as `unsigned long`";
        WrongOption::new(format!("the option --arp-data-type {takes}, not `{name}`")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_by_their_names() {
        for (name, ty) in [
            ("unsigned int", DataType::UInt),
            ("unsigned", DataType::UInt),
            ("arp_ullong", DataType::ULongLong),
            ("ldouble", DataType::LongDouble),
            ("long", DataType::Long),
            ("double", DataType::Double),
        ] {
            assert_eq!(data_type(name).unwrap(), ty, "{name}");
        }
        assert!(data_type("string").is_err());
    }

    #[test]
    fn without_a_clock_instructions_are_counted() {
        assert_eq!(usual(None), Measure::Cycles);
        let doubt = Some("it jumps".to_owned());
        assert_eq!(usual(doubt), Measure::Instructions);
    }

    #[test]
    fn measures_by_their_names() {
        let both = measures("instructions,cycles").unwrap();
        assert_eq!(both, [Measure::Instructions, Measure::Cycles]);
        assert!(measures("cycles,cycles").is_err() && measures("time").is_err());
    }
}
