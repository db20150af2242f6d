//! Rules for the sources of the whole workspace: how long a file and a function may be, how many
//! parameters a function may have.

use std::sync::LazyLock;

use house::in_workspace;
use house::measure::{Measured, measure};

/// All source files of the workspace.
static MEASURED: LazyLock<Vec<Measured>> = LazyLock::new(|| measure(&in_workspace("")));

/// Lines of a function at most, from its signature to its closing brace.
const FUNCTION: usize = 100;
/// Parameters of a function at most, `self` included.
const PARAMETERS: usize = 6;
/// Lines of a file at most.
const FILE: usize = 800;

/// Files that are tables.
const TABLE_FILES: &[&str] = &[];

/// Functions that are tables, by file and name.
const TABLES: &[(&str, &str)] = &[];

/// Functions that are still too long, by file and name.
const STILL_LONG: &[(&str, &str)] = &[
    ("atom-cli/src/driver.rs", "run"),
    (
        "atom-cli/tests/arp_page.rs",
        "tree_flame_graph_and_histograms_are_drawn_and_can_be_used",
    ),
    ("atom-core/src/check/step.rs", "step"),
    (
        "atom-core/src/emit/debug/unit/attribute.rs",
        "Walker::attribute",
    ),
    ("atom-core/src/emit/sections.rs", "append"),
    ("atom-core/src/emit/sections.rs", "symbols"),
    ("atom-core/src/emit/start.rs", "assemble_inner"),
    ("atom-core/src/plan/tests/random.rs", "try_case"),
    ("atom-core/src/plan/tests/routine.rs", "Writer::step"),
    ("atom-core/src/rewrite/encode.rs", "Encoder::proc"),
    ("atom-core/src/rewrite/encode.rs", "Encoder::inst"),
    ("atom-core/tests/tools/src/queries.rs", "look"),
    ("atom-kernel/src/run/mod.rs", "end"),
    (
        "tests/tests/kernel_more.rs",
        "from_the_program_to_the_picture",
    ),
    ("tools/ranges/src/lib.rs", "instrument"),
];

/// Functions that still have too many parameters, by file and name.
const STILL_WIDE: &[(&str, &str)] = &[
    ("atom-core/src/emit/debug/lines.rs", "relocate_names"),
    (
        "atom-core/src/emit/debug/unit/attribute.rs",
        "Walker::attribute",
    ),
    ("atom-core/src/emit/elf.rs", "write"),
    ("atom-core/src/plan/asm.rs", "Asm::evex"),
    ("atom-core/src/plan/build.rs", "Planner::calls_at"),
    ("atom-core/src/plan/build.rs", "Planner::insert"),
    ("atom-core/src/plan/flow/qualify.rs", "Part::add"),
    ("atom-core/tests/tools/src/lib.rs", "ten"),
    ("atom-core/tests/tools/src/lib.rs", "by_name"),
    ("atom-kernel/src/run/mod.rs", "begin"),
    ("atom-kernel/src/run/mod.rs", "table"),
    ("tests/flowjudge/src/lib.rs", "compare"),
    ("tests/threadcheck/src/lib.rs", "report"),
    ("tools/dtb/src/lib.rs", "group"),
    ("tools/dtb/src/lib.rs", "group_on_stack"),
    ("tools/icount/src/lib.rs", "report"),
    ("tools/inline/src/lib.rs", "report"),
    ("tools/prof/src/lib.rs", "report"),
    ("tools/ranges/src/heap.rs", "enter"),
    ("tools/ranges/src/html.rs", "write"),
    ("tools/ranges/src/lib.rs", "begin"),
    ("tools/ranges/src/live.rs", "Live::add_parts"),
    ("tools/ranges/src/model.rs", "touch"),
    ("tools/ranges/src/model.rs", "repeat"),
    ("tools/ranges/src/model.rs", "all"),
    ("tools/ranges/src/model.rs", "compared"),
    ("tools/ranges/src/points.rs", "AllReferences::place"),
    ("tools/ranges/src/points.rs", "AllReferences::reference"),
    ("tools/ranges/src/report.rs", "report"),
];

/// Files that still switch the lint off.
const STILL_ALLOWING: &[&str] = &[
    "atom-core/src/emit/debug/unit/attribute.rs",
    "atom-core/src/emit/elf.rs",
    "tools/ranges/src/lib.rs",
    "tools/ranges/src/model.rs",
    "tools/ranges/src/points.rs",
    "tools/ranges/src/report.rs",
];

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for measured in MEASURED.iter() {
        for f in &measured.functions {
            let key = (measured.file.as_str(), f.name.as_str());
            if f.length > FUNCTION && !TABLES.contains(&key) && !STILL_LONG.contains(&key) {
                long.push(format!(
                    "{}:{}: `{}` has {} lines",
                    key.0, f.line, key.1, f.length
                ));
            }
        }
    }
    assert!(
        long.is_empty(),
        "at most {FUNCTION} lines:\n{}",
        long.join("\n")
    );
}

#[test]
fn functions_take_few_parameters() {
    let mut wide = Vec::new();
    for measured in MEASURED.iter() {
        for f in &measured.functions {
            let key = (measured.file.as_str(), f.name.as_str());
            if f.parameters > PARAMETERS && !f.is_fixed && !STILL_WIDE.contains(&key) {
                wide.push(format!(
                    "{}:{}: `{}` has {}",
                    key.0, f.line, key.1, f.parameters
                ));
            }
        }
    }
    assert!(
        wide.is_empty(),
        "at most {PARAMETERS} parameters:\n{}",
        wide.join("\n")
    );
}

#[test]
fn no_lint_against_many_arguments_is_switched_off() {
    let mut found = Vec::new();
    for measured in MEASURED.iter() {
        if STILL_ALLOWING.contains(&measured.file.as_str()) {
            continue;
        }
        let lines = measured.allowances.iter();
        found.extend(lines.map(|line| format!("{}:{line}", measured.file)));
    }
    assert!(
        found.is_empty(),
        "allow(clippy::too_many_arguments):\n{}",
        found.join("\n")
    );
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for measured in MEASURED.iter() {
        if measured.lines > FILE && !TABLE_FILES.contains(&measured.file.as_str()) {
            long.push(format!("{} has {}", measured.file, measured.lines));
        }
    }
    assert!(
        long.is_empty(),
        "at most {FILE} lines:\n{}",
        long.join("\n")
    );
}
