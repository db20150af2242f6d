//! Prints the lines of code of each crate, without tests, comments and blank lines; with `--files` those of each file.

use std::collections::BTreeMap;

use house::in_workspace;
use house::lines::code_lines;

fn main() {
    let lines = code_lines(&in_workspace(""));
    let by_file = std::env::args().any(|a| a == "--files");
    let mut sums = BTreeMap::new();
    for (file, number) in &lines {
        let (part, _) = file.split_once("/src/").unwrap_or((file, ""));
        *sums.entry(if by_file { file } else { part }).or_insert(0) += number;
    }
    for (part, number) in sums {
        println!("{number:7} {part}");
    }
    println!("{:7} in all", lines.values().sum::<usize>());
}
