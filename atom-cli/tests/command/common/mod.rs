//! Shared by the tests of the command: a folder with a program, and runs of
//! the command in the folder.

pub mod browser;
pub mod profiles;
pub mod recordings;
pub mod runs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary folder; commands run in it.
pub struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    /// A folder with a small program in it, `app`.
    pub fn with_app() -> Self {
        let folder = Self::new();
        folder.compile("app", APP, &["-O1"]);
        folder
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Path of a file in the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.join(name), contents).expect("a file in the folder");
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.join(name)).expect("a file in the folder")
    }

    /// Compiles C source to the file `name`.
    pub fn compile(&self, name: &str, source: &str, flags: &[&str]) {
        self.compile_by("gcc", name, source, flags);
    }

    /// As [`Self::compile`], by another compiler.
    pub fn compile_by(&self, compiler: &str, name: &str, source: &str, flags: &[&str]) {
        let file = format!("{name}.c");
        self.write(&file, source);
        let status = Command::new(compiler)
            .current_dir(self.path())
            .args(flags)
            .args([&file, "-o", name])
            .status()
            .expect("the compiler runs");
        assert!(status.success(), "{compiler} compiles {file}");
        std::fs::remove_file(self.join(&file)).expect("the source is there");
    }

    /// Number of instrumented programs in the folder's own store.
    pub fn entries(&self) -> usize {
        let entries = self.join("cache/atom/entries");
        std::fs::read_dir(entries).map_or(0, |all| all.count())
    }

    /// The command with these words, in the folder, with a cache there.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atom"));
        command
            .current_dir(self.path())
            .env("XDG_CACHE_HOME", self.join("cache"))
            .args(words);
        command
    }

    /// Runs the command in the folder.
    pub fn atom(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_atom"))
            .current_dir(self.path())
            .args(args)
            .output()
            .expect("the command runs")
    }

    /// Runs the command, which must succeed; returns its standard output.
    pub fn atom_ok(&self, args: &[&str]) -> String {
        let output = self.atom(args);
        assert!(
            output.status.success(),
            "atom {args:?}: {}",
            stderr(&output)
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Names and contents of all files in the folder.
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        std::fs::read_dir(self.path())
            .expect("the folder is there")
            .map(|entry| {
                let path = entry.expect("an entry").path();
                let name = path
                    .file_name()
                    .expect("a name")
                    .to_string_lossy()
                    .into_owned();
                (name, std::fs::read(&path).unwrap_or_default())
            })
            .collect()
    }

    /// Runs the command, which must fail as after a user's mistake: exit code 1 or 2, a
    /// message that begins with `atom:` and has all of `needles`, no panic,
    /// and no change in the folder.
    pub fn fails(&self, args: &[&str], needles: &[&str]) {
        let before = self.contents();
        let output = self.atom(args);
        let text = stderr(&output);
        let code = code_of(&text);
        assert_eq!(output.status.code(), Some(code), "atom {args:?}: {text}");
        assert!(text.starts_with("atom: "), "atom {args:?}: {text}");
        assert!(!text.contains("internal error"), "atom {args:?}: {text}");
        for needle in needles {
            assert!(
                text.contains(needle),
                "atom {args:?} does not say {needle:?}: {text}"
            );
        }
        assert!(
            output.stdout.is_empty(),
            "atom {args:?} wrote to standard output"
        );
        assert!(
            before == self.contents(),
            "atom {args:?} left something behind"
        );
    }
}

/// The exit code of the command after a message: 2 for wrong usage, else 1.
pub fn code_of(said: &str) -> i32 {
    let of_tool = said.strip_prefix("atom: running the tool");
    let is_option = of_tool.is_some_and(|said| said.contains(" option "));
    if is_option || said.starts_with("atom: reading the command line") {
        2
    } else {
        1
    }
}

/// Standard error of a run.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program with a loop, a call and a branch.
pub const APP: &str = r#"
#include <stdio.h>
__attribute__((noinline)) int twice(int n) { return n > 2 ? 2 * n : n; }
int main(int argc, char **argv) {
    int sum = 0;
    for (int i = 0; i < argc + 4; i++) sum += twice(i);
    printf("%d\n", sum);
    return sum & 1;
}
"#;

/// A tool that cargo built as an example of this package.
pub fn tool(name: &str) -> String {
    let command = Path::new(env!("CARGO_BIN_EXE_atom"));
    let folder = command.parent().expect("a folder").join("examples");
    let file = folder.join(format!("lib{name}.so"));
    assert!(
        file.exists(),
        "{} is not built; `cargo test` without --test builds it",
        file.display()
    );
    file.into_os_string().into_string().expect("UTF-8")
}
