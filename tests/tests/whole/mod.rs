//! Programs that are instrumented with their program interpreter and all of their libraries: counts in
//! every object, ends by signals, libraries that are opened later, threads and children.

mod behaviour;
mod changes;
mod children;
mod environment;
mod limits;
mod loading;
mod objects;
mod processes;
mod sandbox;
mod signals;
mod stacks;
mod truth;
mod twins;
mod watcher;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom;
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};
use atom_tests::{cache, programs, whole};

/// A folder with a program in `orig0` and its bundle in `whole`. Both paths have the same length, because
/// the length of the path moves the stack.
struct Place {
    folder: PathBuf,
    name: String,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = atom_tests::cache::folder(&format!("whole/{name}"));
        for part in ["orig0", "whole", "lib"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        // Reports of earlier runs are not taken for those of this one.
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        let name = name.to_owned();
        Self { folder, name }
    }

    fn original(&self) -> PathBuf {
        self.folder.join("orig0").join(&self.name)
    }

    fn bundle(&self) -> PathBuf {
        self.folder.join("whole").join(&self.name)
    }

    /// Compiles a source of `programs/` as the program.
    fn program(&self, compiler: &str, source: &str, flags: &[&str]) {
        self.compile(compiler, source, &self.original(), flags);
    }

    /// Compiles `library.c` or `thrower.cc` as `lib/FILE`.
    fn library(&self, source: &str, file: &str, flags: &[&str]) -> PathBuf {
        let out = self.folder.join("lib").join(file);
        let all = [&["-shared", "-fPIC"], flags].concat();
        let compiler = if source.ends_with(".cc") {
            "g++"
        } else {
            "gcc"
        };
        self.compile(compiler, source, &out, &all);
        out
    }

    fn compile(&self, compiler: &str, source: &str, out: &Path, flags: &[&str]) {
        programs::needed(compiler);
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/whole/programs")
            .join(source);
        let mut command = Command::new(compiler);
        // Libraries follow what needs them.
        let (late, early): (Vec<&str>, Vec<&str>) =
            flags.iter().partition(|flag| flag.starts_with("-l"));
        command.arg("-O2").args(early);
        let rest: Vec<OsString> = std::iter::once(source.clone().into())
            .chain(late.iter().map(OsString::from))
            .collect();
        if flags.contains(&"-shared") || flags.iter().all(|f| !f.starts_with("-l")) {
            cache::compiled(command, &rest, &source, out).unwrap()
        } else {
            // The libraries count, too.

            let output = command.arg("-o").arg(out).args(&rest).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// Options that link a program with libraries of `lib`, which it finds by its own folder.
    fn link(&self) -> Vec<String> {
        vec![
            format!("-L{}", self.folder.join("lib").display()),
            "-Wl,-rpath,$ORIGIN/../lib".to_owned(),
        ]
    }

    /// The file of the report with the number of a process.
    fn report(&self, pid: u32) -> PathBuf {
        self.folder.join(format!("report-{pid}"))
    }

    /// Makes the bundle, with `icount` per instruction.
    fn instrument(&self, more: &[&str]) {
        self.instrument_with(more, &[]);
    }

    /// As [`Place::instrument`], with variables of the environment.
    fn instrument_with(&self, more: &[&str], variables: &[(&str, &str)]) {
        let pattern = self.folder.join("report-%p");
        let mut command = Command::new(atom::command().unwrap());
        command.envs(variables.iter().copied());
        command.arg(self.original()).arg("-o").arg(self.bundle());
        command
            .args(["-q", "--libs", "--tool", "icount"])
            .args(more);
        let figures = ["--", "--format", "tsv", "--per", "instruction", "--output"];
        let output = command.args(figures).arg(pattern).output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Instruments the program with a tool and these options of `atom`: with its libraries, or a static one alone.
    fn instrument_by(&self, tool: &str, options: &[&str]) {
        let mut command = Command::new(atom::command().unwrap());
        command.arg(self.original()).arg("-o").arg(self.bundle());
        command.args(["-q", "--tool", tool]).args(options);
        let output = command.current_dir(&self.folder).output().unwrap();
        assert!(
            output.status.success(),
            "{} {tool}: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// A command that runs a file under the program's name, without this process's environment.
    fn command(&self, file: &Path, arguments: &[&str]) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(file);
        plain_environment(&mut command);
        command
            .arg0(&self.name)
            .args(arguments)
            .current_dir(&self.folder);
        command
    }

    /// Runs the original and the bundle; asserts that output and end are the same. Returns the bundle's
    /// outcome.
    fn same(&self, arguments: &[&str]) -> Outcome {
        self.same_with(arguments, &[])
    }

    /// As [`Place::same`], with variables of the environment.
    fn same_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Outcome {
        let outcome = |file: &Path| {
            let mut command = self.command(file, arguments);
            command.envs(variables.iter().copied());
            run(&mut command, &Setting::default()).unwrap()
        };
        let original = outcome(&self.original());
        let found = outcome(&self.bundle());
        if let Some(difference) = found.differs_from(&original) {
            panic!("{} {arguments:?} {variables:?}: {difference}", self.name);
        }
        found
    }

    /// The counts of a run; none if it left no report.
    fn counts(&self, pid: u32) -> Option<whole::Counts> {
        let file = self.report(pid);
        file.exists().then(|| whole::read(&file).unwrap())
    }

    /// Number of times that the instruction at a symbol of a library was executed, in each process that
    /// left a report. The reports are removed.
    fn executed(&self, library: &Path, symbol: &str) -> Vec<u64> {
        let address = atom_tests::counts::Symbols::read(library)
            .address(symbol)
            .unwrap();
        let name = library.file_name().unwrap().to_string_lossy().into_owned();
        let key = format!("{name}+{address:#x}");
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with("report-") {
                continue;
            }
            // The profile beside a report has the same counts.
            if name.ends_with(".profile") || name.contains(".profile.") {
                std::fs::remove_file(path).unwrap();
                continue;
            }
            let counts = whole::read(&path).unwrap();
            all.push(counts.get(&key).copied().unwrap_or(0));
            std::fs::remove_file(path).unwrap();
        }
        all.sort();
        all
    }
}
