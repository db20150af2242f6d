//! Debugging with gdb: the instrument routine, under the command itself.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::Folder;

/// A tool that cargo built as an example of this package.
fn tool(name: &str) -> String {
    let command = Path::new(env!("CARGO_BIN_EXE_atom"));
    let folder = command.parent().expect("a folder").join("examples");
    let file = folder.join(format!("lib{name}.so"));
    assert!(file.exists(), "{} is not built", file.display());
    file.into_os_string().into_string().expect("UTF-8")
}

/// What a run wrote, errors in it.
fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn gdb_stops_in_the_instrument_routine() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    for option in ["-dbx", "--gdb"] {
        folder.write("commands", "bt 3\ncontinue\nquit\n");
        let commands = std::fs::File::open(folder.join("commands")).expect("the commands");
        let output = Command::new(env!("CARGO_BIN_EXE_atom"))
            .current_dir(folder.path())
            .args(["app", &hello, option, "-o", option.trim_start_matches('-')])
            .env("HOME", folder.path())
            .stdin(Stdio::from(commands))
            .output()
            .expect("the command runs");
        let text = text(&output);
        let stop = text
            .find("hit Breakpoint 1")
            .unwrap_or_else(|| panic!("no stop: {text}"));
        assert!(text[stop..].contains("instrument ("), "{text}");
        assert!(text[stop..].contains("hello-tool/src/lib.rs"), "{text}");
        // It goes on to the end.
        assert!(
            folder.join(option.trim_start_matches('-')).exists(),
            "{text}"
        );
    }
    folder.fails(&["app", "--gdb"], &["a tool is to be debugged but no tool"]);
    let no_tool = env!("CARGO_BIN_EXE_atom");
    folder.fails(
        &["app", no_tool, "--gdb", "-o", "x"],
        &["does not tell where its instrument routine is"],
    );
}
