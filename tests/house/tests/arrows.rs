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

/// What stands on all stages, lowest first.
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

#[test]
fn modules_of_plan_and_of_the_runtime_form_no_circles() {
    for (source, part) in [("atom-core/src", "plan"), ("analysis-rt/src", "")] {
        let lines = circles(&Sources::read(&in_workspace(source)), part);
        assert!(
            lines.is_empty(),
            "{source}: modules in circles:\n{}",
            lines.join("\n")
        );
    }
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
