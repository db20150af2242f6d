//! `./install`: what it puts into a folder works there, without a home and without the sources, and goes again.
//!
//! It installs the build in `target/release`: `cargo build --release --workspace` makes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Folder, stderr};

/// The folder of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder of the builds.
fn target() -> &'static Path {
    let release = Path::new(env!("CARGO_BIN_EXE_atom")).parent();
    release.and_then(Path::parent).unwrap()
}

/// Runs `./install` with an empty home. The builds are in `target`.
fn install(folder: &Folder, target: &Path, words: &[&str]) -> Output {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let or_home = |name: &str, below: &str| {
        let known = std::env::var_os(name).map(PathBuf::from);
        known.unwrap_or_else(|| home.join(below))
    };
    std::fs::create_dir_all(folder.join("home")).unwrap();
    Command::new("./install")
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_HOME", or_home("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", or_home("RUSTUP_HOME", ".rustup"))
        .env("HOME", folder.join("home"))
        .args(words)
        .output()
        .unwrap()
}

/// Runs a command that knows nothing of the build, and returns what it prints.
fn run(folder: &Folder, program: &Path, words: &[&str]) -> String {
    let output = Command::new(program)
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.join("home"))
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_is_installed_works_and_goes_again() {
    let folder = Folder::new();
    let prefix = folder.join("prefix");
    let to = prefix.to_str().unwrap();
    let output = install(&folder, target(), &["--no-build", "--prefix", to]);
    assert!(output.status.success(), "{}", stderr(&output));

    let atom = prefix.join("bin/atom");
    let tools = run(&folder, &atom, &["tools", "--verbose"]);
    for tool in ["icount", "prof", "calllog"] {
        assert!(
            tools.contains(&format!("{to}/lib/atom/tools/lib{tool}.so")),
            "{tools}"
        );
    }
    assert!(!tools.contains("/target/release"), "{tools}");
    run(&folder, &atom, &["run", "icount", "--", "/bin/true"]);
    let report = run(
        &folder,
        &atom,
        &["report", "icount.profile", "--by", "object"],
    );
    assert!(report.contains("libc.so.6"), "{report}");

    let valgrind = prefix.join("bin/atom-valgrind");
    let version = run(&folder, &valgrind, &["--version"]);
    assert_eq!(version, "valgrind-3.19.0\n");
    run(
        &folder,
        &valgrind,
        &["-q", "--error-exitcode=1", "/bin/true"],
    );

    // A tool in C: headers and archive come from the installation.
    for file in ["branch.inst.c", "branch.anal.c"] {
        let source = workspace().join("atom-cli/tests/tools/c").join(file);
        std::fs::copy(source, folder.join(file)).unwrap();
    }
    let words = ["run", "branch.inst.c", "branch.anal.c", "--", "/bin/true"];
    run(&folder, &atom, &words);
    let branches = std::fs::read_to_string(folder.join("btaken.out")).unwrap();
    assert!(branches.lines().count() > 10_000, "{branches:.200}");

    // The manual, the completions, the header files, and the sources against which a tool is compiled.
    let manual = std::fs::read_to_string(prefix.join("share/man/man1/atom.1")).unwrap();
    assert!(manual.contains(".TH"), "{manual}");
    let completions = prefix.join("share/bash-completion/completions/atom");
    run(
        &folder,
        Path::new("/bin/bash"),
        &["-n", completions.to_str().unwrap()],
    );
    for file in [
        "share/man/man1/atom-report.1",
        "share/zsh/site-functions/_atom",
        "share/fish/vendor_completions.d/atom.fish",
        "include/atom/atomium_rp.h",
        "include/atom/cmplrs/atom.inst.h",
        "lib/atom/libatom_c.a",
        "lib/atom/src/atom-tool/Cargo.toml",
        "share/doc/atom/docs/usage.md",
    ] {
        assert!(prefix.join(file).is_file(), "{file} is missing");
    }

    // Another installation takes its place; a file of the user's stays, with its folder.
    let output = install(&folder, target(), &["--no-build", "--prefix", to]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mine = prefix.join("lib/atom/tools/libmine.so");
    std::fs::write(&mine, "mine").unwrap();
    let output = install(&folder, target(), &["--uninstall", "--prefix", to]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(files(&prefix), std::slice::from_ref(&mine));
    std::fs::remove_file(mine).unwrap();
    assert!(
        !install(&folder, target(), &["--uninstall", "--prefix", to])
            .status
            .success()
    );
}

#[test]
fn uninstalling_leaves_nothing() {
    let folder = Folder::new();
    let prefix = folder.join("prefix");
    let to = prefix.to_str().unwrap();
    assert!(
        install(&folder, target(), &["--no-build", "--prefix", to])
            .status
            .success()
    );
    assert!(files(&prefix).len() > 100);
    assert!(
        install(&folder, target(), &["--uninstall", "--prefix", to])
            .status
            .success()
    );
    // The folder itself may be the user's.
    let left = std::fs::read_dir(&prefix).map_or(0, |d| d.count());
    assert_eq!(left, 0);
}

#[test]
fn a_build_that_needs_a_newer_glibc_is_refused() {
    let folder = Folder::new();
    let stage = folder.join("stage");
    let stage = stage.to_str().unwrap();
    // The build of this machine in the place of one for a glibc of 2002.
    let release = Path::new(env!("CARGO_BIN_EXE_atom")).parent().unwrap();
    let machine = folder.join("target/x86_64-unknown-linux-gnu");
    std::fs::create_dir_all(&machine).unwrap();
    std::os::unix::fs::symlink(release, machine.join("release")).unwrap();
    let target = folder.join("target");
    let words = ["--no-build", "--glibc", "2.3", "--stage", stage];
    let output = install(&folder, &target, &words);
    let text = stderr(&output);
    assert!(
        !output.status.success() && text.contains("newer than 2.3"),
        "{text}"
    );
    assert!(!Path::new(stage).exists());

    let output = install(&folder, &target, &["--glibc", "new", "--stage", stage]);
    assert!(stderr(&output).contains("a version such as 2.28"));
}

/// All files in a folder and below it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}
