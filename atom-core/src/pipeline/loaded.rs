//! Reading a tool's analysis code. The code does not depend on the program, so one thread reads it
//! while others still look at the program.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread::JoinHandle;

use crate::analysis::{AnalysisImage, Summaries};
use crate::error::Result;
use crate::tool::Tool;

/// A tool that is loaded, and a thread that reads its code.
pub(super) struct Loaded {
    /// The tool.
    pub tool: Tool,
    code: JoinHandle<Result<(AnalysisImage, Summaries)>>,
}

impl Loaded {
    /// Loads the tool in a file and starts the thread that reads its code.
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

    /// The code, and for each routine that is called what it changes. `routines` are their addresses
    /// in the tool's file.
    pub fn code(self, routines: &[u64]) -> Result<(AnalysisImage, Summaries)> {
        let read = self.code.join().unwrap_or_else(|e| resume_unwind(e));
        let (analysis, mut summaries) = read?;
        analysis.check_reachable(routines)?;
        // Summaries of the routines that the tool exports exist already.
        if !routines.iter().all(|r| summaries.contains(*r)) {
            summaries = Summaries::new(&analysis, routines);
        }
        Ok((analysis, summaries))
    }
}
