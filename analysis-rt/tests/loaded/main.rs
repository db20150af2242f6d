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
    for panic in ["abort", "unwind"] {
        let tool = build(panic);
        for name in scenarios::NAMES {
            let title = format!("{name} (panic={panic})");
            if !title.contains(&filter) {
                continue;
            }
            ran += 1;
            let start = Instant::now();
            match run(&tool, name, panic) {
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

/// Builds the fixture and answers its path.
fn build(panic: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fixture-{panic}"));
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--manifest-path"])
        .arg(here.join("Cargo.toml"))
        .arg("--config")
        .arg(format!("profile.release.panic={panic:?}"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_TARGET_DIR")
        .status()
        .expect("cargo runs");
    assert!(status.success(), "the fixture does not build");
    target.join("release/libfixture.so")
}

fn run(tool: &Path, name: &str, panic: &str) -> Result<(), String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{panic}"));
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
