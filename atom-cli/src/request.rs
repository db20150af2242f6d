//! From the command line to checked paths: what can fail before any work, fails here.

use std::path::{Path, PathBuf};

use atom_core::{Error, Result};

use crate::args::Run;
use crate::{find, output};

/// What is wanted.
pub struct Request<'a> {
    /// The program.
    pub app: &'a Path,
    /// The tool's file; none for an empty rewrite.
    pub tool: Option<PathBuf>,
    /// Arguments of the instrument routine.
    pub tool_options: &'a [String],
    /// The instrumented program.
    pub output: PathBuf,
    /// The JSON file.
    pub report: Option<&'a Path>,
    /// Fill unused text with traps.
    pub strict: bool,
    /// Check the output against the original.
    pub check: bool,
    /// Tell each step.
    pub verbose: bool,
}

impl<'a> Request<'a> {
    /// Checks what the command line says.
    pub fn new(args: &'a Run) -> Result<Self> {
        // The parser sees to it that APP is there.
        let app = args.app.as_deref().unwrap_or(Path::new(""));
        let request = Self {
            app,
            tool: tool_file(args)?,
            tool_options: &args.tool_options,
            output: args.output.clone().unwrap_or_else(|| default_output(app)),
            report: args.report.as_deref(),
            strict: args.strict,
            check: args.check,
            verbose: args.verbose,
        };
        if request.tool.is_none() && !args.tool_options.is_empty() {
            return Err(Error::new(
                "reading the command line",
                "there are tool options but no tool",
            )
            .advice("name a tool: --tool NAME, or its file after the program"));
        }
        request.check_targets()?;
        Ok(request)
    }

    fn check_targets(&self) -> Result<()> {
        let mut inputs = vec![(self.app, "the program")];
        inputs.extend(self.tool.as_deref().map(|tool| (tool, "the tool")));
        output::check_target(&self.output, &inputs)?;
        if let Some(report) = self.report {
            inputs.push((&self.output, "the instrumented program"));
            output::check_target(report, &inputs)?;
            if report == self.output {
                return Err(Error::new(
                    "writing",
                    "it is the name of the instrumented program too",
                )
                .file(report)
                .advice("choose another name for the report"));
            }
        }
        Ok(())
    }
}

fn tool_file(args: &Run) -> Result<Option<PathBuf>> {
    if let Some(name) = &args.tool {
        return find::shipped_tool(name).map(Some);
    }
    let Some(file) = &args.tool_file else {
        return Ok(None);
    };
    if !file.exists() {
        let error = Error::new("loading the tool", "there is no such file").file(file);
        return Err(find::advise_tool(file, error));
    }
    // Without a slash the dynamic loader would search its own folders for it.
    Ok(Some(if file.components().count() == 1 {
        Path::new(".").join(file)
    } else {
        file.clone()
    }))
}

/// The program's name with `.atom`, in the working directory.
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
