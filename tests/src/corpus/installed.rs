//! Every program that is installed: each ELF executable of the folders for commands, run with `--version`
//! and `--help`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::table::{Entry, is_elf};

/// The folders for commands.
const FOLDERS: [&str; 7] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
    "/usr/games",
];

/// Programs that look at no option before they stop processes or the machine.
const DANGEROUS: [&str; 9] = [
    "killall5", "halt", "poweroff", "reboot", "shutdown", "telinit", "init", "kexec", "sulogin",
];

/// Time that the original has for both commands.
const LIMIT: Duration = Duration::from_secs(20);

/// An entry for each program with its file, in the order of names. A program with several names has one.
pub fn installed() -> Vec<(Entry, PathBuf)> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for folder in FOLDERS {
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = files.map(|file| file.path()).collect();
        files.sort();
        for path in files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let Ok(file) = std::fs::canonicalize(&path) else {
                continue;
            };
            let is_new = !DANGEROUS.contains(&&*name) && seen.insert(file.clone());
            if is_new && file.is_file() && is_elf(&file) {
                found.push((entry(&name, &path), file));
            }
        }
    }
    found.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    found
}

fn entry(name: &str, path: &Path) -> Entry {
    let quoted = name.replace('\'', "'\\''");
    // Some programs look for files beside the place where PATH has their name, so the name stays.
    let run = |option: &str| {
        let exec = format!("exec -a \"$0\" \"$PROGRAM\" {option}");
        format!("bash -c '{exec}' '{quoted}' < /dev/null; echo \"ended with $?\"\n")
    };
    Entry {
        name: name.to_string(),
        package: String::new(),
        program: path.display().to_string(),
        quick: false,
        quick_jobs: Vec::new(),
        env: Vec::new(),
        script: run("--version") + &run("--help"),
        limit: LIMIT,
        is_in_place: true,
    }
}
