//! Runs test programs of public suites beside themselves under `atom run`.
//!
//! Each file of `tests/suites` is a script. Its second line names a package of Debian, whose source is fetched, or which is
//! itself unpacked, into a folder below `target/suites`, or a repository of git, whose newest state is fetched. Its third line names the packages that building needs; they are
//! installed if they are missing. In the folder the script builds the test programs and writes the
//! file `list.partial`. Each line of that has five columns between tabs: a name, a folder to run in, a command that builds the program if it is not
//! built yet, the program's file, and the line of a shell that runs it as `$PROGRAM`.
//!
//! A test program is right if output, error output and end are those of the program without a tool, whatever these are.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use atom_tests::corpus::drawn;
use atom_tests::corpus::{Launcher, Tally};
use atom_tests::error::{Error, Result, exit_code};
use atom_tests::memcheck;
use clap::Parser;

/// Fetches and builds public test suites, and compares their programs with their instrumented runs.
#[derive(Parser)]
struct Args {
    /// Only this suite (repeatable): `valgrind`.
    #[arg(long)]
    suite: Vec<String>,
    /// Only programs whose name contains this text (repeatable).
    #[arg(long)]
    only: Vec<String>,
    /// Only this number of programs of each suite, drawn by the seed.
    #[arg(long)]
    sample: Option<usize>,
    /// Seed that draws the tools and the sample.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// This tool with its options in place of drawn ones. The last option is given the name of a file.
    #[arg(long)]
    with: Option<String>,
    /// Compare the errors that *memcheck* tells of each program with those of Valgrind's tool, in place of its behaviour.
    #[arg(long)]
    beside_valgrind: bool,
    /// List the programs that would run.
    #[arg(long)]
    list: bool,
}

/// Time that a program has without a tool.
const LIMIT: Duration = Duration::from_secs(30);

/// A public suite.
struct Suite {
    name: String,
    script: PathBuf,
    /// Name of Debian's package, or address of a repository.
    package: String,
    /// The script that fetches it.
    fetch: &'static str,
    /// Packages of Debian without which the suite cannot be built.
    needs: Vec<String>,
}

/// One test program.
struct Test {
    name: String,
    folder: String,
    build: String,
    program: PathBuf,
    line: String,
}

impl Test {
    /// The script of a shell that runs the line in the folder.
    fn script(&self) -> String {
        format!("cd '{}' || exit 99\n{}\n", self.folder, self.line)
    }
}

/// All suites, in the order of their names.
fn suites() -> Result<Vec<Suite>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let fail = |e: std::io::Error| Error::new("listing the suites", e).file(&folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(fail)? {
        let script = entry.map_err(fail)?.path();
        let text = std::fs::read_to_string(&script).map_err(fail)?;
        let wrong = |reason| Error::new("reading a suite's script", reason).file(&script);
        let mut lines = text.lines().skip(1);
        let second = lines.next().and_then(|line| line.split_once(": "));
        let (fetch, package) = match second {
            Some(("# source", package)) => (FETCH_SOURCE, package),
            Some(("# package", package)) => (FETCH_PACKAGE, package),
            Some(("# git", address)) => (CLONE, address),
            _ => return Err(wrong("the second line names no package or repository")),
        };
        let Some(needs) = lines.next().and_then(|line| line.strip_prefix("# needs: ")) else {
            return Err(wrong(
                "the third line does not say which packages are needed",
            ));
        };
        let name = script.file_name().unwrap_or_default();
        found.push(Suite {
            name: name.to_string_lossy().into(),
            package: package.to_owned(),
            fetch,
            needs: needs.split_whitespace().map(String::from).collect(),
            script,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Fetches the source of a package, by lists of the distribution's own that name sources.
const FETCH_SOURCE: &str = r#"set -e
mkdir -p apt/lists apt/parts
for file in /etc/apt/sources.list.d/debian.sources; do
    if [ -e "$file" ]; then sed 's/^Types: deb$/Types: deb-src/' "$file" > apt/parts/debian.sources; fi
done
if [ -e /etc/apt/sources.list ]; then sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > apt/parts/debian.list; fi
options="-qq -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts=$PWD/apt/parts -o Dir::State::lists=$PWD/apt/lists"
apt-get $options update
apt-get $options source --download-only --tar-only "$PACKAGE"
mkdir unpacked
# A signature may lie beside the archive.
for file in "$PACKAGE"_*.orig.tar.?z "$PACKAGE"_*.orig.tar.bz2; do
    if [ -e "$file" ]; then tar -xf "$file" -C unpacked --strip-components=1; fi
done
"#;

/// Installs the packages of `$NEEDS` that are missing.
const INSTALL: &str = r#"set -e
missing=
for package in $NEEDS; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing
"#;

/// Fetches a package and unpacks its files.
const FETCH_PACKAGE: &str = r#"set -e
apt-get -qq download "$PACKAGE"
mkdir unpacked
dpkg-deb -x "$PACKAGE"_*.deb unpacked
"#;

/// Fetches the newest state of a repository.
const CLONE: &str = "git clone --quiet --depth 1 \"$PACKAGE\" unpacked\n";

/// Runs a script of the shell in a folder; what it prints goes to the error output.
fn shell(doing: &'static str, folder: &Path, suite: &Suite, words: &[&str]) -> Result<()> {
    let mut command = Command::new("sh");
    command
        .args(words)
        .current_dir(folder)
        .env("PACKAGE", &suite.package)
        .env("NEEDS", suite.needs.join(" "));
    let command = command.stdin(Stdio::null()).stdout(std::io::stderr());
    let status = command.status();
    let status = status.map_err(|e| Error::new(doing, e).file(folder))?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::new(doing, status).file(folder))
    }
}

/// Fetches and builds a suite, unless that was done before, and answers its programs.
fn tests(suite: &Suite, place: &Path) -> Result<Vec<Test>> {
    let folder = place.join(&suite.name);
    let unpacked = folder.join("unpacked");
    let fail = |e: std::io::Error| Error::new("making a suite's folder", e).file(&folder);
    if !unpacked.exists() {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).map_err(fail)?;
        }
        std::fs::create_dir_all(&folder).map_err(fail)?;
        shell("fetching a suite", &folder, suite, &["-c", suite.fetch])?;
    }
    let list = unpacked.join("list");
    if !list.exists() {
        let script = suite.script.display().to_string();
        shell("installing packages", &unpacked, suite, &["-c", INSTALL])?;
        shell("building a suite", &unpacked, suite, &[&script])?;
        // The list gets its name when it is whole.
        std::fs::rename(unpacked.join("list.partial"), &list)
            .map_err(|e| Error::new("naming the list of test programs", e).file(&list))?;
    }
    let fail = |e: String| Error::new("reading the list of test programs", e).file(&list);
    let text = std::fs::read_to_string(&list).map_err(|e| fail(e.to_string()))?;
    let test = |row: &str| {
        let [name, folder, build, program, line] = row.split('\t').collect::<Vec<_>>()[..] else {
            return Err(fail(format!("it has no five columns: {row}")));
        };
        Ok(Test {
            name: name.into(),
            folder: folder.into(),
            build: build.into(),
            program: program.into(),
            line: line.into(),
        })
    };
    text.lines().map(test).collect()
}

/// Builds the program if it is not there; whether it is there then.
fn is_built(test: &Test) -> Result<bool> {
    if !test.program.exists() && !test.build.is_empty() {
        let mut command = Command::new("sh");
        command.args(["-c", &test.build]).current_dir(&test.folder);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let status = command.stderr(Stdio::null()).status();
        status.map_err(|e| Error::new("compiling", e).file(&test.program))?;
    }
    Ok(test.program.exists())
}

/// Compares the programs of a suite; whether all that can be judged are right.
fn judge(args: &Args, suite: &Suite, place: &Path) -> Result<bool> {
    let mut tests = tests(suite, place)?;
    let is_chosen = |name: &str| args.only.is_empty() || args.only.iter().any(|o| name.contains(o));
    tests.retain(|test| is_chosen(&test.name));
    if let Some(count) = args.sample {
        tests = drawn::sample(args.seed, tests, count, |test| &test.name);
    }
    if args.list {
        tests
            .iter()
            .for_each(|test| println!("{}\t{}", suite.name, test.name));
        return Ok(true);
    }
    println!(
        "== {}, seed {}, {} programs",
        suite.name,
        args.seed,
        tests.len()
    );
    if args.beside_valgrind {
        return Ok(compare(&tests, place));
    }
    let launcher = Launcher::new(
        &place.join("runs").join(&suite.name),
        args.seed,
        args.with.clone(),
        Launcher::LIMIT,
    )?;
    let mut tally = Tally::default();
    for test in &tests {
        if !is_built(test)? {
            println!("-                  {:<40} it does not compile", test.name);
            tally.not_judged += 1;
            continue;
        }
        let script = test.script();
        let entry = launcher.entry(&test.name, script, LIMIT);
        launcher.judge(&entry, &test.program, &mut tally)?;
    }
    launcher.forget()?;
    Ok(tally.print())
}

/// Compares the errors that the two tell of each program; whether they are the same.
fn compare(tests: &[Test], place: &Path) -> bool {
    let (mut equal, mut differing, mut not_judged) = (0, 0, 0);
    for test in tests {
        let script = test.script();
        let sides = is_built(test).and_then(|is_built| {
            if !is_built {
                let reason = "it does not compile";
                return Err(Error::new("compiling", reason).file(&test.program));
            }
            memcheck::beside(&test.program, &script, &place.join("beside"), 4 * LIMIT)
        });
        match sides {
            Err(error) => {
                not_judged += 1;
                println!("{:<40} not judged: {error}", test.name);
            }
            Ok(sides) if sides.are_equal() => {
                equal += 1;
                println!("{:<40} the same, {} errors", test.name, sides.same);
            }
            Ok(sides) => {
                differing += 1;
                println!("{:<40} DIFFERS, {} the same", test.name, sides.same);
                let tool = sides.tool.iter().map(|error| ("memcheck", error));
                let valgrind = sides.valgrind.iter().map(|error| ("Valgrind", error));
                tool.chain(valgrind)
                    .for_each(|(who, error)| println!("    {who} alone: {error}"));
            }
        }
    }
    println!("{equal} the same, {differing} differ, {not_judged} not judged");
    differing == 0
}

fn run(args: &Args) -> Result<bool> {
    let suites = drawn::named("choosing suites", suites()?, &args.suite, |s| &s.name)?;
    let place = atom_tests::cache::target_folder()?.join("suites");
    let mut is_right = true;
    for suite in &suites {
        is_right &= judge(args, suite, &place)?;
    }
    Ok(is_right)
}

fn main() -> ExitCode {
    exit_code("suites", run(&Args::parse()))
}
