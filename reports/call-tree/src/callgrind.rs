//! Callgrind's format, which KCachegrind, QCachegrind and callgrind_annotate read.
//!
//! A function has costs of its own, and calls of others with the costs of these calls. Names are written once, with a
//! number in brackets.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::Frame;

/// A text for what is not known, as callgrind's own.
const UNKNOWN: &str = "???";

/// What is known of a function.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Function {
    /// The path of its file of code.
    pub object: String,
    /// Its name and its first line.
    pub frame: Frame,
    /// Its own cost.
    pub own: u64,
    /// The functions that it calls.
    pub calls: Vec<Call>,
}

/// Calls of one function by another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Index of the called function.
    pub callee: usize,
    /// The line from which it is called; 0 if it is not known.
    pub line: u32,
    /// Number of calls.
    pub count: u64,
    /// Cost of all these calls, with what the callee calls.
    pub total: u64,
}

/// A program's functions.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Functions {
    /// The command, for people.
    pub command: String,
    /// Id of the process.
    pub pid: u32,
    /// Name of the cost: one word.
    pub event: &'static str,
    /// The functions.
    pub all: Vec<Function>,
}

/// Names that have a number.
#[derive(Default)]
struct Names<'a>(HashMap<&'a str, usize>);

impl<'a> Names<'a> {
    /// The name as it is after the equals sign.
    fn shown(&mut self, name: &'a str) -> String {
        let known = self.0.len() + 1;
        let shown = if name.is_empty() { UNKNOWN } else { name };
        match self.0.get(name) {
            Some(number) => format!("({number})"),
            None => {
                self.0.insert(name, known);
                format!("({known}) {shown}")
            }
        }
    }
}

impl Functions {
    /// Writes the file.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let whole: u64 = self.all.iter().map(|function| function.own).sum();
        writeln!(
            to,
            "# callgrind format\nversion: 1\ncreator: atom\npid: {}\ncmd: {}\npart: 1\n\n\
             positions: line\nevents: {}\nsummary: {whole}",
            self.pid, self.command, self.event
        )?;
        let (mut objects, mut files) = (Names::default(), Names::default());
        // Functions of one name may be different ones, so a function's number is its own.
        let mut named = vec![false; self.all.len()];
        let mut name = |i: usize| {
            if std::mem::replace(&mut named[i], true) {
                format!("({})", i + 1)
            } else {
                match self.all[i].frame.name.as_str() {
                    "" => format!("({}) {UNKNOWN}", i + 1),
                    name => format!("({}) {name}", i + 1),
                }
            }
        };
        for (i, function) in self.all.iter().enumerate() {
            if function.own == 0 && function.calls.is_empty() {
                continue;
            }
            writeln!(to, "\nob={}", objects.shown(&function.object))?;
            writeln!(to, "fl={}", files.shown(&function.frame.file))?;
            writeln!(to, "fn={}", name(i))?;
            if function.own != 0 {
                writeln!(to, "{} {}", function.frame.line, function.own)?;
            }
            for call in &function.calls {
                let callee = &self.all[call.callee];
                writeln!(to, "cob={}", objects.shown(&callee.object))?;
                writeln!(to, "cfi={}", files.shown(&callee.frame.file))?;
                writeln!(to, "cfn={}", name(call.callee))?;
                writeln!(to, "calls={} {}", call.count, callee.frame.line)?;
                writeln!(to, "{} {}", call.line, call.total)?;
            }
        }
        writeln!(to, "\ntotals: {whole}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_once() {
        let function = |name: &str, own, calls: Vec<Call>| Function {
            object: "/bin/a".into(),
            frame: Frame {
                name: name.into(),
                file: String::new(),
                line: 0,
            },
            own,
            calls,
        };
        let call = Call {
            callee: 1,
            line: 4,
            count: 2,
            total: 20,
        };
        let functions = Functions {
            command: "a -b".into(),
            pid: 7,
            event: "Ir",
            all: vec![
                function("main", 5, vec![call]),
                function("f", 20, Vec::new()),
            ],
        };
        let mut out = Vec::new();
        functions.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, body) = text.split_once("summary: 25\n").unwrap();
        let main = "\nob=(1) /bin/a\nfl=(1) ???\nfn=(1) main\n0 5\ncob=(1)\ncfi=(1)\ncfn=(2) f\ncalls=2 0\n4 20\n";
        assert_eq!(
            body,
            format!("{main}\nob=(1)\nfl=(1)\nfn=(2)\n0 20\n\ntotals: 25\n")
        );
    }
}
