//! Every path, link, test and command line of cargo that the pages name exists.
//!
//! Pages are `docs/*.md`, `docs/tools/*.md`, `README.md` and `CONTRIBUTING.md`. Looked at are
//! - links, with the heading that they lead to;
//! - words in backquotes that are paths: relative to the project, to the page or to
//!   `atom-core/src`; a file without folders may lie anywhere;
//! - words such as `file.rs::name`: a function of that name in a file of that name;
//! - in commands the packages after `-p` and the targets after `--bin`, `--test` and `--example`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use house::in_workspace;

/// Files that have an extension of these are named by path.
const EXTENSIONS: [&str; 8] = ["rs", "md", "c", "cc", "h", "toml", "txt", "S"];

/// The files of the project, by path from its root and by name.
struct Project {
    root: PathBuf,
    paths: BTreeSet<PathBuf>,
    by_name: BTreeMap<String, Vec<PathBuf>>,
}

impl Project {
    fn new() -> Self {
        let mut project = Self {
            root: in_workspace(""),
            paths: BTreeSet::new(),
            by_name: BTreeMap::new(),
        };
        project.add(Path::new(""));
        project
    }

    fn add(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(self.root.join(folder)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            if name == "target" || name == ".git" {
                continue;
            }
            let path = folder.join(&name);
            if entry.file_type().unwrap().is_dir() {
                self.add(&path);
            }
            self.paths.insert(path.clone());
            self.by_name.entry(name).or_default().push(path);
        }
    }

    fn read(&self, path: &Path) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap()
    }

    /// The pages, by path.
    fn pages(&self) -> Vec<(PathBuf, String)> {
        let is_page = |path: &&PathBuf| {
            let at_root = ["README.md", "CONTRIBUTING.md"].iter();
            at_root
                .clone()
                .any(|name| path.as_path() == Path::new(name))
                || path.starts_with("docs") && path.extension().is_some_and(|e| e == "md")
        };
        let pages = self.paths.iter().filter(is_page);
        pages.map(|p| (p.clone(), self.read(p))).collect()
    }

    /// What is wrong with a word in backquotes, if it is a path.
    fn wrong_word(&self, page: &Path, word: &str) -> Option<String> {
        let (file, function) = match word.split_once("::") {
            Some((file, function)) => (file, Some(function)),
            None => (word, None),
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        if file.is_empty()
            || file.contains("NAME")
            || file.starts_with(['/', '.', '-'])
            || !file.chars().all(is_plain)
        {
            return None;
        }
        let has_extension = (file.rsplit_once('.')).is_some_and(|(_, e)| EXTENSIONS.contains(&e));
        let first = file.split('/').next().unwrap_or_default();
        let is_ours = self.paths.contains(Path::new(first)) && file.contains('/');
        if !(has_extension || is_ours || file.ends_with('/')) {
            return None;
        }
        let folder = page.parent().unwrap_or(Path::new(""));
        let roots = [Path::new(""), folder, Path::new("atom-core/src")];
        let mut found: Vec<PathBuf> = (roots.iter().map(|r| normal(&r.join(file))))
            .filter(|p| self.paths.contains(p))
            .collect();
        if !file.contains('/') {
            found.extend(self.by_name.get(file).into_iter().flatten().cloned());
        }
        if found.is_empty() {
            return Some("no such file".into());
        }
        let function = function?;
        let needle = format!("fn {function}(");
        let has = |path: &PathBuf| self.read(path).contains(&needle);
        let is_there = found.iter().any(has);
        (!is_there).then(|| format!("no function `{function}` there"))
    }

    /// What is wrong with the target of a link.
    fn wrong_link(&self, page: &Path, target: &str) -> Option<String> {
        if target.contains("://") {
            return None;
        }
        let (file, heading) = target.split_once('#').unwrap_or((target, ""));
        let path = match file {
            "" => page.to_owned(),
            _ => normal(&page.parent().unwrap_or(Path::new("")).join(file)),
        };
        if !self.paths.contains(&path) {
            return Some("no such file".into());
        }
        if heading.is_empty() || headings(&self.read(&path)).contains(heading) {
            return None;
        }
        Some("no such heading".into())
    }

    /// Whether cargo finds the target `name` at `path`: in a folder where it looks for such
    /// targets by itself, or by an entry in the manifest.
    fn is_target(&self, path: &Path, folder: &str, name: &str) -> bool {
        let folders = path.ancestors().skip(1);
        let Some(package) = folders
            .into_iter()
            .find(|f| self.paths.contains(&f.join("Cargo.toml")))
        else {
            return false;
        };
        let manifest = self.read(&package.join("Cargo.toml"));
        let is_found = match folder {
            "bin" => path.starts_with(package.join("src/bin")),
            "tests" => {
                path.starts_with(package.join("tests")) && !manifest.contains("autotests = false")
            }
            _ => path.starts_with(package.join(folder)),
        };
        is_found || manifest.contains(&format!("name = \"{name}\""))
    }

    /// What is wrong with a command line.
    fn wrong_command(&self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut wrong = Vec::new();
        if !words.contains(&"cargo") {
            return wrong;
        }
        for pair in words.windows(2) {
            let (folder, name) = match pair[0] {
                "--bin" => ("bin", pair[1]),
                "--test" => ("tests", pair[1]),
                "--example" => ("examples", pair[1]),
                "-p" => {
                    let line = format!("name = \"{}\"", pair[1]);
                    let manifests = &self.by_name["Cargo.toml"];
                    if !manifests.iter().any(|m| self.read(m).contains(&line)) {
                        wrong.push(format!("no package {}", pair[1]));
                    }
                    continue;
                }
                _ => continue,
            };
            let tail = |end: &str| PathBuf::from(format!("{folder}/{name}{end}"));
            let is_there = |p: &PathBuf| {
                (p.ends_with(tail(".rs")) || p.ends_with(tail("/main.rs")))
                    && self.is_target(p, folder, name)
            };
            if !is_placeholder(name) && !self.paths.iter().any(is_there) {
                wrong.push(format!("no target {folder}/{name}"));
            }
        }
        wrong
    }
}

fn is_placeholder(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase())
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}

/// The names by which links lead to the headings of a page.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|l| l.starts_with('#'));
    lines
        .map(|line| {
            let line = line.trim_start_matches('#').trim().to_lowercase();
            let kept = line.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            kept.collect()
        })
        .collect()
}

/// The lines of a page that are prose, and those that are code.
fn lines(text: &str) -> (Vec<&str>, Vec<&str>) {
    let mut is_fenced = false;
    let (mut prose, mut code) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if is_fenced || line.starts_with("    ") {
            code.push(line);
        } else {
            prose.push(line);
        }
    }
    (prose, code)
}

/// What stands between each `open` and the next `close`.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    let parts = text.split(open).skip(1);
    parts.filter_map(|p| Some(p.split_once(close)?.0)).collect()
}

/// What a page names and the project does not have, each with the reason.
fn missing(project: &Project, page: &Path, text: &str) -> Vec<String> {
    let (prose, code) = lines(text);
    let prose = prose.join("\n");
    let words: Vec<&str> = prose.split('`').skip(1).step_by(2).collect();
    let links = between(&prose, "](", ')');
    let mut wrong = Vec::new();
    let mut note = |what: &str, reason: String| {
        wrong.push(format!("{}: {}: {reason}", page.display(), what.trim()));
    };
    for word in &words {
        if let Some(reason) = project.wrong_word(page, word) {
            note(word, reason);
        }
    }
    for target in links {
        if let Some(reason) = project.wrong_link(page, target) {
            note(target, reason);
        }
    }
    for line in code.iter().chain(&words) {
        for reason in project.wrong_command(line) {
            note(line, reason);
        }
    }
    wrong
}

#[test]
fn what_the_pages_name_exists() {
    let project = Project::new();
    let pages = project.pages();
    assert!(pages.len() > 20, "{} pages", pages.len());
    let missing: Vec<String> = (pages.iter())
        .flat_map(|(page, text)| missing(&project, page, text))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn what_is_missing_is_found() {
    let text = "`cfg/nothing.rs` `docs.rs::no_such_test` `tests/no/` [x](limits.md#nowhere)\n\
                [y](none.md) `atom-core/nix` `docs.rs::what_is_missing_is_found`\n\n    \
                cargo run -p atom-nix --bin nix -o OUT\n    cargo test --test values\n";
    let found = missing(&Project::new(), Path::new("docs/usage.md"), text);
    assert_eq!(found.len(), 9, "{found:#?}");
}
