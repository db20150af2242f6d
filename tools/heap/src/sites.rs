//! Names and lines of call sites.

use atom_tool::paths::TreeNode;
use atom_tool::prelude::*;

/// What is known of procedures and calls.
#[derive(Clone, Copy)]
pub struct Places {
    pub procs: Sites,
    pub calls: Sites,
}

impl Places {
    /// The procedure of a node.
    pub fn proc(&self, node: &TreeNode) -> Option<Site> {
        self.procs.get(node.proc?)
    }

    /// The name of a node's procedure, with its object.
    pub fn name(&self, node: &TreeNode) -> String {
        match self.proc(node) {
            Some(site) => site.proc_of_process().into_owned(),
            None if node.depth == 0 => "(start)".to_owned(),
            None => "(more paths)".to_owned(),
        }
    }

    /// The call that leads to a node.
    pub fn call(&self, node: &TreeNode) -> Option<Site> {
        self.calls.get(node.call?)
    }

    /// Source file and line of the call that leads to a node.
    pub fn line(&self, node: &TreeNode) -> Option<(&'static str, u32)> {
        let call = self.call(node).filter(|call| call.line != 0)?;
        Some((call.file, call.line))
    }
}
