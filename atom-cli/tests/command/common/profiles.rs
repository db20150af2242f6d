//! Profiles written by hand, of a small program that is compiled for the test.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::Folder;

/// `round` has a loop; `twice` calls it.
const SOURCE: &str = "\
__attribute__((noipa)) long round(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++)
        sum += i ^ n;
    return sum;
}
__attribute__((noipa)) long twice(long n) { return 2 * round(n) + 1; }
int main(void) { return twice(100) & 1 ? 0 : 1; }
";

/// A compiled program and its symbols.
pub struct Sample {
    path: String,
    symbols: BTreeMap<String, (u64, u64)>,
    /// Blocks of `round` as `atom show` has them: address, bytes, instructions.
    blocks: BTreeMap<String, Vec<(u64, u64, u64)>>,
}

impl Sample {
    /// Compiles the program in a folder.
    pub fn new(folder: &Folder) -> Self {
        folder.write("app.c", SOURCE);
        let compiled = Command::new("gcc")
            .current_dir(folder.path())
            .args(["-g", "-O1", "-fno-builtin", "app.c", "-o", "app"])
            .status();
        assert!(compiled.expect("gcc runs").success());
        let mut symbols = BTreeMap::new();
        let mut blocks = BTreeMap::new();
        for name in ["round", "twice", "main"] {
            let text = folder.atom_ok(&["show", "app", "--proc", name, "--json"]);
            let shown: Value = serde_json::from_str(&text).unwrap();
            let hex = |v: &Value| u64::from_str_radix(&v.as_str().unwrap()[2..], 16).unwrap();
            let proc = &shown[0];
            symbols.insert(
                name.to_owned(),
                (hex(&proc["address"]), proc["size"].as_u64().unwrap()),
            );
            let list = proc["blocks"].as_array().unwrap().iter().map(|block| {
                let insts = block["instructions"].as_array().unwrap();
                let bytes: usize = insts
                    .iter()
                    .map(|i| i["bytes"].as_str().unwrap().len() / 2)
                    .sum();
                (hex(&block["address"]), bytes as u64, insts.len() as u64)
            });
            blocks.insert(name.to_owned(), list.collect());
        }
        let path = folder.join("app").display().to_string();
        Self {
            path,
            symbols,
            blocks,
        }
    }

    /// Address of a procedure in hexadecimal.
    pub fn address(&self, name: &str) -> String {
        format!("{:x}", self.symbols[name].0)
    }

    /// Address of a procedure.
    pub fn start(&self, name: &str) -> u64 {
        self.symbols[name].0
    }

    fn profile(&self, tool: &str, strings: &[&str], facts: Value, tables: Value) -> Value {
        json!({
            "format": "atom-profile", "version": 1, "atom": "0.1.0", "tool": tool, "options": [], "scope": "program",
            "program": {"path": self.path, "arguments": ["./app"]}, "process": {"pid": 7, "parent": 1},
            "host": {"name": "h", "kernel": "6.1", "processor": null, "processors": 2},
            "time": {"start": "2026-11-22T22:41:58.123Z", "seconds": 0.25},
            "objects": [{"name": "app", "path": self.path, "build_id": null, "soname": null, "kind": "program",
                "instrumented": true, "opaque_procedures": 0}],
            "strings": strings, "facts": facts, "tables": tables,
        })
    }

    /// Executions of the blocks: `round` is called 10 times and its loop goes round 100 times each.
    fn executions(&self, name: &str) -> Vec<u64> {
        let n = self.blocks[name].len();
        match name {
            // Test of n, before the loop, loop, end, and the end for n of 0.
            "round" => {
                let loops: Vec<u64> = (0..n).map(|i| [10, 10, 1000, 10, 0][i.min(4)]).collect();
                loops
            }
            "twice" => vec![10; n],
            _ => vec![1; n],
        }
    }

    /// Sum of a procedure's instructions.
    fn sum(&self, name: &str) -> u64 {
        let blocks = self.blocks[name].iter().zip(self.executions(name));
        blocks.map(|(block, n)| block.2 * n).sum()
    }

    /// A profile of icount, with a fourth procedure of any name.
    pub fn blocks(&self, other: &str) -> Value {
        let names = ["main", "twice", "round"];
        let mut counts: Vec<u64> = names.iter().map(|n| self.sum(n)).collect();
        counts.push(1);
        let mut pcs: Vec<u64> = names.iter().map(|n| self.start(n)).collect();
        pcs.push(1);
        let mut columns: [Vec<u64>; 4] = Default::default();
        for name in names {
            for ((pc, bytes, insts), n) in self.blocks[name].iter().zip(self.executions(name)) {
                for (column, value) in columns.iter_mut().zip([*pc, *bytes, *insts, n * insts]) {
                    column.push(value);
                }
            }
        }
        let [pc, bytes, insts, count] = columns;
        let measure = |name: &str, unit: &str, values: &[u64]| json!({"name": name, "type": "count", "unit": unit, "role": "measure", "sum": "add", "values": values});
        let label = |name: &str, values: &[u64]| json!({"name": name, "type": "count", "role": "label", "values": values});
        let rows = pc.len();
        let tables = json!([
            {"name": "procedures", "by": "procedure", "rows": 4, "readers": "all", "columns": [
                measure("count", "instructions", &counts),
                {"name": "%", "type": "percent", "role": "derived", "part": "count", "whole": null},
                {"name": "pc", "type": "address", "role": "key", "values": pcs},
                {"name": "procedure", "type": "text", "role": "label", "values": [0, 1, 2, 3]},
            ]},
            {"name": "blocks", "by": "block", "rows": rows, "readers": "programs", "columns": [
                {"name": "pc", "type": "address", "role": "key", "values": pc},
                label("bytes", &bytes), label("insts", &insts),
                measure("count", "instructions", &count),
            ]},
        ]);
        let facts = json!([{"name": "instructions", "type": "count", "unit": "instructions", "sum": "add", "value": 1_234_567}]);
        self.profile("icount", &["main", "twice", "round", other], facts, tables)
    }

    /// The name of the fourth procedure.
    pub fn hostile(&self, profile: &Value) -> String {
        profile["strings"][3].as_str().unwrap().to_owned()
    }

    /// The counts of the table by procedure as people see them, largest first.
    pub fn counts(&self, profile: &Value) -> Vec<String> {
        let values = &profile["tables"][0]["columns"][0]["values"];
        let mut values: Vec<u64> = serde_json::from_value(values.clone()).unwrap();
        values.sort_by(|a, b| b.cmp(a));
        values
            .iter()
            .map(|n| match n / 1000 {
                0 => n.to_string(),
                thousands => format!("{thousands},{:03}", n % 1000),
            })
            .collect()
    }

    /// A profile of prof.
    pub fn arcs(&self) -> Value {
        let [main, twice, round] = ["main", "twice", "round"].map(|n| self.start(n));
        let count = |name: &str, values: Value| json!({"name": name, "type": "count", "role": "measure", "sum": "add", "values": values});
        let tables = json!([
            {"name": "procedures", "by": "procedure", "rows": 3, "readers": "all", "columns": [
                count("entries", json!([1, 10, 100])),
                {"name": "pc", "type": "address", "role": "key", "values": [main, twice, round]},
                {"name": "procedure", "type": "text", "role": "label", "values": [0, 1, 2]},
            ]},
            {"name": "arcs", "by": "arc", "rows": 5, "readers": "programs", "columns": [
                count("calls", json!([1, 10, 30, 10, 60])),
                {"name": "caller", "type": "text", "role": "label", "values": [3, 0, 1, 0, 2]},
                {"name": "caller pc", "type": "address", "role": "key", "values": [null, main, twice, main, round]},
                {"name": "callee", "type": "text", "role": "label", "values": [0, 1, 2, 2, 2]},
                {"name": "callee pc", "type": "address", "role": "key", "values": [main, twice, round, round, round]},
            ]},
        ]);
        self.profile(
            "prof",
            &["main", "twice", "round", "(outside)"],
            json!([]),
            tables,
        )
    }

    /// A profile of branch with many rows: row n was taken n times and not taken 100,000 - n times.
    pub fn branches(&self, rows: u64) -> Value {
        let names: Vec<String> = (0..rows).map(|n| format!("proc_{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let column = |name: &str, of: &dyn Fn(u64) -> u64| {
            let values: Vec<u64> = (0..rows).map(of).collect();
            json!({"name": name, "type": "count", "role": "measure", "sum": "add", "values": values})
        };
        let all: Vec<u64> = (0..rows).collect();
        let pcs: Vec<u64> = (0..rows).map(|n| n * 16).collect();
        let tables = json!([{"name": "conditional branches", "by": "branch", "rows": rows, "readers": "all", "columns": [
            column("executed", &|_| rows), column("taken", &|n| n), column("not taken", &|n| rows - n),
            {"name": "taken %", "type": "percent", "role": "derived", "part": "taken", "whole": "executed"},
            {"name": "pc", "type": "address", "role": "key", "values": pcs},
            {"name": "procedure", "type": "text", "role": "label", "values": all},
        ]}]);
        self.profile("branch", &names, json!([]), tables)
    }
}
