//! Which file a command runs: what `execvp` and the kernel would start for it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use atom_core::{Error, Result};

const DOING: &str = "finding the program to run";

/// The kernel follows this many scripts whose interpreters are scripts.
const MAX_SCRIPTS: usize = 5;

/// The kernel reads this many bytes of a script to find its interpreter.
const SCRIPT_HEAD: u64 = 256;

/// A program and the arguments that it gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Path of the ELF file, as `exec` is given it.
    pub file: PathBuf,
    /// All arguments, the program's own name first.
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Looks `words[0]` up in `PATH` as a shell does, and follows scripts to their interpreters.
    ///
    /// A script that names `env` as its interpreter, as most do, runs under the program that
    /// `env` would execute: the interpreter is what is to be seen.
    pub fn find(words: &[OsString]) -> Result<Self> {
        let Some(name) = words.first() else {
            return Err(Error::new(DOING, "no program is named")
                .advice("write the program and its arguments behind `--`"));
        };
        let mut program = Self {
            file: look_up(name)?,
            arguments: words.to_vec(),
        };
        for _ in 0..MAX_SCRIPTS {
            let Some((interpreter, option)) = script_head(&program.file)? else {
                return Ok(program);
            };
            program = program.under(interpreter, option)?;
        }
        Err(Error::new(
            DOING,
            "scripts name scripts as their interpreters, too many in a row",
        )
        .file(&program.file))
    }

    /// What the kernel executes for the file of a path: scripts are followed to their interpreters, `env`
    /// among them. The kernel has been asked whether it would.
    pub fn executed(path: &OsStr, arguments: Vec<OsString>) -> Result<Self> {
        let mut program = Self {
            file: path.into(),
            arguments,
        };
        for _ in 0..MAX_SCRIPTS {
            let Some((interpreter, option)) = script_head(&program.file)? else {
                break;
            };
            let mut words = vec![interpreter.clone().into_os_string()];
            words.extend(option);
            words.push(program.file.into_os_string());
            words.extend(program.arguments.into_iter().skip(1));
            program = Self {
                file: interpreter,
                arguments: words,
            };
        }
        Ok(program)
    }

    /// The name under which the program is run: what `ps` and the program's own messages show.
    pub fn file_name(&self) -> OsString {
        let name = self.file.file_name();
        name.unwrap_or("program".as_ref()).to_os_string()
    }

    /// The interpreter of this script, with the script's path and arguments.
    fn under(self, interpreter: PathBuf, option: Option<OsString>) -> Result<Self> {
        let is_env = interpreter.file_name() == Some(OsStr::new("env"));
        let mut words = match (is_env, option) {
            (true, Some(option)) => env_command(&option).map_err(|reason| {
                Error::new(DOING, reason)
                    .file(&self.file)
                    .advice("name the script's interpreter: `atom run TOOL -- INTERPRETER SCRIPT`")
            })?,
            (_, option) => {
                let mut words = vec![interpreter.into_os_string()];
                words.extend(option);
                words
            }
        };
        let file = look_up(&words[0])?;
        words.push(self.file.into_os_string());
        words.extend(self.arguments.into_iter().skip(1));
        Ok(Self {
            file,
            arguments: words,
        })
    }
}

/// The command that `env` executes for the one argument of a script's first line.
fn env_command(argument: &OsStr) -> std::result::Result<Vec<OsString>, String> {
    let text = argument.as_bytes();
    let split: Vec<&[u8]> = match text.strip_prefix(b"-S") {
        Some(rest) => rest
            .split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty())
            .collect(),
        None => vec![text],
    };
    let words: Vec<OsString> = split
        .iter()
        .map(|w| OsString::from_vec(w.to_vec()))
        .collect();
    match split.first() {
        Some(first) if !first.starts_with(b"-") && !first.contains(&b'=') => Ok(words),
        _ => Err("its first line gives `env` options or variables".into()),
    }
}

/// The interpreter that a script names and its one argument; `None` for what is no script.
fn script_head(file: &Path) -> Result<Option<(PathBuf, Option<OsString>)>> {
    let mut head = Vec::new();
    File::open(file)
        .and_then(|f| f.take(SCRIPT_HEAD).read_to_end(&mut head))
        .map_err(|e| Error::new(DOING, e).file(file))?;
    let Some(line) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
    let line = line.trim_ascii();
    let end = line
        .iter()
        .position(|b| matches!(b, b' ' | b'\t'))
        .unwrap_or(line.len());
    let (interpreter, rest) = line.split_at(end);
    let rest = rest.trim_ascii();
    if interpreter.is_empty() {
        return Err(Error::new(DOING, "it is a script that names no interpreter").file(file));
    }
    let option = (!rest.is_empty()).then(|| OsString::from_vec(rest.to_vec()));
    let interpreter = PathBuf::from(OsString::from_vec(interpreter.to_vec()));
    Ok(Some((interpreter, option)))
}

/// The file of a command: a path as it is, a bare name from the folders of `PATH`.
fn look_up(name: &OsStr) -> Result<PathBuf> {
    let path = Path::new(name);
    if name.as_bytes().contains(&b'/') {
        return match std::fs::metadata(path) {
            Err(e) => Err(Error::new(DOING, reason(&e)).file(path)),
            Ok(m) if m.is_dir() => Err(Error::new(DOING, "it is a directory").file(path)),
            Ok(m) if m.permissions().mode() & 0o111 == 0 => {
                Err(Error::new(DOING, "it is not executable")
                    .file(path)
                    .advice(format!("make it so: chmod +x {}", path.display())))
            }
            Ok(_) => Ok(path.to_path_buf()),
        };
    }
    in_path(path).ok_or_else(|| {
        Error::new(DOING, "there is no such command in the folders of PATH")
            .symbol(name.to_string_lossy())
            .advice("give a path, such as ./program, for a program elsewhere")
    })
}

/// The file of a bare name in the folders of `PATH`.
pub fn in_path(name: &Path) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/bin:/usr/bin".into());
    let files = std::env::split_paths(&folders).map(|folder| {
        if folder.as_os_str().is_empty() {
            Path::new(".").join(name)
        } else {
            folder.join(name)
        }
    });
    let mut files = files.filter(|file| is_executable(file));
    files.next()
}

fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(name: &str, head: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("atom-run-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join(name);
        std::fs::write(&file, format!("{head}\necho hello\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        file
    }

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_bare_name_is_looked_up() {
        let found = Program::find(&words(&["env", "-i"])).unwrap();
        assert!(found.file.is_absolute());
        assert_eq!(found.arguments, words(&["env", "-i"]));
        let error = Program::find(&words(&["no-such-command"])).unwrap_err();
        assert!(error.to_string().contains("PATH"), "{error}");
        assert!(Program::find(&[]).is_err());
        assert!(Program::find(&words(&["/"])).is_err());
        assert!(Program::find(&words(&["/etc/passwd"])).is_err());
    }

    #[test]
    fn scripts_run_under_their_interpreters() {
        let plain = script("plain", "#! /bin/sh -e -u ");
        let found = Program::find(&[plain.clone().into(), "a b".into()]).unwrap();
        assert_eq!(found.file, Path::new("/bin/sh"));
        let expected: Vec<OsString> = vec![
            "/bin/sh".into(),
            "-e -u".into(),
            plain.clone().into(),
            "a b".into(),
        ];
        assert_eq!(found.arguments, expected);

        let by_env = script("by-env", "#!/usr/bin/env -S sh -e");
        let found = Program::find(&[by_env.clone().into()]).unwrap();
        assert_eq!(found.file.file_name().unwrap(), "sh");
        assert_eq!(found.arguments[..2], words(&["sh", "-e"]));

        let outer = script("outer", &format!("#!{}", plain.display()));
        let found = Program::find(&[outer.clone().into()]).unwrap();
        let expected: Vec<OsString> =
            vec!["/bin/sh".into(), "-e -u".into(), plain.into(), outer.into()];
        assert_eq!(found.arguments, expected);

        let options = script("options", "#!/usr/bin/env -i sh");
        assert!(Program::find(&[options.into()]).is_err());
        let empty = script("empty", "#!");
        assert!(Program::find(&[empty.into()]).is_err());
    }
}
