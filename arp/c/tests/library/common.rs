//! Compiles C and C++ programs against the library and runs them, each in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use arp_core::{Profile, tuple};
use tempfile::TempDir;

/// The folder with the library as users get it, which differs from cargo's build for tests: beside `$ATOM` if that is
/// set, else built once.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(atom) = std::env::var_os("ATOM") {
            return PathBuf::from(atom).with_file_name("");
        }
        let exe = std::env::current_exe().expect("the test's path");
        let profile = exe
            .ancestors()
            .find(|p| p.ends_with("release") || p.ends_with("debug"));
        let target = profile.and_then(Path::parent).expect("a folder of cargo's");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet", "-p", "arp-c"])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .env("CARGO_TARGET_DIR", target)
            .status();
        assert!(status.expect("cargo runs").success());
        target.join("release")
    })
}

/// A compiled program in a folder.
pub struct Program {
    pub folder: TempDir,
}

/// Compiles files of `tests/c` by the manual's command, `cc FILES -IDIR -LDIR -larp -o NAME`, with `options`.
pub fn compile(compiler: &str, files: &[&str], options: &[&str]) -> Program {
    let folder = tempfile::tempdir().expect("a folder");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let needs_library = !options.contains(&"-c") && !options.contains(&"-l:libarp.a");
    let output = Command::new(compiler)
        .args(files.iter().map(|f| here.join("tests/c").join(f)))
        .arg(format!("-I{}", here.join("include").display()))
        .arg(format!("-L{}", library().display()))
        .args(["-Wall", "-Wextra", "-Werror"])
        .args(compiler.starts_with('g').then_some("-Wno-clobbered"))
        .args(needs_library.then_some("-larp"))
        .args(options)
        .arg("-o")
        .arg(folder.path().join("program"))
        .output()
        .expect("the compiler runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Program { folder }
}

impl Program {
    /// Runs it in its folder.
    pub fn run(&self, args: &[&str]) -> Output {
        Command::new(self.folder.path().join("program"))
            .args(args)
            .current_dir(self.folder.path())
            .env("LD_LIBRARY_PATH", library())
            .output()
            .expect("the program runs")
    }

    /// Runs it and requires success; returns its standard output.
    pub fn succeed(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{args:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Path of a file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Contents of a text file in its folder.
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("a text file")
    }

    /// Tuple and first value of each record of a data file in its folder.
    pub fn records(&self, name: &str) -> Vec<(String, f64)> {
        let profile = Profile::load(self.path(name)).expect("a data file");
        assert!(profile.damage().is_none(), "{:?}", profile.damage());
        records(&profile)
    }
}

/// Tuple and first value of each record.
pub fn records(profile: &Profile) -> Vec<(String, f64)> {
    let value = |i| profile.value(i, 0).map_or(f64::NAN, |v| v.as_f64());
    (0..profile.len())
        .map(|i| (tuple(&profile.stack(i)), value(i)))
        .collect()
}

/// Records as owned pairs, for comparison.
pub fn list(records: &[(&str, f64)]) -> Vec<(String, f64)> {
    records.iter().map(|(t, v)| ((*t).to_owned(), *v)).collect()
}
