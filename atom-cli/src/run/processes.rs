//! The processes of a run and their reports: what `atom run` says at the end.
//!
//! A process may execute one program after another. Each of them is a *stage*, which begins where the
//! record says that the process executes something, and has reports of its own. The first stage of a forked
//! child is its parent's program.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::record::{Entry, Process, Program};
use crate::message::{count, number};

/// Number of reports, and of programs that are not instrumented, that are told; of more only the number is.
const NAMED: usize = 4;

/// One program in one process.
#[derive(Debug, PartialEq, Eq)]
struct Stage {
    process: Process,
    /// `None` for a forked child.
    program: Option<Program>,
    /// The process had another program before.
    is_later: bool,
    reports: Vec<PathBuf>,
    profiles: Vec<PathBuf>,
    /// Those of the reports that say nothing that the profiles do not have.
    summed: Vec<PathBuf>,
    /// Libraries that were loaded while the program ran and are not instrumented, each once.
    loaded: Vec<PathBuf>,
    /// Libraries that were instrumented when the program opened them, each once.
    added: Vec<PathBuf>,
}

/// A program that ran as it is.
#[derive(Debug, PartialEq, Eq)]
struct Unseen {
    process: Process,
    reason: String,
    program: String,
}

/// All that the record says of the processes.
#[derive(Default, Debug)]
pub struct Processes {
    stages: Vec<Stage>,
    unseen: Vec<Unseen>,
    /// Path of the program that the first process has become, if that is not followed.
    became: Option<String>,
    /// Reports in between, which the reports at the end replace.
    replaced: Vec<PathBuf>,
    /// The working folder.
    folder: Option<PathBuf>,
}

impl Processes {
    /// Sorts the entries by processes. `first` is the process that `atom run` started, with its program.
    pub fn new(entries: Vec<Entry>, first: u32, program: Program) -> Self {
        let mut all = Self {
            folder: std::env::current_dir().ok(),
            ..Self::default()
        };
        let process = Process {
            number: first,
            parent: std::process::id(),
        };
        all.stages.push(Stage::new(process, Some(program), false));
        for entry in entries {
            all.add(entry);
        }
        for stage in &mut all.stages {
            for paths in [&mut stage.reports, &mut stage.profiles, &mut stage.summed] {
                all.replaced.extend(take_snapshots(paths));
            }
        }
        number_older(&mut all.stages, |stage| &mut stage.reports);
        number_older(&mut all.stages, |stage| &mut stage.profiles);
        number_older(&mut all.stages, |stage| &mut stage.summed);
        all
    }

    fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Report(process, path) => {
                if self.is_first(process) {
                    self.became = None;
                }
                push(&mut self.stage(process).reports, path);
            }
            Entry::Becomes(process, path) if self.is_first(process) => self.became = Some(path),
            Entry::Profile(process, path) => push(&mut self.stage(process).profiles, path),
            Entry::Summed(process, path) => push(&mut self.stage(process).summed, path),
            Entry::Cut(process, path) => self.stage(process).reports.retain(|r| *r != path),
            Entry::Loaded(process, path) => push(&mut self.stage(process).loaded, path),
            Entry::Added(process, path) => push(&mut self.stage(process).added, path),
            Entry::Executes(process, program) => {
                let is_later = self.of(process.number).is_some();
                self.stages
                    .push(Stage::new(process, Some(program), is_later));
            }
            Entry::Unseen(process, reason, program) => self.unseen.push(Unseen {
                process,
                reason,
                program,
            }),
            Entry::TakenBack(process) => {
                let last = self
                    .unseen
                    .iter()
                    .rposition(|u| u.process.number == process);
                if let Some(at) = last {
                    self.unseen.remove(at);
                }
            }
            Entry::Failed(_) | Entry::Watcher(_) | Entry::Done(_) | Entry::Becomes(..) => {}
        }
    }

    /// True for the process that `atom run` started.
    fn is_first(&self, process: Process) -> bool {
        let first = self.stages.first();
        first.is_some_and(|stage| stage.process.number == process.number)
    }

    /// Says that the process which `atom run` started has become another program, of which nothing is in the report.
    pub fn became_line(&self, tool: &str) -> Option<String> {
        let path = self.became.as_ref()?;
        Some(format!(
            "executed: {path}, in place of this program; nothing of it is here: `atom run --children {tool} ...` counts both, `atom run {tool} -- {path} ...` that program"
        ))
    }

    /// The last stage of a process.
    fn of(&mut self, process: u32) -> Option<&mut Stage> {
        self.stages
            .iter_mut()
            .rfind(|s| s.process.number == process)
    }

    /// The last stage of a process: a new one for a forked child that is not known yet.
    fn stage(&mut self, process: Process) -> &mut Stage {
        if self.of(process.number).is_none() {
            self.stages.push(Stage::new(process, None, false));
        }
        let at = self
            .stages
            .iter()
            .rposition(|s| s.process.number == process.number);
        &mut self.stages[at.unwrap_or(0)]
    }

    /// All reports, in the order in which their processes began, each once.
    fn reports(&self) -> Vec<&PathBuf> {
        let mut seen = HashSet::new();
        let all = self.stages.iter().flat_map(|s| &s.reports);
        all.filter(|report| seen.insert(*report)).collect()
    }

    /// For each program the libraries that were loaded later and are not instrumented.
    pub fn loaded(&self) -> impl Iterator<Item = (&Path, &[PathBuf])> {
        self.of_programs(|s| &s.loaded)
    }

    /// For each program the libraries that were instrumented when the program opened them.
    pub fn added(&self) -> impl Iterator<Item = (&Path, &[PathBuf])> {
        self.of_programs(|s| &s.added)
    }

    /// For each program these libraries, if there are any.
    fn of_programs(
        &self,
        libraries: fn(&Stage) -> &Vec<PathBuf>,
    ) -> impl Iterator<Item = (&Path, &[PathBuf])> {
        let first = self.stages.first().and_then(|s| s.program.as_ref());
        let known = self.stages.iter().filter(move |s| !libraries(s).is_empty());
        known.filter_map(move |s| {
            let program = s.program.as_ref().or(first)?;
            Some((program.file.as_path(), libraries(s).as_slice()))
        })
    }

    /// Writes the list of all processes to a file beside the first report, with `.children` after its name.
    /// `None` if no report is a file. Returns the list's name, as short as possible.
    pub fn write_list(&self) -> Option<std::io::Result<PathBuf>> {
        let reports = self.reports();
        let first = reports.into_iter().find(|report| report.is_file())?;
        let mut name = first.as_os_str().to_os_string();
        name.push(".children");
        let file = PathBuf::from(name);
        let written = std::fs::write(&file, self.list());
        Some(written.map(|()| self.short(&file).into()))
    }

    /// Removes the files of reports in between that those of the end replace.
    pub fn remove_replaced(&mut self) {
        for file in self.replaced.drain(..) {
            // Two entries may name a file.
            std::fs::remove_file(file).unwrap_or_default();
        }
    }

    /// The profiles, in the order in which their processes began.
    pub fn profiles(&self) -> Vec<&Path> {
        let all = self.stages.iter().flat_map(|s| &s.profiles);
        all.map(PathBuf::as_path).collect()
    }

    /// The reports that one report of all processes replaces, with their profiles, in the order in which their processes
    /// began. `None` if a single process has reported, or one has a report of another kind, such as a log.
    pub fn replaceable(&self) -> Option<Vec<(PathBuf, PathBuf)>> {
        let reporting = self.stages.iter().filter(|s| !s.profiles.is_empty());
        let pair = |stage: &Stage| match (&stage.summed[..], &stage.profiles[..]) {
            ([report], [profile]) => Some((report.clone(), profile.clone())),
            _ => None,
        };
        let pairs = reporting.map(pair).collect::<Option<Vec<_>>>()?;
        // A file that was replaced or removed meanwhile cannot be added.
        let is_there = pairs.iter().all(|(a, b)| a.is_file() && b.is_file());
        (pairs.len() > 1 && is_there).then_some(pairs)
    }

    /// The first report for people that says nothing which a profile does not have or could not have, with the profile, if there is
    /// one.
    pub fn summed(&self) -> Option<(&Path, Option<&Path>)> {
        let found = self.stages.iter().find_map(|stage| {
            let report = stage.summed.first()?.as_path();
            Some((report, stage.profiles.first().map(PathBuf::as_path)))
        });
        found.filter(|(report, profile)| report.is_file() && profile.is_none_or(Path::is_file))
    }

    /// Notes that the first of the pairs stands for all of them now.
    pub fn have_been_replaced(&mut self, pairs: &[(PathBuf, PathBuf)]) {
        let Some((first, rest)) = pairs.split_first() else {
            return;
        };
        for stage in &mut self.stages {
            for (report, profile) in rest {
                let replace = |(old, new): (&PathBuf, &PathBuf), all: &mut Vec<PathBuf>| {
                    let same = all.iter_mut().filter(|path| *path == old);
                    same.for_each(|path| path.clone_from(new));
                };
                replace((report, &first.0), &mut stage.reports);
                replace((profile, &first.1), &mut stage.profiles);
            }
        }
    }

    /// A path, by its name in the working folder if it is in it or below.
    pub fn short(&self, path: &Path) -> String {
        short(path, self.folder.as_deref())
    }

    /// The line that names the reports, those in the working folder or below by their names in it.
    pub fn line(&self) -> Option<String> {
        let all = self.reports();
        let shown = all.iter().take(NAMED).map(|path| self.short(path));
        let names = shown.collect::<Vec<_>>().join(", ");
        match (all.len(), all.len().saturating_sub(NAMED)) {
            (0, _) => None,
            (1, _) => Some(format!("report: {names}")),
            (_, 0) => Some(format!("reports: {names}")),
            (_, more) => Some(format!("reports: {names} and {} more", number(more as u64))),
        }
    }

    /// The line that names the programs that ran as they are.
    pub fn unseen_line(&self) -> Option<String> {
        let mut known: Vec<(String, usize)> = Vec::new();
        for unseen in &self.unseen {
            let text = format!("{} ({})", unseen.program, unseen.reason);
            match known.iter_mut().find(|(other, _)| *other == text) {
                Some((_, times)) => *times += 1,
                None => known.push((text, 1)),
            }
        }
        let shown = known.iter().take(NAMED).map(|(text, times)| match times {
            1 => text.clone(),
            _ => format!("{text}, {} times", number(*times as u64)),
        });
        let names = shown.collect::<Vec<_>>().join("; ");
        match (known.len(), known.len().saturating_sub(NAMED)) {
            (0, _) => None,
            (_, 0) => Some(format!("executed and not instrumented: {names}")),
            (_, more) => Some(format!(
                "executed and not instrumented: {names}; and {more} more"
            )),
        }
    }

    /// "3 processes, 5 programs": how many are in the list.
    pub fn size(&self) -> String {
        let mut numbers: Vec<u32> = self.stages.iter().map(|s| s.process.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let processes = match numbers.len() {
            1 => "1 process".to_owned(),
            n => format!("{} processes", number(n as u64)),
        };
        let programs = self.stages.iter().filter(|s| s.program.is_some()).count();
        format!("{processes}, {}", count(programs, "program"))
    }

    /// The list of all processes, for a file.
    fn list(&self) -> String {
        let mut text = String::from("process\tparent\tbegan by\treport\tprogram\targuments\n");
        for stage in &self.stages {
            let Process { number, parent } = stage.process;
            let began = match (&stage.program, stage.is_later) {
                (None, _) => "fork",
                (_, true) => "exec, in place of the program before",
                (_, false) => "exec",
            };
            let reports: Vec<String> = stage.reports.iter().map(|r| self.short(r)).collect();
            let reports = if reports.is_empty() {
                "none".to_owned()
            } else {
                reports.join(", ")
            };
            let (program, arguments) = match &stage.program {
                Some(program) => (program.path.display().to_string(), &*program.arguments),
                None => ("the parent's".into(), ""),
            };
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{number}\t{parent}\t{began}\t{reports}\t{program}\t{arguments}"
            );
        }
        for unseen in &self.unseen {
            let Process { number, parent } = unseen.process;
            let (program, reason) = (&unseen.program, &unseen.reason);
            let _ = writeln!(
                text,
                "{number}\t{parent}\texec\tnot instrumented: {reason}\t{program}\t"
            );
        }
        text
    }
}

impl Stage {
    /// A stage that nothing is known of yet.
    fn new(process: Process, program: Option<Program>, is_later: bool) -> Self {
        Self {
            process,
            program,
            is_later,
            reports: Vec::new(),
            profiles: Vec::new(),
            summed: Vec::new(),
            loaded: Vec::new(),
            added: Vec::new(),
        }
    }
}

/// A process that executes a program of the same name again has given the file before a number.
fn number_older(stages: &mut [Stage], files: impl Fn(&mut Stage) -> &mut Vec<PathBuf>) {
    let mut seen: HashMap<PathBuf, usize> = HashMap::new();
    let stages = stages.iter_mut().rev();
    for file in stages.flat_map(|stage| files(stage).iter_mut().rev()) {
        let later = seen.entry(file.clone()).or_default();
        if *later != 0 {
            let mut name = file.as_os_str().to_os_string();
            name.push(format!(".{later}"));
            *file = name.into();
        }
        *later += 1;
    }
}

/// A path, by its name in a folder if it is in it or below.
pub fn short(path: &Path, folder: Option<&Path>) -> String {
    let inner = folder.and_then(|folder| path.strip_prefix(folder).ok());
    inner.unwrap_or(path).display().to_string()
}

/// Takes out reports in between (`icount.out.now`) of which the report at the end is there (`icount.out`).
fn take_snapshots(paths: &mut Vec<PathBuf>) -> Vec<PathBuf> {
    let all = paths.clone();
    let last = |path: &PathBuf| {
        path.to_str()
            .and_then(|path| path.strip_suffix(".now"))
            .map(PathBuf::from)
    };
    let is_replaced = |path: &mut PathBuf| last(path).is_some_and(|last| all.contains(&last));
    paths.extract_if(.., is_replaced).collect()
}

/// Adds a path once.
fn push(paths: &mut Vec<PathBuf>, path: PathBuf) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u32, parent: u32) -> Process {
        Process { number, parent }
    }

    fn processes(entries: Vec<Entry>) -> Processes {
        let mut all = Processes::new(entries, 7, program("/bin/sh"));
        all.folder = Some("/home/me".into());
        all
    }

    fn report(number: u32, path: &str) -> Entry {
        Entry::Report(process(number, 7), path.into())
    }

    fn program(path: &str) -> Program {
        Program {
            path: path.into(),
            file: path.into(),
            arguments: "x".into(),
        }
    }

    fn executes(number: u32, path: &str) -> Entry {
        Entry::Executes(process(number, 7), program(path))
    }

    /// What was written while a process ran is told only if it was killed before its end.
    #[test]
    fn reports_in_between_are_older_than_the_last() {
        let profile = |path: &str| Entry::Profile(process(7, 1), path.into());
        let between = || {
            vec![
                report(7, "/home/me/a.out.now"),
                profile("/home/me/a.profile.now"),
            ]
        };
        let last = vec![report(7, "/home/me/a.out"), profile("/home/me/a.profile")];
        let all = processes([between(), last].concat());
        assert_eq!(all.line().as_deref(), Some("report: a.out"));
        assert_eq!(all.profiles(), [Path::new("/home/me/a.profile")]);
        let killed = processes(between());
        assert_eq!(killed.line().as_deref(), Some("report: a.out.now"));
        assert_eq!(killed.profiles(), [Path::new("/home/me/a.profile.now")]);
    }

    #[test]
    fn reports_are_named() {
        let line = |reports: &[&str]| {
            let entries = reports.iter().map(|path| report(7, path));
            processes(entries.collect()).line()
        };
        assert_eq!(line(&[]), None);
        assert_eq!(line(&["/home/me/a"]).unwrap(), "report: a");
        assert_eq!(line(&["/tmp/a", "/tmp/a"]).unwrap(), "report: /tmp/a");
        assert_eq!(line(&["/a", "/b"]).unwrap(), "reports: /a, /b");
        let six = line(&["/0", "/1", "/2", "/3", "/4", "/5"]);
        assert_eq!(six.unwrap(), "reports: /0, /1, /2, /3 and 2 more");
    }

    #[test]
    fn a_process_has_a_line_for_each_of_its_programs() {
        let all = processes(vec![
            report(8, "/home/me/r.8"),
            executes(8, "/bin/ls"),
            report(8, "/home/me/r.8.ls"),
            report(7, "/home/me/r"),
        ]);
        let list = all.list();
        let lines: Vec<Vec<&str>> = list.lines().map(|l| l.split('\t').collect()).collect();
        let parts = |at: usize| (lines[at][0], lines[at][3], lines[at][4]);
        assert_eq!(parts(1), ("7", "r", "/bin/sh"));
        assert_eq!(parts(2), ("8", "r.8", "the parent's"));
        assert_eq!(parts(3), ("8", "r.8.ls", "/bin/ls"));
        assert!(lines[3][2].contains("in place of"), "{list}");
        assert_eq!(all.size(), "2 processes, 2 programs");
    }

    #[test]
    fn reports_of_one_name_have_the_numbers_that_they_got() {
        let again = || [executes(8, "/bin/sh"), report(8, "/r.8.sh")];
        let all = processes([again(), again(), again()].concat());
        let names: Vec<&Path> = all.reports().into_iter().map(PathBuf::as_path).collect();
        assert_eq!(names, ["/r.8.sh.2", "/r.8.sh.1", "/r.8.sh"].map(Path::new));
    }

    #[test]
    fn what_was_not_instrumented_is_told_unless_it_failed() {
        let unseen =
            |number, name: &str| Entry::Unseen(process(number, 7), "it is old".into(), name.into());
        let all = processes(vec![
            unseen(8, "/bin/su"),
            unseen(9, "/bin/x"),
            Entry::TakenBack(9),
            unseen(10, "/bin/su"),
        ]);
        let line = all.unseen_line().unwrap();
        assert!(line.ends_with("/bin/su (it is old), 2 times"), "{line}");
        assert!(processes(vec![]).unseen_line().is_none());
    }
}
