//! Running an entry's commands and comparing their outputs and files.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::table::Entry;
use crate::error::{Error, Result};
use crate::outcome::{Outcome, Setting, difference, plain_environment, run};
use crate::source::End;

/// Folders of all runs.
pub struct Bench {
    root: PathBuf,
}

/// A run and the files that it left: path, length and hash.
struct Trace {
    outcome: Outcome,
    files: BTreeMap<String, (u64, u64)>,
}

/// Behaviour of the original, and the outputs that cannot be compared.
pub struct Verdict {
    first: Trace,
    second: Trace,
    fixed_addresses: bool,
    /// Outputs that differ between runs of the original.
    pub unstable: Vec<&'static str>,
}

/// Comparison of a rewritten program with the original.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The first difference in words; none if there is none.
    pub text: Option<String>,
    /// User time divided by the original's user time, if the original takes at least 0.05 s.
    pub slowdown: Option<f64>,
}

impl Bench {
    /// Prepares the folders and the inputs under `root`.
    pub fn new(root: &Path) -> Result<Bench> {
        let bench = Bench::without_inputs(root)?;
        super::inputs::make(&bench.root.join("inputs"))?;
        Ok(bench)
    }

    /// Prepares the folders alone, for entries that read none of the inputs.
    pub fn without_inputs(root: &Path) -> Result<Bench> {
        let bench = Bench {
            root: root.to_path_buf(),
        };
        for folder in ["bin", "work", "out", "inputs"] {
            bench.fresh(folder)?;
        }
        Ok(bench)
    }

    fn fresh(&self, folder: &str) -> Result<PathBuf> {
        let path = self.root.join(folder);
        let fail = |e: std::io::Error| Error::new("making an empty folder", e).file(&path);
        match std::fs::remove_dir_all(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(fail(e)),
            _ => std::fs::create_dir_all(&path).map_err(fail)?,
        }
        Ok(path)
    }

    /// Folder for rewritten files and outputs of tools, emptied for each entry.
    pub fn out(&self) -> PathBuf {
        self.root.join("out")
    }

    /// Empties the folder of [`Bench::out`].
    pub fn clear_out(&self) -> Result<()> {
        self.fresh("out").map(|_| ())
    }

    fn trace(
        &self,
        entry: &Entry,
        file: &Path,
        fixed_addresses: bool,
        limit: Duration,
    ) -> Result<Trace> {
        let bin = self.fresh("bin")?;
        let work = self.fresh("work")?;
        let target = bin.join(entry.command_name());
        if !entry.is_in_place {
            std::fs::copy(file, &target)
                .map_err(|e| Error::new("copying the program", e).file(file))?;
        }
        let mut command = Command::new("/bin/sh");
        plain_environment(&mut command);
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            bin.display()
        );
        command
            .env("PATH", path)
            .env("IN", self.root.join("inputs"))
            .env("PROGRAM", file)
            .env("HOME", &work)
            .envs(entry.env.iter().cloned());
        command.arg("-c").arg(&entry.script).current_dir(&work);
        let outcome = run(
            &mut command,
            &Setting {
                fixed_addresses,
                timeout: limit,
                ..Setting::default()
            },
        )?;
        let mut files = BTreeMap::new();
        gather(&work, &work, &mut files)?;
        Ok(Trace { outcome, files })
    }

    /// Runs the original several times, to find out which outputs can be compared.
    pub fn original(&self, entry: &Entry, file: &Path) -> Result<Verdict> {
        let limit = entry.limit;
        let mut verdict = None;
        for fixed_addresses in [false, true] {
            let first = self.trace(entry, file, fixed_addresses, limit)?;
            let second = self.trace(entry, file, fixed_addresses, limit)?;
            if first.outcome.timed_out {
                return Err(Error::new("running the original", "it did not end in time").file(file));
            }
            let mut unstable = Vec::new();
            if first.outcome.stdout != second.outcome.stdout {
                unstable.push("stdout");
            }
            if first.outcome.stderr != second.outcome.stderr {
                unstable.push("stderr");
            }
            if first.outcome.end != second.outcome.end {
                unstable.push("exit code");
            }
            if first.files != second.files {
                unstable.push("files");
            }
            let stable = unstable.is_empty();
            verdict = Some(Verdict {
                first,
                second,
                fixed_addresses,
                unstable,
            });
            if stable {
                break;
            }
        }
        verdict.ok_or_else(|| Error::new("running the original", "it was not run").file(file))
    }

    /// Runs a rewritten file, at most for `limit`, and compares.
    pub fn rewritten(
        &self,
        entry: &Entry,
        file: &Path,
        original: &Verdict,
        limit: Duration,
    ) -> Result<Difference> {
        let trace = self.trace(entry, file, original.fixed_addresses, limit)?;
        let base = original.first.outcome.user.as_secs_f64();
        let slowdown = (base > 0.05).then(|| trace.outcome.user.as_secs_f64() / base);
        Ok(Difference {
            text: original.compare(&trace),
            slowdown,
        })
    }
}

impl Verdict {
    /// Output, error output, end and files of the original, for a look at them.
    pub fn says(&self) -> String {
        let o = &self.first.outcome;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "{}{}{:?} {:?}\n",
            text(&o.stdout),
            text(&o.stderr),
            o.end,
            self.first.files
        )
    }

    /// How the original ended.
    pub fn end(&self) -> End {
        self.first.outcome.end
    }

    fn compare(&self, trace: &Trace) -> Option<String> {
        let (a, b, got) = (&self.first.outcome, &self.second.outcome, &trace.outcome);
        if got.timed_out {
            return Some("it did not end in time".into());
        }
        let stderr =
            masked(&a.stderr, &b.stderr, &got.stderr).map(|d| format!("stderr differs, {d}"));
        if a.end == b.end && got.end != a.end {
            let reason = stderr.map(|d| format!("; {d}")).unwrap_or_default();
            return Some(format!(
                "ended with {:?} instead of {:?}{reason}",
                got.end, a.end
            ));
        }
        if let Some(d) = masked(&a.stdout, &b.stdout, &got.stdout) {
            return Some(format!("stdout differs, {d}"));
        }
        if stderr.is_some() {
            return stderr;
        }
        for (name, facts) in &self.first.files {
            let stable = self.second.files.get(name) == Some(facts);
            match trace.files.get(name) {
                None if self.second.files.contains_key(name) => {
                    return Some(format!("file {name} is missing"));
                }
                Some(got) if stable && got != facts => return Some(format!("file {name} differs")),
                _ => {}
            }
        }
        let extra = trace
            .files
            .keys()
            .find(|n| !self.first.files.contains_key(*n) && !self.second.files.contains_key(*n));
        // Names with a random part differ between the originals as well.
        let names_stable = self.first.files.keys().eq(self.second.files.keys());
        extra
            .filter(|_| names_stable)
            .map(|name| format!("file {name} is new"))
    }
}

/// The first difference, without the lines in which the two runs of the original differ.
fn masked(a: &[u8], b: &[u8], got: &[u8]) -> Option<String> {
    if a == b {
        return difference(a, got);
    }
    let lines = |t: &[u8]| {
        t.split(|c| *c == b'\n')
            .map(<[u8]>::to_vec)
            .collect::<Vec<_>>()
    };
    let (a, b, got) = (lines(a), lines(b), lines(got));
    if a.len() != b.len() {
        return None;
    }
    if got.len() != a.len() {
        return Some(format!("{} lines instead of {}", got.len(), a.len()));
    }
    let stable = |of: &[Vec<u8>]| {
        let kept = of
            .iter()
            .zip(a.iter().zip(&b))
            .map(|(l, (a, b))| if a == b { l.clone() } else { Vec::new() });
        kept.collect::<Vec<_>>().join(&b'\n')
    };
    difference(&stable(&a), &stable(&got))
}

fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<String, (u64, u64)>) -> Result<()> {
    let fail = |e: std::io::Error| Error::new("listing what a program left", e).file(folder);
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let kind = std::fs::symlink_metadata(&path).map_err(fail)?.file_type();
        if kind.is_dir() {
            gather(root, &path, files)?;
            continue;
        }
        let bytes = if kind.is_file() {
            std::fs::read(&path).map_err(fail)?
        } else if kind.is_symlink() {
            std::fs::read_link(&path)
                .map_err(fail)?
                .to_string_lossy()
                .into_owned()
                .into_bytes()
        } else {
            Vec::new()
        };
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        files.insert(name, (bytes.len() as u64, hasher.finish()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stable_lines_are_compared() {
        assert_eq!(masked(b"a\nt1\nb", b"a\nt2\nb", b"a\nt3\nb"), None);
        assert!(masked(b"a\nt1\nb", b"a\nt2\nb", b"a\nt3\nc").is_some());
        assert!(masked(b"a\nt1\nb", b"a\nt2\nb", b"a\nt3").is_some());
        assert!(masked(b"a", b"a", b"b").is_some());
    }
}
