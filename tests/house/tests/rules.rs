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
const TABLES: &[(&str, &str)] = &[
    // Random instructions: a branch for each kind.
    ("atom-core/src/plan/tests/routine.rs", "Writer::step"),
];

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for measured in MEASURED.iter() {
        for f in &measured.functions {
            let key = (measured.file.as_str(), f.name.as_str());
            if f.length > FUNCTION && !TABLES.contains(&key) {
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
            if f.parameters > PARAMETERS && !f.is_fixed {
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
