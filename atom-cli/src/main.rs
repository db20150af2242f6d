//! The `atom` command.
//!
//! This crate does everything that the libraries must not do: it prints, exits and
//! writes files. Instrumenting itself is in `driver`, step by step.

mod analyze;
mod annotate;
mod args;
mod arp;
mod cache;
mod cleanup;
mod clocks;
mod debugger;
mod driver;
mod events;
mod find;
mod message;
mod output;
mod page;
mod profiles;
mod report;
mod request;
mod run;
mod show;
mod spelling;
mod steps;
mod tool_code;
mod width;
mod with;

use std::process::ExitCode;

use atom_core::error::ErrorKind;
use clap::Parser;

/// Exit code if the inserted code does not fit; documented in `README.md`.
const TOO_LARGE: u8 = 3;

fn main() -> ExitCode {
    if let Some(code) = run::followed::main() {
        return code;
    }
    cleanup::on_panic();
    let mut words: Vec<_> = std::env::args_os().collect();
    let command = run::split_command(&mut words);
    let words = spelling::modern(words);
    let mut args = args::Args::parse_from(&words);
    if let Some(args::Command::Run(run)) = &mut args.command {
        run.command = command;
    }
    let choices = match &mut args.command {
        Some(args::Command::Run(run)) => &mut run.choices,
        _ => &mut args.run.choices,
    };
    if let Err(error) = with::add_folders(choices) {
        message::error(&error);
        return ExitCode::FAILURE;
    }
    let done = |()| ExitCode::SUCCESS;
    let result = match &args.command {
        Some(args::Command::Run(run)) => run::run(run),
        Some(args::Command::Cache(cache)) => cache::run(cache).map(done),
        Some(args::Command::Show(show)) => show::run(show).map(done),
        Some(args::Command::Annotate(annotate)) => annotate::run(annotate).map(done),
        Some(args::Command::Page(page)) => page::run(page).map(done),
        Some(args::Command::Analyze(analyze)) => analyze::run(analyze).map(done),
        Some(args::Command::Clocks(clocks)) => clocks::run(clocks).map(done),
        Some(args::Command::Events(events)) => events::run(events).map(done),
        Some(args::Command::Report(report)) => profiles::run(report),
        Some(args::Command::Arp(arp)) => arp::run(arp).map(done),
        None if args.run.gdb => debugger::run(&args.run, &words).map(done),
        None => cleanup::on_signals()
            .and_then(|()| driver::run(&args.run))
            .map(done),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            message::error(&error);
            match error.kind {
                ErrorKind::TooLarge => ExitCode::from(TOO_LARGE),
                ErrorKind::Other => ExitCode::FAILURE,
            }
        }
    }
}
