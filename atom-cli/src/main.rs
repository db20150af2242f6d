//! The `atom` command.
//!
//! This crate does everything that the libraries must not do: it prints, exits and
//! writes files. Instrumenting itself is in `driver`, step by step.

mod analyze;
mod args;
mod arp;
mod cleanup;
mod clocks;
mod debugger;
mod driver;
mod events;
mod find;
mod message;
mod output;
mod report;
mod request;
mod show;
mod spelling;
mod steps;
mod tool_code;

use std::process::ExitCode;

use atom_core::error::ErrorKind;
use clap::Parser;

/// Exit code if the inserted code does not fit; documented in `README.md`.
const TOO_LARGE: u8 = 3;

fn main() -> ExitCode {
    cleanup::on_panic();
    let words = spelling::modern(std::env::args_os());
    let args = args::Args::parse_from(&words);
    let result = match &args.command {
        Some(args::Command::Show(show)) => show::run(show),
        Some(args::Command::Analyze(analyze)) => analyze::run(analyze),
        Some(args::Command::Clocks(clocks)) => clocks::run(clocks),
        Some(args::Command::Events(events)) => events::run(events),
        Some(args::Command::Arp(arp)) => arp::run(arp),
        None if args.run.gdb => debugger::run(&args.run, &words),
        None => cleanup::on_signals().and_then(|()| driver::run(&args.run)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&error);
            match error.kind {
                ErrorKind::TooLarge => ExitCode::from(TOO_LARGE),
                ErrorKind::Other => ExitCode::FAILURE,
            }
        }
    }
}
