//! From the command line to checked paths and settings, so that mistakes are found before any work.

use std::path::{Path, PathBuf};

use atom_core::cfg::Returns;
use atom_core::check::Scope;
use atom_core::layout::{Extra, RequestedAddresses};
use atom_core::pipeline::Options;
use atom_core::plan::Switch;
use atom_core::tool::borders::Windows;
use atom_core::tool::select::{Pattern, Selection};
use atom_core::{Error, Result};

use crate::choices::Run;
use crate::job::{Job, Word};
use crate::{find, source};

/// The shipped tool that adds no calls.
const NO_CALLS: &str = "empty";

/// What the command line asks for.
pub struct Request<'a> {
    /// Path of the program.
    pub app: &'a Path,
    /// Path of the tool; `None` for a rewrite without a tool.
    pub tool: Option<PathBuf>,
    /// Path of the instrumented program.
    pub output: PathBuf,
    /// Path of the JSON report.
    pub report: Option<&'a Path>,
    /// Path for a copy of the tool.
    pub keep_tool: Option<&'a Path>,
    /// How it is instrumented, but for what depends on files.
    pub options: Options<'a>,
    /// Instrument the program's libraries and its interpreter too.
    pub libraries: bool,
    /// Libraries to instrument that the program may load later.
    pub with: &'a [PathBuf],
    /// What `atom run` wants.
    pub job: Job,
    /// First words of the command line that instruments executed programs, each with a null after it;
    /// empty if they run as they are.
    pub follow: Vec<u8>,
    /// First words of the command line that instruments libraries when they are opened, each with a null after it;
    /// empty if those run as they are.
    pub late: Vec<u8>,
    /// Print each step.
    pub verbose: bool,
    /// Do not print the summary.
    pub quiet: bool,
}

impl<'a> Request<'a> {
    /// Checks the command line.
    pub fn new(args: &'a Run) -> Result<Self> {
        // The parser refuses a command line without APP.
        let app = args.app.as_deref().unwrap_or(Path::new(""));
        let job = args.job.clone().unwrap_or_default();
        let mut request = Self {
            app,
            tool: match tool_file(args)? {
                // A whole process needs a runtime, which comes with a tool.
                None if args.libs => Some(find::named_tool(NO_CALLS)?),
                tool => tool,
            },
            output: args.output.clone().unwrap_or_else(|| default_output(app)),
            report: args.report.as_deref(),
            keep_tool: args.keep_tool.as_deref(),
            options: options(args)?,
            libraries: args.libs,
            with: &args.choices.with,
            follow: with_nulls(&job.follow),
            late: with_nulls(&job.late),
            job,
            verbose: args.verbose,
            quiet: args.quiet,
        };
        if request.tool.is_none() {
            let given = [
                (!args.tool_options.is_empty(), "there are tool options"),
                (!request.options.selection.is_all(), "there is a selection"),
                (args.keep_tool.is_some(), "a tool is to be kept"),
                (args.gdb, "a tool is to be debugged"),
            ];
            if let Some((_, what)) = given.iter().find(|g| g.0) {
                return Err(Error::usage(format!("{what} but no tool is named"))
                    .advice("name a tool: --tool NAME, or its file after the program"));
            }
        }
        request.check_targets()?;
        request.options.check = request.scope(args);
        Ok(request)
    }

    /// How much is compared: all if that is wanted, else what a tool adds that is not one of atom's own, which
    /// atom's tests try.
    fn scope(&self, args: &Run) -> Option<Scope> {
        let is_other = |tool: &PathBuf| !find::is_shipped(tool);
        let is_checked = self.tool.as_ref().is_some_and(is_other) && !args.choices.no_check;
        if args.check {
            Some(Scope::All)
        } else {
            is_checked.then_some(Scope::Inserted)
        }
    }

    fn check_targets(&self) -> Result<()> {
        let mut inputs = vec![(self.app, "the program")];
        inputs.extend(self.tool.as_deref().map(|tool| (tool, "the tool")));
        let wanted = [
            (Some(self.output.as_path()), "the instrumented program"),
            (self.keep_tool, "the kept tool"),
            (self.report, "the report"),
        ];
        let mut outputs: Vec<(&Path, &str)> = Vec::new();
        for (file, what) in wanted {
            let Some(file) = file else { continue };
            output::file::check_target(file, &inputs)?;
            if let Some((_, other)) = outputs.iter().find(|o| o.0 == file) {
                return Err(
                    Error::new("writing", format!("it is the name of {other} too"))
                        .file(file)
                        .advice(format!("choose another name for {what}")),
                );
            }
            outputs.push((file, what));
            inputs.push((file, what));
        }
        Ok(())
    }
}

/// Words with a null after each.
fn with_nulls(words: &[Word]) -> Vec<u8> {
    let each = words.iter().flat_map(|word| [word.bytes(), b"\0"].concat());
    each.collect()
}

/// Makes those options for `atom_core::pipeline::instrument` that the command line names.
fn options(args: &Run) -> Result<Options<'_>> {
    let choices = &args.choices;
    let is_attached = args.job.as_ref().is_some_and(|job| job.attach.is_some());
    Ok(Options {
        arguments: &args.tool_options,
        selection: Selection {
            only: patterns(&choices.only)?,
            skip: patterns(&choices.skip)?,
        },
        requested: RequestedAddresses {
            text: args.text_address,
            data: args.data_address,
            low: args.low_addresses,
        },
        extra: match args.move_half {
            _ if args.move_all => Extra::All,
            Some(seed) => Extra::Half(seed),
            None => Extra::None,
        },
        returns: match () {
            _ if is_attached => Returns::Always,
            _ if choices.original_returns => Returns::IfPossible,
            _ => Returns::New,
        },
        strict: args.strict,
        no_inline: choices.no_inline,
        // Threads enter and leave in the middle of procedures, so nothing follows from what was counted elsewhere.
        precise_signals: choices.precise_signals || is_attached,
        keep_registers: choices.keep_registers,
        no_gs: choices.no_gs,
        switch: match (args.switch_every, choices.sampling.bursts()) {
            (Some(n), _) => Some(Switch::Every(n)),
            (None, Some(bursts)) => Some(Switch::Bursts(bursts)),
            // Without a place where the first window begins, it begins with the program.
            // A process that is attached to is entered in the version without calls.
            (None, None) => (choices.has_windows() || is_attached).then_some(Switch::Flag(
                !choices.to.is_empty() && choices.from.is_empty(),
            )),
        },
        windows: Windows {
            from: patterns(&choices.from)?,
            to: patterns(&choices.to)?,
        },
        debug_info: args.debug_info,
        ..Options::default()
    })
}

fn patterns(texts: &[String]) -> Result<Vec<Pattern>> {
    texts.iter().map(|text| Pattern::parse(text)).collect()
}

/// The tool's file: found by its name, compiled, or as it was given.
pub fn tool_file(args: &Run) -> Result<Option<PathBuf>> {
    if let Some(name) = &args.tool {
        return find::named_tool(name).map(Some);
    }
    let Some(file) = &args.tool_file else {
        return Ok(None);
    };
    if let Some(source) = args.job.as_ref().and_then(|job| job.tool_source.as_ref()) {
        source::was_compiled(file, source.path());
    }
    if !file.exists() {
        let error = Error::new("loading the tool", "there is no such file").file(file);
        return Err(find::advise_tool(file, error));
    }
    if source::is_source(file) {
        return source::compiled(file, &args.tool_parts).map(Some);
    }
    if let Some(part) = args.tool_parts.first() {
        let error = Error::usage("there are two tools").file(part);
        return Err(
            error.advice("only a tool in C consists of several files: APP TOOL.inst.c TOOL.anal.c")
        );
    }
    // For a name without a slash the dynamic loader would search its own folders.
    Ok(Some(if file.components().count() == 1 {
        Path::new(".").join(file)
    } else {
        file.clone()
    }))
}

/// The default path of the output: the program's name with `.atom`, in the working directory.
fn default_output(app: &Path) -> PathBuf {
    let mut name = app.file_name().unwrap_or(app.as_os_str()).to_os_string();
    name.push(".atom");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_named_after_the_program() {
        assert_eq!(
            default_output(Path::new("/usr/bin/bzip2")),
            Path::new("bzip2.atom")
        );
        assert_eq!(default_output(Path::new("a.out")), Path::new("a.out.atom"));
    }
}
