//! Output to a terminal through a pager, as git does it: `$PAGER`, or `less`, which ends at once if
//! all fits on the screen. Output to anything else is written as it is.

use std::io::{IsTerminal, Write};
use std::process::{Command, Stdio};

use atom_core::Result;

/// Shows a text. `use_pager` is false if the user wants none.
pub fn show(text: &str, use_pager: bool) -> Result<()> {
    if !use_pager || !std::io::stdout().is_terminal() {
        return output::print(text);
    }
    let pager = std::env::var("PAGER").unwrap_or_default();
    let pager = match pager.trim() {
        "" => "less",
        "cat" => return output::print(text),
        pager => pager,
    };
    let mut command = Command::new("/bin/sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Leave if one screen is enough, pass colours on, leave the screen as it is.
        command.env("LESS", "FRX");
    }
    let Ok(mut child) = command.spawn() else {
        return output::print(text);
    };
    if let Some(mut to) = child.stdin.take() {
        // The user may leave the pager before its end.
        let _ = to.write_all(text.as_bytes());
    }
    match child.wait() {
        // The shell did not find the pager.
        Ok(status) if status.code() == Some(127) => output::print(text),
        _ => Ok(()),
    }
}
