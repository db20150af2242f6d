//! `atom annotate`: counts beside source and instructions.

use std::collections::BTreeMap;
use std::process::Command;

use crate::common::Folder;
use crate::common::profiles::Sample;
use serde_json::Value;

/// Counts by address in a text without source lines.
fn counts(text: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for part in text.split("address\n").skip(1) {
        for line in part.lines().take_while(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let Some(Ok(count)) = words.next().map(|w| w.replace(',', "").parse()) else {
                continue;
            };
            let is_address = |w: &&str| w.len() == 4 && u64::from_str_radix(w, 16).is_ok();
            counts.insert(words.find(is_address).unwrap().to_owned(), count);
        }
    }
    counts
}

/// Runs a tool on the sample, alone.
fn measure(folder: &Folder, tool: &str, options: &[&str]) {
    let instrument = ["app", "--tool", tool, "-o", "app.inst", "-q", "--"];
    folder.atom_ok(&[&instrument[..], options].concat());
    let status = Command::new(folder.join("app.inst"))
        .current_dir(folder.path())
        .status();
    assert!(status.expect("it runs").success());
}

#[test]
fn blocks_expand_to_what_icount_counts_by_instruction() {
    let folder = Folder::new();
    let _sample = Sample::new(&folder);
    measure(&folder, "icount", &["--output", "blocks.out"]);
    measure(
        &folder,
        "icount",
        &["--per", "instruction", "--json", "insts.json"],
    );
    let json: Value = serde_json::from_slice(&folder.read("insts.json")).unwrap();
    let rows = json["instructions_executed"].as_array().unwrap();
    let names = ["round", "twice", "main"];
    let mut want = BTreeMap::new();
    for row in rows {
        if names.contains(&row["procedure"].as_str().unwrap()) {
            let address = row["pc"].as_str().unwrap()[2..].to_owned();
            want.insert(address, row["count"].as_u64().unwrap());
        }
    }
    let mut got = BTreeMap::new();
    for name in names {
        got.extend(counts(&folder.atom_ok(&[
            "annotate",
            "blocks.profile",
            name,
        ])));
    }
    got.retain(|_, count| *count != 0);
    assert!(want.len() > 10, "{want:?}");
    assert_eq!(got, want);
}

#[test]
fn sums_lines_loops_and_colours() {
    let folder = Folder::new();
    let sample = Sample::new(&folder);
    let profile = sample.blocks("other");
    folder.write("data.profile", profile.to_string());
    let text = folder.atom_ok(&["annotate", "data.profile", "round"]);
    assert!(text.starts_with("round (app, 0x"), "{text}");
    assert!(
        text.contains(": 1,000 rounds, entered 10 times (100.0 each)"),
        "{text}"
    );
    let line = text
        .lines()
        .find(|l| l.contains("     4  ") && l.contains("sum += i ^ n;"));
    assert!(
        line.is_some_and(|l| l.trim_start().starts_with(|c: char| c.is_ascii_digit())),
        "{text}"
    );
    assert!(!text.contains('\x1b'));
    // The sum of the instructions is the procedure's in the profile.
    let sum: u64 = counts(&text).values().sum();
    assert_eq!(profile["tables"][0]["columns"][0]["values"][2], sum);
    let coloured = folder.atom_ok(&["annotate", "data.profile", "round", "--color", "always"]);
    assert!(coloured.contains("\x1b[1;31m"));
    // Without PROC the hottest come first.
    let all = folder.atom_ok(&["annotate", "data.profile", "--top", "2"]);
    let heads: Vec<&str> = all.lines().filter(|l| l.contains("(app, ")).collect();
    assert!(heads[0].starts_with("round") && heads[1].starts_with("twice") && heads.len() == 2);
}

#[test]
fn without_debug_information_there_are_instructions_alone() {
    let folder = Folder::new();
    let sample = Sample::new(&folder);
    folder.write("data.profile", sample.blocks("other").to_string());
    let full = folder.atom_ok(&["annotate", "data.profile", "round"]);
    let stripped = Command::new("strip")
        .arg("-g")
        .arg(folder.join("app"))
        .status();
    assert!(stripped.expect("strip runs").success());
    let text = folder.atom_ok(&["annotate", "data.profile", "round"]);
    assert!(!text.contains("app.c"));
    assert_eq!(counts(&text), counts(&full));
}

#[test]
fn directions_of_branches_and_entries_of_loops() {
    let folder = Folder::new();
    let _sample = Sample::new(&folder);
    measure(&folder, "branch", &["--output", "branch.out"]);
    let text = folder.atom_ok(&["annotate", "branch.profile", "round"]);
    assert!(text.contains("↑ taken 99 (99.00 %)"), "{text}");
}

#[test]
fn mistakes_have_advice() {
    let folder = Folder::new();
    let sample = Sample::new(&folder);
    folder.write("data.profile", sample.blocks("rounded").to_string());
    let fails = |args: &[&str]| {
        let output = folder.atom(&[&["annotate"], args].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        crate::common::stderr(&output)
    };
    assert!(fails(&["data.profile", "rou"]).contains("similar names: round, rounded"));
    assert!(fails(&["data.profile", "nothing"]).contains("give an address"));
    assert!(fails(&["data.profile", "--by", "misses"]).contains("measures: count"));
    assert!(fails(&["app"]).contains("not a profile"));
    // Another build than the one that ran.
    let mut profile = sample.blocks("other");
    profile["objects"][0]["build_id"] = "00".into();
    folder.write("other.profile", profile.to_string());
    assert!(fails(&["other.profile", "round"]).contains("build-id differs"));
}
