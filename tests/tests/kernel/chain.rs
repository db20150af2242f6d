//! From a program to the tables and pages of `atom arp`.

use std::path::Path;
use std::process::Command;

use arp::Profile;
use atom_tests::atom;

use super::{compile, data, folder, profile, source, values};

/// Runs `atom arp` with these arguments.
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

/// Sections of the program, and the number of executions of each.
const EXECUTIONS: [(&str, u64); 4] = [
    ("ato_kernel_line", 75),
    ("ato_kernel_column", 75),
    ("ato_profile_lines", 3),
    ("ato_profile_columns", 3),
];

/// Sum of the instructions of a section's executions.
fn total(recorded: &Profile, name: &str) -> u64 {
    values(recorded, name, 0).iter().sum::<f64>() as u64
}

/// The line of the source where a section begins.
fn line(recorded: &Profile, name: &str) -> u32 {
    let section = recorded.sections().iter().find(|s| s.name == name);
    section.unwrap().line
}

/// The table has names, counts, sums and lines.
fn check_table(folder: &Path, recorded: &Profile) {
    let text = arp(folder, &["first.arp", "--set", "instructions"]);
    for (name, count) in EXECUTIONS {
        let mut rows = text.lines();
        let row = rows.find(|l| l.split_whitespace().any(|w| w == name));
        let row = row.unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        let sum: u64 = words[0].replace(',', "").parse().unwrap();
        assert_eq!(
            (sum, words[3]),
            (total(recorded, name), count.to_string().as_str()),
            "{row}"
        );
        let place = format!("/filter.c:{}-", line(recorded, name));
        assert!(words.last().unwrap().contains(&place), "{row}");
    }
    let tree = arp(folder, &["first.arp", "--set", "instructions", "--tree"]);
    assert!(tree.contains("main -> filter_lines"), "{tree}");
}

/// JSON has the same figures as the file.
fn check_json(folder: &Path, recorded: &Profile) {
    let json: serde_json::Value =
        serde_json::from_str(&arp(folder, &["first.arp", "--json"])).unwrap();
    for (name, count) in EXECUTIONS {
        let sections = json["sections"].as_array().unwrap();
        let section = sections.iter().find(|s| s["name"] == name).unwrap();
        assert_eq!(section["count"], count);
        assert_eq!(section["folded"], 0);
        assert_eq!(section["values"][0]["total"], total(recorded, name));
        assert_eq!(section["line"], line(recorded, name));
        let file = section["file"].as_str().unwrap();
        assert!(file.ends_with("filter.c"), "{file}");
    }
}

/// Folded stacks add up to the profiled sections, in which all kernels run; the page names all sections.
fn check_pictures(folder: &Path, recorded: &Profile) {
    let folded = arp(folder, &["first.arp", "--folded", "--set", "instructions"]);
    let lines = folded.lines().map(|l| l.rsplit_once(' ').unwrap());
    let all: u64 = lines.clone().map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    let profiled = ["ato_profile_lines", "ato_profile_columns"];
    assert_eq!(
        all,
        profiled
            .map(|name| total(recorded, name))
            .iter()
            .sum::<u64>()
    );
    let of_line = lines.filter(|(stack, _)| stack.ends_with("ato_profile_lines;ato_kernel_line"));
    let of_line: u64 = of_line.map(|(_, n)| n.parse::<u64>().unwrap()).sum();
    assert_eq!(of_line, total(recorded, "ato_kernel_line"));
    arp(folder, &["first.arp", "--html", "page.html"]);
    let page = std::fs::read_to_string(folder.join("page.html")).unwrap();
    for (name, _) in EXECUTIONS {
        assert!(page.contains(name) && page.contains("filter.c"), "{name}");
    }
}

/// Two recordings of the same program do not differ, and merged they are twice one.
fn check_both(folder: &Path, recorded: &Profile) {
    let both = ["first.arp", "second.arp"];
    let words = [&["diff"], &both[..], &["--set", "instructions", "--all"]].concat();
    let same = arp(folder, &words);
    assert!(same.contains("ato_kernel_line"), "{same}");
    assert!(!same.contains("new") && !same.contains("gone"), "{same}");
    let words = [&["merge"], &both[..], &["-o", "both.arp", "--renumber"]].concat();
    arp(folder, &words);
    let both = Profile::load(folder.join("both.arp")).unwrap();
    assert_eq!(both.len(), 2 * recorded.len());
    let sum = total(&both, "ato_kernel_line");
    assert_eq!(sum, 2 * total(recorded, "ato_kernel_line"));
}

/// The conversion to text and back loses nothing, names and lines included.
fn check_conversion(folder: &Path, recorded: &Profile) {
    arp(folder, &["convert", "first.arp", "first.txt.gz"]);
    arp(folder, &["convert", "first.txt.gz", "again.bin"]);
    let again = Profile::load(folder.join("again.bin")).unwrap();
    assert_eq!(again.sections(), recorded.sections());
    for (name, _) in EXECUTIONS {
        let (mut before, mut after) = (values(recorded, name, 0), values(&again, name, 0));
        before.sort_by(f64::total_cmp);
        after.sort_by(f64::total_cmp);
        assert_eq!(before, after);
    }
}

#[test]
fn from_the_program_to_the_picture() {
    let folder = folder("chain");
    let program = folder.join("filter");
    compile("gcc", &["-g", "-O0"], &[source("filter.c")], &program);
    let file = data(&program);
    for name in ["first.arp", "second.arp"] {
        let measured = ["--measure", "instructions,cycles"];
        let options = ["--arp-mode", "record_all", "--arp-data-filename", &file];
        profile(&program, &[&measured[..], &options].concat());
        std::fs::rename(&file, folder.join(name)).unwrap();
    }
    let recorded = Profile::load(folder.join("first.arp")).unwrap();
    check_table(&folder, &recorded);
    check_json(&folder, &recorded);
    check_pictures(&folder, &recorded);
    check_both(&folder, &recorded);
    check_conversion(&folder, &recorded);
}
