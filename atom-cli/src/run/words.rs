//! A tool and its options on a command line. All words after the tool are its own: tools have options whose names are
//! those of a run, too.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::source;

/// The tool, and its options after it.
#[derive(Args, Clone)]
pub struct ToolWords {
    /// The tool: its name (`atom tools` lists them), the path of a shared object built with atom-tool, or
    /// its source: mytool.rs, or in C mytool.inst.c mytool.anal.c. All words after it are options of the tool
    #[arg(value_names = ["TOOL", "TOOL-OPTIONS"], required = true, num_args = 1.., trailing_var_arg = true)]
    words: Vec<String>,
}

impl ToolWords {
    /// The tool: its name or path.
    pub fn tool(&self) -> &str {
        &self.words[0]
    }

    /// The options of the tool.
    pub fn options(&self) -> &[String] {
        &self.words[1..]
    }

    /// Takes the further parts of a tool in C off the options.
    pub fn take_parts(&mut self) -> Vec<PathBuf> {
        let is_part = |word: &&String| source::is_part_in_c(Path::new(word));
        if !is_part(&&self.words[0]) {
            return Vec::new();
        }
        let count = self.options().iter().take_while(is_part).count();
        self.words.drain(1..=count).map(PathBuf::from).collect()
    }
}
