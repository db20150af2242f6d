//! Names of procedures and lines from a debuginfod server.
//!
//! `DEBUGINFOD_URLS` names the servers; without it nobody is asked. The client of elfutils (`debuginfod-find`) asks, and
//! keeps what it is told, also that a server knows nothing, in a cache of its own, where
//! [`separate`] finds the files.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use atom_core::image::separate;

use crate::message::{count, note};

/// The client's program.
const CLIENT: &str = "debuginfod-find";
/// The variable that names the servers.
const SERVERS: &str = "DEBUGINFOD_URLS";

/// Asks for the debug information of those objects that have none on this machine, and waits for the answers.
pub fn ask_for(objects: &[&Path]) {
    if std::env::var_os(SERVERS).is_none_or(|urls| urls.is_empty()) {
        return;
    }
    let ids: Vec<String> = objects
        .iter()
        .filter_map(|o| separate::missing(o))
        .collect();
    if ids.is_empty() {
        return;
    }
    let mut asked = Vec::new();
    for id in &ids {
        match ask(id) {
            Ok(client) => asked.push(client),
            Err(error) => {
                note(&format!(
                    "{SERVERS} is set, but {CLIENT} cannot be run: {error}"
                ));
                return;
            }
        }
    }
    let answers = asked.into_iter().map(|mut client| client.wait());
    let found = answers
        .filter(|status| status.as_ref().is_ok_and(|s| s.success()))
        .count();
    if found > 0 {
        note(&format!(
            "debuginfod has names for {}",
            count(found, "object")
        ));
    }
}

fn ask(id: &str) -> std::io::Result<Child> {
    let mut command = Command::new(CLIENT);
    command.args(["debuginfo", id]);
    let silent = command.stdin(Stdio::null()).stdout(Stdio::null());
    silent.stderr(Stdio::null()).spawn()
}
