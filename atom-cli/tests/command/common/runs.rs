//! Runs of tools on a small program, and what `atom report` makes of their profiles.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use profile::Profile;

use super::{APP, Folder, stderr};

/// A folder with the program `app`.
pub struct Runs {
    pub folder: Folder,
}

impl Runs {
    pub fn new() -> Self {
        let folder = Folder::new();
        folder.write("app.c", APP);
        let status = Command::new("gcc")
            .current_dir(folder.path())
            .args(["-O1", "-g", "app.c", "-o", "app"])
            .status()
            .unwrap();
        assert!(status.success());
        Self { folder }
    }

    /// Runs a tool; its profile is in the file `name`.
    pub fn run(&self, tool: &str, name: &str, arguments: &[&str]) -> Profile {
        let words = ["run", "-q", tool, "--profile", name, "--", "./app"];
        let output = (self.folder.command(&words))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{}", stderr(&output));
        self.read(name)
    }

    pub fn read(&self, name: &str) -> Profile {
        Profile::read(self.folder.join(name)).unwrap()
    }

    pub fn report(&self, words: &[&str]) -> String {
        self.folder.atom_ok(&[&["report"], words].concat())
    }

    /// The rows of `--csv`, each by the titles of its columns.
    pub fn csv(&self, words: &[&str]) -> Vec<BTreeMap<String, String>> {
        let text = self.report(&[words, &["--csv"]].concat());
        let mut lines = text.lines();
        let titles: Vec<&str> = lines.next().unwrap().split(',').collect();
        let row = |line: &str| {
            let cells = line.split(',').map(str::to_owned);
            titles.iter().map(|t| (*t).to_owned()).zip(cells).collect()
        };
        lines.map(row).collect()
    }
}

pub fn number(profile: &Profile, fact: &str) -> u64 {
    profile.fact(fact).unwrap().number().integer().unwrap()
}

pub fn total(profile: &Profile, table: &str, column: &str) -> u64 {
    let table = profile.table(table).unwrap();
    table.column(column).unwrap().total().unwrap()
}

pub fn sum(rows: &[BTreeMap<String, String>], column: &str) -> u64 {
    rows.iter().map(|r| r[column].parse::<u64>().unwrap()).sum()
}

/// True if a program is there; else says that a part of the test is left out.
pub fn is_there(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let is_there = found.is_ok_and(|o| o.status.success());
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

pub fn export(runs: &Runs, profile: &str, format: &str) -> PathBuf {
    let out = format!("out.{format}");
    runs.report(&[profile, "--export", format, "-o", &out]);
    runs.folder.join(&out)
}
