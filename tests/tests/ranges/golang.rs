//! Blocks of Go's heap as ranges, by the function that allocates and by the line.

use atom_tests::check::Case;
use atom_tests::source::{Source, Variant};
use serde_json::Value;

use super::{folder, measure};

/// Number of trees that the program makes, and the number of nodes of each.
const TREES: u64 = 51;
const NODES: u64 = (1 << 10) - 1;
const LEAVES: u64 = 1 << 9;
/// Number of elements of the table.
const ELEMENTS: u64 = 1000;

/// The rows of a table for a range, and for a procedure if one is given.
fn row<'a>(json: &'a Value, table: &str, range: &str, proc: Option<&str>) -> &'a Value {
    let rows = json[table].as_array().unwrap();
    let is_it =
        |row: &&Value| row["range"] == range && proc.is_none_or(|proc| row["procedure"] == proc);
    rows.iter()
        .find(is_it)
        .unwrap_or_else(|| panic!("{table}: {range} {proc:?}"))
}

#[test]
fn blocks_of_go() {
    let source = Source::named("goheap.go").unwrap();
    let variant = Variant("go-strip".into());
    let case = Case::build(&source, &variant).unwrap();
    let leaf = 1 + source_line("return &node{value: 1}");
    let line = format!("line=heap:at=goheap.go:{leaf}");
    let words = [
        "nodes=heap:proc=main.tree",
        "table=heap:proc=main.table",
        "large=heap:size=8000..8100",
        &line,
    ];
    let out = folder("go").join("goheap");
    let json = measure(&case.original(), &out, &words, &[]);
    let times = |range| {
        row(&json, "data_ranges", range, None)["times"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(times("nodes"), TREES * NODES);
    assert_eq!(times("line"), TREES * LEAVES);
    assert_eq!(times("table"), 1);
    assert!(times("large") >= 1);
    // The first tree is read once, the table three times: the collector may read them, too.
    let accesses = |range, proc| {
        let row = row(&json, "procedures", range, Some(proc));
        [
            row["loads"].as_u64().unwrap(),
            row["stores"].as_u64().unwrap(),
        ]
    };
    assert_eq!(accesses("nodes", "main.(*node).sum"), [3 * NODES, 0]);
    assert_eq!(accesses("line", "main.(*node).sum"), [3 * LEAVES, 0]);
    assert_eq!(accesses("table", "main.main"), [3 * ELEMENTS, ELEMENTS]);
}

/// Index of the first line of the program that has a text.
fn source_line(text: &str) -> usize {
    let source = include_str!("../../sources/goheap.go");
    source.lines().position(|line| line.contains(text)).unwrap()
}
