//! Options, each in ATOM's spelling and in the long form, and errors for wrong values.

use std::process::Command;

use crate::common::{Folder, stderr, tool};
use object::{Object, ObjectSegment};

/// Loadable segments: address and size, and true if the segment is executable.
fn segments(folder: &Folder, name: &str) -> Vec<(u64, u64)> {
    let bytes = folder.read(name);
    let file = object::File::parse(&*bytes).expect("an ELF file");
    file.segments().map(|s| (s.address(), s.size())).collect()
}

/// Runs a program of the folder with two arguments.
fn run(folder: &Folder, name: &str) -> std::process::Output {
    Command::new(folder.join(name))
        .current_dir(folder.path())
        .args(["a", "b"])
        .output()
        .expect("the program runs")
}

/// The count of a procedure by the tool `hello` in the last run in the folder.
fn count(folder: &Folder, name: &str) -> Option<String> {
    let text = String::from_utf8(folder.read("hello.out")).expect("UTF-8");
    let line = text
        .lines()
        .find(|l| l.split_whitespace().last() == Some(name))?;
    line.split_whitespace().next().map(String::from)
}

#[test]
fn the_version_in_each_spelling() {
    let folder = Folder::new();
    let expected = format!("atom {}\n", env!("CARGO_PKG_VERSION"));
    for option in ["-version", "--version", "-V"] {
        assert_eq!(folder.atom_ok(&[option]), expected, "{option}");
    }
}

#[test]
fn output_verbose_and_the_default_name() {
    let folder = Folder::with_app();
    folder.atom_ok(&["app"]);
    let by_default = folder.read("app.atom");
    folder.atom_ok(&["app", "--output", "long"]);
    folder.atom_ok(&["-o", "short", "app"]);
    assert!(folder.read("long") == by_default && folder.read("short") == by_default);
    for option in ["-v", "--verbose"] {
        let text = stderr(&folder.atom(&["app", "-o", "x", option]));
        assert!(text.lines().count() > 5, "{option}: {text}");
    }
}

#[test]
fn the_tool_is_kept() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    // The program has the name of the tool's file.
    let name = hello.rsplit('/').next().expect("a name");
    std::fs::create_dir(folder.path().join("kept")).expect("a folder");
    let kept = format!("kept/{name}");
    folder.atom_ok(&["app", &hello, "-o", "out", "-P", &kept]);
    assert!(folder.read(&kept) == std::fs::read(&hello).expect("the tool"));
    // The kept file is a whole tool.
    folder.atom_ok(&["app", &kept, "-o", "again"]);
    assert!(folder.read("again") == folder.read("out"));
    folder.fails(
        &["app", &hello, "-o", "out2", "--keep-tool", "out2"],
        &[
            "the instrumented program too",
            "choose another name for the kept tool",
        ],
    );
    folder.fails(&["app", "-P", "x"], &["a tool is to be kept but no tool"]);
    folder.fails(&["app", &hello, "-P", "app"], &["same file as the program"]);
}

#[test]
fn the_new_text_starts_where_it_is_wanted() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    let before = run(&folder, "app");
    for option in ["-T", "--text-address"] {
        folder.atom_ok(&["app", &hello, "-o", "out", option, "0x70000000"]);
        let segments = segments(&folder, "out");
        assert!(segments.iter().any(|s| s.0 == 0x7000_0000), "{segments:x?}");
        let after = run(&folder, "out");
        assert_eq!(
            (before.status, &before.stdout),
            (after.status, &after.stdout)
        );
        assert_eq!(count(&folder, "twice").as_deref(), Some("7"));
    }
    folder.fails(
        &["app", "-T", "0x70000001", "-o", "x"],
        &[
            "0x70000001 is not the start of a page",
            "0x70000000 and 0x70001000",
        ],
    );
    for outside in ["0", "0x1000", "0x123456789000"] {
        folder.fails(
            &["app", "-T", outside, "-o", "x"],
            &[
                "is outside of what this program's code reaches",
                "it may be from",
            ],
        );
    }
    let text = stderr(&folder.atom(&["app", "-T", "here", "-o", "x"]));
    assert!(text.contains("a number is wanted"), "{text}");
}

/// An address directly after the image, where the heap would start.
#[test]
fn the_heap_gives_way_to_near_text() {
    let folder = Folder::new();
    let source = r#"
        #include <stdio.h>
        #include <stdlib.h>
        int main(void) {
            long sum = 0;
            for (int i = 1; i < 2000; i++) { char *p = malloc(i * 7); p[0] = i; sum += p[0]; }
            printf("%ld\n", sum);
            return 0;
        }"#;
    for (name, flags) in [
        ("app", &["-no-pie"][..]),
        ("static", &["-static", "-no-pie"]),
    ] {
        folder.compile(name, source, flags);
        let end = segments(&folder, name).iter().map(|s| s.0 + s.1).max();
        let near = end.expect("segments").next_multiple_of(0x1000);
        let hello = tool("hello_tool");
        let near = format!("{near:#x}");
        let output = folder.atom(&[name, &hello, "-o", "out", "-T", &near]);
        let text = stderr(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("close to the program"), "{text}");
        for _ in 0..5 {
            assert_eq!(run(&folder, name).stdout, run(&folder, "out").stdout);
        }
    }
}

#[test]
fn the_new_data_starts_where_it_is_wanted() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    let before = run(&folder, "app");
    for option in ["-D", "--data-address"] {
        folder.atom_ok(&["app", &hello, "-o", "out", option, "0x62000000"]);
        let segments = segments(&folder, "out");
        assert!(segments.iter().any(|s| s.0 == 0x6200_0000), "{segments:x?}");
        let after = run(&folder, "out");
        assert_eq!(
            (before.status, &before.stdout),
            (after.status, &after.stdout)
        );
        assert_eq!(count(&folder, "main").as_deref(), Some("1"));
    }
    folder.fails(
        &["app", &hello, "-D", "0x60006000", "-o", "x"],
        &["new data cannot start at 0x60006000", "it may start from"],
    );
    folder.fails(
        &["app", &hello, "-D", "0x1000", "-o", "x"],
        &["new data cannot start at 0x1000"],
    );
    folder.fails(
        &["app", &hello, "-D", "0x7f000000", "-o", "x"],
        &["new data cannot start at 0x7f000000"],
    );
}

#[test]
fn addresses_of_32_bits() {
    let folder = Folder::new();
    folder.compile("app", crate::common::APP, &["-no-pie"]);
    folder.compile("pie", crate::common::APP, &["-pie", "-fPIE"]);
    let hello = tool("hello_tool");
    for option in ["-32addr", "--32addr"] {
        folder.atom_ok(&["app", &hello, "-o", "out", option]);
        let segments = segments(&folder, "out");
        assert!(
            segments.iter().all(|s| s.0 + s.1 <= 1 << 32),
            "{segments:x?}"
        );
        assert_eq!(run(&folder, "app").stdout, run(&folder, "out").stdout);
        folder.fails(
            &["pie", option, "-o", "x"],
            &["is placed by the kernel", "-no-pie"],
        );
    }
}

#[test]
fn a_heap_offset_is_not_needed() {
    let folder = Folder::with_app();
    folder.atom_ok(&["app", "-o", "plain"]);
    for option in ["-heap", "--heap"] {
        let output = folder.atom(&["app", "-o", "out", option, "0x1000000"]);
        let text = stderr(&output);
        assert!(output.status.success(), "{text}");
        assert!(text.contains("-heap is not needed"), "{text}");
        assert!(folder.read("plain") == folder.read("out"));
    }
    let text = stderr(&folder.atom(&["app", "-heap", "much"]));
    assert!(text.contains("a number is wanted"), "{text}");
}

#[test]
fn a_shipped_tool_in_each_spelling() {
    let folder = Folder::with_app();
    for option in ["-tool", "--tool"] {
        folder.fails(
            &["app", option, "no-such-tool", "-o", "x"],
            &["(no-such-tool)", "there is no libno-such-tool.so"],
        );
    }
}

#[test]
fn selections() {
    let folder = Folder::new();
    folder.compile("app", crate::common::APP, &["-O1", "-g"]);
    let hello = tool("hello_tool");
    let before = run(&folder, "app");
    let counts = |options: &[&str]| {
        let mut args = vec!["app", &hello, "-o", "out"];
        args.extend(options);
        folder.atom_ok(&args);
        let after = run(&folder, "out");
        assert_eq!(
            (before.status, &before.stdout),
            (after.status, &after.stdout)
        );
        [count(&folder, "main"), count(&folder, "twice")].map(|c| c.is_some_and(|c| c != "0"))
    };
    assert_eq!(counts(&[]), [true, true]);
    assert_eq!(counts(&["--only", "twice"]), [false, true]);
    assert_eq!(counts(&["--only", "tw?c*", "--only", "main"]), [true, true]);
    assert_eq!(counts(&["--skip", "twice"]), [true, false]);
    assert_eq!(counts(&["--only", "file:app.c"]), [true, true]);
    assert_eq!(counts(&["--skip", "file:app.c"]), [false, false]);
    assert_eq!(
        counts(&["--only", "file:app.c", "--skip", "main"]),
        [false, true]
    );

    let bytes = folder.read("app");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let main = file
        .symbols()
        .find(|s| object::ObjectSymbol::name(s) == Ok("main"));
    let main = object::ObjectSymbol::address(&main.expect("main"));
    let range = format!("{main:#x}-{:#x}", main + 1);
    assert_eq!(counts(&["--only", &range]), [true, false]);
    assert_eq!(counts(&["--skip", &range]), [false, true]);

    let report = |options: &[&str]| {
        let mut args = vec!["app", &hello, "-o", "out", "--report", "r.json"];
        args.extend(options);
        folder.atom_ok(&args);
        let json: serde_json::Value = serde_json::from_slice(&folder.read("r.json")).expect("JSON");
        let number = |name: &str| json["calls"][name].as_u64().expect("a number");
        (number("added"), number("unselected"))
    };
    let (all, none) = report(&[]);
    assert_eq!(none, 0);
    let (added, left_out) = report(&["--only", "twice"]);
    assert!(
        added < all && added + left_out == all,
        "{added} {left_out} {all}"
    );
}

#[test]
fn selections_that_cannot_be() {
    let folder = Folder::with_app();
    let hello = tool("hello_tool");
    let fails = |pattern: &str, needles: &[&str]| {
        for option in ["--only", "--skip"] {
            folder.fails(&["app", &hello, option, pattern, "-o", "x"], needles);
        }
    };
    fails(
        "twize",
        &["no procedure is called `twize`", "did you mean `twice`?"],
    );
    fails(
        "file:x.c",
        &["no source file is known", "select by procedure"],
    );
    fails("0x1-0x2", &["no procedure lies in 0x1-0x2", "lie in 0x"]);
    fails("0x2-0x1", &["is empty"]);
    fails("0x1g", &["is not a range"]);
    fails("app.c:7", &["no code comes from line 7 of app.c"]);
    fails("", &["a pattern is empty"]);
    folder.fails(
        &["app", "--only", "main"],
        &["there is a selection but no tool"],
    );
}
