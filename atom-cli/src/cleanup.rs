//! Removes temporary files when a signal or a panic ends the command.

use atom_core::{Error, Result};
pub use output::temporary::remove_all;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exhausted;
use crate::surroundings::is_ignored_at_start;
use output::message::say;

/// Installs handlers: SIGINT, SIGTERM and SIGHUP remove the temporary files, then end the process. Those that
/// the process ignores by inheritance stay ignored.
pub fn on_signals() -> Result<()> {
    let ending = [SIGINT, SIGTERM, SIGHUP];
    let ending = ending.iter().filter(|s| !is_ignored_at_start(**s));
    let mut signals = signal_hook::iterator::Signals::new(ending)
        .map_err(|e| Error::new("preparing for signals", e))?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            remove_all();
            // Ends this process as the signal does by default.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    });
    Ok(())
}

/// Installs a panic hook, which removes the temporary files and reports a bug in `atom`.
pub fn on_panic() {
    std::panic::set_hook(Box::new(|info| {
        remove_all();
        if exhausted::is_cause(&info.to_string()) {
            exhausted::report();
            std::process::exit(1);
        }
        say(&format!(
            "atom: internal error: {info}\n  help: this is a bug in atom; please report it \
             with the command line, the program and the output of `atom --version`"
        ));
        std::process::exit(1);
    }));
}
