//! Crates and commands whose manifests say `test = false` are not built as test programs, so a
//! unit test in them would not run: they have none. Nor do crates with `doctest = false` have examples in comments.

use std::path::{Path, PathBuf};

use house::in_workspace;

/// All files below a folder with this name or extension, build folders left out.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path.is_dir() && name != "target" && name != ".git" {
            files(&path, end, found);
        } else if name.ends_with(end) {
            found.push(path);
        }
    }
}

/// Reads all sources of the sections of manifests that have a line. Returns how many there are.
fn check(line: &str, is_fine: impl Fn(&str) -> bool) -> usize {
    let mut manifests = Vec::new();
    files(&in_workspace(""), "Cargo.toml", &mut manifests);
    let mut checked = 0;
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let folder = manifest.parent().unwrap().join("src");
        for section in text.split("\n[").filter(|s| s.contains(line)) {
            let mut sources = Vec::new();
            let is_command = section.starts_with("[bin]");
            files(&folder, ".rs", &mut sources);
            sources.retain(|file| file.starts_with(folder.join("bin")) == is_command);
            for source in sources {
                let text = std::fs::read_to_string(&source).unwrap();
                assert!(is_fine(&text), "{}", source.display());
                checked += 1;
            }
        }
    }
    checked
}

#[test]
fn what_is_not_tested_has_no_tests() {
    let checked = check("\ntest = false", |text| !text.contains("#[test]"));
    assert!(checked > 20, "{checked} files");
    let is_example = |line: &str| {
        let comment = line.trim_start();
        let text = comment.strip_prefix("///").or(comment.strip_prefix("//!"));
        text.is_some_and(|text| text.trim_start().starts_with("```"))
    };
    let checked = check("\ndoctest = false", |text| !text.lines().any(is_example));
    assert!(checked > 100, "{checked} files");
}
