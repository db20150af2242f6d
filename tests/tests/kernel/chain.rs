//! The way from a program to what `atom arp` shows of it.

use std::path::Path;
use std::process::Command;

use arp::Profile;
use atom_tests::atom;

use super::{compile, data, folder, profile, source, values};

/// `atom arp` with these words.
fn arp(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new(atom::command().unwrap());
    let output = command
        .current_dir(folder)
        .arg("arp")
        .args(words)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sections of the program with the numbers of their executions.
const EXECUTIONS: [(&str, u64); 4] = [
    ("ato_kernel_line", 75),
    ("ato_kernel_column", 75),
    ("ato_profile_lines", 3),
    ("ato_profile_columns", 3),
];

/// The sum of a section's values in the first set.
fn total(recorded: &Profile, name: &str) -> u64 {
    values(recorded, name, 0).iter().sum::<f64>() as u64
}

/// The source line of a section.
fn line_of(recorded: &Profile, name: &str) -> u32 {
    let section = recorded.sections().iter().find(|s| s.name == name);
    section.unwrap().line
}

#[test]
fn from_the_program_to_the_picture() {
    let folder = folder("chain");
    let program = folder.join("filter");
    compile("gcc", &["-g", "-O0"], &[source("filter.c")], &program);
    let file = data(&program);
    for name in ["first.arp", "second.arp"] {
        let options = [
            "--measure",
            "instructions,cycles",
            "--arp-mode",
            "record_all",
            "--arp-data-filename",
            &file,
        ];
        profile(&program, &options);
        std::fs::rename(&file, folder.join(name)).unwrap();
    }
    let recorded = Profile::load(folder.join("first.arp")).unwrap();
    is_shown(&folder, &recorded);
    is_exported(&folder, &recorded);
    is_combined(&folder, &recorded);
}

/// Table, tree and JSON show the sections of `first.arp`.
fn is_shown(folder: &Path, recorded: &Profile) {
    // The table has names, counts, sums and lines.
    let text = arp(folder, &["first.arp", "--set", "instructions"]);
    for (name, count) in EXECUTIONS {
        let row = text
            .lines()
            .find(|l| l.split_whitespace().any(|w| w == name))
            .unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let sum: u64 = words[0].replace(',', "").parse().unwrap();
        assert_eq!(
            (sum, words[3]),
            (total(recorded, name), count.to_string().as_str()),
            "{row}"
        );
        let place = format!("/filter.c:{}-", line_of(recorded, name));
        assert!(words.last().unwrap().contains(&place), "{row}");
    }
    let tree = arp(folder, &["first.arp", "--set", "instructions", "--tree"]);
    assert!(tree.contains("main -> filter_lines"), "{tree}");
    // JSON has the same.
    let json: serde_json::Value =
        serde_json::from_str(&arp(folder, &["first.arp", "--json"])).unwrap();
    for (name, count) in EXECUTIONS {
        let sections = json["sections"].as_array().unwrap();
        let section = sections.iter().find(|s| s["name"] == name).unwrap();
        assert_eq!(section["count"], count);
        assert_eq!(section["folded"], 0);
        assert_eq!(section["values"][0]["total"], total(recorded, name));
        assert_eq!(section["line"], line_of(recorded, name));
        let file = section["file"].as_str().unwrap();
        assert!(file.ends_with("filter.c"), "{file}");
    }
}

/// Folded stacks and the page show the sections of `first.arp`.
fn is_exported(folder: &Path, recorded: &Profile) {
    // Folded stacks add up to the profiled sections, which have all of it.
    let folded = arp(folder, &["first.arp", "--folded", "--set", "instructions"]);
    let lines = folded.lines().map(|l| l.rsplit_once(' ').unwrap());
    let all: u64 = lines.clone().map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(
        all,
        total(recorded, "ato_profile_lines") + total(recorded, "ato_profile_columns")
    );
    let of_line = lines.filter(|(stack, _)| stack.ends_with("ato_profile_lines;ato_kernel_line"));
    let of_line: u64 = of_line.map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(of_line, total(recorded, "ato_kernel_line"));
    // The page has them too.
    arp(folder, &["first.arp", "--html", "page.html"]);
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    for (name, _) in EXECUTIONS {
        assert!(page.contains(name) && page.contains("filter.c"), "{name}");
    }
}

/// Two recordings are compared and merged, and one is converted and back.
fn is_combined(folder: &Path, recorded: &Profile) {
    // The same program does the same again.
    let same = arp(
        folder,
        &[
            "diff",
            "first.arp",
            "second.arp",
            "--set",
            "instructions",
            "--all",
        ],
    );
    assert!(same.contains("ato_kernel_line"), "{same}");
    assert!(!same.contains("new") && !same.contains("gone"), "{same}");
    // Two files are twice one.
    arp(
        folder,
        &[
            "merge",
            "first.arp",
            "second.arp",
            "-o",
            "both.arp",
            "--renumber",
        ],
    );
    let both = Profile::load(folder.join("both.arp")).unwrap();
    assert_eq!(both.len(), 2 * recorded.len());
    let sum = values(&both, "ato_kernel_line", 0).iter().sum::<f64>() as u64;
    assert_eq!(sum, 2 * total(recorded, "ato_kernel_line"));
    // As text, and back, names and lines included.
    arp(folder, &["convert", "first.arp", "first.txt.gz"]);
    arp(folder, &["convert", "first.txt.gz", "again.bin"]);
    let again = Profile::load(folder.join("again.bin")).unwrap();
    assert_eq!(again.sections(), recorded.sections());
    for name in EXECUTIONS.map(|e| e.0) {
        let (mut before, mut after) = (values(recorded, name, 0), values(&again, name, 0));
        before.sort_by(f64::total_cmp);
        after.sort_by(f64::total_cmp);
        assert_eq!(before, after);
    }
}
