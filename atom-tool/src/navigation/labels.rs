//! Labels of source functions, and sections of the program's file.

use atom_abi::StrRef;
use atom_abi::query::LabelRecord;

use crate::navigation::program::Program;
use crate::navigation::program::each;

/// A label in a source function, as debug information describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label<'a> {
    /// Its name.
    pub name: &'a str,
    /// Name of the function that contains it, as in the debug information.
    pub function: Option<&'a str>,
    /// Source file.
    pub file: Option<&'a str>,
    /// Line of the label.
    pub line: Option<u32>,
    /// Column of the label.
    pub column: Option<u32>,
    /// Address that the compiler gave the label. In optimised code it is often wrong.
    pub address: Option<u64>,
}

impl<'a> Program<'a> {
    /// The labels of source functions whose names start with `prefix`, by file
    /// and line. A label of an inlined function is listed once.
    pub fn labels(&self, prefix: &str) -> Vec<Label<'a>> {
        let host = self.session.host;
        let mut labels = Vec::new();
        let text = |text: StrRef| Some(self.session.text(text)).filter(|t| !t.is_empty());
        let number = |n: u32| (n != 0).then_some(n);
        each(
            |arg, sink| (host.labels)(host.context, StrRef::new(prefix), arg, sink),
            |label: &LabelRecord| {
                labels.push(Label {
                    name: text(label.name).unwrap_or_default(),
                    function: text(label.function),
                    file: text(label.file),
                    line: number(label.line),
                    column: number(label.column),
                    address: (label.address != 0).then_some(label.address),
                });
            },
        );
        labels
    }

    /// Contents of a section of the program's file; empty if there is none.
    pub fn section(&self, name: &str) -> &'a [u8] {
        let host = self.session.host;
        let bytes = (host.section)(host.context, StrRef::new(name));
        // SAFETY: the host keeps the bytes as long as the instrument routine runs.
        unsafe { std::slice::from_raw_parts(bytes.ptr, bytes.len) }
    }
}
