//! `atom run --children`: executed programs are instrumented, see the same as the originals, and each has a
//! report.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use atom_tests::atom;
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::programs;

/// A folder in which commands are run, with and without `atom run --children icount`.
struct Folder {
    path: PathBuf,
}

/// A line of the list of a run's processes.
#[derive(Debug, Clone)]
struct Line {
    process: String,
    began: String,
    report: String,
    program: String,
}

impl Folder {
    fn new(name: &str) -> Self {
        let target = atom_tests::cache::target_folder().unwrap();
        let path = target.join("test-programs/children").join(name);
        std::fs::remove_dir_all(&path).unwrap_or_default();
        std::fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// With the programs `caller` and `callee`, and with files that cannot be executed.
    fn with_programs(name: &str) -> Self {
        let folder = Self::new(name);
        for name in ["caller", "callee"] {
            std::fs::copy(compiled().join(name), folder.path.join(name)).unwrap();
        }
        let callee = std::fs::read(folder.path.join("callee")).unwrap();
        let text = |text: &str| text.as_bytes().to_vec();
        let files = [
            ("busy", callee.clone(), 0o755),
            ("not-executable", callee.clone(), 0o644),
            ("cut", callee[..100].to_vec(), 0o755),
            ("text", text("echo hello\n"), 0o755),
            ("empty", Vec::new(), 0o755),
            ("no-interpreter", text("#!/no/such/interpreter\n"), 0o755),
            ("script-circle", text("#!./script-circle\n"), 0o755),
            ("script", text("#!./callee one argument\n"), 0o755),
            ("script-in-script", text("#! ./script\n"), 0o755),
            ("set-user-id", callee, 0o4755),
        ];
        for (name, bytes, mode) in files {
            let file = folder.path.join(name);
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        }
        symlink("circle", folder.path.join("circle")).unwrap();
        std::fs::create_dir(folder.path.join("folder")).unwrap();
        let flags = ["-Wl,--dynamic-linker,/no/such/loader"];
        compile("gcc", "callee.c", &folder.path.join("no-loader"), &flags);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path.join(name), text).unwrap();
    }

    fn outcome(&self, words: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let mut command = Command::new(words[0]);
        plain_environment(&mut command);
        command.envs(variables.iter().copied());
        command.args(&words[1..]).current_dir(&self.path);
        let setting = Setting {
            timeout: std::time::Duration::from_secs(300),
            ..Setting::default()
        };
        run(&mut command, &setting).unwrap()
    }

    /// Runs a command with `--children`; its processes by the list that is left.
    fn followed(&self, words: &[&str]) -> (Outcome, Vec<Line>) {
        let atom = atom::command().unwrap();
        let mut all = vec![
            atom.to_str().unwrap(),
            "run",
            "-q",
            "--children",
            "--per-process",
        ];
        all.extend(["icount", "--output", "report", "--"]);
        all.extend(words);
        let cache = atom_tests::cache::folder("children-cache");
        let outcome = self.outcome(&all, &[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
        let list = std::fs::read_to_string(self.path.join("report.children"));
        let list = list.unwrap_or_else(|e| panic!("{words:?}: {e}; {outcome:?}"));
        let lines = list.lines().skip(1).map(|line| {
            let parts: Vec<String> = line.split('\t').map(str::to_owned).collect();
            let [process, _, began, report, program, _] = &parts[..] else {
                panic!("{line}");
            };
            Line {
                process: process.clone(),
                began: began.clone(),
                report: report.clone(),
                program: program.clone(),
            }
        });
        (outcome, lines.collect())
    }

    /// Runs a command with and without `--children`, asserts that output and end are the same, and that each
    /// report of the list is there. Returns the list.
    fn same(&self, words: &[&str]) -> Vec<Line> {
        let cache = atom_tests::cache::folder("children-cache");
        let original = self.outcome(words, &[("XDG_CACHE_HOME", cache.to_str().unwrap())]);
        let (found, lines) = self.followed(words);
        if let Some(difference) = found.differs_from(&original) {
            panic!("{words:?}: {difference}");
        }
        for line in &lines {
            if line.report.starts_with("report") {
                let text = std::fs::read_to_string(self.path.join(&line.report)).unwrap();
                assert!(text.contains("instructions"), "{line:?}: {text}");
            }
        }
        lines
    }
}

/// The folder with the compiled programs.
fn compiled() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Folder::new("compiled").path;
        compile("gcc", "caller.c", &folder.join("caller"), &["-pthread"]);
        compile("gcc", "callee.c", &folder.join("callee"), &[]);
        folder
    })
}

fn compile(compiler: &str, source: &str, out: &Path, flags: &[&str]) {
    let compiler = programs::needed(compiler);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/whole/programs")
        .join(source);
    let mut command = Command::new(compiler);
    command.args(["-O2", "-w"]).args(flags).arg(source);
    let output = command.arg("-o").arg(out).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// File names of the programs that ran instrumented.
fn programs_of(lines: &[Line]) -> Vec<&str> {
    let seen = lines
        .iter()
        .filter(|l| l.report.starts_with("report") && l.began != "fork");
    let names = seen.filter_map(|l| Path::new(&l.program).file_name()?.to_str());
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names
}

#[test]
fn an_executed_program_sees_what_it_saw_before() {
    let folder = Folder::with_programs("ways");
    let ways: [(&str, &[&str]); 14] = [
        ("spawn", &["callee", "callee", "callee"]),
        ("vfork", &["callee"]),
        ("fork", &["callee"]),
        ("scripts", &["script", "script-in-script"]),
        ("closed", &["callee"]),
        ("no-environment", &["callee"]),
        ("no-arguments", &["callee"]),
        ("many", &["callee", "callee", "callee", "callee"]),
        ("surroundings", &["callee"]),
        ("thread", &["callee"]),
        ("at-folder", &["callee"]),
        ("itself", &["caller"]),
        ("descriptor", &[]),
        ("errors", &[]),
    ];
    for (way, programs) in ways {
        let lines = folder.same(&["./caller", way]);
        let mut expected = [&["caller"], programs].concat();
        expected.sort_unstable();
        assert_eq!(programs_of(&lines), expected, "{way}: {lines:?}");
    }
}

#[test]
fn what_is_not_instrumented_runs_and_is_listed() {
    let folder = Folder::with_programs("unseen");
    let reason = |lines: &[Line]| {
        let unseen = lines
            .iter()
            .find(|l| l.report.starts_with("not instrumented"));
        unseen.unwrap_or_else(|| panic!("{lines:?}")).report.clone()
    };
    let lines = folder.same(&["./caller", "./set-user-id"]);
    assert!(reason(&lines).contains("set-user-ID"), "{lines:?}");
    let lines = folder.same(&["./caller", "descriptor"]);
    assert!(reason(&lines).contains("descriptor"), "{lines:?}");
    let lines = folder.same(&["./caller", "traced"]);
    assert!(reason(&lines).contains("traces"), "{lines:?}");
    // An error is none that ran.
    let lines = folder.same(&["./caller", "errors"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn children_with_little_stack_leave_their_parents_alone() {
    let folder = Folder::with_programs("spawner");
    compile("musl-gcc", "spawner.c", &folder.path.join("spawner"), &[]);
    let words = ["./callee", "./set-user-id", "./script", "./cut", "./none"];
    for more in ["0", "80", "400"] {
        let variable = format!("SPAWN_MORE={more}");
        let words = [&["env", &variable, "./spawner"], &words[..]].concat();
        let lines = folder.same(&words);
        assert!(
            lines.iter().any(|l| l.program.ends_with("callee")),
            "{lines:?}"
        );
    }
}

#[test]
fn a_process_that_executes_programs_in_a_row_keeps_all_reports() {
    let folder = Folder::with_programs("chain");
    let lines = folder.same(&["./caller", "chain", "3"]);
    assert_eq!(lines.len(), 4, "{lines:?}");
    let process = &lines[0].process;
    let names = [
        "report".to_owned(),
        format!("report.{process}.caller.2"),
        format!("report.{process}.caller.1"),
        format!("report.{process}.caller"),
    ];
    let found: Vec<&String> = lines.iter().map(|l| &l.report).collect();
    assert_eq!(found, names.iter().collect::<Vec<_>>());
}

#[test]
fn static_programs_follow_and_are_followed() {
    let folder = Folder::with_programs("static");
    compile(
        "gcc",
        "caller.c",
        &folder.path.join("static-caller"),
        &["-static"],
    );
    let lines = folder.same(&["./static-caller", "vfork"]);
    assert_eq!(programs_of(&lines), ["callee", "static-caller"]);
    let lines = folder.same(&["./caller", "./static-caller", "errors"]);
    assert_eq!(programs_of(&lines), ["caller", "static-caller"]);
}

#[test]
fn a_build_is_counted_and_makes_the_same() {
    for program in ["gcc", "make"] {
        programs::needed(program);
    }
    let folder = Folder::new("build");
    folder.write("a.c", "int b(int); int main(void) { return b(2) != 50; }\n");
    folder.write(
        "b.c",
        "int b(int x) { int s = 0; while (x < 100) x = x * 5, s += x; return s; }\n",
    );
    folder.write(
        "Makefile",
        "prog: a.o b.o\n\tgcc -o $@ a.o b.o\n%.o: %.c\n\tgcc -O2 -g -c $<\n",
    );
    let make = ["make", "-s", "-j2"];
    let files = || {
        ["a.o", "b.o", "prog"].map(|name| {
            let file = folder.path.join(name);
            let bytes = std::fs::read(&file).unwrap();
            std::fs::remove_file(file).unwrap();
            bytes
        })
    };
    folder.outcome(&make, &[]);
    let expected = files();
    let (outcome, lines) = folder.followed(&make);
    assert_eq!(String::from_utf8_lossy(&outcome.stderr), "");
    assert!(files() == expected, "other files were made");
    let names = programs_of(&lines);
    for (name, count) in [
        ("make", 1),
        ("gcc", 3),
        ("cc1", 2),
        ("as", 2),
        ("collect2", 1),
        ("ld", 1),
    ] {
        let found = names.iter().filter(|found| **found == name).count();
        assert_eq!(found, count, "{name}: {names:?}");
    }
    // The profiles add up to the sum of the reports.
    let instructions_in = |text: &str| -> u64 {
        let line = text.lines().find(|l| l.trim().starts_with("instructions "));
        let number = line.and_then(|l| l.split_whitespace().last()).unwrap();
        number.replace(',', "").parse().unwrap()
    };
    let instructions = |report: &str| {
        let text = std::fs::read_to_string(folder.path.join(report)).unwrap();
        instructions_in(&text)
    };
    let reports = lines.iter().flat_map(|l| l.report.split(", "));
    let sum: u64 = reports.filter(|r| *r != "none").map(instructions).sum();
    let files = std::fs::read_dir(&folder.path).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let profiles: Vec<String> = names.filter(|name| name.contains(".profile")).collect();
    let command = atom::command().unwrap();
    let mut words = vec![command.to_str().unwrap(), "report", "--together"];
    words.extend(profiles.iter().map(String::as_str));
    let together = folder.outcome(&words, &[]);
    let text = String::from_utf8_lossy(&together.stdout);
    assert_eq!(instructions_in(&text), sum, "{profiles:?} {together:?}");
    let row = text.lines().find(|l| l.ends_with("/cc1")).unwrap();
    assert_eq!(row.split_whitespace().nth(3), Some("2"), "{text}");
}

#[test]
fn the_counts_of_a_forked_child_are_its_own() {
    let folder = Folder::new("own-counts");
    folder.write(
        "a.sh",
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n\
         (i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done); echo $i\n",
    );
    let lines = folder.same(&["sh", "a.sh"]);
    let counts: Vec<u64> = (lines.iter())
        .map(|line| {
            let text = std::fs::read_to_string(folder.path.join(&line.report)).unwrap();
            let fact = text.lines().find(|l| l.trim().starts_with("instructions "));
            let number = fact.unwrap().split_whitespace().last().unwrap();
            number.replace(',', "").parse().unwrap()
        })
        .collect();
    let [parent, child] = counts[..] else {
        panic!("{lines:?}");
    };
    // The shell's start is the parent's alone, so less than a twentieth is left.
    assert!(0 < child && child * 19 < parent, "{child} of {parent}");
}

#[test]
fn commands_of_the_system() {
    programs::needed("perl");
    let folder = Folder::new("commands");
    let commands: [(&[&str], &[&str]); 5] = [
        (
            &["sh", "-c", "ls / | sort | head -n 3"],
            &["head", "ls", "sh", "sort"],
        ),
        (&["env", "-i", "/usr/bin/env"], &["env", "env"]),
        (
            &["sh", "-c", "seq 4 | xargs -n 3 echo; exit 5"],
            &["echo", "echo", "seq", "sh", "xargs"],
        ),
        (
            &[
                "find",
                "/",
                "-maxdepth",
                "0",
                "-exec",
                "ls",
                "-d",
                "{}",
                "+",
            ],
            &["find", "ls"],
        ),
        (
            &["perl", "-e", "system('echo', 'x'); print `uname`; exit 4"],
            &["echo", "perl", "uname"],
        ),
    ];
    for (command, expected) in commands {
        let lines = folder.same(command);
        assert_eq!(programs_of(&lines), expected, "{command:?}: {lines:?}");
    }
}
