//! Reading a tool's analysis code: it is the same whatever the program is, so that one thread
//! reads it while the program is still being understood.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread::JoinHandle;

use atom_core::Result;
use atom_core::analysis::{AnalysisImage, Summaries};
use atom_core::tool::Tool;

/// A tool that is loaded and whose code is being read.
pub struct Loaded {
    /// The tool.
    pub tool: Tool,
    code: JoinHandle<Result<(AnalysisImage, Summaries)>>,
}

impl Loaded {
    /// Loads the tool in a file and begins to read its code.
    pub fn new(file: &Path) -> Result<Self> {
        let tool = Tool::load(file)?;
        let (file, facts) = (file.to_path_buf(), tool.facts());
        let code = std::thread::spawn(move || {
            let analysis = AnalysisImage::read(&file, facts)?;
            let summaries = Summaries::new(&analysis, &[]);
            Ok((analysis, summaries))
        });
        Ok(Self { tool, code })
    }

    /// The code, and what the routines that are called change.
    pub fn code(self, routines: &[u64]) -> Result<(AnalysisImage, Summaries)> {
        let read = self.code.join().unwrap_or_else(|e| resume_unwind(e));
        let (analysis, mut summaries) = read?;
        analysis.check_reachable(routines)?;
        // Those that the tool exports are known.
        if !routines.iter().all(|r| summaries.contains(*r)) {
            summaries = Summaries::new(&analysis, routines);
        }
        Ok((analysis, summaries))
    }
}
