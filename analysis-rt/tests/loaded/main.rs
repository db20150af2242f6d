//! Runs the runtime as the instrumented program would: not linked to anything,
//! relocated by hand into a mapping of its own, beside a C library that it must
//! not notice and that must not notice it.
//!
//! Each scenario is a process of its own (this program again, with the
//! scenario's name), because most end in ways that a test runner would not
//! survive. It passes if it exits with 0 within its time.

mod image_checks;
mod loader;
mod scenarios;

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const TIME_LIMIT: Duration = Duration::from_secs(60);

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, mark, tool, scenario, dir] = &args[..]
        && mark == "--scenario"
    {
        return scenarios::run(scenario, Path::new(tool), Path::new(dir));
    }
    let filter = args
        .iter()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .cloned()
        .unwrap_or_default();
    let (mut ran, mut failed) = (0, Vec::new());
    for build in BUILDS {
        let tool = make(&build);
        for name in scenarios::NAMES {
            let title = format!("{name} ({})", build.name);
            if !title.contains(&filter) {
                continue;
            }
            ran += 1;
            let start = Instant::now();
            match run(&tool, name, build.name) {
                Ok(()) => println!("test {title} ... ok in {:.1?}", start.elapsed()),
                Err(why) => {
                    println!("test {title} ... FAILED\n{why}");
                    failed.push(title);
                }
            }
        }
    }
    println!("\n{ran} scenarios, {} failed {failed:?}", failed.len());
    assert!(failed.is_empty() && (ran > 0 || !filter.is_empty()));
}

/// A way in which the author of a tool may build it.
struct Build {
    name: &'static str,
    profile: &'static [&'static str],
    flags: &'static str,
}

const BUILDS: [Build; 3] = [
    Build {
        name: "abort",
        profile: &["panic='abort'"],
        flags: "",
    },
    Build {
        name: "unwind",
        profile: &["panic='unwind'"],
        flags: "",
    },
    Build {
        name: "lto-stripped-bfd",
        profile: &[
            "panic='abort'",
            "lto='fat'",
            "codegen-units=1",
            "strip=true",
        ],
        flags: "-Clinker-features=-lld",
    },
];

/// Builds the fixture and answers its path.
fn make(build: &Build) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fixture-{}", build.name));
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(here.join("Cargo.toml"));
    for setting in build.profile {
        command
            .arg("--config")
            .arg(format!("profile.release.{setting}"));
    }
    command.arg("--target-dir").arg(&target);
    command
        .env_remove("CARGO_TARGET_DIR")
        .env("RUSTFLAGS", build.flags);
    assert!(
        command.status().expect("cargo runs").success(),
        "the fixture does not build"
    );
    target.join("release/libfixture.so")
}

fn run(tool: &Path, name: &str, build: &str) -> Result<(), String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{build}"));
    std::fs::remove_dir_all(&dir).ok();
    std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
    let files = ["out", "err"].map(|f| std::fs::File::create(dir.join(f)).expect("a file"));
    let [out, err] = files;
    let mut child = Command::new(std::env::current_exe().expect("own path"))
        .arg("--scenario")
        .args([tool, Path::new(name), &dir])
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| e.to_string())?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
        if start.elapsed() > TIME_LIMIT {
            child.kill().ok();
            break child.wait().map_err(|e| e.to_string())?;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let read = |f| std::fs::read(dir.join(f)).unwrap_or_default();
    let output = Output {
        status,
        stdout: read("out"),
        stderr: read("err"),
    };
    let aborted = status.signal() == Some(libc::SIGABRT);
    if if scenarios::dies(name) {
        aborted
    } else {
        status.success()
    } {
        scenarios::check_output(name, &output, &dir)
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(format!("{status} after {:?}\n{text}", start.elapsed()))
    }
}
