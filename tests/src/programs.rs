//! The programs of the system that tests may use: a fixed list, so that the checks do not depend
//! on other installed programs.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

const LIST: &str = include_str!("../packages.txt");

/// The Debian package of a program of the list.
fn package(program: &str) -> Option<&'static str> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let mut packages = lines.filter_map(|line| line.split_once(':'));
    let found = packages.find(|(_, all)| all.split_whitespace().any(|p| p == program));
    Some(found?.0)
}

/// The file of a program of `packages.txt` as its package installs it, with links resolved.
/// PATH is not searched.
///
/// # Errors
/// The program is not in the list, or not installed; then the error names its package.
pub fn find(program: &str) -> Result<PathBuf> {
    let fail = |reason: String| Error::new("finding a program", reason).file(program);
    let Some(package) = package(program) else {
        return Err(fail("it is not in the list tests/packages.txt".into()));
    };
    let folders = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter();
    let files = folders.map(|folder| Path::new(folder).join(program));
    let found = files
        .filter_map(|file| std::fs::canonicalize(file).ok())
        .next();
    found.ok_or_else(|| {
        fail(format!(
            "it is not installed; install the Debian package `{package}`, or run `.ci/run`, which does"
        ))
    })
}

/// The file of a program that a test cannot do without.
///
/// # Panics
/// As [`find`] fails.
pub fn needed(program: &str) -> PathBuf {
    find(program).unwrap_or_else(|e| panic!("{e}"))
}

/// The file that PATH gives for a program, of the list or not.
pub fn in_path(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Path::new(program).is_file().then(|| program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_its_package() {
        assert_eq!(package("clang++"), Some("clang"));
        assert_eq!(package("libc6-dev"), None);
        let error = find("no-such-program").unwrap_err().to_string();
        assert!(error.contains("tests/packages.txt"), "{error}");
    }
}
