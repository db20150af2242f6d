//! The command line.

use std::ffi::OsString;
use std::fmt::Write;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::choices::Run;

/// Instruments a program: writes one that behaves the same and calls a tool's
/// analysis routines where the tool wants it.
///
/// Without a tool the program is rewritten and nothing is added.
#[derive(Parser)]
#[command(
    name = "atom",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    override_usage = "atom APP [TOOL.so | TOOL.rs | TOOL.inst.c TOOL.anal.c | --tool NAME] [-o OUT] [OPTIONS] [-- TOOL-OPTIONS]\n       \
        atom run [OPTIONS] TOOL [TOOL-OPTIONS] -- PROGRAM [ARGUMENTS]\n       \
        atom attach [OPTIONS] TOOL [TOOL-OPTIONS] -- PID\n       \
        atom COMMAND [OPTIONS]",
    after_help = "Examples:\n  \
        atom /usr/bin/bzip2 --tool branch -o bzip2.branch\n  \
        atom ./app ./libmytool.so -o app.inst -- --output my.out\n  \
        atom run icount -- bzip2 -k FILE\n  \
        atom run mytool.rs -- bzip2 -k FILE\n  \
        atom show /usr/bin/bzip2\n\n\
        A program called like a command, such as `show`, in the working directory is ./show."
)]
pub struct Args {
    /// A job other than instrumenting.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to instrument.
    #[command(flatten)]
    pub run: Run,
}

/// The jobs other than instrumenting.
#[derive(Subcommand)]
pub enum Command {
    /// Instrument a program and run it
    Run(crate::run::Arguments),
    /// Instrument a process that runs, and leave it again
    Attach(crate::attach::Arguments),
    /// Take Valgrind's command line: run a program with the tool in the place of Valgrind's
    #[command(disable_help_flag = true)]
    Valgrind(crate::valgrind::Words),
    /// List the tools, each with a line
    Tools(crate::help::Tools),
    /// Begin and end windows of a run that continues, and ask it for reports
    Ctl(crate::run::ctl::Ctl),
    /// Make a crate for a tool of your own
    New(crate::source::new::New),
    /// Print the completions of a shell
    Completions(crate::generate::Completions),
    /// Write the manual pages into a folder
    #[command(hide = true)]
    Man(crate::generate::Man),
    /// List or clear the programs that `atom run` keeps
    Kept(crate::list_kept::Kept),
    /// Show how a program is understood: its procedures, blocks and instructions
    Show(viewer::show::Show),
    /// Show source and instructions of procedures with the counts of a profile
    Annotate(viewer::annotate::Annotate),
    /// Report on logs of procedure entries and exits
    Analyze(viewer::analyze::Analyze),
    /// Say what this machine allows, and what each lack costs
    Doctor(crate::doctor::Doctor),
    /// Measure the clocks of this machine: granularity, cost, monotonicity
    Clocks(crate::clocks::Clocks),
    /// List what can be counted on this machine, and why the rest cannot
    Events(crate::events::Events),
    /// Look at profiles: print, add up, compare and export the results of any tool
    Report(viewer::report::Report),
    /// Convert traces of the tool memtrace to text and to formats of simulators
    Trace(viewer::trace::Trace),
    /// Look at recorded kernels: show, compare, merge and convert .arp files
    Arp(viewer::arp::Arp),
}

/// The commands as `atom --help` groups them.
const GROUPS: [(&str, &str); 4] = [
    (
        "Run and look after tools",
        "run attach valgrind ctl tools new kept",
    ),
    (
        "Look at programs and results",
        "show report annotate analyze trace",
    ),
    ("Record and playback", "arp"),
    ("This machine", "doctor clocks events completions"),
];

/// Reads a command line.
pub fn parse(words: &[OsString]) -> Result<Args, clap::Error> {
    let command = Args::command();
    let head = command.get_styles().get_header();
    let groups = groups(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\
         {head}Arguments:{head:#}\n{{positionals}}\n\n{head}Options:{head:#}\n{{options}}{{after-help}}"
    );
    let matches = command
        .help_template(template)
        .try_get_matches_from(words)?;
    Args::from_arg_matches(&matches)
}

/// The help of a subcommand.
pub fn help_of(name: &str) -> String {
    let mut command = Args::command();
    command.build();
    let subcommand = command.find_subcommand_mut(name);
    subcommand.map_or(String::new(), |found| found.render_help().to_string())
}

/// The groups of commands with a line for each command.
fn groups(command: &clap::Command) -> String {
    let head = command.get_styles().get_header();
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{head}{title}:{head:#}");
        for name in names.split(' ') {
            let about = command.find_subcommand(name).and_then(|c| c.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:<11}  {about}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn parse(words: &[&str]) -> Args {
        Args::try_parse_from(std::iter::once(&"atom").chain(words)).unwrap()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let command = Args::command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        let mut shown: Vec<_> = shown.map(|c| c.get_name()).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|g| g.1.split(' ')).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
        let words = ["atom", "--help"].map(OsString::from);
        let help = super::parse(&words).err().unwrap().to_string();
        assert!(help.contains("Record and playback:\n  arp "), "{help}");
        assert!(help.contains("\nOptions:\n      --tool <NAME>"), "{help}");
    }

    #[test]
    fn definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn programs_named_like_a_command_are_reachable() {
        assert!(matches!(
            parse(&["show", "x"]).command,
            Some(Command::Show(_))
        ));
        let args = parse(&["./show"]);
        assert!(args.command.is_none());
        assert_eq!(args.run.app.unwrap(), PathBuf::from("./show"));
        assert!(matches!(
            parse(&["analyze", "x"]).command,
            Some(Command::Analyze(_))
        ));
        assert!(parse(&["./analyze"]).command.is_none());
        assert!(parse(&["./clocks", "-o", "x"]).command.is_none());
        assert!(matches!(
            parse(&["events", "loads", "--darr"]).command,
            Some(Command::Events(_))
        ));
        assert!(parse(&["./events", "-o", "x"]).command.is_none());
        assert!(Args::try_parse_from(["atom", "events", "--darr", "--iarr"]).is_err());
        assert!(matches!(
            parse(&["arp", "x"]).command,
            Some(Command::Arp(_))
        ));
        assert!(parse(&["./arp"]).command.is_none());
        let args = parse(&["app", "show"]);
        assert!(args.command.is_none());
        assert_eq!(args.run.tool_file.unwrap(), PathBuf::from("show"));
        assert_eq!(parse(&["help"]).run.app.unwrap(), PathBuf::from("help"));
    }

    /// Tools have options whose names are those of a run, too: `reuse --sample`, `memtrace --skip`.
    #[test]
    fn words_after_the_tool_are_its_own() {
        let words = [
            "run",
            "--skip",
            "main",
            "reuse",
            "--sample",
            "16",
            "--children",
        ];
        let Some(Command::Run(run)) = parse(&words).command else {
            panic!("it is no run");
        };
        assert_eq!(run.words.tool(), "reuse");
        assert_eq!(run.words.options(), ["--sample", "16", "--children"]);
        assert!(run.choices.sampling.sample.is_none() && !run.children);
        assert!(Args::try_parse_from(["atom", "run", "--chidren", "icount"]).is_err());
        assert!(Args::try_parse_from(["atom", "run", "--children"]).is_err());
    }

    #[test]
    fn tool_options_follow_two_dashes() {
        let args = parse(&[
            "app", "--tool", "icount", "-o", "x", "--", "--per", "block", "-v",
        ]);
        assert_eq!(args.run.tool_options, ["--per", "block", "-v"]);
        assert!(!args.run.verbose);
        assert!(Args::try_parse_from(["atom", "app", "t.so", "--tool", "x"]).is_err());
        assert!(Args::try_parse_from(["atom"]).is_err());
    }
}
