//! Programs that are instrumented by hand, in C and C++: their recordings are known byte for byte.

use crate::common::{compile, list, records};
use arp_core::{Format, Mode, Profile, Reader};

const HEAD: &str = "# Atomium record and playback data - format version 1.1.\n";

/// The recording of `filter.c`: each line costs its width, and lines across cost their number in addition.
fn filter_text() -> String {
    let mut text = format!("{HEAD}0 1 1 5\n36\n");
    for t in 0..3 {
        let (depth, stack) = match t {
            0 => ("4 0", " 8@0 7@0 3@0 2@0".to_owned()),
            t => ("4 1", format!(" 7@{t} 3@0 2@0")),
        };
        text += &format!("{depth}{stack}: 60;\n");
        (0..5).for_each(|y| text += &format!("5 4 1@{y}: 12;\n"));
        text += "4 2 6@0 5@0: 70;\n";
        (0..5).for_each(|y| text += &format!("5 4 4@{y}: {};\n", 12 + y));
    }
    text
}

#[test]
fn the_first_example() {
    for compiler in ["gcc", "g++", "clang"] {
        let program = compile(compiler, &["process.c"], &[]);
        let output = program.run(&[]);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "9 10 11 13 14 5 6 7 \n"
        );
        let note = String::from_utf8_lossy(&output.stderr);
        assert!(note.contains("stored in the file 'data.arp'"), "{note}");
        let text = program.text("data.arp");
        let value = text
            .strip_prefix(&format!("{HEAD}0 1 1 6\n1\n2 0 2@0 1@0: "))
            .expect(&text);
        let value: i64 = value
            .strip_suffix(";\n")
            .expect(value)
            .parse()
            .expect(value);
        assert!(value >= 0);
    }
}

#[test]
fn the_image_filter() {
    for (compiler, options) in [
        ("gcc", ["-O0"]),
        ("gcc", ["-O3"]),
        ("g++", ["-O2"]),
        ("clang", ["-O2"]),
    ] {
        let program = compile(compiler, &["filter.c"], &options);
        program.succeed(&[]);
        assert_eq!(program.text("data.arp"), filter_text());
    }
}

#[test]
fn linked_without_the_shared_library() {
    let program = compile("gcc", &["filter.c"], &["-O2", "-l:libarp.a", "-lm"]);
    let output = std::process::Command::new(program.path("program"))
        .current_dir(program.folder.path())
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .expect("it runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(program.text("data.arp"), filter_text());
}

#[test]
fn file_names_and_formats() {
    let program = compile("gcc", &["filter.c"], &[]);
    program.succeed(&["text.arp"]);
    program.succeed(&["binary.arp", "b"]);
    program.succeed(&["text.arp.gz"]);
    program.succeed(&["binary.arp.gz", "b"]);
    assert!(!program.path("data.arp").exists());
    assert_eq!(program.text("text.arp"), filter_text());
    let expected = program.records("text.arp");
    for (name, format, gzip) in [
        ("binary.arp", Format::Binary, false),
        ("text.arp.gz", Format::Ascii, true),
        ("binary.arp.gz", Format::Binary, true),
    ] {
        let reader = Reader::open(program.path(name)).expect("a data file");
        assert_eq!(
            (reader.format(), reader.is_gzip()),
            (format, gzip),
            "{name}"
        );
        assert_eq!(program.records(name), expected, "{name}");
    }
    let left: Vec<_> = program
        .folder
        .path()
        .read_dir()
        .expect("the folder")
        .collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn averages_and_histograms() {
    let program = compile("gcc", &["filter.c"], &["-DMODE=arp_record_average"]);
    program.succeed(&[]);
    let expected = "0 0 1 5\n4\n4 0 8 7 3 2: 3 60.0 60 60;\n5 4 1: 15 12.0 12 12;\n\
                    4 2 6 5: 3 70.0 70 70;\n5 4 4: 15 14.0 12 16;\n";
    assert_eq!(program.text("data.arp"), format!("{HEAD}{expected}"));
    let program = compile("gcc", &["filter.c"], &["-DMODE=arp_record_histogram"]);
    program.succeed(&[]);
    let expected = "0 2 1 5\n4\n4 0 8 7 3 2: 3 60.0 60 60 1 60.0@3;\n5 4 1: 15 12.0 12 12 1 12.0@15;\n\
                    4 2 6 5: 3 70.0 70 70 1 70.0@3;\n\
                    5 4 4: 15 14.0 12 16 5 12.0@3 13.0@3 14.0@3 15.0@3 16.0@3;\n";
    assert_eq!(program.text("data.arp"), format!("{HEAD}{expected}"));
    let profile = Profile::load(program.path("data.arp")).expect("a data file");
    assert_eq!(profile.mode(), Mode::RecordHistogram);
    assert_eq!(profile.histogram(3, 0).map(|h| h.quantile(0.5)), Some(14.0));
}

#[test]
fn call_paths_tell_executions_apart() {
    let program = compile("gcc", &["paths.c"], &[]);
    program.succeed(&[]);
    let expected = list(&[
        ("5@0 3@0 2@0 1@0", 0.0),
        ("5@0 3@0 2@0 1@1", 1.0),
        ("5@0 3@0 2@0 1@2", 2.0),
        ("5@0 4@0 2@0 1@0", 3.0),
        ("5@0 4@0 2@0 1@1", 4.0),
        ("5@1 3@0 2@0 1@0", 0.0),
        ("5@1 3@0 2@0 1@1", 1.0),
        ("5@1 3@0 2@0 1@2", 2.0),
        ("5@1 4@0 2@0 1@0", 3.0),
        ("5@1 4@0 2@0 1@1", 4.0),
        ("6@0 2@0 1@0", 0.0),
        ("6@0 2@0 1@1", 1.0),
    ]);
    assert_eq!(program.records("data.arp"), expected);
}

#[test]
fn a_loop_split_over_two_threads() {
    for compiler in ["g++", "clang++"] {
        let program = compile(compiler, &["threads.cc"], &["-O1"]);
        program.succeed(&["s"]);
        let mut sequential = program.records("data.arp");
        // The recording of one thread is played back by two, and the reverse.
        program.succeed(&["pb"]);
        program.succeed(&["p"]);
        let mut parallel = program.records("data.arp");
        program.succeed(&["b"]);
        program.succeed(&["pb"]);
        sequential.sort_by(|a, b| a.0.cmp(&b.0));
        parallel.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(sequential.len(), 200);
        assert_eq!(sequential, parallel);
    }
}

#[test]
fn playback_misses_what_was_not_recorded() {
    let program = compile("gcc", &["paths.c"], &[]);
    program.succeed(&["x"]);
    let player = compile("gcc", &["paths.c"], &["-DMODE=arp_playback"]);
    std::fs::copy(program.path("data.arp"), player.path("data.arp")).expect("a copy");
    player.succeed(&["x"]);
    // The extra call was not recorded.
    let output = player.run(&[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("thread 1: the data file has no value for 6@0 2@0 1@0"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn every_type_and_several_sets() {
    let program = compile("gcc", &["types.c"], &[]);
    let text = program.succeed(&["record"]);
    assert_eq!(text, "");
    let file = program.text("data.arp");
    let mut lines = file.lines().skip(1);
    assert_eq!(lines.next(), Some("0 1 13 0 1 2 3 4 5 6 7 8 9 10 11 12"));
    let first = "1 0 1@0: -128 255 -32768 65535 -2147483648 4294967295 -9223372036854775808 \
                 18446744073709551615 -9223372036854775808 18446744073709551615 0.1 0.1 \
                 0.1;";
    assert_eq!(lines.nth(1), Some(first));
    // The program itself compares the values that it reads.
    assert_eq!(program.succeed(&["query"]), "ok\n");
    assert_eq!(program.succeed(&["play"]), "ok\n");
    for (name, format, gzip) in [
        ("b.arp", Format::Binary, false),
        ("b.arp.gz", Format::Binary, true),
    ] {
        arp_core::convert(&program.path("data.arp"), &program.path(name), format, gzip)
            .expect("a conversion");
        std::fs::rename(program.path(name), program.path("data.arp")).expect("a file");
        assert_eq!(program.succeed(&["query"]), "ok\n");
        assert_eq!(program.succeed(&["play"]), "ok\n");
    }
}

#[test]
fn the_query_interface() {
    let filter = compile("gcc", &["filter.c"], &[]);
    filter.succeed(&[]);
    let query = compile("gcc", &["query.c"], &[]);
    for (name, format) in [("text.arp", Format::Ascii), ("binary.arp", Format::Binary)] {
        arp_core::convert(&filter.path("data.arp"), &query.path(name), format, false)
            .expect("a conversion");
        assert_eq!(query.succeed(&[name]), "ok\n");
    }
}

#[test]
fn a_simulator_installs_the_callbacks() {
    let folder = compile("gcc", &["simulator.c"], &["-c"]);
    let simulator = folder.path("program").display().to_string();
    for compiler in ["gcc", "g++"] {
        let object = format!("-Wl,{simulator}");
        let program = compile(
            compiler,
            &["filter.c"],
            &["-DARP_SIM", "-Wno-unused-function", &object],
        );
        program.succeed(&[]);
        assert_eq!(program.records("data.arp").len(), 36);
        // The simulator's clock advances by one at each reading.
        assert!(
            program
                .records("data.arp")
                .iter()
                .any(|(_, ticks)| *ticks == 1.0)
        );
    }
}

#[test]
fn compiled_as_if_not_instrumented() {
    // Compiled without the library: no symbol of it is needed.
    for compiler in ["gcc", "g++"] {
        let program = compile(
            compiler,
            &["process.c", "clock_only.c"],
            &["-DARP_NONE", "-Wl,--as-needed", "-Wno-unused"],
        );
        assert_eq!(program.succeed(&[]), "9 10 11 13 14 5 6 7 \n");
        assert!(!program.path("data.arp").exists());
        let nm = std::process::Command::new("nm")
            .arg(program.path("program"))
            .output()
            .expect("nm");
        assert!(!String::from_utf8_lossy(&nm.stdout).contains("arp_"));
    }
}

#[test]
fn a_killed_run_leaves_whole_blocks() {
    let program = compile("gcc", &["misuse.c"], &[]);
    let output = program.run(&["killed"]);
    assert!(output.status.code().is_none());
    let profile = Profile::load(program.path("data.arp")).expect("a heading");
    let damage = profile.damage().expect("no end mark").to_string();
    assert!(
        damage.contains("whole blocks without an end mark"),
        "{damage}"
    );
    let records = records(&profile);
    assert!(
        records.len() >= 500 && records.len() <= 1000,
        "{}",
        records.len()
    );
    for (i, (tuple, value)) in records.iter().enumerate() {
        assert_eq!((tuple.as_str(), *value), (format!("1@{i}").as_str(), 1.0));
    }
}

#[test]
fn sections_have_names() {
    let program = compile("gcc", &["named.c"], &[]);
    for (format, expected) in [("t", Format::Ascii), ("b", Format::Binary)] {
        assert_eq!(program.succeed(&[format]), "ok\n");
        let reader = Reader::open(program.path("data.arp")).expect("a data file");
        assert_eq!(reader.format(), expected);
        let profile = Profile::read(reader).expect("a data file");
        let section = profile.section(arp_core::Sid(1)).expect("a description");
        assert_eq!(
            (section.name.as_str(), section.line, section.end_line),
            ("inner loop", 12, 18)
        );
        assert_eq!(section.file, "named.c");
    }
}

#[test]
fn several_recordings_one_after_the_other() {
    let strict = ["-std=c89", "-pedantic", "-Wstrict-prototypes"];
    let program = compile("gcc", &["again.c"], &strict);
    program.succeed(&[]);
    for round in 0..3 {
        let expected = list(&[("1@0", f64::from(round + 1))]);
        assert_eq!(program.records(&format!("again{round}.arp")), expected);
    }
}

#[test]
fn spawning_while_the_parent_records() {
    let program = compile("gcc", &["spawning.c"], &["-O2"]);
    program.succeed(&[]);
    let profile = Profile::load(program.path("data.arp")).expect("a data file");
    assert!(profile.damage().is_none(), "{:?}", profile.damage());
    let (mut parent, mut child, mut expected) = (0, 0, None);
    for (index, (tuple, value)) in records(&profile).into_iter().enumerate() {
        if tuple == "3@1000000" {
            expected = Some(value);
        } else if profile.thread(index) == Some(arp_core::Tid(1)) {
            // None is lost while the parent's recorder is taken.
            assert_eq!(tuple, format!("2@0 1@{parent}"));
            parent += 1;
        } else {
            // The parent may have been inside its kernel or outside of it.
            assert!(
                tuple.starts_with("2@0 ") && tuple.ends_with(&format!(" 3@{child}")),
                "{tuple}"
            );
            child += 1;
        }
    }
    assert_eq!((Some(f64::from(parent)), child), (expected, 300));
}

#[test]
fn scopes_and_exceptions() {
    for (compiler, level) in [("g++", "-O0"), ("g++", "-O2"), ("clang++", "-O1")] {
        let program = compile(
            compiler,
            &["scopes.cc"],
            &[level, "-Wno-unused-but-set-variable"],
        );
        let output = program.run(&[]);
        assert!(output.status.success());
        assert_eq!(
            String::from_utf8_lossy(&output.stderr).lines().count(),
            1,
            "only the note"
        );
        let mut expected = Vec::new();
        for i in 0..2 {
            for inner in ["2@0", "4@0 1@0", "4@0 4@0 1@0"] {
                expected.push((format!("8@{i} {inner}"), 1.0));
            }
        }
        assert_eq!(program.records("data.arp"), expected, "{compiler} {level}");
    }
}
