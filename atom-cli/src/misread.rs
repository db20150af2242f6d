//! What is told of a command line that the parser refuses.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::message::WRONG_USAGE;
use crate::{find, help};
use output::message::say;

/// Prints the parser's error, or better advice where an option of a tool is in the wrong place. Help and version
/// come as errors, too.
pub fn told(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let words: Vec<String> = (words.iter().skip(1))
        .map(|w| w.to_string_lossy().into_owned())
        .collect();
    if let Some(text) = tool_option(error, &words) {
        say(&text);
        return ExitCode::from(WRONG_USAGE);
    }
    if let Some(tool) = helped(error, &words) {
        return match crate::run::show_help(tool) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                crate::message::error(&error);
                ExitCode::FAILURE
            }
        };
    }
    // An error of printing, such as a closed pipe, cannot be told.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG_USAGE))
}

/// The tool of `atom run TOOL --help`, which the parser takes for a request for the help of `atom run`.
fn helped<'a>(error: &clap::Error, words: &'a [String]) -> Option<&'a String> {
    let is_run = words.first().is_some_and(|w| w == "run");
    if error.kind() != ErrorKind::DisplayHelp || !is_run {
        return None;
    }
    let own = words.iter().skip(1);
    let mut before = own.take_while(|w| *w != "--help" && *w != "-h");
    let is_tool =
        |w: &&String| w.contains('/') || w.ends_with(".rs") || find::named_tool(w).is_ok();
    before.find(|w| !w.starts_with('-') && is_tool(w))
}

/// The message for an option of a tool that stands among the command's own options.
fn tool_option(error: &clap::Error, words: &[String]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let (tool, _) = help::owner(words, option)?;
    let advice = if words.first().is_some_and(|w| w == "run") {
        format!("write it behind the tool: atom run {tool} {option} ... -- PROGRAM")
    } else {
        format!("write it behind `--`: atom APP --tool {tool} -o OUT -- {option} ...")
    };
    Some(format!(
        "atom: reading the command line: {option} is an option of the tool {tool}\n  help: {advice}"
    ))
}
