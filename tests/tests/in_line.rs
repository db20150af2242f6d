//! The contract with the compiler: routines of the shipped tools are written so that rustc's machine code for
//! them can be placed in line. Another compiler, another profile, or a small change of a routine may end that
//! without a wrong count, and the tool then takes many times the time.
//!
//! Each row has a tool with its options, the largest share of its calls that may be made by a call instruction,
//! and the largest number of bytes that the new text may grow by for each call. The program is Debian's bzip2;
//! the limits are what rustc 1.95 gave, and a tenth more for the bytes.

use std::process::Command;

use atom_tests::atom;

/// Words for the tool, percent of the calls, bytes for each call.
const ROWS: [(&str, f64, f64); 21] = [
    ("bbv --interval 1000000 --output", 1.0, 73.0),
    ("branch --output", 1.0, 21.0),
    ("branch --edges --output", 1.0, 10.5),
    ("cache --preset atom --output", 2.0, 82.0),
    ("cache --preset l1 --l2 1m,16,64 --output", 2.0, 57.0),
    ("cache --preset atom --icache --output", 2.0, 63.0),
    ("calltree --output", 1.0, 60.0),
    (
        "counters --events exact:instructions,model:L1-misses --output",
        5.0,
        49.0,
    ),
    ("cover --output", 1.0, 13.5),
    ("cover --counts --output", 1.0, 10.6),
    ("dtb --output", 2.0, 58.0),
    ("heap --output", 1.0, 133.0),
    ("icount --output", 1.0, 10.5),
    ("inline --output", 1.0, 21.0),
    ("memtrace --output", 4.0, 194.0),
    ("memtrace --instructions --output", 3.0, 165.0),
    ("mix --trips --output", 1.0, 18.6),
    ("predict --output", 4.0, 172.0),
    ("prof --output", 1.0, 19.7),
    ("ranges --data heap --output", 3.0, 199.0),
    ("reuse --output", 21.0, 172.0),
];

/// The share of the calls that call instructions make in percent, and the growth of the text in bytes for each call.
fn measured(words: &str) -> (f64, f64) {
    let folder = atom_tests::cache::folder("in_line");
    let mut words = words.split_whitespace();
    let report = folder.join("report");
    let made = Command::new(atom::command().unwrap())
        .args(["/usr/bin/bzip2", "--tool", words.next().unwrap(), "-o"])
        .arg(folder.join("output"))
        .arg("--report")
        .arg(&report)
        .arg("--")
        .args(words)
        .arg("/dev/null")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let report = std::fs::read(report).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let number = |part: &str, name: &str| report[part][name].as_f64().unwrap();
    let added = number("calls", "added");
    let grown = number("text_bytes", "out") - number("text_bytes", "in");
    (100.0 * number("calls", "called") / added, grown / added)
}

#[test]
fn routines_of_shipped_tools_stay_in_line() {
    let mut worse = String::new();
    for (words, most_called, most_bytes) in ROWS {
        let (called, bytes) = measured(words);
        if called > most_called || bytes > most_bytes {
            worse += &format!(
                "{words}: {called:.1} % called for {most_called}, {bytes:.1} bytes for {most_bytes}\n"
            );
        }
    }
    let advice = "an incremental build divides routines: build the tools with CARGO_INCREMENTAL=0";
    assert!(worse.is_empty(), "{worse}{advice}");
}
