//! Callgrind's format, which KCachegrind, QCachegrind and callgrind_annotate read.
//!
//! A function has costs of its own, and calls of others with the costs of these calls. Names are written once, with a
//! number in brackets.

use std::collections::HashMap;
use std::io::{self, Write};

/// A text for what is not known, as callgrind's own.
pub const UNKNOWN: &str = "???";

/// The own costs of a function at a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Its source file, which is another one than the function's if its code was inlined; empty if it is not known.
    pub file: &'a str,
    /// The line; 0 if it is not known.
    pub line: u64,
    /// The cost of each event.
    pub costs: Vec<u64>,
}

/// Calls of one function by another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Index of the called function.
    pub callee: usize,
    /// The line from which it is called; 0 if it is not known.
    pub line: u64,
    /// Number of calls.
    pub count: u64,
    /// Cost of all these calls, with what the callee calls, of the first event. That of others is 0.
    pub total: u64,
}

/// What is known of a function.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Function<'a> {
    /// The path of its file of code.
    pub object: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its source file; empty if it is not known.
    pub file: &'a str,
    /// Its first line; 0 if it is not known.
    pub line: u64,
    /// Its own costs; the lines of a file are side by side.
    pub lines: Vec<Line<'a>>,
    /// The functions that it calls.
    pub calls: Vec<Call>,
}

/// A program's functions.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Functions<'a> {
    /// The command, for people.
    pub command: &'a str,
    /// Id of the process.
    pub pid: u64,
    /// Names of the costs, a word each.
    pub events: &'a [String],
    /// The functions.
    pub all: Vec<Function<'a>>,
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

/// Costs with blanks between them.
fn shown(costs: &[u64]) -> String {
    let costs: Vec<String> = costs.iter().map(u64::to_string).collect();
    costs.join(" ")
}

impl Functions<'_> {
    /// The costs of the whole program.
    fn sums(&self) -> Vec<u64> {
        let mut sums = vec![0u64; self.events.len()];
        for line in self.all.iter().flat_map(|function| &function.lines) {
            for (sum, cost) in sums.iter_mut().zip(&line.costs) {
                *sum = sum.saturating_add(*cost);
            }
        }
        sums
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The writer's.
    pub fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let whole = shown(&self.sums());
        writeln!(
            to,
            "# callgrind format\nversion: 1\ncreator: atom\npid: {}\ncmd: {}\npart: 1\n\n\
             positions: line\nevents: {}\nsummary: {whole}",
            self.pid,
            self.command.replace(char::is_control, " "),
            self.events.join(" ")
        )?;
        let (mut objects, mut files) = (Names::default(), Names::default());
        // Functions of one name may be different ones, so a function's number is its own.
        let mut named = vec![false; self.all.len()];
        let mut name = |i: usize| {
            if std::mem::replace(&mut named[i], true) {
                format!("({})", i + 1)
            } else {
                match self.all[i].name {
                    "" => format!("({}) {UNKNOWN}", i + 1),
                    name => format!("({}) {name}", i + 1),
                }
            }
        };
        let zeros = " 0".repeat(self.events.len().saturating_sub(1));
        for (i, function) in self.all.iter().enumerate() {
            if function.lines.is_empty() && function.calls.is_empty() {
                continue;
            }
            writeln!(to, "\nob={}", objects.shown(function.object))?;
            writeln!(to, "fl={}", files.shown(function.file))?;
            writeln!(to, "fn={}", name(i))?;
            for lines in function.lines.chunk_by(|a, b| a.file == b.file) {
                let file = lines[0].file;
                if file != function.file {
                    writeln!(to, "fi={}", files.shown(file))?;
                }
                for line in lines {
                    writeln!(to, "{} {}", line.line, shown(&line.costs))?;
                }
                if file != function.file {
                    writeln!(to, "fe={}", files.shown(function.file))?;
                }
            }
            for call in &function.calls {
                let callee = &self.all[call.callee];
                writeln!(to, "cob={}", objects.shown(callee.object))?;
                writeln!(to, "cfi={}", files.shown(callee.file))?;
                writeln!(to, "cfn={}", name(call.callee))?;
                writeln!(to, "calls={} {}", call.count, callee.line)?;
                writeln!(to, "{} {}{zeros}", call.line, call.total)?;
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
        let line = |file, line, cost| Line {
            file,
            line,
            costs: vec![cost, 1],
        };
        let call = Call {
            callee: 1,
            line: 4,
            count: 2,
            total: 20,
        };
        let main = Function {
            object: "/bin/a",
            name: "main",
            file: "a.c",
            line: 3,
            lines: vec![line("a.c", 3, 2), line("a.h", 1, 3)],
            calls: vec![call],
        };
        let f = Function {
            object: "/bin/a",
            name: "f",
            lines: vec![line("", 0, 20)],
            ..Function::default()
        };
        let functions = Functions {
            command: "a\n-b",
            pid: 7,
            events: &["Ir".into(), "Br".into()],
            all: vec![main, f],
        };
        let mut out = Vec::new();
        functions.write(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("summary: 25 3\n").unwrap();
        assert!(head.contains("\ncmd: a -b\n") && head.contains("\nevents: Ir Br\n"));
        let main = "\nob=(1) /bin/a\nfl=(1) a.c\nfn=(1) main\n3 2 1\nfi=(2) a.h\n1 3 1\nfe=(1)\n\
                    cob=(1)\ncfi=(3) ???\ncfn=(2) f\ncalls=2 0\n4 20 0\n";
        assert_eq!(
            body,
            format!("{main}\nob=(1)\nfl=(3)\nfn=(2)\n0 20 1\n\ntotals: 25 3\n")
        );
    }
}
