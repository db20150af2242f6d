//! Crates and commands whose manifests say `test = false` are not built as test programs, so a
//! unit test in them would not run: they have none.

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

#[test]
fn what_is_not_tested_has_no_tests() {
    let mut manifests = Vec::new();
    files(&in_workspace(""), "Cargo.toml", &mut manifests);
    let mut checked = 0;
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).unwrap();
        let folder = manifest.parent().unwrap().join("src");
        for section in text.split("\n[").filter(|s| s.contains("\ntest = false")) {
            let mut sources = Vec::new();
            let is_command = section.starts_with("[bin]");
            files(&folder, ".rs", &mut sources);
            sources.retain(|file| file.starts_with(folder.join("bin")) == is_command);
            for source in sources {
                let text = std::fs::read_to_string(&source).unwrap();
                assert!(!text.contains("#[test]"), "{}", source.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "{checked} files");
}
