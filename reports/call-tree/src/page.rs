//! The page of a tree: a flame graph for each measure.

use std::io::{self, Write};

use page::{FLAME, Page};
use serde_json::{Value, json};

use crate::CallTree;

/// Part of the whole that a node must have of some measure to be in the page: one of this many parts.
const SMALLEST: u64 = 5000;

const BODY: &str = include_str!("../page/tree.html");
const SCRIPT: &str = include_str!("../page/tree.js");

impl CallTree {
    /// Writes a page with flame graphs. `facts` are above them.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_page(&self, facts: &str, to: &mut dyn Write) -> io::Result<()> {
        let measures = self.measures.iter();
        let measures: Vec<Value> = measures
            .map(|m| json!({ "name": m.name, "bytes": m.is_bytes }))
            .collect();
        let data = json!({
            "title": self.title,
            "facts": facts,
            "measures": measures,
            "names": self.frames.iter().map(|f| &f.name).collect::<Vec<_>>(),
            "places": self.frames.iter().map(|f| match f.line {
                0 => f.file.clone(),
                line => format!("{}:{line}", f.file),
            }).collect::<Vec<_>>(),
            "nodes": self.rows(),
        });
        let page = Page {
            title: &self.title,
            styles: &[],
            body: BODY,
            data: &[("tree", data.to_string())],
            scripts: &[FLAME, SCRIPT],
        };
        page.write(to)
    }

    /// `[row of the node around or -1, frame, note, totals]` of each node that can be seen.
    fn rows(&self) -> Vec<Value> {
        let totals: Vec<Vec<u64>> = (0..self.measures.len()).map(|m| self.totals(m)).collect();
        let outer = |i: &usize| self.nodes[*i].parent.is_none();
        let whole = |of: &Vec<u64>| -> u64 {
            let outer = (0..self.nodes.len()).filter(outer);
            outer.map(|i| of[i]).sum()
        };
        let wholes: Vec<u64> = totals.iter().map(whole).collect();
        let mut row = vec![None; self.nodes.len()];
        let mut rows = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let around = node.parent.map(|p| row[p]);
            let is_large = |(of, whole): (&Vec<u64>, &u64)| {
                of[i] != 0 && of[i].saturating_mul(SMALLEST) >= *whole
            };
            if around != Some(None) && totals.iter().zip(&wholes).any(is_large) {
                row[i] = Some(rows.len());
                let around = around.flatten().map_or(json!(-1), Value::from);
                let values: Vec<u64> = totals.iter().map(|of| of[i]).collect();
                rows.push(json!([around, node.frame, node.note, values]));
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_page_has_the_nodes() {
        let mut out = Vec::new();
        crate::example()
            .write_page("13 instructions", &mut out)
            .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("[[-1,0,\"\",[13]],[0,1,\"\",[7]],[1,2,\"\",[7]],[0,2,\"\",[1]]]"));
        assert!(text.contains("class Flame"));
    }
}
