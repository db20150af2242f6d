//! Running the instrument routine of a tool on the objects of a process.

use std::convert::Infallible;

use atom_abi::StrRef;

use super::application::Application;
use super::calls::Calls;
use super::host;
use super::load::Tool;
use super::process::Process;
use super::session::Results;
use super::space::Space;
use crate::{Error, Result};

impl Tool {
    /// Runs the instrument routine on the objects of a process, the program first, with the tool's
    /// arguments. `spaces` is the space of pieces of data that all threads share, and of pieces that each thread has.
    /// `panicked` is called if
    /// the routine panics, and must end the process: the tool has its own standard library,
    /// through which no unwinding goes.
    pub fn instrument(
        &self,
        objects: &[Application<'_>],
        args: &[String],
        spaces: [Space; 2],
        panicked: &dyn Fn(&Error) -> Infallible,
    ) -> Result<Calls> {
        let results = Results::with(spaces);
        let process = Process::new(self, objects, &results, panicked);
        let table = host::table(&process);
        let args: Vec<StrRef> = args.iter().map(|a| StrRef::new(a)).collect();
        let code = (self.header().instrument)(&table, args.len(), args.as_ptr());
        drop(process);
        results.finish(self, code)
    }
}
