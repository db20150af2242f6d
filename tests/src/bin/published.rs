//! Runs packages of PyPI and npm beside themselves under `atom run`, each with a tool drawn at random.
//!
//! Packages contain binaries that other toolchains made than Debian's: with vendored libraries, Fortran's
//! runtime, mypyc, extension modules in Rust, programs of Go. Each file of `tests/published` is a script that uses some
//! packages, which its first line names. They are installed into folders that are kept below `target/published`.
//! A script prints results that are the same in each run.
//!
//! Needed are `python3` with `venv`, `node` and `npm`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use atom_tests::corpus::drawn;
use atom_tests::corpus::{Launcher, Tally};
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::programs::in_path;
use clap::Parser;

/// Installs packages of PyPI and npm, and compares scripts that use them with their instrumented runs.
#[derive(Parser)]
struct Args {
    /// Seed that draws the tools and the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this number of scripts, drawn by the seed.
    #[arg(long)]
    sample: Option<usize>,
    /// Only this script (repeatable): `numpy`.
    #[arg(long)]
    only: Vec<String>,
    /// This tool with its options in place of drawn ones. The last option is given the name of a file.
    #[arg(long)]
    with: Option<String>,
    /// Seconds that a script has with a tool, with instrumenting all that it loads.
    #[arg(long, value_name = "SECONDS", default_value_t = Launcher::LIMIT)]
    limit: u64,
    /// Install the newest versions again.
    #[arg(long)]
    upgrade: bool,
    /// List the scripts with their packages.
    #[arg(long)]
    list: bool,
}

/// Time that a script has without a tool.
const LIMIT: Duration = Duration::from_secs(120);

/// A script with the packages that it uses.
struct Script {
    name: String,
    file: PathBuf,
    is_python: bool,
    packages: Vec<String>,
}

/// All scripts, in the order of their names.
fn scripts() -> Result<Vec<Script>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("published");
    let fail = |e: std::io::Error| Error::new("listing the scripts", e).file(&folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(fail)? {
        let file = entry.map_err(fail)?.path();
        let text = std::fs::read_to_string(&file).map_err(fail)?;
        let first = text.lines().next().unwrap_or_default();
        let Some((_, packages)) = first.split_once("packages: ") else {
            let reason = "the first line names no packages";
            return Err(Error::new("reading a script", reason).file(file));
        };
        found.push(Script {
            name: file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into(),
            is_python: file.extension().is_some_and(|e| e == "py"),
            packages: packages.split_whitespace().map(String::from).collect(),
            file,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Runs a command to its end.
fn must(doing: &'static str, command: &mut Command) -> Result<()> {
    let status = command.stdout(Stdio::null()).status();
    let status = status.map_err(|e| Error::new(doing, e).file(command.get_program()))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(doing, format!("{command:?}: {status}")))
    }
}

/// Installs the packages of the scripts below `root`.
fn install(root: &Path, scripts: &[Script], upgrade: bool) -> Result<()> {
    let of = |is_python: bool| -> BTreeSet<&str> {
        let scripts = scripts.iter().filter(|s| s.is_python == is_python);
        scripts
            .flat_map(|s| s.packages.iter().map(String::as_str))
            .collect()
    };
    let fail = |e: std::io::Error| Error::new("making a folder for packages", e).file(root);
    let node = root.join("node");
    std::fs::create_dir_all(&node).map_err(fail)?;
    let python = root.join("python");
    let more = upgrade.then_some("--upgrade");
    if !of(true).is_empty() {
        if !python.exists() {
            must(
                "making a virtual environment",
                Command::new("python3").args(["-m", "venv"]).arg(&python),
            )?;
        }
        let mut pip = Command::new(python.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]);
        must("installing packages of PyPI", pip.args(more).args(of(true)))?;
    }
    if !of(false).is_empty() {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-save", "--prefix"])
            .arg(&node);
        must("installing packages of npm", npm.args(of(false)))?;
    }
    Ok(())
}

/// What reads the scripts of one language, and the words of a shell that run one of them with `PROGRAM`.
fn interpreter(root: &Path, script: &Script) -> Result<(PathBuf, String)> {
    let file = script.file.display();
    if script.is_python {
        // The folder of the script, whose files have names of packages, is not searched for modules.
        let line = format!("PYTHONHASHSEED=0 exec \"$PROGRAM\" -P '{file}'\n");
        return Ok((root.join("python/bin/python"), line));
    }
    let node = in_path("node").ok_or_else(|| Error::new("finding node", "it is not in PATH"))?;
    let modules = root.join("node/node_modules");
    let line = format!(
        "NODE_PATH='{}' exec \"$PROGRAM\" '{file}'\n",
        modules.display()
    );
    Ok((node, line))
}

fn run(args: &Args) -> Result<bool> {
    let mut scripts = drawn::named("choosing scripts", scripts()?, &args.only, |s| &s.name)?;
    if let Some(count) = args.sample {
        scripts = drawn::sample(args.seed, scripts, count, |s| &s.name);
    }
    if args.list {
        for script in &scripts {
            println!("{:<16} {}", script.name, script.packages.join(" "));
        }
        return Ok(true);
    }
    let root = atom_tests::cache::target_folder()?.join("published");
    install(&root, &scripts, args.upgrade)?;
    println!("seed {}", args.seed);
    let launcher = Launcher::new(&root.join("runs"), args.seed, args.with.clone(), args.limit)?;
    let mut tally = Tally::default();
    for script in &scripts {
        let (program, line) = interpreter(&root, script)?;
        let entry = launcher.entry(&script.name, line, LIMIT);
        launcher.judge(&entry, &program, &mut tally)?;
        launcher.forget()?;
    }
    Ok(tally.print() && tally.not_judged == 0)
}

fn main() -> ExitCode {
    exit_code("published", run(&Args::parse()))
}
