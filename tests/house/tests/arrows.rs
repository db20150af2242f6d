//! Dependencies between the parts of the core point one way: from a stage to those before it.
//!
//! The sources are read as tokens. Each path that leads to another module of the same crate is an
//! arrow, in a `use` line or in the middle of code. Code for tests only (`#[cfg(test)]`) is left out.

use house::circles::circles;
use house::in_workspace;
use house::sources::Sources;

/// What all stages stand on, lowest first. A part may use those before it.
const FOUNDATIONS: &[&str] = &["error", "ids", "memory", "parallel", "grouped", "x86"];

/// The stages in the order in which they run. A stage may use those before it and the foundations.
const STAGES: &[&str] = &[
    "image", "unwind", "cfg", "tool", "analysis", "live", "plan", "layout", "rewrite", "emit",
];

/// What uses all stages, lowest first.
const ABOVE: &[&str] = &["check", "pipeline"];

#[test]
fn parts_use_only_what_stands_before_them() {
    let core = Sources::read(&in_workspace("atom-core/src"));
    let order = [FOUNDATIONS, STAGES, ABOVE].concat();
    let rank = |file: usize| {
        let part = core.part(file)?;
        let rank = order.iter().position(|p| *p == part);
        Some(rank.unwrap_or_else(|| panic!("`{part}` has no place in the order of this test")))
    };
    let mut against = Vec::new();
    for arrow in &core.arrows {
        let (Some(from), Some(to)) = (rank(arrow.from), rank(arrow.to)) else {
            continue;
        };
        let file = &core.files[arrow.from].name;
        if from < to {
            against.push(format!(
                "atom-core/src/{file}:{}: `{}` uses `{}` ({}), which comes later",
                arrow.line, order[from], order[to], arrow.path
            ));
        }
    }
    against.sort();
    against.dedup();
    assert!(
        against.is_empty(),
        "{} arrows against the order {}:\n{}",
        against.len(),
        order.join(", "),
        against.join("\n")
    );
}

/// The source folders of the workspace's crates.
fn source_folders() -> Vec<String> {
    let manifest = std::fs::read_to_string(in_workspace("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let names = members.split('"').skip(1).step_by(2);
    let folders = names.map(|name| format!("{name}/src"));
    folders.filter(|f| in_workspace(f).is_dir()).collect()
}

#[test]
fn modules_form_no_circles() {
    let folders = source_folders();
    assert!(folders.len() > 40, "{} crates", folders.len());
    let mut found = Vec::new();
    for source in folders {
        let lines = circles(&Sources::read(&in_workspace(&source)), "");
        found.extend(lines.into_iter().map(|line| format!("{source}: {line}")));
    }
    assert!(
        found.is_empty(),
        "modules in circles:\n{}",
        found.join("\n")
    );
}

#[test]
fn the_order_is_told_alike_everywhere() {
    let line = STAGES.join(" -> ");
    for file in ["atom-core/src/lib.rs", "docs/architecture.md"] {
        let text = std::fs::read_to_string(in_workspace(file)).unwrap();
        assert!(
            text.contains(&line),
            "{file} does not list the stages as {line}"
        );
    }
}

/// Writes the files of a small crate and reads them.
fn small_crate(name: &str, files: &[(&str, &str)]) -> Sources {
    let folder = std::env::temp_dir().join(format!("house-{}-{name}", std::process::id()));
    for (file, text) in files {
        let path = folder.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let sources = Sources::read(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    sources
}

#[test]
fn paths_lead_to_the_file_that_has_the_item() {
    let files = [
        ("lib.rs", "mod high; mod low; pub use low::Thing;"),
        ("low/mod.rs", "mod inner; pub use inner::Thing;"),
        (
            "low/inner.rs",
            "pub struct Thing;\nfn f() { super::super::high::g(); }",
        ),
        (
            "high.rs",
            "use crate::Thing as T;\nfn f() -> impl Fn() + use<'_> { T::new(crate::low::Thing) }\n\
             #[cfg(test)] mod tests { use crate::low; }",
        ),
    ];
    let sources = small_crate("paths", &files);
    let name = |file: usize| sources.files[file].name.as_str();
    let mut arrows: Vec<_> = sources
        .arrows
        .iter()
        .filter(|a| sources.part(a.from).is_some())
        .map(|a| (name(a.from), a.line, name(a.to)))
        .collect();
    arrows.sort_unstable();
    arrows.dedup();
    let expected = [
        ("high.rs", 1, "low/inner.rs"),
        ("high.rs", 2, "low/inner.rs"),
        ("low/inner.rs", 2, "high.rs"),
        ("low/mod.rs", 1, "low/inner.rs"),
    ];
    assert_eq!(arrows, expected);
}

#[test]
fn circles_are_found() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b/mod.rs", "mod part; pub struct B;"),
        ("b/part.rs", "use super::B; use crate::c;"),
        ("c.rs", "fn f(_: super::a::A) {}"),
    ];
    let lines = circles(&small_crate("circles", &files), "");
    assert_eq!(lines[0], "3 modules in the root: a, b, c");
    assert_eq!(lines.len(), 4, "{lines:?}");
}
