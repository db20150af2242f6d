//! The manifest of a tool of one source file.
//!
//! The file may begin with a manifest between two lines of dashes, as cargo's scripts do (a `#!` line may
//! are before it):
//!
//! ```text
//! ---
//! [dependencies]
//! itoa = "1"
//! ---
//! ```
//!
//! It gets the name, the type of the crate and the dependency on atom-tool.

use std::io;
use std::path::{Path, PathBuf};

use super::Sources;

/// A tool's source with its manifest.
pub struct Script {
    /// The tool's name: the file's.
    pub name: String,
    /// The user's file.
    pub file: PathBuf,
    /// The manifest in its head; empty without one.
    manifest: String,
    /// The source with empty lines in place of the head, if there is one.
    code: Option<String>,
}

impl Script {
    /// Splits the text of a file. An error is its reason.
    pub fn parse(file: &Path, text: &str) -> Result<Self, String> {
        let stem = file.file_stem().and_then(|s| s.to_str());
        let name = stem.ok_or("its name is not UTF-8")?.to_owned();
        let (manifest, code) = split(text)?;
        if manifest
            .lines()
            .any(|l| matches!(l.trim(), "[lib]" | "[workspace]"))
        {
            return Err(
                "the manifest in its head has [lib] or [workspace], which atom writes".into(),
            );
        }
        Ok(Self {
            name,
            file: file.to_path_buf(),
            manifest,
            code,
        })
    }

    /// The name of the crate that is made of the source file: see [`crate_name`].
    pub fn crate_name(&self) -> String {
        crate_name(&self.name)
    }

    /// True if the head names packages.
    pub fn has_packages(&self) -> bool {
        self.manifest
            .lines()
            .any(|l| l.trim_start().starts_with("[dependencies"))
    }

    /// Writes the package into a folder. Returns the path of the source that is compiled.
    pub fn write(&self, folder: &Path, sources: &Sources) -> io::Result<PathBuf> {
        let source = match &self.code {
            None => self.file.clone(),
            Some(code) => {
                let copy = folder.join("lib.rs");
                std::fs::write(&copy, code)?;
                copy
            }
        };
        let manifest = self.complete(&source, sources);
        std::fs::write(folder.join("Cargo.toml"), manifest)?;
        Ok(source)
    }

    /// The manifest with what a tool needs.
    fn complete(&self, source: &Path, sources: &Sources) -> String {
        let name = self.crate_name();
        let mut text = self.manifest.clone();
        let has = |text: &str, key: &str| {
            let key_of = |l: &str| l.split('=').next().unwrap_or("").trim().to_owned();
            text.lines().any(|l| key_of(l) == key)
        };
        let mut package = format!("name = \"{name}\"\n");
        for (key, value) in [("version", "0.0.0"), ("edition", "2024")] {
            if !has(&text, key) {
                package.push_str(&format!("{key} = \"{value}\"\n"));
            }
        }
        insert(&mut text, "[package]", &package);
        if !has(&text, "atom-tool") {
            let path = sources.tool_crate();
            insert(
                &mut text,
                "[dependencies]",
                &format!("atom-tool = {{ path = {path} }}\n"),
            );
        }
        if !text.contains("[profile.release]") {
            text.push_str("\n[profile.release]\npanic = \"abort\"\ndebug = \"line-tables-only\"\n");
        }
        let path = quoted(source);
        text + &format!(
            "\n[lib]\nname = \"{name}\"\ncrate-type = [\"cdylib\"]\npath = {path}\n\n[workspace]\n"
        )
    }
}

/// Makes the name of a crate from the name of a tool: letters, digits and `_` stay, other characters become `_`, and a
/// name that would begin with a digit or be empty gets `tool_` in front.
pub fn crate_name(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(word).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        format!("tool_{name}")
    } else {
        name
    }
}

/// A path as TOML.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Puts lines after the line `header`, which is appended if it is not there.
fn insert(text: &mut String, header: &str, lines: &str) {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        start += line.len();
        if line.trim() == header {
            let end = if line.ends_with('\n') { "" } else { "\n" };
            text.insert_str(start, &format!("{end}{lines}"));
            return;
        }
    }
    text.push_str(&format!("\n{header}\n{lines}"));
}

/// The manifest in the head of a source, and the source with empty lines in its place.
fn split(text: &str) -> Result<(String, Option<String>), String> {
    let lines: Vec<&str> = text.lines().collect();
    let shebang = lines
        .first()
        .is_some_and(|l| l.starts_with("#!") && !l.starts_with("#!["));
    let first = (usize::from(shebang)..lines.len()).find(|i| !lines[*i].trim().is_empty());
    let Some(first) = first.filter(|i| lines[*i].starts_with("---")) else {
        return Ok((String::new(), None));
    };
    let dashes = lines[first].chars().take_while(|c| *c == '-').count();
    let kind = lines[first][dashes..].trim();
    if !matches!(kind, "" | "cargo") {
        return Err(format!(
            "its head is for `{kind}`; write `---` or `---cargo`"
        ));
    }
    let end = "-".repeat(dashes);
    let behind = &lines[first + 1..];
    let Some(length) = behind.iter().position(|l| l.trim_end() == end) else {
        return Err(format!(
            "its head begins with {end} in line {} and does not end",
            first + 1
        ));
    };
    let manifest: String = behind[..length].iter().map(|l| format!("{l}\n")).collect();
    let code = "\n".repeat(first + length + 2) + &behind[length + 1..].join("\n") + "\n";
    Ok((manifest, Some(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_taken_off() {
        assert_eq!(split("fn f() {}\n"), Ok((String::new(), None)));
        let text = "#!/usr/bin/env x\n---cargo\n[dependencies]\na = \"1\"\n---\nfn f() {}\n";
        let (manifest, code) = split(text).unwrap();
        assert_eq!(manifest, "[dependencies]\na = \"1\"\n");
        assert_eq!(code.as_deref(), Some("\n\n\n\n\nfn f() {}\n"));
        assert!(split("---\n[dependencies]\n").is_err());
        assert!(split("---python\n---\n").is_err());
        assert_eq!(split("#![deny(warnings)]\n").unwrap().1, None);
    }

    #[test]
    fn manifests_are_completed() {
        let text = "---\n[dependencies]\na = \"1\"\n---\n";
        let script = Script::parse(Path::new("/x/my-tool.rs"), text).unwrap();
        assert!(script.has_packages());
        let sources = Sources {
            folder: "/src".into(),
        };
        let manifest = script.complete(Path::new("/c/lib.rs"), &sources);
        assert_eq!(
            manifest,
            "[dependencies]\natom-tool = { path = \"/src/atom-tool\" }\na = \"1\"\n\n\
             [package]\nname = \"my_tool\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [profile.release]\npanic = \"abort\"\ndebug = \"line-tables-only\"\n\n\
             [lib]\nname = \"my_tool\"\ncrate-type = [\"cdylib\"]\npath = \"/c/lib.rs\"\n\n[workspace]\n"
        );
        assert!(Script::parse(Path::new("x.rs"), "---\n[lib]\n---\n").is_err());
        assert_eq!(crate_name("3d"), "tool_3d");
    }
}
