//! Tools: valid tools run, others are refused, and nothing is left behind.

use std::process::Command;

use crate::common::{Folder, stderr, tool};

#[test]
fn a_tool_is_called() {
    let folder = Folder::with_app();
    let output = folder.atom(&["app", &tool("hello_tool"), "-o", "out", "-v"]);
    let text = stderr(&output);
    assert!(output.status.success(), "{text}");
    for step in ["load", "tool", "analysis", "live", "plan"] {
        assert!(
            text.lines()
                .any(|l| l.split_whitespace().next() == Some(step)),
            "{text}"
        );
    }
    let run = |name: &str| {
        Command::new(folder.join(name))
            .current_dir(folder.path())
            .args(["a", "b"])
            .output()
            .expect("the program runs")
    };
    let [before, after] = ["app", "out"].map(run);
    assert_eq!(before.stdout, after.stdout);
    assert_eq!(before.status, after.status);
    assert_eq!(stderr(&before), "");
    assert_eq!(stderr(&after), "");
    let counts = String::from_utf8(folder.read("hello.out")).expect("UTF-8");
    let count = |name: &str| {
        let line = counts
            .lines()
            .find(|l| l.split_whitespace().last() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {counts}"));
        line.split_whitespace().next().expect("a count").to_string()
    };
    // Three and four arguments in two runs: the loop has seven rounds.
    assert_eq!(count("twice"), "7");
    assert_eq!(count("main"), "1");
    assert_eq!(count("printf@plt"), "1");
}

/// The tool of the guide, which uses much of `std` in its analysis routines.
#[test]
fn a_tool_with_collections_and_files() {
    let folder = Folder::with_app();
    folder.atom_ok(&[
        "app",
        &tool("guide"),
        "-o",
        "out",
        "--",
        "--output",
        "%p.lines",
    ]);
    let mut child = Command::new("./out")
        .current_dir(folder.path())
        .spawn()
        .expect("it runs");
    let pid = child.id();
    child.wait().expect("it ends");
    let lines = String::from_utf8(folder.read(&format!("{pid}.lines"))).expect("UTF-8");
    let count = |name: &str| -> u32 {
        let row = lines
            .lines()
            .find_map(|l| l.strip_suffix(&format!("\t{name}")));
        row.unwrap_or_else(|| panic!("no {name}: {lines}"))
            .parse()
            .expect("a count")
    };
    // The return address is always in the same cache line.
    assert_eq!(count("twice"), 1);
    assert!((1..20).contains(&count("main")), "{lines}");
}

#[test]
fn missing() {
    let folder = Folder::with_app();
    folder.fails(
        &["app", "none.so"],
        &["loading the tool", "none.so", "no such file"],
    );
    folder.fails(
        &["app", "--tool", "none"],
        &["finding the tool", "libnone.so", "help:"],
    );
    folder.fails(
        &["app", "--tool", "./x.so"],
        &["not a tool's name", "help:"],
    );
    folder.fails(&["app", "--", "--per", "block"], &["no tool", "help:"]);
}

#[test]
fn no_tool() {
    let folder = Folder::with_app();
    folder.write("text.so", "just some text");
    folder.fails(
        &["app", "text.so"],
        &["text.so", "not a shared object", "help:"],
    );
    folder.fails(&["app", "."], &["directory"]);
    folder.fails(&["app", "app"], &["loading the tool", "not a tool"]);
    folder.compile(
        "plain.so",
        "int f(void) { return 1; }",
        &["-shared", "-fPIC"],
    );
    folder.fails(&["app", "plain.so"], &["plain.so", "not a tool", "help:"]);
    let bytes = folder.read("plain.so");
    folder.write("half.so", &bytes[..bytes.len() / 2]);
    folder.fails(&["app", "half.so"], &["half.so"]);
    let other = "unsigned long atom_tool_header[16] = {1, 2, 3};";
    folder.compile("other.so", other, &["-shared", "-fPIC"]);
    folder.fails(&["app", "other.so"], &["header is not that of a tool"]);
}

#[test]
fn another_interface_version() {
    let folder = Folder::with_app();
    let source = r#"
        struct { char magic[8]; unsigned version, size; void *rest[12]; }
        atom_tool_header = {"ATOMTOOL", 999, 72};
    "#;
    folder.compile("old.so", source, &["-shared", "-fPIC"]);
    folder.fails(
        &["app", "old.so"],
        &["version 999", "help:", "build the tool again"],
    );
}

#[test]
fn instrument_routine_fails() {
    let folder = Folder::with_app();
    let tool = tool("misbehaving");
    let fails = |what: &str, needles: &[&str]| {
        folder.fails(
            &["app", &tool, "-o", "out", "--report", "r.json", "--", what],
            needles,
        );
    };
    fails("panic", &["the tool has lost its head", "misbehaving.rs"]);
    fails("index", &["index out of bounds", "misbehaving.rs"]);
    fails("error", &["the tool does not like this program"]);
    fails("condition", &["0x", "misbehaving.rs, line 22)"]);
    fails("nonsense", &["what is \"nonsense\"?"]);
}

#[test]
fn output_is_the_tool() {
    let folder = Folder::with_app();
    std::fs::copy(tool("hello_tool"), folder.join("tool.so")).expect("a copy");
    folder.fails(
        &["app", "tool.so", "-o", "./tool.so"],
        &["same file as the tool"],
    );
}
