//! What ran: program, process, machine, time, objects.

use serde::{Deserialize, Serialize};

/// The code that the tool could see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The whole process: the program, its interpreter and its libraries.
    Process,
    /// One file alone.
    #[default]
    #[serde(other)]
    Program,
}

/// The program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path of its original file.
    #[serde(default)]
    pub path: String,
    /// Its arguments, its own name first.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// The process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    #[serde(default)]
    pub pid: u64,
    /// The number of its parent.
    #[serde(default)]
    pub parent: u64,
    /// True in a forked process whose counts contain its parent's until the fork.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inherits: bool,
}

/// The machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the machine.
    #[serde(default)]
    pub name: String,
    /// Version of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// Model of the processor, if it is known.
    #[serde(default)]
    pub processor: Option<String>,
    /// Number of processors that the process may use.
    #[serde(default)]
    pub processors: u64,
}

/// The time of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// The start of the process, in UTC as ISO 8601.
    #[serde(default)]
    pub start: String,
    /// Seconds from the start to the report.
    #[serde(default)]
    pub seconds: f64,
}

/// A file of code in the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Its file name.
    pub name: String,
    /// Path of its original file.
    #[serde(default)]
    pub path: String,
    /// Its build-id in hexadecimal, if it has one.
    #[serde(default)]
    pub build_id: Option<String>,
    /// Its `DT_SONAME`, if it has one.
    #[serde(default)]
    pub soname: Option<String>,
    /// What it is.
    #[serde(default)]
    pub kind: ObjectKind,
    /// True if the tool's calls are in it.
    #[serde(default)]
    pub instrumented: bool,
    /// Number of its procedures that are not understood and were not instrumented.
    #[serde(default)]
    pub opaque_procedures: u64,
}

/// What an object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// The program.
    Program,
    /// The program interpreter: the dynamic loader.
    Interpreter,
    /// A library.
    #[default]
    #[serde(other)]
    Library,
}
