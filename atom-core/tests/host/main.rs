//! The host side of tools, with a real tool, `tests/tools/trial`, and real programs.

mod calls;
mod queries;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

fn temp(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Runs a command, which must succeed, and returns its output.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The tool: beside `$ATOM` if that is set, else built once.
fn tool_file() -> &'static Path {
    const NAME: &str = "libtrial.so";
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        if let Some(atom) = std::env::var_os("ATOM") {
            return PathBuf::from(atom).with_file_name(NAME);
        }
        let target = temp("..");
        run(Command::new(env!("CARGO"))
            .args(["build", "--release", "-p", "trial", "--target-dir"])
            .arg(&target)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")));
        target.join("release").join(NAME)
    })
}
