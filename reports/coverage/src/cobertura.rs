//! Cobertura's XML, which servers for continuous integration read: packages (folders) of classes (source files).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};

use crate::{Coverage, File};

/// Covered and existing lines and ways of branches.
#[derive(Clone, Copy, Default)]
struct Sums {
    lines: [usize; 2],
    ways: [usize; 2],
}

impl Sums {
    fn of(file: &File) -> Self {
        let (gone, ways) = file.executed_ways();
        Self {
            lines: [file.executed_lines(), file.lines.len()],
            ways: [gone, ways],
        }
    }

    fn add(&mut self, other: Self) {
        for i in 0..2 {
            self.lines[i] += other.lines[i];
            self.ways[i] += other.ways[i];
        }
    }

    /// The attributes of the shares, between 0 and 1.
    fn rates(&self) -> String {
        format!(
            "line-rate=\"{}\" branch-rate=\"{}\"",
            rate(self.lines),
            rate(self.ways)
        )
    }
}

/// The source files of a folder.
#[derive(Default)]
struct Package<'a> {
    sums: Sums,
    files: Vec<(&'a str, &'a File)>,
}

fn rate([some, all]: [usize; 2]) -> String {
    format!("{:.4}", some as f64 / all.max(1) as f64)
}

/// A text as the value of an attribute or as content.
fn escaped(text: impl Display) -> String {
    let mut safe = String::new();
    for c in text.to_string().chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(' '),
            c => safe.push(c),
        }
    }
    safe
}

impl Coverage {
    /// Writes the source files in Cobertura's format. `time` is the time of the run.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_cobertura(&self, to: &mut dyn Write, time: &str) -> io::Result<()> {
        let mut packages: BTreeMap<&str, Package<'_>> = BTreeMap::new();
        let mut all = Sums::default();
        for (path, file) in &self.files {
            let (folder, _) = path.rsplit_once('/').unwrap_or((".", ""));
            let package = packages.entry(folder).or_default();
            package.sums.add(Sums::of(file));
            package.files.push((path, file));
            all.add(Sums::of(file));
        }
        writeln!(to, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        let dtd = "http://cobertura.sourceforge.net/xml/coverage-04.dtd";
        writeln!(to, "<!DOCTYPE coverage SYSTEM \"{dtd}\">")?;
        let ([lines, valid], [ways, valid_ways]) = (all.lines, all.ways);
        writeln!(
            to,
            "<coverage {} lines-covered=\"{lines}\" lines-valid=\"{valid}\" branches-covered=\"{ways}\" \
             branches-valid=\"{valid_ways}\" complexity=\"0\" version=\"atom\" timestamp=\"{}\">",
            all.rates(),
            escaped(time)
        )?;
        writeln!(to, "<sources><source>/</source></sources>\n<packages>")?;
        for (folder, Package { sums, files }) in packages {
            let (name, rates) = (escaped(folder), sums.rates());
            writeln!(
                to,
                "<package name=\"{name}\" {rates} complexity=\"0\">\n<classes>"
            )?;
            for (path, file) in files {
                self.write_class(to, path, file)?;
            }
            writeln!(to, "</classes>\n</package>")?;
        }
        writeln!(to, "</packages>\n</coverage>")
    }

    fn write_class(&self, to: &mut dyn Write, path: &str, file: &File) -> io::Result<()> {
        let name = path.rsplit('/').next().unwrap_or(path);
        // Names of files are relative to the source folder, which is the root.
        let in_root = path.strip_prefix('/').unwrap_or(path);
        writeln!(
            to,
            "<class name=\"{}\" filename=\"{}\" {} complexity=\"0\">\n<methods>",
            escaped(name),
            escaped(in_root),
            Sums::of(file).rates()
        )?;
        for function in file.functions(self) {
            let rate = u32::from(function.entries != 0);
            writeln!(
                to,
                "<method name=\"{}\" signature=\"\" line-rate=\"{rate}\" branch-rate=\"{rate}\" complexity=\"0\"><lines>\
             <line number=\"{}\" hits=\"{}\"/></lines></method>",
                escaped(&function.name),
                function.line,
                function.entries
            )?;
        }
        writeln!(to, "</methods>\n<lines>")?;
        let branches = file.branches();
        for (line, count) in &file.lines {
            write!(to, "<line number=\"{line}\" hits=\"{count}\"")?;
            match branches.get(line) {
                Some(branches) => write_conditions(to, branches)?,
                None => writeln!(to, "/>")?,
            }
        }
        writeln!(to, "</lines>\n</class>")
    }
}

/// Completes the element of a line with its branches: the share of their ways that were gone, and each branch's.
fn write_conditions(to: &mut dyn Write, branches: &[[u64; 2]]) -> io::Result<()> {
    let gone = |ways: &[u64; 2]| ways.iter().filter(|n| **n != 0).count();
    let (some, all) = (branches.iter().map(gone).sum::<usize>(), 2 * branches.len());
    let percent = some * 100 / all.max(1);
    write!(
        to,
        " branch=\"true\" condition-coverage=\"{percent}% ({some}/{all})\">\n<conditions>"
    )?;
    for (number, ways) in branches.iter().enumerate() {
        let percent = gone(ways) * 50;
        write!(
            to,
            "<condition number=\"{number}\" type=\"jump\" coverage=\"{percent}%\"/>"
        )?;
    }
    writeln!(to, "</conditions>\n</line>")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped_and_sums_are_right() {
        let mut text = Vec::new();
        crate::example().write_cobertura(&mut text, "5").unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in [
            "line-rate=\"0.6667\" branch-rate=\"0.5000\" lines-covered=\"2\" lines-valid=\"3\"",
            "<package name=\"/src\"",
            "filename=\"src/a.c\"",
            "<method name=\"b&lt;int&gt;\"",
            "<line number=\"4\" hits=\"10\" branch=\"true\" condition-coverage=\"50% (1/2)\">\n\
             <conditions><condition number=\"0\" type=\"jump\" coverage=\"50%\"/></conditions>\n</line>",
            "<line number=\"5\" hits=\"0\"/>",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
