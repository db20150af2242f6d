//! The inputs of the programs, made here.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::corpus::sample;
use crate::error::{Error, Result};

/// Size in bytes of the large input.
const LARGE: usize = 4_000_000;
/// Number of copies of the large input in the huge one.
const COPIES: usize = 40;
/// Number of commits of the repository.
const COMMITS: usize = 1500;
/// Number of sections of the manual page.
const SECTIONS: usize = 900;

/// Writes all inputs into a folder: the files `large`, `huge` and `page`, and the git repository `history`.
pub(super) fn make(folder: &Path) -> Result<()> {
    let fail = |e: std::io::Error| Error::new("making the inputs", e).file(folder);
    let large = sample(LARGE);
    std::fs::write(folder.join("large"), &large).map_err(fail)?;
    std::fs::write(folder.join("huge"), large.repeat(COPIES)).map_err(fail)?;
    std::fs::write(folder.join("page"), page()).map_err(fail)?;
    let repository = folder.join("history");
    if !repository.join("done").exists() {
        history(&repository).map_err(fail)?;
        std::fs::write(repository.join("done"), "").map_err(fail)?;
    }
    Ok(())
}

/// A manual page in the language of troff.
fn page() -> String {
    let mut page = String::from(".TH WORK 1\n");
    for i in 0..SECTIONS {
        let _ = writeln!(page, ".SH SECTION {i}\nThe option\n.B \\-\\-number{i}");
        for word in 0..60 {
            let _ = writeln!(page, "takes the \\fIvalue{}\\fP,", word * i % 97);
        }
        let _ = writeln!(
            page,
            "and nothing else.\n.PP\n.IP \\(bu 2\nIt has no default."
        );
    }
    page
}

/// A repository with one branch, made by `git fast-import`; each commit changes two of 60 files.
fn history(folder: &Path) -> std::io::Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    let git = |words: &[&str]| {
        let mut command = Command::new("/usr/bin/git");
        command.arg("-C").arg(folder).args(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    std::fs::create_dir_all(folder)?;
    git(&["init", "-q", "-b", "main"]).status()?;
    let mut import = git(&["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stream = String::new();
    for i in 0..COMMITS {
        let who = format!(
            "A. Committer <a@example.org> {} +0000",
            1_600_000_000 + i * 3600
        );
        let message = format!("Change {i}\n\nThe files get other lines.\n");
        let _ = write!(
            stream,
            "commit refs/heads/main\ncommitter {who}\ndata {}\n{message}",
            message.len()
        );
        for file in [i % 60, i * 7 % 60] {
            let lines = (0..120).map(|line| match (line + i) % 11 {
                0 => format!("line {line} of commit {i}\n"),
                _ => format!("line {line}\n"),
            });
            let text: String = lines.collect();
            let _ = write!(
                stream,
                "M 100644 inline folder{}/file{file}\ndata {}\n{text}\n",
                file % 5,
                text.len()
            );
        }
    }
    if let Some(mut stdin) = import.stdin.take() {
        stdin.write_all(stream.as_bytes())?;
    }
    if import.wait()?.success() {
        Ok(())
    } else {
        Err(std::io::Error::other("git fast-import failed"))
    }
}
