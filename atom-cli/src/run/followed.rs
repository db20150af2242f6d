//! The command in the place of a program that an instrumented program executes: `atom run --children`.
//!
//! The runtime executes the command with the words of [`follow_words`], which `atom` has written into the
//! program, and after them: the number of the process that waits, the number of the program's arguments,
//! the path to execute, the arguments, the environment (`analysis-rt/src/lifecycle/follow`). The command
//! finds the instrumented program, or makes it, and executes it in its own place. It prints nothing, keeps
//! away from the standard streams, and leaves everything that a program can see of its process as it was.
//! If anything fails, it executes the original and notes why in the record of the run.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use atom_abi::names::matches;
use atom_core::{Error, Result};
use clap::Parser;

use super::Arguments;
use super::instrument::{Made, RunRequest, Voice, tool_file};
use super::program::Program;
use super::record;
use crate::driver;
use crate::kept::identity::Identity;
use crate::kept::store::Store;
use crate::source;
use crate::surroundings::Surroundings;
use output::message::say;

/// The word by which this command is known.
const WORD: &str = "--followed";
/// Exit code if not even the original can be executed: the code of a shell for that.
const CANNOT_EXECUTE: u8 = 126;
/// Folder of an entry with names of files for which the entry's program runs, and what is in the folder of
/// each name: a folder with a link to the program, and a link with the path.
const NAMES: &str = "names";
const AT: &str = "at";
const PATH: &str = "path";
/// From the link to the entry's folder.
const UP: &str = "../../..";
/// Longest text of arguments in the record, in bytes.
const MOST_TEXT: usize = 400;

/// The first words of the command line: the command, the store, and the words of `atom run` with their
/// number before them.
pub fn follow_words(request: &RunRequest<'_>, store: &Store) -> Result<Vec<OsString>> {
    let mut run: Vec<OsString> = vec!["run".into(), "--children".into()];
    for pattern in &request.arguments.children_skip {
        run.extend(["--children-skip".into(), pattern.into()]);
    }
    run.extend(
        request
            .arguments
            .choices
            .words()
            .into_iter()
            .map(OsString::from),
    );
    run.extend(request.arguments.no_late.then(|| "--no-late".into()));
    // A name is looked for beside the command; a path counts from any folder.
    let tool = request.arguments.words.tool();
    let is_path = tool.contains('/') || source::is_source(Path::new(tool));
    run.push(if is_path {
        request.tool.clone().into_os_string()
    } else {
        tool.into()
    });
    run.extend(request.arguments.words.options().iter().map(OsString::from));
    let command = Identity::command()?.into_os_string();
    let store = store.folder().as_os_str().to_os_string();
    let count = run.len().to_string().into();
    let mut words = vec![command, WORD.into(), store, count];
    words.extend(run);
    Ok(words)
}

/// Number of the words before those of `atom run`.
const BEFORE: usize = 4;

/// What the runtime asks for.
struct Call {
    /// The words of [`follow_words`].
    words: Vec<OsString>,
    /// Folder of the store.
    store: PathBuf,
    /// Number of the `atom run` that waits.
    waiter: u32,
    /// The path to execute.
    path: OsString,
    arguments: Vec<OsString>,
    environment: Vec<OsString>,
}

impl Call {
    /// Reads the command line; `None` if it is another one.
    fn parse(words: Vec<OsString>) -> Option<Self> {
        let number = |at: usize| -> Option<usize> { words.get(at)?.to_str()?.parse().ok() };
        if words.get(1).is_none_or(|word| word != WORD) {
            return None;
        }
        let known = BEFORE + number(BEFORE - 1)?;
        let (waiter, count) = (number(known)?, number(known + 1)?);
        let start = known + 3;
        Some(Self {
            store: PathBuf::from(words.get(2)?),
            waiter: waiter as u32,
            path: words.get(start - 1)?.clone(),
            arguments: words.get(start..start + count)?.to_vec(),
            environment: words[start + count..].to_vec(),
            words: words[..known].to_vec(),
        })
    }

    /// The path by which the instrumented program of an entry is executed. It leads to its file and tells the
    /// runtime which process waits; see `analysis-rt/src/process/run.rs`.
    fn path_for_run(&self, entry: &Path, program: &Program) -> PathBuf {
        let file = &entry.join(program.file_name());
        let has_libraries = driver::beside(file).exists();
        let is_script = program.file.as_os_str() != self.path;
        let named = if is_script || !has_libraries {
            self.named(entry, &program.file_name())
        } else {
            None
        };
        let file = named.as_ref().unwrap_or(file);
        let mut path = OsString::from(format!("/proc/{}", self.waiter));
        if !Path::new(&path).exists() || !file.is_absolute() {
            return file.to_path_buf();
        }
        path.push("/../..");
        path.push(file);
        path.into()
    }

    /// A symbolic link to the program of an entry, with the name of the file that was to be executed, beside
    /// a link whose text is that file's path. `None` if the links cannot be made: then the program sees
    /// another path as its own.
    fn named(&self, entry: &Path, program: &OsStr) -> Option<PathBuf> {
        let name = Path::new(&self.path).file_name()?;
        let digest = Identity::of_words(&[self.path.to_string_lossy().into_owned()]);
        let folder = entry.join(NAMES).join(digest);
        let file = folder.join(AT).join(name);
        if file.symlink_metadata().is_err() {
            std::fs::create_dir_all(folder.join(AT)).ok()?;
            let program = Path::new(UP).join(program);
            let links = [
                (Path::new(&self.path), &folder.join(PATH)),
                (&program, &file),
            ];
            for (text, link) in links {
                match std::os::unix::fs::symlink(text, link) {
                    Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return None,
                    _ => {}
                }
            }
        }
        Some(file)
    }

    /// Numbers of this process and of its parent, as they stand in the record.
    fn process(&self) -> String {
        format!(
            "{} {} ",
            std::process::id(),
            std::os::unix::process::parent_id()
        )
    }

    /// Notes which program the process executes.
    fn note_program(&self, program: &Program) {
        let path = Path::new(&self.path);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let mut text = self.process().into_bytes();
        text.extend(path.as_os_str().as_bytes());
        text.push(b'\t');
        text.extend(program.file.as_os_str().as_bytes());
        text.push(b'\t');
        text.extend(quoted(&self.arguments).as_bytes());
        record::leave(&self.store, self.waiter, 'E', &text);
    }

    /// Notes that the program is not instrumented.
    fn note_reason(&self, reason: &str) {
        let mut text = self.process().into_bytes();
        text.extend(reason.replace('\t', " ").as_bytes());
        text.push(b'\t');
        text.extend(self.path.as_bytes());
        record::leave(&self.store, self.waiter, 'N', &text);
    }

    /// The program with its interpreter's arguments, and its instrumented file; or why there is none.
    fn instrumented(&self) -> Result<(Program, Made)> {
        // The first of the words is the command's name.
        let arguments = Arguments::try_parse_from(&self.words[BEFORE..])
            .map_err(|e| Error::usage(e.to_string()))?;
        let path = self.path.to_string_lossy();
        let mut skipped = arguments.children_skip.iter();
        if let Some(pattern) = skipped.find(|pattern| matches(pattern, &path)) {
            return Err(Error::new(
                "following the process",
                format!("--children-skip {pattern}"),
            ));
        }
        let program = Program::executed(&self.path, self.arguments.clone())?;
        let store = Store::at(&self.store)?;
        let tool = tool_file(arguments.words.tool(), &arguments.tool_parts)?;
        let mut request = RunRequest::new(&arguments, tool);
        request.follow = self.words.clone();
        let folder = PathBuf::from(format!("/proc/{}/cwd", self.waiter));
        let made = request.instrumented(&program, &store, Voice::Silent(&folder))?;
        Ok((program, made))
    }
}

/// Executes a program for the runtime, if the command line asks for that: then it does not return, unless
/// nothing can be executed.
pub fn main() -> Option<ExitCode> {
    let is_wanted = std::env::args_os().nth(1).is_some_and(|word| word == WORD);
    if !is_wanted {
        return None;
    }
    let call = Call::parse(std::env::args_os().collect())?;
    let surroundings = Surroundings::begin();
    let environment = Strings::new(&call.environment);
    // The interpreter of the program is asked in the program's environment.
    environment.become_environment();
    let reason = match call.instrumented() {
        Ok((program, Made::Entry(entry))) => {
            call.note_program(&program);
            let file = call.path_for_run(&entry.folder, &program);
            surroundings.restore();
            // The entry is locked until the program runs.
            let error = execute(file.as_os_str(), &program.arguments, &environment);
            format!("executing the instrumented program: {error}")
        }
        Ok((_, Made::Nothing(reason))) => reason,
        Ok((_, Made::Told(_))) => String::new(),
        Err(error) => error.to_string(),
    };
    call.note_reason(&reason);
    surroundings.restore();
    let error = execute(&call.path, &call.arguments, &environment);
    say(&format!("atom: executing {}: {error}", call.path.display()));
    Some(ExitCode::from(CANNOT_EXECUTE))
}

/// Strings as C wants them: an array of pointers with a null at the end.
struct Strings {
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new(words: &[OsString]) -> Self {
        // Words of a command line have no null inside.
        let strings: Vec<CString> = words
            .iter()
            .filter_map(|word| CString::new(word.as_bytes()).ok())
            .collect();
        let mut pointers: Vec<_> = strings.iter().map(|s| s.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self {
            _strings: strings,
            pointers,
        }
    }

    /// Makes these strings the environment of this process.
    fn become_environment(&self) {
        unsafe extern "C" {
            static mut environ: *const *const c_char;
        }
        // SAFETY: the process has one thread; the array lives until its program is replaced.
        unsafe { environ = self.pointers.as_ptr() };
    }
}

/// Executes a file in this process's place; returns the error if that fails.
fn execute(file: &OsStr, arguments: &[OsString], environment: &Strings) -> std::io::Error {
    let file = CString::new(file.as_bytes()).unwrap_or_default();
    let arguments = Strings::new(arguments);
    let file: &CStr = &file;
    // SAFETY: strings, and arrays with a null at the end.
    unsafe {
        libc::execve(
            file.as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        );
    }
    std::io::Error::last_os_error()
}

/// Arguments as a shell would read them, for people; long ones are cut.
pub fn quoted(arguments: &[OsString]) -> String {
    let mut text = String::new();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let is_plain = |c: char| c.is_alphanumeric() || "-_./=+:,@%".contains(c);
        if !text.is_empty() {
            text.push(' ');
        }
        if !argument.is_empty() && argument.chars().all(is_plain) {
            text.push_str(&argument)
        } else {
            let inner = argument.replace('\'', "'\\''");
            text.push_str(&format!("'{}'", inner.replace(['\n', '\t'], " ")));
        }
        if text.len() > MOST_TEXT {
            let end = (0..=MOST_TEXT).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(end.unwrap_or(0));
            text.push_str(" ...");
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_is_taken_apart() {
        let line = [
            "/bin/atom",
            WORD,
            "/store",
            "3",
            "run",
            "--children",
            "icount",
            "17",
            "2",
            "/bin/ls",
            "ls",
            "-l",
            "A=1",
            "odd",
        ];
        let call = Call::parse(words(&line)).unwrap();
        assert_eq!(call.words, words(&line[..7]));
        assert_eq!((call.waiter, call.path.to_str()), (17, Some("/bin/ls")));
        assert_eq!(call.arguments, words(&["ls", "-l"]));
        assert_eq!(call.environment, words(&["A=1", "odd"]));
        assert!(Call::parse(words(&["atom", "run"])).is_none());
        assert!(Call::parse(words(&line[..10])).is_none());
    }

    #[test]
    fn arguments_are_shown_as_a_shell_reads_them() {
        assert_eq!(
            quoted(&words(&["sh", "-c", "a 'b'\n", ""])),
            "sh -c 'a '\\''b'\\'' ' ''"
        );
        assert!(quoted(&words(&["x".repeat(1000).as_str()])).len() < MOST_TEXT + 10);
    }
}
