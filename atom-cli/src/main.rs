//! The `atom` command.
//!
//! This crate does everything that the libraries must not do: it prints, exits and
//! writes files. Instrumenting itself is in `driver`, step by step.
//!
//! Each of these uses only those before it: what is kept between runs (`kept`), tools that are given as sources
//! (`source`), the options (`choices`), the checked command line (`request`), `steps`, `driver`, `run`, `attach`, Valgrind's
//! command line (`valgrind`), and `args` with all commands.

mod args;
mod attach;
mod choices;
mod cleanup;
mod clocks;
mod closure;
mod debugger;
mod debuginfod;
mod describe;
mod disk;
mod doctor;
mod driver;
mod events;
mod exhausted;
mod find;
mod generate;
mod help;
mod job;
mod kept;
mod list_kept;
mod message;
mod misread;
mod proc_stat;
mod report;
mod request;
mod run;
mod sampling;
mod source;
mod spelling;
mod steps;
mod surroundings;
mod tool_file;
mod valgrind;
mod with;

use std::process::ExitCode;

use ::output;
use atom_core::image::Image;
use clap::CommandFactory;
use output::progress;
use viewer::{analyze, annotate, arp, show, trace};

#[global_allocator]
static ALLOCATOR: exhausted::Allocator = exhausted::Allocator;

fn main() -> ExitCode {
    if let Some(code) = run::followed::main().or_else(driver::late::main) {
        return code;
    }
    cleanup::on_panic();
    let mut words: Vec<_> = std::env::args_os().collect();
    if let Some((name, words)) = valgrind::called(&words) {
        return valgrind::main(&name, &words);
    }
    let command = run::split_command(&mut words);
    let words = spelling::modern(words);
    let mut args = match args::parse(&words) {
        Ok(args) => args,
        Err(error) => return misread::told(&error, &words),
    };
    if let Some(args::Command::Run(run)) = &mut args.command {
        run.command = command;
    } else if let Some(args::Command::Attach(attach)) = &mut args.command {
        attach.command = command;
    }
    let choices = match &mut args.command {
        Some(args::Command::Run(run)) => &mut run.choices,
        Some(args::Command::Attach(attach)) => &mut attach.choices,
        _ => &mut args.run.choices,
    };
    if let Err(error) = with::add_folders(choices) {
        message::error(&error);
        return ExitCode::FAILURE;
    }
    let done = |()| ExitCode::SUCCESS;
    let result = match &args.command {
        Some(args::Command::Run(run)) if run.words.tool() == "help" => {
            output::print(&args::help_of("run")).map(done)
        }
        Some(args::Command::Run(run)) => run::run(run),
        Some(args::Command::Attach(attach)) => attach::run(attach),
        Some(args::Command::Valgrind(valgrind)) => {
            return valgrind::main("atom valgrind", &valgrind.words);
        }
        Some(args::Command::Tools(tools)) => help::list(tools).map(done),
        Some(args::Command::New(new)) => source::new::run(new).map(done),
        Some(args::Command::Completions(shell)) => {
            generate::completions(shell, args::Args::command()).map(done)
        }
        Some(args::Command::Man(man)) => generate::man(man, args::Args::command()).map(done),
        Some(args::Command::Ctl(ctl)) => run::ctl::run(ctl).map(done),
        Some(args::Command::Kept(kept)) => list_kept::run(kept).map(done),
        Some(args::Command::Show(show)) => show_program(show).map(done),
        Some(args::Command::Annotate(annotate)) => annotate::run(annotate).map(done),
        Some(args::Command::Analyze(analyze)) => analyze::run(analyze).map(done),
        Some(args::Command::Doctor(doctor)) => doctor::run(doctor).map(done),
        Some(args::Command::Clocks(clocks)) => clocks::run(clocks).map(done),
        Some(args::Command::Events(events)) => events::run(events).map(done),
        Some(args::Command::Report(report)) => viewer::report::run(report),
        Some(args::Command::Trace(trace)) => trace::run(trace).map(done),
        Some(args::Command::Arp(arp)) => arp::run(arp).map(done),
        None if args.run.gdb => debugger::run(&args.run, &words).map(done),
        None if help::is_wanted(&args.run.tool_options) => show_help(&args.run).map(done),
        None => no_mistyped_command(&args.run)
            .and_then(|()| cleanup::on_signals())
            .and_then(|()| {
                exhausted::on_abort();
                if args.run.job.as_ref().is_some_and(|job| job.quiet) {
                    message::leave_out_notes();
                }
                driver::run(&args.run)
            })
            .map(done),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            if args.run.job.is_some_and(|job| job.answers) {
                job::Answer::give(&error)
            } else {
                message::error(&error)
            }
            ExitCode::from(message::exit_code(&error))
        }
    }
}

/// Refuses a program that is not there and has the name of a tool, or nearly the name of a command.
fn no_mistyped_command(run: &choices::Run) -> atom_core::Result<()> {
    let app = run.app.as_deref().filter(|app| !app.exists());
    let Some(name) = app.and_then(|app| app.to_str()) else {
        return Ok(());
    };
    let fail = |advice: String| {
        let error = atom_core::Error::usage(format!("there is no program {name}"));
        Err(error.advice(advice))
    };
    if !name.contains('/') && find::named_tool(name).is_ok() {
        return fail(format!(
            "run a program with the tool: `atom run {name} -- PROGRAM`"
        ));
    }
    let command = args::Args::command();
    let commands = command.get_subcommands().filter(|c| !c.is_hide_set());
    let commands: Vec<String> = commands.map(|c| c.get_name().to_owned()).collect();
    match find::alike(name, &commands) {
        Some(command) => fail(format!("did you mean the command `atom {command}`?")),
        None => Ok(()),
    }
}

/// Runs `atom show`.
fn show_program(args: &show::Show) -> atom_core::Result<()> {
    let image = Image::read(&args.app).map_err(|e| find::advise_program(&args.app, e))?;
    show::run(args, &image)
}

/// Shows the options of the tool of `atom APP`.
fn show_help(run: &choices::Run) -> atom_core::Result<()> {
    let file = request::tool_file(run)?.ok_or_else(|| {
        atom_core::Error::usage("there are tool options but no tool is named")
            .advice("`atom --help` has the options of the command; `atom tools` lists tools")
    })?;
    let tool = run.tool.as_ref().map(|name| format!("--tool {name}"));
    let tool = tool.unwrap_or_else(|| file.display().to_string());
    help::show(&file, &format!("atom APP {tool} -o OUT -- [OPTIONS]"))
}
